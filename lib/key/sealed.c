#include "key/sealed.h"

#include <sodium.h>
#include <stdint.h>
#include <string.h>

#include "base/secret.h"

#define MAGIC "QSEALED"
#define VERSION 1

enum {
	CHUNK = 65536, /* of what is sealed, in one message */
	OVERHEAD = crypto_secretstream_xchacha20poly1305_ABYTES,
	KEY_BYTES = crypto_secretstream_xchacha20poly1305_KEYBYTES,
};

struct header {
	char magic[7];
	uint8_t version;
	uint8_t salt[crypto_pwhash_SALTBYTES];
	uint8_t stream[crypto_secretstream_xchacha20poly1305_HEADERBYTES];
};

static uint8_t *derive_key(const char *passphrase, const struct header *header, struct error *err)
{
	uint8_t *key = secret_alloc(KEY_BYTES);

	if (crypto_pwhash(key, KEY_BYTES, passphrase, strlen(passphrase), header->salt,
		    crypto_pwhash_OPSLIMIT_MODERATE, crypto_pwhash_MEMLIMIT_MODERATE,
		    crypto_pwhash_ALG_ARGON2ID13) == 0)
		return key;
	sodium_free(key);
	error_set(err, STATUS_ENVIRONMENT,
		"cannot derive the key from the passphrase: it takes %u MiB of memory",
		crypto_pwhash_MEMLIMIT_MODERATE >> 20);
	return NULL;
}

int sealed_make(
	const void *bytes, size_t length, const char *passphrase, struct buffer *out, struct error *err)
{
	struct header header = {.magic = MAGIC, .version = VERSION};
	crypto_secretstream_xchacha20poly1305_state state;
	const uint8_t *from = bytes;
	uint8_t message[CHUNK + OVERHEAD], *key;
	size_t done = 0;

	randombytes_buf(header.salt, sizeof(header.salt));
	key = derive_key(passphrase, &header, err);
	if (!key)
		return -1;
	crypto_secretstream_xchacha20poly1305_init_push(&state, header.stream, key);
	buffer_append(out, &header, sizeof(header));
	do {
		size_t part = length - done < CHUNK ? length - done : CHUNK;
		uint8_t tag = done + part == length ? crypto_secretstream_xchacha20poly1305_TAG_FINAL : 0;

		crypto_secretstream_xchacha20poly1305_push(&state, message, NULL, from + done, part,
			(const uint8_t *)&header, sizeof(header), tag);
		buffer_append(out, message, part + OVERHEAD);
		done += part;
	} while (done < length);
	sodium_memzero(&state, sizeof(state));
	sodium_free(key);
	return 0;
}

/* Opens the messages into `out`, which has room for them. Returns how many bytes that made, or -1. */
static int64_t open_messages(const uint8_t *data, size_t size, const uint8_t *key,
	const struct header *header, uint8_t *out, struct error *err)
{
	crypto_secretstream_xchacha20poly1305_state state;
	size_t at = 0;
	int64_t made = 0;
	uint8_t tag = 0;

	crypto_secretstream_xchacha20poly1305_init_pull(&state, header->stream, key);
	while (at < size && tag != crypto_secretstream_xchacha20poly1305_TAG_FINAL) {
		size_t part = size - at < CHUNK + OVERHEAD ? size - at : CHUNK + OVERHEAD;

		if (crypto_secretstream_xchacha20poly1305_pull(&state, out + made, NULL, &tag, data + at,
			    part, (const uint8_t *)header, sizeof(*header)) < 0) {
			made = error_set(err, STATUS_ENVIRONMENT, "%sthe file is damaged or cut short",
				at ? "" : "the passphrase is wrong, or ");
			break;
		}
		at += part;
		made += (int64_t)(part - OVERHEAD);
	}
	sodium_memzero(&state, sizeof(state));
	if (made >= 0 && (at < size || tag != crypto_secretstream_xchacha20poly1305_TAG_FINAL))
		made = error_set(err, STATUS_ENVIRONMENT, "the file is damaged or cut short");
	return made;
}

void *sealed_open(const void *data, size_t size, const char *passphrase, size_t *length, struct error *err)
{
	struct header header;
	uint8_t *key, *out;
	int64_t made;

	if (size < sizeof(header) || memcmp(data, MAGIC, sizeof(header.magic))) {
		error_set(err, STATUS_ENVIRONMENT,
			"the file was not made by `quasar export-state`, or is cut short");
		return NULL;
	}
	memcpy(&header, data, sizeof(header));
	if (header.version != VERSION) {
		error_set(err, STATUS_ENVIRONMENT,
			"the file is of version %d, which this program does not know", header.version);
		return NULL;
	}
	key = derive_key(passphrase, &header, err);
	if (!key)
		return NULL;
	out = secret_alloc(size);
	made = open_messages(
		(const uint8_t *)data + sizeof(header), size - sizeof(header), key, &header, out, err);
	sodium_free(key);
	if (made < 0) {
		sodium_free(out);
		return NULL;
	}
	*length = (size_t)made;
	return out;
}
