/* keccak: the permutation under SHA-3 and Merlin (FIPS 202, section 3). */
#pragma once

#include <stdint.h>

/* Keccak-f[1600], in place, on 25 lanes; lane x, y is state[x + 5 * y]. Constant time. */
void keccak_f1600(uint64_t state[25]);
