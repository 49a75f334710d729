#include "key/keyfile.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/secret.h"

/* Longest content that is written: eight short fields around a phrase. */
#define FORMAT_SIZE 1024

enum keyfile_encryption keyfile_encryption(const char *content, size_t length)
{
	static const struct {
		const char *prefix;
		enum keyfile_encryption encryption;
	} known[] = {
		{"$NACL", KEYFILE_NACL},
		{"$ANSIBLE_VAULT", KEYFILE_ANSIBLE},
		{"gAAAAA", KEYFILE_FERNET},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		size_t prefix_length = strlen(known[i].prefix);

		if (length >= prefix_length && !memcmp(content, known[i].prefix, prefix_length))
			return known[i].encryption;
	}
	return KEYFILE_PLAIN;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* What a key file says. Strings belong to the document; NULL for what it lacks. */
struct fields {
	const char *phrase, *seed, *private_key;
	const char *address, *public_key_hex, *account_id;
	enum crypto_type type;
	uint8_t public_key[PUBLIC_KEY_LENGTH]; /* the key that the file says it holds */
};

/* Takes one of the fields that name the public key; all that are there have to agree. */
static int agree(struct fields *fields, const char *name, const char *hex, bool *known, struct error *err)
{
	uint8_t key[PUBLIC_KEY_LENGTH];

	if (!hex)
		return 0;
	if (hex_decode(hex, key, sizeof(key)) < 0)
		return error_set(err, STATUS_ENVIRONMENT, "its %s is not 64 hex digits", name);
	if (*known && memcmp(key, fields->public_key, sizeof(key)))
		return error_set(err, STATUS_ENVIRONMENT, "its %s belongs to another key", name);
	memcpy(fields->public_key, key, sizeof(key));
	*known = true;
	return 0;
}

static int read_public_key(struct fields *fields, struct error *err)
{
	bool known = fields->address != NULL;

	if (fields->address && ss58_decode(fields->address, fields->public_key, err) < 0)
		return -1;
	if (agree(fields, "publicKey", fields->public_key_hex, &known, err) < 0 ||
		agree(fields, "accountId", fields->account_id, &known, err) < 0)
		return -1;
	if (!known)
		return error_set(err, STATUS_ENVIRONMENT, "it has neither ss58Address nor publicKey");
	return 0;
}

static int read_fields(const cJSON *document, struct fields *fields, struct error *err)
{
	int64_t type = CRYPTO_SR25519;

	*fields = (struct fields){0};
	if (!cJSON_IsObject(document))
		return error_set(err, STATUS_ENVIRONMENT, "it is not a JSON object");
	if (json_string(document, "secretPhrase", JSON_OPTIONAL, &fields->phrase, err) < 0 ||
		json_string(document, "secretSeed", JSON_OPTIONAL, &fields->seed, err) < 0 ||
		json_string(document, "privateKey", JSON_OPTIONAL, &fields->private_key, err) < 0 ||
		json_string(document, "ss58Address", JSON_OPTIONAL, &fields->address, err) < 0 ||
		json_string(document, "publicKey", JSON_OPTIONAL, &fields->public_key_hex, err) < 0 ||
		json_string(document, "accountId", JSON_OPTIONAL, &fields->account_id, err) < 0 ||
		json_integer(document, "cryptoType", JSON_OPTIONAL, &type, err) < 0)
		return -1;
	if (type != CRYPTO_SR25519 && type != CRYPTO_ED25519)
		return error_set(err, STATUS_ENVIRONMENT,
			"its cryptoType is %lld, neither 1 (sr25519) nor 0 (ed25519)", (long long)type);
	fields->type = (enum crypto_type)type;
	return read_public_key(fields, err);
}

static struct keypair *from_seed(const struct fields *fields, struct error *err)
{
	uint8_t seed[SEED_LENGTH];
	struct keypair *keypair = NULL;

	if (hex_decode(fields->seed, seed, sizeof(seed)) < 0)
		error_set(err, STATUS_ENVIRONMENT, "its secretSeed is not 64 hex digits");
	else
		keypair = keypair_from_seed(fields->type, seed, err);
	sodium_memzero(seed, sizeof(seed));
	return keypair;
}

static struct keypair *from_private_key(const struct fields *fields, struct error *err)
{
	size_t length = fields->type == CRYPTO_SR25519 ? PRIVATE_KEY_MAX : SEED_LENGTH;
	uint8_t key[PRIVATE_KEY_MAX];
	struct keypair *keypair = NULL;

