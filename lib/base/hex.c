#include "base/hex.h"

#include <sodium.h>
#include <string.h>

void hex_encode(const uint8_t *data, size_t length, char *text)
{
	sodium_bin2hex(text, 2 * length + 1, data, length);
}

int hex_decode(const char *text, uint8_t *data, size_t length)
{
	size_t digits, got;

	if (!strncmp(text, "0x", 2))
		text += 2;
	digits = strlen(text);
	if (digits != 2 * length)
		return -1;
	if (sodium_hex2bin(data, length, text, digits, NULL, &got, NULL) < 0 || got != length)
		return -1;
	return 0;
}
