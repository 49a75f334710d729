/* merlin: transcripts of a protocol, from which both sides draw the same challenges (Fiat-Shamir).
 *
 * Merlin v1.0 over STROBE-128 with Keccak-f[1600]; see merlin.cool and strobe.sourceforge.io. A transcript
 * may be copied by assignment to fork it. One that saw a secret is to be wiped with sodium_memzero. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct transcript {
	union {
		uint8_t bytes[200];
		uint64_t lanes[25]; /* little-endian */
	} state;
	uint8_t position, operation_start;
};

/* Labels are strings without their zero byte; a message is shorter than 4 GiB. */
void transcript_begin(struct transcript *transcript, const char *label);
void transcript_append(struct transcript *transcript, const char *label, const void *message, size_t length);
void transcript_challenge(struct transcript *transcript, const char *label, void *out, size_t length);

/* Secret bytes that depend on the transcript, on a secret and on fresh randomness, and stay unpredictable
 * if either of the latter two fails. Leaves the transcript as it is. */
void transcript_witness(const struct transcript *transcript, const char *label, const void *secret,
	size_t secret_length, void *out, size_t length);