	if (hex_decode(fields->private_key, key, length) < 0)
		error_set(err, STATUS_ENVIRONMENT, "its privateKey is not %zu hex digits", 2 * length);
	else
		keypair = keypair_from_private_key(fields->type, key, length, fields->public_key, err);
	sodium_memzero(key, sizeof(key));
	return keypair;
}

static struct keypair *from_phrase(const struct fields *fields, struct error *err)
{
	return keypair_from_phrase(fields->type, fields->phrase, err);
}

/* bittensor-wallet writes a seed whose 32 bytes happen to be UTF-8 as those characters, not as digits. Such
 * a field cannot contradict the address, and is passed over where another secret is there. */
static bool is_mangled_seed(const struct fields *fields)
{
	return fields->seed && strlen(fields->seed) <= 2 + SEED_LENGTH &&
		(fields->phrase || fields->private_key);
}

/* Makes the keypair from every secret there is; returns the first one when all fit the public key. */
static struct keypair *read_secrets(const struct fields *fields, struct error *err)
{
	const struct {
		const char *name, *value;
		struct keypair *(*make)(const struct fields *, struct error *);
	} secrets[] = {
		{"secretPhrase", fields->phrase, from_phrase},
		{"secretSeed", is_mangled_seed(fields) ? NULL : fields->seed, from_seed},
		{"privateKey", fields->private_key, from_private_key},
	};
	struct keypair *first = NULL, *keypair;

	for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++) {
		if (!secrets[i].value)
			continue;
		keypair = secrets[i].make(fields, err);
		if (!keypair)
			goto failed;
		if (memcmp(keypair_public_key(keypair), fields->public_key, PUBLIC_KEY_LENGTH)) {
			keypair_free(keypair);
			error_set(err, STATUS_ENVIRONMENT, "its %s belongs to another key than its address",
				secrets[i].name);
			goto failed;
		}
		if (first)
			keypair_free(keypair);
		else
			first = keypair;
	}
	if (!first)
		error_set(err, STATUS_ENVIRONMENT,
			"it contains no secret: no privateKey, secretSeed or secretPhrase");
	return first;
failed:
	keypair_free(first);
	return NULL;
}

/* cJSON's copies of the secrets: short-lived, but not to be left behind. */
static void wipe_strings(cJSON *item)
{
	for (; item; item = item->next) {
		if (item->valuestring)
			sodium_memzero(item->valuestring, strlen(item->valuestring));
		wipe_strings(item->child);
	}
}

static void free_document(cJSON *document)
{
	wipe_strings(document);
	cJSON_Delete(document);
}

struct keypair *keyfile_parse(const char *json, size_t length, struct error *err)
{
	cJSON *document = json_parse(json, length, err);
	struct keypair *keypair = NULL;
	struct fields fields;

	if (document && read_fields(document, &fields, err) == 0)
		keypair = read_secrets(&fields, err);
	free_document(document);
	if (!keypair)
		err->status = STATUS_ENVIRONMENT;
	return keypair;
}

