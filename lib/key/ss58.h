/* ss58: addresses, base58(42 ‖ public key ‖ checksum). */
#pragma once

#include <stdint.h>

#include "base/error.h"

/* Room for an address, always 48 digits, and its zero byte. */
#define SS58_SIZE 49

/* Prefix 42, that of Substrate's and Bittensor's addresses. */
void ss58_encode(const uint8_t public_key[32], char address[SS58_SIZE]);

/* STATUS_USAGE, naming the address and what is wrong: digits, length, network prefix or checksum. */
int ss58_decode(const char *address, uint8_t public_key[32], struct error *err);
