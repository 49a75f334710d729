#include "key/junction.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* Writes the length as a SCALE compact integer; returns how many bytes that took. */
static size_t compact_length(size_t length, uint8_t out[4])
{
	size_t value, bytes;

	if (length < 1u << 6) {
		value = length << 2;
		bytes = 1;
	} else if (length < 1u << 14) {
		value = length << 2 | 1;
		bytes = 2;
	} else {
		value = length << 2 | 2;
		bytes = 4;
	}
	for (size_t i = 0; i < bytes; i++)
		out[i] = (uint8_t)(value >> 8 * i);
	return bytes;
}

/* A number as Rust reads a u64: digits, an optional plus. */
static bool read_number(const char *text, size_t length, uint64_t *number)
{
	char digits[32];
	size_t start = text[0] == '+';

	if (length - start == 0 || strspn(text + start, "0123456789") < length - start)
		return false;
	while (start < length - 1 && text[start] == '0')
		start++;
	if (length - start >= sizeof(digits))
		return false;
	memcpy(digits, text + start, length - start);
	digits[length - start] = '\0';
	errno = 0;
	*number = strtoull(digits, NULL, 10);
	return errno == 0;
}

static void encode(const char *text, size_t length, uint8_t chain_code[32])
{
	crypto_generichash_state hash;
	uint8_t prefix[4];
	size_t prefix_length;
	uint64_t number;

	memset(chain_code, 0, 32);
	if (read_number(text, length, &number)) {
		for (size_t i = 0; i < sizeof(number); i++)
			chain_code[i] = (uint8_t)(number >> 8 * i);
		return;
	}
	prefix_length = compact_length(length, prefix);
	if (prefix_length + length <= 32) {
		memcpy(chain_code, prefix, prefix_length);
		memcpy(chain_code + prefix_length, text, length);
		return;
	}
	crypto_generichash_init(&hash, NULL, 0, 32);
	crypto_generichash_update(&hash, prefix, prefix_length);
	crypto_generichash_update(&hash, (const uint8_t *)text, length);
	crypto_generichash_final(&hash, chain_code, 32);
}

int junction_next(const char **path, struct junction *junction, struct error *err)
{
	const char *at = *path;
	size_t length;

	if (!*at)
		return 0;
	at++; /* a path begins with a slash, and what ends a junction is one */
	junction->hard = *at == '/';
	at += junction->hard;
	length = strcspn(at, "/");
	if (!length)
		return error_set(err, STATUS_USAGE, "the derivation path has an empty junction");
	encode(at, length, junction->chain_code);
	*path = at + length;
	return 1;
}