int keyfile_parse_public(
	const char *json, size_t length, enum crypto_type *type, char address[SS58_SIZE], struct error *err)
{
	cJSON *document = json_parse(json, length, err);
	struct fields fields;
	int result = -1;

	if (document)
		result = read_fields(document, &fields, err);
	if (!result) {
		*type = fields.type;
		ss58_encode(fields.public_key, address);
	} else {
		err->status = STATUS_ENVIRONMENT;
	}
	free_document(document);
	return result;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void add_text(char *json, const char *text)
{
	size_t used = strlen(json);

	snprintf(json + used, FORMAT_SIZE - used, "%s", text);
}

/* `"name":"0xHEX",`, straight into locked memory. */
static void add_hex(char *json, const char *name, const uint8_t *bytes, size_t length)
{
	size_t used = strlen(json);

	used += (size_t)snprintf(json + used, FORMAT_SIZE - used, "\"%s\":\"0x", name);
	hex_encode(bytes, length, json + used);
	add_text(json, "\",");
}

/* The fields that name the key, and the end of the object. An sr25519 key, as all hotkeys are, needs no
 * cryptoType: bittensor-wallet 3 and older cannot read a file that has it. */
static void add_public(char *json, const struct keypair *keypair)
{
	size_t used;

	add_hex(json, "accountId", keypair_public_key(keypair), PUBLIC_KEY_LENGTH);
	add_hex(json, "publicKey", keypair_public_key(keypair), PUBLIC_KEY_LENGTH);
	used = strlen(json);
	snprintf(json + used, FORMAT_SIZE - used, "\"ss58Address\":\"%s\"%s}", keypair_address(keypair),
		keypair_type(keypair) == CRYPTO_ED25519 ? ",\"cryptoType\":0" : "");
}

char *keyfile_format_public(const struct keypair *keypair)
{
	char *json = secret_alloc(FORMAT_SIZE);

	add_text(json, "{");
	add_public(json, keypair);
	return json;
}

char *keyfile_format(const struct keypair *keypair)
{
	char *json = secret_alloc(FORMAT_SIZE);
	size_t length;
	const uint8_t *private_key = keypair_private_key(keypair, &length);

	add_text(json, "{");
	add_hex(json, "privateKey", private_key, length);
	if (keypair_phrase(keypair)) {
		add_text(json, "\"secretPhrase\":\"");
		add_text(json, keypair_phrase(keypair));
		add_text(json, "\",");
	}
	if (keypair_seed(keypair))
		add_hex(json, "secretSeed", keypair_seed(keypair), SEED_LENGTH);
	add_public(json, keypair);
	return json;
}

/* --- encryption ------------------------------------------------------------------------------- */

#define NACL_PREFIX "$NACL"
#define NACL_PREFIX_LENGTH 5
#define NACL_HEADER_LENGTH (NACL_PREFIX_LENGTH + crypto_secretbox_NONCEBYTES)

static int derive_key(const char *password, uint8_t key[crypto_secretbox_KEYBYTES], struct error *err)
{
	/* the same for every file of every user: the format leaves no choice */
	static const uint8_t salt[crypto_pwhash_argon2i_SALTBYTES] = {0x13, 0x71, 0x83, 0xdf, 0xf1, 0x5a,
		0x09, 0xbc, 0x9c, 0x90, 0xb5, 0x51, 0x87, 0x39, 0xe9, 0xb1};

	if (crypto_pwhash_argon2i(key, crypto_secretbox_KEYBYTES, password, strlen(password), salt,
		    crypto_pwhash_argon2i_OPSLIMIT_SENSITIVE, crypto_pwhash_argon2i_MEMLIMIT_SENSITIVE,
		    crypto_pwhash_argon2i_ALG_ARGON2I13) < 0)
		return error_set(err, STATUS_ENVIRONMENT,
			"not enough memory: this encryption takes 512 MiB for a few seconds");
	return 0;
}

int keyfile_encrypt(const char *json, const char *password, struct buffer *out, struct error *err)
{
	uint8_t nonce[crypto_secretbox_NONCEBYTES], key[crypto_secretbox_KEYBYTES];
	size_t length = strlen(json);
	uint8_t *box;

	if (derive_key(password, key, err) < 0)
		return -1;
	randombytes_buf(nonce, sizeof(nonce));
	box = xmalloc(length + crypto_secretbox_MACBYTES);
	crypto_secretbox_easy(box, (const uint8_t *)json, length, nonce, key);
	sodium_memzero(key, sizeof(key));
	buffer_append(out, NACL_PREFIX, NACL_PREFIX_LENGTH);
	buffer_append(out, nonce, sizeof(nonce));
	buffer_append(out, box, length + crypto_secretbox_MACBYTES);
	free(box);
	return 0;
}

char *keyfile_decrypt(
	const char *content, size_t length, const char *password, size_t *json_length, struct error *err)
{
	const uint8_t *nonce = (const uint8_t *)content + NACL_PREFIX_LENGTH;
	const uint8_t *box = (const uint8_t *)content + NACL_HEADER_LENGTH;
	size_t box_length = length - NACL_HEADER_LENGTH;
	uint8_t key[crypto_secretbox_KEYBYTES];
	char *json;
	int opened;

	if (length < NACL_HEADER_LENGTH + crypto_secretbox_MACBYTES) {
		error_set(err, STATUS_ENVIRONMENT, "it is cut short: %zu bytes", length);
		return NULL;
	}
	if (derive_key(password, key, err) < 0)
		return NULL;
	*json_length = box_length - crypto_secretbox_MACBYTES;
	json = secret_alloc(*json_length + 1);
	opened = crypto_secretbox_open_easy((uint8_t *)json, box, box_length, nonce, key);
	sodium_memzero(key, sizeof(key));
	if (opened == 0)
		return json;
	sodium_free(json);
	error_set(err, STATUS_ENVIRONMENT, "the password is wrong, or the file is damaged");
	return NULL;
}
