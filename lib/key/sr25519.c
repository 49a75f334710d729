#include "key/sr25519.h"

#include <sodium.h>
#include <string.h>

#include "key/merlin.h"

/* The shift of a little-endian number by three bits: divides a multiple of eight by it. */
static void divide_by_eight(uint8_t number[32])
{
	for (size_t i = 0; i < 31; i++)
		number[i] = (uint8_t)(number[i] >> 3 | number[i + 1] << 5);
	number[31] >>= 3;
}

/* Constant time: reducing a canonical scalar changes nothing. */
static bool is_canonical(const uint8_t scalar[32])
{
	uint8_t wide[64] = {0}, reduced[32];
	bool same;

	memcpy(wide, scalar, 32);
	crypto_core_ristretto255_scalar_reduce(reduced, wide);
	same = sodium_memcmp(reduced, scalar, 32) == 0;
	sodium_memzero(wide, sizeof(wide));
	sodium_memzero(reduced, sizeof(reduced));
	return same;
}

void sr25519_expand(const uint8_t mini_secret[32], struct sr25519_secret *secret)
{
	uint8_t hash[64];

	crypto_hash_sha512(hash, mini_secret, 32);
	hash[0] &= 248;
	hash[31] &= 63;
	hash[31] |= 64;
	divide_by_eight(hash);
	memcpy(secret->scalar, hash, 32);
	memcpy(secret->nonce, hash + 32, 32);
	sodium_memzero(hash, sizeof(hash));
}

int sr25519_public(const struct sr25519_secret *secret, uint8_t public_key[32])
{
	if (!is_canonical(secret->scalar))
		return -1;
	return crypto_scalarmult_ristretto255_base(public_key, secret->scalar);
}

int sr25519_divide(const struct sr25519_secret *times_eight, struct sr25519_secret *secret)
{
	if (times_eight->scalar[0] & 7)
		return -1;
	*secret = *times_eight;
	divide_by_eight(secret->scalar);
	return 0;
}

/* --- signatures ------------------------------------------------------------------------------- */

/* The transcript of a message signed by a key, up to the commitment R. */
static void begin_signature(
	struct transcript *transcript, const uint8_t public_key[32], const void *message, size_t length)
{
	transcript_begin(transcript, "SigningContext");
	transcript_append(transcript, "", "substrate", 9);
	transcript_append(transcript, "sign-bytes", message, length);
	transcript_append(transcript, "proto-name", "Schnorr-sig", 11);
	transcript_append(transcript, "sign:pk", public_key, 32);
}

static void challenge_scalar(struct transcript *transcript, const char *label, uint8_t scalar[32])
{
	uint8_t wide[64];

	transcript_challenge(transcript, label, wide, sizeof(wide));
	crypto_core_ristretto255_scalar_reduce(scalar, wide);
}

/* R = r·B, k = H(…, A, R), s = k·a + r. The signature is R ‖ s, marked by the top bit as Schnorr's. */
void sr25519_sign(const struct sr25519_secret *secret, const uint8_t public_key[32], const void *message,
	size_t length, uint8_t signature[64])
{
	struct transcript transcript;
	uint8_t wide[64], r[32], k[32], product[32];

	begin_signature(&transcript, public_key, message, length);
	do {
		transcript_witness(
			&transcript, "signing", secret->nonce, sizeof(secret->nonce), wide, sizeof(wide));
		crypto_core_ristretto255_scalar_reduce(r, wide);
	} while (crypto_scalarmult_ristretto255_base(signature, r) < 0); /* r = 0: never, in practice */

	transcript_append(&transcript, "sign:R", signature, 32);
	challenge_scalar(&transcript, "sign:c", k);
	crypto_core_ristretto255_scalar_mul(product, k, secret->scalar);
	crypto_core_ristretto255_scalar_add(signature + 32, product, r);
	signature[63] |= 128;
	sodium_memzero(wide, sizeof(wide));
	sodium_memzero(r, sizeof(r));
	sodium_memzero(product, sizeof(product));
}

/* Holds when s·B - k·A = R. */
bool sr25519_verify(
	const uint8_t public_key[32], const void *message, size_t length, const uint8_t signature[64])
{
	struct transcript transcript;
	uint8_t s[32], k[32], sB[32], kA[32], R[32];

	memcpy(s, signature + 32, 32);
	if (!(s[31] & 128))
		return false;
	s[31] &= 127;
	if (!is_canonical(s))
		return false;

	begin_signature(&transcript, public_key, message, length);
	transcript_append(&transcript, "sign:R", signature, 32);
	challenge_scalar(&transcript, "sign:c", k);
	if (crypto_scalarmult_ristretto255(kA, k, public_key) < 0 ||
		crypto_scalarmult_ristretto255_base(sB, s) < 0 || crypto_core_ristretto255_sub(R, sB, kA) < 0)
		return false;
	return memcmp(R, signature, 32) == 0;
}

/* --- derivation ------------------------------------------------------------------------------- */

static void begin_derivation(struct transcript *transcript, const uint8_t chain_code[32])
{
	transcript_begin(transcript, "SchnorrRistrettoHDKD");
	transcript_append(transcript, "sign-bytes", "", 0);
	transcript_append(transcript, "chain-code", chain_code, 32);
}

void sr25519_derive_hard(
	const struct sr25519_secret *secret, const uint8_t chain_code[32], uint8_t mini_secret[32])
{
	struct transcript transcript;

	begin_derivation(&transcript, chain_code);
	transcript_append(&transcript, "secret-key", secret->scalar, sizeof(secret->scalar));
	transcript_challenge(&transcript, "HDKD-hard", mini_secret, 32);
	sodium_memzero(&transcript, sizeof(transcript));
}

void sr25519_derive_soft(const struct sr25519_secret *secret, const uint8_t public_key[32],
	const uint8_t chain_code[32], struct sr25519_secret *child)
{
	struct transcript transcript;
	uint8_t offset[32];

	begin_derivation(&transcript, chain_code);
	transcript_append(&transcript, "public-key", public_key, 32);
	challenge_scalar(&transcript, "HDKD-scalar", offset);
	/* any secret nonce seed will do: it shows in no signature */
	transcript_witness(
		&transcript, "HDKD-nonce", secret, sizeof(*secret), child->nonce, sizeof(child->nonce));
	crypto_core_ristretto255_scalar_add(child->scalar, secret->scalar, offset);
}
