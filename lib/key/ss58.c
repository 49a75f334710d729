#include "key/ss58.h"

#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#define PREFIX 42 /* "generic Substrate", which Bittensor uses; makes every address 48 digits long */
#define DECODED_LENGTH (1 + 32 + 2)

static const char alphabet[] = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/* The first two bytes of BLAKE2b-512("SS58PRE" ‖ prefix ‖ key). */
static void add_checksum(uint8_t decoded[DECODED_LENGTH])
{
	crypto_generichash_state state;
	uint8_t hash[64];

	crypto_generichash_init(&state, NULL, 0, sizeof(hash));
	crypto_generichash_update(&state, (const uint8_t *)"SS58PRE", 7);
	crypto_generichash_update(&state, decoded, 33);
	crypto_generichash_final(&state, hash, sizeof(hash));
	memcpy(decoded + 33, hash, 2);
}

/* Base 58 of a number that does not begin with a zero byte. */
void ss58_encode(const uint8_t public_key[32], char address[SS58_SIZE])
{
	uint8_t number[DECODED_LENGTH] = {PREFIX};
	char digits[SS58_SIZE];
	size_t count = 0;
	bool more = true;

	memcpy(number + 1, public_key, 32);
	add_checksum(number);
	while (more) {
		unsigned rest = 0;

		more = false;
		for (size_t i = 0; i < sizeof(number); i++) {
			rest = rest << 8 | number[i];
			number[i] = (uint8_t)(rest / 58);
			rest %= 58;
			more |= number[i] != 0;
		}
		digits[count++] = alphabet[rest];
	}
	for (size_t i = 0; i < count; i++)
		address[i] = digits[count - 1 - i];
	address[count] = '\0';
}

/* Every character is a digit. -1 when the number needs more than `length` bytes. */
static int base58_decode(const char *text, uint8_t *number, size_t length)
{
	memset(number, 0, length);
	for (; *text; text++) {
		unsigned carry = (unsigned)(strchr(alphabet, *text) - alphabet);

		for (size_t i = length; i-- > 0;) {
			carry += 58u * number[i];
			number[i] = (uint8_t)carry;
			carry >>= 8;
		}
		if (carry)
			return -1;
	}
	return 0;
}

int ss58_decode(const char *address, uint8_t public_key[32], struct error *err)
{
	uint8_t decoded[DECODED_LENGTH], expected[DECODED_LENGTH];
	const char *fault = NULL;
	size_t digits = strlen(address);

	if (address[strspn(address, alphabet)])
		fault = "it contains a character that is not base58";
	else if (digits < 46 || digits >= SS58_SIZE || base58_decode(address, decoded, sizeof(decoded)) < 0)
		fault = "wrong length";
	else if (decoded[0] != PREFIX)
		fault = "it is for another network: the prefix is not 42";
	if (fault)
		return error_set(err, STATUS_USAGE, "\"%.64s\" is not an SS58 address: %s", address, fault);
	memcpy(expected, decoded, sizeof(decoded));
	add_checksum(expected);
	if (memcmp(expected, decoded, sizeof(decoded)) != 0)
		return error_set(
			err, STATUS_USAGE, "\"%.64s\" is not an SS58 address: wrong checksum", address);
	memcpy(public_key, decoded + 1, 32);
	return 0;
}
