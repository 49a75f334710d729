#include "key/keccak.h"

#include <stddef.h>

static const uint64_t round_constants[24] = {
	0x0000000000000001,
	0x0000000000008082,
	0x800000000000808a,
	0x8000000080008000,
	0x000000000000808b,
	0x0000000080000001,
	0x8000000080008081,
	0x8000000000008009,
	0x000000000000008a,
	0x0000000000000088,
	0x0000000080008009,
	0x000000008000000a,
	0x000000008000808b,
	0x800000000000008b,
	0x8000000000008089,
	0x8000000000008003,
	0x8000000000008002,
	0x8000000000000080,
	0x000000000000800a,
	0x800000008000000a,
	0x8000000080008081,
	0x8000000000008080,
	0x0000000080000001,
	0x8000000080008008,
};

/* Rho and pi walk over the lanes along one cycle: the lane at pi_lanes[i] takes the lane before it,
 * turned by rho_offsets[i]. Lane 0 stays. */
static const uint8_t pi_lanes[24] = {
	10, 7, 11, 17, 18, 3, 5, 16, 8, 21, 24, 4, 15, 23, 19, 13, 12, 2, 20, 14, 22, 9, 6, 1};
static const uint8_t rho_offsets[24] = {
	1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 2, 14, 27, 41, 56, 8, 25, 43, 62, 18, 39, 61, 20, 44};

static uint64_t rotate_left(uint64_t lane, unsigned bits)
{
	return lane << bits | lane >> (64 - bits);
}

static void theta(uint64_t state[25])
{
	uint64_t parity[5];

	for (size_t x = 0; x < 5; x++)
		parity[x] = state[x] ^ state[x + 5] ^ state[x + 10] ^ state[x + 15] ^ state[x + 20];
	for (size_t x = 0; x < 5; x++) {
		uint64_t change = parity[(x + 4) % 5] ^ rotate_left(parity[(x + 1) % 5], 1);

		for (size_t y = 0; y < 25; y += 5)
			state[x + y] ^= change;
	}
}

static void rho_pi(uint64_t state[25])
{
	uint64_t carried = state[1];

	for (size_t i = 0; i < 24; i++) {
		uint64_t next = state[pi_lanes[i]];

		state[pi_lanes[i]] = rotate_left(carried, rho_offsets[i]);
		carried = next;
	}
}

static void chi(uint64_t state[25])
{
	for (size_t y = 0; y < 25; y += 5) {
		uint64_t row[5];

		for (size_t x = 0; x < 5; x++)
			row[x] = state[y + x];
		for (size_t x = 0; x < 5; x++)
			state[y + x] = row[x] ^ (~row[(x + 1) % 5] & row[(x + 2) % 5]);
	}
}

void keccak_f1600(uint64_t state[25])
{
	for (size_t round = 0; round < 24; round++) {
		theta(state);
		rho_pi(state);
		chi(state);
		state[0] ^= round_constants[round]; /* iota */
	}
}
