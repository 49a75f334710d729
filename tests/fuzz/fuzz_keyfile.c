/* Key files, plain and encrypted: whatever is accepted comes out the same when written and read again. */
#include "fuzz.h"

#include <sodium.h>

#include "key/keyfile.h"

/* Stands in for libsodium's, which takes seconds by design: every password gives the same key. */
int crypto_pwhash_argon2i(unsigned char *const key, unsigned long long length, const char *const password,
	unsigned long long password_length, const unsigned char *const salt, unsigned long long operations,
	size_t memory, int algorithm)
{
	(void)password, (void)password_length, (void)salt, (void)operations, (void)memory, (void)algorithm;
	memset(key, 7, length);
	return 0;
}

static void parse(const char *json, size_t length)
{
	struct error err = {0}, ignored = {0};
	struct keypair *keypair = keyfile_parse(json, length, &err), *again;
	enum crypto_type type;
	char address[SS58_SIZE], *written;
	int is_public = keyfile_parse_public(json, length, &type, address, &ignored);

	REQUIRE(keypair || (err.status == STATUS_ENVIRONMENT && err.message[0]));
	if (!keypair)
		return;
	REQUIRE(is_public == 0 && type == keypair_type(keypair) &&
		!strcmp(address, keypair_address(keypair)));
	written = keyfile_format(keypair);
	again = keyfile_parse(written, strlen(written), &err);
	REQUIRE(again && !strcmp(keypair_address(again), address));
	keypair_free(again);
	keypair_free(keypair);
	sodium_free(written);
}

static void decrypt(const char *content, size_t size)
{
	struct error err = {0};
	size_t length = 0;
	char *json = keyfile_decrypt(content, size, "password", &length, &err);

	REQUIRE(json || err.message[0]);
	if (json)
		parse(json, length);
	sodium_free(json);
}

/* The input as the text inside of an encrypted file. */
static void encrypt(const char *text)
{
	struct buffer content = {0};
	struct error err = {0};
	size_t length;
	char *json;

	REQUIRE(keyfile_encrypt(text, "password", &content, &err) == 0);
	REQUIRE(keyfile_encryption(content.data, content.length) == KEYFILE_NACL);
	json = keyfile_decrypt(content.data, content.length, "password", &length, &err);
	REQUIRE(json && length == strlen(text) && !memcmp(json, text, length));
	sodium_free(json);
	buffer_free(&content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *content = fuzz_string(data, size);

	REQUIRE(sodium_init() >= 0);
	if (keyfile_encryption(content, size) == KEYFILE_NACL) {
		decrypt(content, size);
	} else {
		parse(content, size);
		encrypt(content);
	}
	free(content);
	return 0;
}
