#include "key/mnemonic.h"

#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#include "base/embed.h"

/* 2048 words in alphabetical order, a line each */
EMBED(mnemonic_words, "lib/key/english.txt");

#define BITS_PER_WORD 11
#define WORDS_MAX 24
#define ROUNDS 2048

static const char white_space[] = " \t\r\n\v\f";

/* The index of a word in the list, or -1. */
static int find_word(const char *word, size_t length)
{
	const char *line = mnemonic_words;

	for (int index = 0; line < mnemonic_words_end; index++) {
		size_t line_length = strcspn(line, "\n");

		if (line_length == length && !memcmp(line, word, length))
			return index;
		line += line_length + 1;
	}
	return -1;
}

static const char *word_at(unsigned index)
{
	const char *line = mnemonic_words;

	while (index--)
		line += strcspn(line, "\n") + 1;
	return line;
}

static bool bit_at(const uint8_t *bytes, size_t bit)
{
	return bytes[bit / 8] >> (7 - bit % 8) & 1;
}

static bool is_word_count(size_t words)
{
	return words >= 12 && words <= WORDS_MAX && words % 3 == 0;
}

static int refuse_word_count(int words, struct error *err)
{
	return error_set(err, STATUS_USAGE, "a phrase has 12, 15, 18, 21 or 24 words, not %d", words);
}

void mnemonic_encode(const uint8_t *entropy, size_t length, char phrase[MNEMONIC_SIZE])
{
	uint8_t bits[MNEMONIC_ENTROPY_MAX + crypto_hash_sha256_BYTES];
	size_t words = (length * 8 + length / 4) / BITS_PER_WORD;
	char *end = phrase;

	/* the checksum is the first bit of the hash for every four bytes of entropy */
	memcpy(bits, entropy, length);
	crypto_hash_sha256(bits + length, entropy, length);
	for (size_t word = 0; word < words; word++) {
		unsigned index = 0;
		size_t letters;

		for (size_t bit = 0; bit < BITS_PER_WORD; bit++)
			index = index << 1 | bit_at(bits, word * BITS_PER_WORD + bit);
		letters = strcspn(word_at(index), "\n");
		if (word)
			*end++ = ' ';
		memcpy(end, word_at(index), letters);
		end += letters;
	}
	*end = '\0';
	sodium_memzero(bits, sizeof(bits));
}

int mnemonic_generate(int words, char phrase[MNEMONIC_SIZE], struct error *err)
{
	uint8_t entropy[MNEMONIC_ENTROPY_MAX];
	size_t length;

	if (words < 0 || !is_word_count((size_t)words))
		return refuse_word_count(words, err);
	length = (size_t)words / 3 * 4;
	randombytes_buf(entropy, length);
	mnemonic_encode(entropy, length, phrase);
	sodium_memzero(entropy, sizeof(entropy));
	return 0;
}

/* Packs the words' indices into `bits`; returns how many words there are, or -1. */
static int read_words(const char *text, size_t length, uint8_t *bits, struct error *err)
{
	const char *end = text + length;
	int words = 0;

	while (text < end) {
		size_t letters = 0;
		int index;

		while (text + letters < end && !strchr(white_space, text[letters]))
			letters++;
		if (letters && words < WORDS_MAX) {
			index = find_word(text, letters);
			if (index < 0)
				return error_set(err, STATUS_USAGE,
					"word %d of the phrase is not in BIP-39's English list", words + 1);
			for (int bit = 0; bit < BITS_PER_WORD; bit++) {
				int at = words * BITS_PER_WORD + bit;

				bits[at / 8] |= (uint8_t)((index >> (10 - bit) & 1) << (7 - at % 8));
			}
		}
		words += letters > 0;
		text += letters + 1;
	}
	return is_word_count((size_t)words) ? words : refuse_word_count(words, err);
}

/* The bits behind the entropy against the first ones of its hash. */
static int check_bits(const uint8_t *bits, size_t words, struct error *err)
{
	size_t checksum_bits = words / 3, length = checksum_bits * 4;
	uint8_t hash[crypto_hash_sha256_BYTES];

	crypto_hash_sha256(hash, bits, length);
	if ((bits[length] ^ hash[0]) >> (8 - checksum_bits))
		return error_set(err, STATUS_USAGE,
			"the phrase's checksum is wrong: a word is wrong or in the wrong place");
	return 0;
}

int mnemonic_decode(const char *text, size_t length, uint8_t entropy[MNEMONIC_ENTROPY_MAX],
	size_t *entropy_length, struct error *err)
{
	uint8_t bits[WORDS_MAX * BITS_PER_WORD / 8] = {0};
	int words = read_words(text, length, bits, err), result = -1;

	if (words > 0 && check_bits(bits, (size_t)words, err) == 0) {
		*entropy_length = (size_t)words / 3 * 4;
		memcpy(entropy, bits, *entropy_length);
		result = 0;
	}
	sodium_memzero(bits, sizeof(bits));
	return result;
}

void mnemonic_mini_secret(
	const uint8_t *entropy, size_t length, const char *password, uint8_t mini_secret[32])
{
	static const uint8_t first_block[4] = {0, 0, 0, 1};
	crypto_auth_hmacsha512_state keyed, state;
	uint8_t round[64], sum[64];

	crypto_auth_hmacsha512_init(&keyed, entropy, length);
	state = keyed;
	crypto_auth_hmacsha512_update(&state, (const uint8_t *)"mnemonic", 8);
	crypto_auth_hmacsha512_update(&state, (const uint8_t *)password, strlen(password));
	crypto_auth_hmacsha512_update(&state, first_block, sizeof(first_block));
	crypto_auth_hmacsha512_final(&state, round);
	memcpy(sum, round, sizeof(sum));
	for (int i = 1; i < ROUNDS; i++) {
		state = keyed;
		crypto_auth_hmacsha512_update(&state, round, sizeof(round));
		crypto_auth_hmacsha512_final(&state, round);
		for (size_t j = 0; j < sizeof(sum); j++)
			sum[j] ^= round[j];
	}
	memcpy(mini_secret, sum, 32);
	sodium_memzero(&keyed, sizeof(keyed));
	sodium_memzero(&state, sizeof(state));
	sodium_memzero(round, sizeof(round));
	sodium_memzero(sum, sizeof(sum));
}
