/* sr25519: Schnorr signatures over Ristretto255 with Merlin transcripts, as schnorrkel and Substrate have
 * them (signing context "substrate"), and derivation of keys.
 *
 * All that touches a secret runs in constant time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sr25519_secret {
	uint8_t scalar[32]; /* canonical, little-endian */
	uint8_t nonce[32];  /* seed of the signatures' nonces */
};

/* A mini secret's key: SHA-512, ed25519's clamp, the scalar divided by eight. */
void sr25519_expand(const uint8_t mini_secret[32], struct sr25519_secret *secret);

/* The public key: scalar times base point. -1 when the scalar is zero or not canonical. */
int sr25519_public(const struct sr25519_secret *secret, uint8_t public_key[32]);

/* The same key with the scalar divided by eight, as an integer: undoes the form "times eight" in which
 * some tools store it. -1 when the scalar is no multiple of eight. */
int sr25519_divide(const struct sr25519_secret *times_eight, struct sr25519_secret *secret);

/* A signature with a fresh nonce: 32 bytes R, 32 bytes s, with the mark of schnorrkel in its highest bit. */
void sr25519_sign(const struct sr25519_secret *secret, const uint8_t public_key[32], const void *message,
	size_t length, uint8_t signature[64]);

/* Refuses non-canonical points and scalars, and the identity as a public key. */
bool sr25519_verify(
	const uint8_t public_key[32], const void *message, size_t length, const uint8_t signature[64]);

/* "//junction": the mini secret of the child. */
void sr25519_derive_hard(
	const struct sr25519_secret *secret, const uint8_t chain_code[32], uint8_t mini_secret[32]);

/* "/junction": the child's scalar is the parent's plus one that the public key gives. */
void sr25519_derive_soft(const struct sr25519_secret *secret, const uint8_t public_key[32],
	const uint8_t chain_code[32], struct sr25519_secret *child);
