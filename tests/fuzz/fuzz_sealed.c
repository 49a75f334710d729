/* Sealed files: what somebody made up is refused, what was sealed comes out again, and no byte of it can be
 * changed or cut off unnoticed. */
#include "fuzz.h"

#include <sodium.h>

#include "key/sealed.h"

/* Stands in for libsodium's, which takes a while by design: every passphrase gives the same key. */
int crypto_pwhash(unsigned char *const key, unsigned long long length, const char *const passphrase,
	unsigned long long passphrase_length, const unsigned char *const salt, unsigned long long operations,
	size_t memory, int algorithm)
{
	(void)passphrase, (void)passphrase_length, (void)salt, (void)operations, (void)memory,
		(void)algorithm;
	memset(key, 7, length);
	return 0;
}

static void require_refused(const void *data, size_t size)
{
	struct error err = {0};
	size_t length;

	REQUIRE(!sealed_open(data, size, "", &length, &err));
	REQUIRE(err.status == STATUS_ENVIRONMENT && err.message[0]);
}

static void seal(const uint8_t *data, size_t size)
{
	/* where the damage is: after what tells the format and its version */
	size_t length, at = 8 + (size ? data[0] | (size_t)data[size - 1] << 8 : 0);
	struct buffer sealed = {0};
	struct error err = {0};
	void *opened;

	REQUIRE(sealed_make(data, size, "", &sealed, &err) == 0);
	opened = sealed_open(sealed.data, sealed.length, "", &length, &err);
	REQUIRE(opened && length == size && (!size || !memcmp(opened, data, size)));
	at = at < sealed.length ? at : sealed.length - 1;
	require_refused(sealed.data, at);
	sealed.data[at] ^= 1;
	require_refused(sealed.data, sealed.length);
	sodium_free(opened);
	buffer_free(&sealed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error err = {0};
	size_t length;

	REQUIRE(sodium_init() >= 0);
	sodium_free(sealed_open(data, size, "", &length, &err));
	seal(data, size);
	return 0;
}
