/* What a person types for a key: addresses, phrases, secrets with their paths, digits. */
#include "fuzz.h"

#include <sodium.h>

#include "base/hex.h"
#include "key/keypair.h"
#include "key/mnemonic.h"
#include "key/ss58.h"

static void address(const char *text)
{
	uint8_t key[32];
	char again[SS58_SIZE];
	struct error err = {0};

	if (ss58_decode(text, key, &err) < 0) {
		REQUIRE(err.status == STATUS_USAGE && err.message[0]);
		return;
	}
	ss58_encode(key, again);
	REQUIRE(!strcmp(text, again));
}

static void phrase(const char *text, size_t size)
{
	uint8_t entropy[MNEMONIC_ENTROPY_MAX], again[MNEMONIC_ENTROPY_MAX];
	char written[MNEMONIC_SIZE];
	size_t length, length_again;
	struct error err = {0};

	if (mnemonic_decode(text, size, entropy, &length, &err) < 0)
		return;
	mnemonic_encode(entropy, length, written);
	REQUIRE(mnemonic_decode(written, strlen(written), again, &length_again, &err) == 0);
	REQUIRE(length == length_again && !memcmp(entropy, again, length));
}

static void secret(enum crypto_type type, const char *text)
{
	uint8_t signature[SIGNATURE_LENGTH];
	struct error err = {0};
	struct keypair *keypair = keypair_from_text(type, text, &err);

	if (!keypair) {
		REQUIRE(err.status == STATUS_USAGE && err.message[0]);
		return;
	}
	REQUIRE(keypair_sign(keypair, text, strlen(text), signature, &err) == 0);
	REQUIRE(signature_verify(keypair_address(keypair), type, text, strlen(text), signature));
	keypair_free(keypair);
}

static void digits(const char *text)
{
	size_t length = strlen(text) / 2;
	uint8_t *bytes = malloc(length + 1);

	REQUIRE(bytes);
	hex_decode(text, bytes, length);
	if (length)
		hex_decode(text, bytes, length - 1); /* with "0x" before them */
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_string(data, size);

	REQUIRE(sodium_init() >= 0);
	address(text);
	phrase(text, size);
	secret(CRYPTO_SR25519, text);
	secret(CRYPTO_ED25519, text);
	digits(text);
	free(text);
	return 0;
}
