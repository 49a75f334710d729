#include "key/keypair.h"

#include <ctype.h>
#include <sodium.h>
#include <string.h>

#include "base/hex.h"
#include "base/secret.h"
#include "key/mnemonic.h"
#include "key/junction.h"
#include "key/sr25519.h"
#include "key/ss58.h"

_Static_assert(sizeof(struct sr25519_secret) == PRIVATE_KEY_MAX, "an sr25519 key is stored as it stands");

struct keypair {
	enum crypto_type type;
	union {
		struct sr25519_secret sr25519;
		uint8_t ed25519[64]; /* seed, then public key, as libsodium has it */
	} secret;
	uint8_t public_key[PUBLIC_KEY_LENGTH];
	char address[SS58_SIZE];
	bool has_seed;
	uint8_t seed[SEED_LENGTH];
	char phrase[MNEMONIC_SIZE]; /* empty when there is none */
};

static struct keypair *allocate(enum crypto_type type)
{
	struct keypair *keypair = secret_alloc(sizeof(*keypair));

	keypair->type = type;
	return keypair;
}

/* What follows from the secret: the public key. */
static int complete(struct keypair *keypair, struct error *err)
{
	uint8_t seed[SEED_LENGTH];

	if (keypair->type == CRYPTO_SR25519) {
		if (sr25519_public(&keypair->secret.sr25519, keypair->public_key) < 0)
			return error_set(err, STATUS_USAGE, "the private key's scalar is zero or too large");
		return 0;
	}
	memcpy(seed, keypair->secret.ed25519, sizeof(seed));
	crypto_sign_ed25519_seed_keypair(keypair->public_key, keypair->secret.ed25519, seed);
	sodium_memzero(seed, sizeof(seed));
	return 0;
}

/* The keypair as others get it, unless `result` says that making it failed. */
static struct keypair *finish(struct keypair *keypair, int result)
{
	if (result < 0) {
		sodium_free(keypair);
		return NULL;
	}
	ss58_encode(keypair->public_key, keypair->address);
	sodium_mprotect_readonly(keypair);
	return keypair;
}

void keypair_free(struct keypair *keypair)
{
	sodium_free(keypair);
}

/* --- from a secret ---------------------------------------------------------------------------- */

static int set_mini_secret(struct keypair *keypair, const uint8_t mini_secret[SEED_LENGTH], struct error *err)
{
	if (keypair->type == CRYPTO_SR25519)
		sr25519_expand(mini_secret, &keypair->secret.sr25519);
	else
		memcpy(keypair->secret.ed25519, mini_secret, SEED_LENGTH);
	return complete(keypair, err);
}

static int set_seed(struct keypair *keypair, const uint8_t seed[SEED_LENGTH], struct error *err)
{
	memcpy(keypair->seed, seed, SEED_LENGTH);
	keypair->has_seed = true;
	return set_mini_secret(keypair, seed, err);
}

static int set_phrase(
	struct keypair *keypair, const char *phrase, size_t length, const char *password, struct error *err)
{
	uint8_t entropy[MNEMONIC_ENTROPY_MAX], mini_secret[SEED_LENGTH];
	size_t entropy_length;
	int result;

	if (mnemonic_decode(phrase, length, entropy, &entropy_length, err) < 0)
		return -1;
	mnemonic_encode(entropy, entropy_length, keypair->phrase);
	mnemonic_mini_secret(entropy, entropy_length, password, mini_secret);
	result = set_seed(keypair, mini_secret, err);
	sodium_memzero(entropy, sizeof(entropy));
	sodium_memzero(mini_secret, sizeof(mini_secret));
	return result;
}

/* The scalar as it stands if it is a fitting key, else divided by eight. */
static int set_private_key(
	struct keypair *keypair, const uint8_t *key, const uint8_t *expected, struct error *err)
{
	struct sr25519_secret *secret = &keypair->secret.sr25519, given;
	int result = 0;

	memcpy(&given, key, sizeof(given));
	*secret = given;
	if (sr25519_public(secret, keypair->public_key) < 0 ||
		(expected && memcmp(keypair->public_key, expected, PUBLIC_KEY_LENGTH))) {
		if (sr25519_divide(&given, secret) < 0)
			*secret = given;
		result = complete(keypair, err);
	}
	sodium_memzero(&given, sizeof(given));
	return result;
}

struct keypair *keypair_from_phrase(enum crypto_type type, const char *phrase, struct error *err)
{
	struct keypair *keypair = allocate(type);

