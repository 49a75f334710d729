/* sealed: bytes that a passphrase protects, for a file that may lie anywhere.
 *
 *	"QSEALED" ‖ version 1 ‖ salt (16 bytes) ‖ secretstream header (24 bytes) ‖ messages
 *
 * The key is Argon2id(passphrase, salt) with libsodium's "moderate" limits: 3 passes over 256 MiB. The
 * messages are libsodium's XChaCha20-Poly1305 secretstream, 64 KiB each but for the last one, which is
 * tagged as such; everything before them is authenticated with each. Whatever is changed, cut off, moved
 * or added is noticed. */
#pragma once

#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

/* Appends to `out`. STATUS_ENVIRONMENT when there is not memory enough for the key's derivation. */
int sealed_make(
	const void *bytes, size_t length, const char *passphrase, struct buffer *out, struct error *err);

/* What was sealed; free with sodium_free. NULL with STATUS_ENVIRONMENT: the passphrase is wrong, or the
 * data is none of ours, damaged, cut short or of a later version. */
void *sealed_open(const void *data, size_t size, const char *passphrase, size_t *length, struct error *err);
