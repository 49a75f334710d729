/* hex: bytes as lowercase hexadecimal text and back. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* `text` holds 2 * length + 1 bytes. */
void hex_encode(const uint8_t *data, size_t length, char *text);

/* Reads exactly `length` bytes, an optional "0x" first, upper or lower case. 0, or -1 when the text is
 * anything else. Constant time in the digits' values. */
int hex_decode(const char *text, uint8_t *data, size_t length);