	return finish(keypair, set_phrase(keypair, phrase, strlen(phrase), "", err));
}

struct keypair *keypair_from_seed(enum crypto_type type, const uint8_t seed[SEED_LENGTH], struct error *err)
{
	struct keypair *keypair = allocate(type);

	return finish(keypair, set_seed(keypair, seed, err));
}

struct keypair *keypair_from_private_key(enum crypto_type type, const uint8_t *key, size_t length,
	const uint8_t *public_key, struct error *err)
{
	size_t expected_length = type == CRYPTO_SR25519 ? PRIVATE_KEY_MAX : SEED_LENGTH;
	struct keypair *keypair;

	if (length != expected_length) {
		error_set(err, STATUS_USAGE, "the private key has %zu bytes where %s has %zu", length,
			crypto_type_name(type), expected_length);
		return NULL;
	}
	keypair = allocate(type);
	return finish(keypair,
		type == CRYPTO_SR25519 ? set_private_key(keypair, key, public_key, err)
				       : set_mini_secret(keypair, key, err));
}

struct keypair *keypair_generate(enum crypto_type type, int words, struct error *err)
{
	char *phrase = secret_alloc(MNEMONIC_SIZE);
	struct keypair *keypair = NULL;

	if (mnemonic_generate(words, phrase, err) == 0)
		keypair = keypair_from_phrase(type, phrase, err);
	sodium_free(phrase);
	return keypair;
}

/* --- from text -------------------------------------------------------------------------------- */

/* The hard child of an ed25519 seed: BLAKE2b-256 over the SCALE encoding of ("Ed25519HDKD", seed, code). */
static void ed25519_derive_hard(
	const uint8_t seed[SEED_LENGTH], const uint8_t chain_code[32], uint8_t child[SEED_LENGTH])
{
	static const char label[] = "\x2c"
				    "Ed25519HDKD"; /* its length times four first */
	crypto_generichash_state state;

	crypto_generichash_init(&state, NULL, 0, SEED_LENGTH);
	crypto_generichash_update(&state, (const uint8_t *)label, sizeof(label) - 1);
	crypto_generichash_update(&state, seed, SEED_LENGTH);
	crypto_generichash_update(&state, chain_code, 32);
	crypto_generichash_final(&state, child, SEED_LENGTH);
	sodium_memzero(&state, sizeof(state));
}

/* Goes from the key to its child. */
static int derive(struct keypair *keypair, const struct junction *junction, struct error *err)
{
	uint8_t mini_secret[SEED_LENGTH];
	struct sr25519_secret child;
	int result;

	if (!junction->hard && keypair->type == CRYPTO_ED25519)
		return error_set(
			err, STATUS_USAGE, "ed25519 keys have no soft junctions: use // in the path");
	if (!junction->hard) {
		sr25519_derive_soft(
			&keypair->secret.sr25519, keypair->public_key, junction->chain_code, &child);
		keypair->secret.sr25519 = child;
		sodium_memzero(&child, sizeof(child));
		return complete(keypair, err);
	}
	if (keypair->type == CRYPTO_SR25519)
		sr25519_derive_hard(&keypair->secret.sr25519, junction->chain_code, mini_secret);
	else
		ed25519_derive_hard(keypair->secret.ed25519, junction->chain_code, mini_secret);
	result = set_mini_secret(keypair, mini_secret, err);
	sodium_memzero(mini_secret, sizeof(mini_secret));
	return result;
}

static bool is_hex(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!isxdigit((unsigned char)text[i]))
			return false;
	return true;
}

/* Digits in the place of a phrase: a seed, or a private key. */
static int set_digits(struct keypair *keypair, const char *digits, size_t length, struct error *err)
{
	uint8_t bytes[PRIVATE_KEY_MAX];
	int result;

	if (length == 2 * SEED_LENGTH) {
		sodium_hex2bin(bytes, sizeof(bytes), digits, length, NULL, NULL, NULL);
		result = set_seed(keypair, bytes, err);
	} else if (length == 2 * PRIVATE_KEY_MAX && keypair->type == CRYPTO_SR25519) {
		sodium_hex2bin(bytes, sizeof(bytes), digits, length, NULL, NULL, NULL);
		result = set_private_key(keypair, bytes, NULL, err);
	} else {
		return error_set(err, STATUS_USAGE, "%zu hex digits are not a secret: a seed has 64%s",
			length, keypair->type == CRYPTO_SR25519 ? ", a private key 128" : "");
	}
	sodium_memzero(bytes, sizeof(bytes));
	return result;
}

