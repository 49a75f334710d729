/* mnemonic: BIP-39 phrases of English words, and the mini secret that Substrate makes of one.
 *
 * Phrases and what comes of them are secrets: the caller keeps them in locked memory and wipes them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Room for 24 words of at most 8 letters, the spaces between them and the zero byte. */
#define MNEMONIC_SIZE 216

#define MNEMONIC_ENTROPY_MAX 32

/* A new phrase of 12, 15, 18, 21 or 24 words; STATUS_USAGE for another number. */
int mnemonic_generate(int words, char phrase[MNEMONIC_SIZE], struct error *err);

/* The phrase of 16, 20, 24, 28 or 32 bytes of entropy, single spaces between the words. */
void mnemonic_encode(const uint8_t *entropy, size_t length, char phrase[MNEMONIC_SIZE]);

/* The entropy of the phrase in `length` bytes of text; any white space separates words. STATUS_USAGE for a
 * wrong number of words, a word that is not in the list (the message tells its place, not the word) or a
 * wrong checksum. */
int mnemonic_decode(const char *text, size_t length, uint8_t entropy[MNEMONIC_ENTROPY_MAX],
	size_t *entropy_length, struct error *err);

/* The first 32 bytes of PBKDF2-HMAC-SHA512(entropy, "mnemonic" ‖ password, 2048 rounds). BIP-39 itself
 * hashes the phrase in the entropy's place; Substrate does not. */
void mnemonic_mini_secret(
	const uint8_t *entropy, size_t length, const char *password, uint8_t mini_secret[32]);
