/* keypair: a key that signs, of either of Bittensor's two kinds, and the check of its signatures.
 *
 * Secrets live in memory that is locked, kept out of core dumps, read-only and wiped when freed. A keypair
 * never changes, so threads may share one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The numbers are those of `cryptoType` in key files. */
enum crypto_type { CRYPTO_ED25519 = 0, CRYPTO_SR25519 = 1 };

#define PUBLIC_KEY_LENGTH 32
#define SIGNATURE_LENGTH 64
#define SEED_LENGTH 32
#define PRIVATE_KEY_MAX 64

struct keypair;

/* A fresh key from a new mnemonic of 12, 15, 18, 21 or 24 words (STATUS_USAGE for another number). */
struct keypair *keypair_generate(enum crypto_type type, int words, struct error *err);

/* From what a person has in hand, white space around it ignored:
 *   a phrase of BIP-39 words, or a seed of 64 hex digits, each with an optional path of //hard and /soft
 *   junctions, the phrase also with ///password behind it;
 *   an sr25519 private key of 128 hex digits: scalar, plain or times eight, then nonce seed.
 * "0x" before digits is optional. ed25519 has no /soft junctions. STATUS_USAGE with a message that shows
 * nothing of the text. */
struct keypair *keypair_from_text(enum crypto_type type, const char *text, struct error *err);

/* The single forms, as key files hold them. A phrase here has no path and no password. A private key is
 * 64 bytes for sr25519, 32 for ed25519; `public_key`, if not NULL, tells the plain scalar from the one
 * times eight where both are possible. */
struct keypair *keypair_from_phrase(enum crypto_type type, const char *phrase, struct error *err);
struct keypair *keypair_from_seed(enum crypto_type type, const uint8_t seed[SEED_LENGTH], struct error *err);
struct keypair *keypair_from_private_key(enum crypto_type type, const uint8_t *key, size_t length,
	const uint8_t *public_key, struct error *err);

/* Wipes it. NULL is fine. */
void keypair_free(struct keypair *keypair);

/* SS58 address, prefix 42. Belongs to the keypair, as does the public key. */
const char *keypair_address(const struct keypair *keypair);
const uint8_t *keypair_public_key(const struct keypair *keypair);
enum crypto_type keypair_type(const struct keypair *keypair);

/* The secrets, for key files and for showing a new phrase once. They belong to the keypair. Phrase and seed
 * are NULL when the key was made without them, or from them by a path or a password. */
const char *keypair_phrase(const struct keypair *keypair);
const uint8_t *keypair_seed(const struct keypair *keypair);
const uint8_t *keypair_private_key(const struct keypair *keypair, size_t *length);

/* sr25519 signatures are randomised and use the context "substrate"; ed25519 ones are deterministic. */
int keypair_sign(const struct keypair *keypair, const void *message, size_t length,
	uint8_t signature[SIGNATURE_LENGTH], struct error *err);

/* False also when the address is none. */
bool signature_verify(const char *ss58_address, enum crypto_type type, const void *message, size_t length,
	const uint8_t signature[SIGNATURE_LENGTH]);

/* "ed25519", "sr25519" */
const char *crypto_type_name(enum crypto_type type);