/* What stands before the path. */
static int set_base(
	struct keypair *keypair, const char *base, size_t length, const char *password, struct error *err)
{
	while (length && isspace((unsigned char)base[length - 1]))
		length--;
	if (!length) {
		error_set(err, STATUS_USAGE, "there is no phrase, seed or private key");
		return error_hint(
			err, "A path is not enough: put the phrase that it starts from in front of it.");
	}
	if (length > 2 && !strncmp(base, "0x", 2) && is_hex(base + 2, length - 2)) {
		base += 2;
		length -= 2;
	}
	if (!is_hex(base, length))
		return set_phrase(keypair, base, length, password, err);
	if (*password)
		return error_set(err, STATUS_USAGE, "a password belongs to a phrase, not to a key");
	return set_digits(keypair, base, length, err);
}

/* Reads "BASE//hard/soft///password", of which all but the base may be missing. */
static int set_text(struct keypair *keypair, char *text, struct error *err)
{
	char *password = strstr(text, "///");
	struct junction junction;
	const char *path;
	int next;

	if (password) {
		*password = '\0';
		password += 3;
	} else {
		password = "";
	}
	path = text + strcspn(text, "/");
	if (set_base(keypair, text, (size_t)(path - text), password, err) < 0)
		return -1;
	if (*path || *password) { /* phrase and seed are not the derived key's */
		keypair->has_seed = false;
		keypair->phrase[0] = '\0';
	}
	while ((next = junction_next(&path, &junction, err)) > 0)
		if (derive(keypair, &junction, err) < 0)
			return -1;
	sodium_memzero(&junction, sizeof(junction));
	return next;
}

struct keypair *keypair_from_text(enum crypto_type type, const char *text, struct error *err)
{
	struct keypair *keypair = allocate(type);
	size_t length;
	char *copy;
	int result;

	while (isspace((unsigned char)*text))
		text++;
	length = strlen(text);
	while (length && isspace((unsigned char)text[length - 1]))
		length--;
	copy = secret_alloc(length + 1);
	memcpy(copy, text, length);
	result = set_text(keypair, copy, err);
	sodium_free(copy);
	return finish(keypair, result);
}

/* --- use -------------------------------------------------------------------------------------- */

const char *keypair_address(const struct keypair *keypair)
{
	return keypair->address;
}

const uint8_t *keypair_public_key(const struct keypair *keypair)
{
	return keypair->public_key;
}

enum crypto_type keypair_type(const struct keypair *keypair)
{
	return keypair->type;
}

const char *keypair_phrase(const struct keypair *keypair)
{
	return keypair->phrase[0] ? keypair->phrase : NULL;
}

const uint8_t *keypair_seed(const struct keypair *keypair)
{
	return keypair->has_seed ? keypair->seed : NULL;
}

const uint8_t *keypair_private_key(const struct keypair *keypair, size_t *length)
{
	*length = keypair->type == CRYPTO_SR25519 ? PRIVATE_KEY_MAX : SEED_LENGTH;
	return (const uint8_t *)&keypair->secret;
}

int keypair_sign(const struct keypair *keypair, const void *message, size_t length,
	uint8_t signature[SIGNATURE_LENGTH], struct error *err)
{
	if (keypair->type == CRYPTO_SR25519)
		sr25519_sign(&keypair->secret.sr25519, keypair->public_key, message, length, signature);
	else if (crypto_sign_ed25519_detached(signature, NULL, message, length, keypair->secret.ed25519) < 0)
		return error_set(err, STATUS_FAILED, "cannot sign with %s", keypair->address);
	return 0;
}

bool signature_verify(const char *ss58_address, enum crypto_type type, const void *message, size_t length,
	const uint8_t signature[SIGNATURE_LENGTH])
{
	uint8_t public_key[PUBLIC_KEY_LENGTH];
	struct error ignored;

	if (ss58_decode(ss58_address, public_key, &ignored) < 0)
		return false;
	if (type == CRYPTO_SR25519)
		return sr25519_verify(public_key, message, length, signature);
	return crypto_sign_ed25519_verify_detached(signature, message, length, public_key) == 0;
}

const char *crypto_type_name(enum crypto_type type)
{
	return type == CRYPTO_SR25519 ? "sr25519" : "ed25519";
}
