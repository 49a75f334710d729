/* keyfile: the content of Bittensor's key files, as bittensor-wallet reads and writes it. */
#pragma once

#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"
#include "key/keypair.h"
#include "key/ss58.h"

/* No key file comes near this size. */
#define KEYFILE_LIMIT 65536

enum keyfile_encryption {
	KEYFILE_PLAIN,
	KEYFILE_NACL,
	KEYFILE_ANSIBLE, /* the two older ones are recognised only to be named */
	KEYFILE_FERNET,
};
enum keyfile_encryption keyfile_encryption(const char *content, size_t length);

/* Reads a plain key file. Every secret in it has to agree with its address. All errors are
 * STATUS_ENVIRONMENT and show nothing secret; the caller adds which file it is. */
struct keypair *keyfile_parse(const char *json, size_t length, struct error *err);

/* Only who the key is, from a plain key file or a public one. */
int keyfile_parse_public(
	const char *json, size_t length, enum crypto_type *type, char address[SS58_SIZE], struct error *err);

/* The content of a plain key file, and of the public one beside it; free with sodium_free. */
char *keyfile_format(const struct keypair *keypair);
char *keyfile_format_public(const struct keypair *keypair);

/* "$NACL" ‖ nonce ‖ XSalsa20-Poly1305 under Argon2i(password). Takes seconds and 512 MiB, by design.
 * Encryption appends to `out`. Decryption gives text to free with sodium_free. A wrong password or damaged
 * content, and too little memory, are STATUS_ENVIRONMENT. */
int keyfile_encrypt(const char *json, const char *password, struct buffer *out, struct error *err);
char *keyfile_decrypt(
	const char *content, size_t length, const char *password, size_t *json_length, struct error *err);
