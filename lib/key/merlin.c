#include "key/merlin.h"

#include <sodium.h>
#include <string.h>

#include "key/keccak.h"

/* Bytes of the state that STROBE-128 works on; the rest is capacity. */
#define RATE 166

/* STROBE's operations, made of the flags I = 1 (inbound), A = 2 (application), C = 4 (cipher), M = 16
 * (framing). T and K never occur in Merlin. */
enum operation {
	AD = 2,       /* data, absorbed */
	META_AD = 18, /* framing, absorbed */
	PRF = 7,      /* output, squeezed */
	KEY = 6,      /* a secret that overwrites the state: no way back */
};

static void permute(struct transcript *strobe)
{
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the state's lanes are little-endian"
#endif
	strobe->state.bytes[strobe->position] ^= strobe->operation_start;
	strobe->state.bytes[strobe->position + 1] ^= 0x04;
	strobe->state.bytes[RATE + 1] ^= 0x80;
	keccak_f1600(strobe->state.lanes);
	strobe->position = 0;
	strobe->operation_start = 0;
}

static void advance(struct transcript *strobe)
{
	if (++strobe->position == RATE)
		permute(strobe);
}

static void absorb(struct transcript *strobe, const void *data, size_t length)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < length; i++) {
		strobe->state.bytes[strobe->position] ^= bytes[i];
		advance(strobe);
	}
}

static void overwrite(struct transcript *strobe, const void *data, size_t length)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < length; i++) {
		strobe->state.bytes[strobe->position] = bytes[i];
		advance(strobe);
	}
}

static void squeeze(struct transcript *strobe, void *out, size_t length)
{
	uint8_t *bytes = out;

	for (size_t i = 0; i < length; i++) {
		bytes[i] = strobe->state.bytes[strobe->position];
		strobe->state.bytes[strobe->position] = 0;
		advance(strobe);
	}
}

static void begin_operation(struct transcript *strobe, enum operation operation)
{
	uint8_t header[2] = {strobe->operation_start, (uint8_t)operation};

	strobe->operation_start = strobe->position + 1;
	absorb(strobe, header, sizeof(header));
	if ((operation == PRF || operation == KEY) && strobe->position != 0)
		permute(strobe);
}

/* The label, then the length of what follows, as one framing operation. */
static void frame(struct transcript *strobe, const char *label, size_t length)
{
	uint8_t little_endian[4];

	for (size_t i = 0; i < sizeof(little_endian); i++)
		little_endian[i] = (uint8_t)(length >> 8 * i);
	begin_operation(strobe, META_AD);
	absorb(strobe, label, strlen(label));
	absorb(strobe, little_endian, sizeof(little_endian));
}

void transcript_begin(struct transcript *transcript, const char *label)
{
	static const char protocol[] = "Merlin v1.0";
	static const uint8_t domain[] = {1, RATE + 2, 1, 0, 1, 96};

	memset(transcript, 0, sizeof(*transcript));
	memcpy(transcript->state.bytes, domain, sizeof(domain));
	memcpy(transcript->state.bytes + sizeof(domain), "STROBEv1.0.2", 12);
	keccak_f1600(transcript->state.lanes);
	begin_operation(transcript, META_AD);
	absorb(transcript, protocol, sizeof(protocol) - 1);
	transcript_append(transcript, "dom-sep", label, strlen(label));
}

void transcript_append(struct transcript *transcript, const char *label, const void *message, size_t length)
{
	frame(transcript, label, length);
	begin_operation(transcript, AD);
	absorb(transcript, message, length);
}

void transcript_challenge(struct transcript *transcript, const char *label, void *out, size_t length)
{
	frame(transcript, label, length);
	begin_operation(transcript, PRF);
	squeeze(transcript, out, length);
}

/* Merlin's TranscriptRng: the forked transcript is keyed with the secret, then with random bytes. */
void transcript_witness(const struct transcript *transcript, const char *label, const void *secret,
	size_t secret_length, void *out, size_t length)
{
	struct transcript fork = *transcript;
	uint8_t random[32];

	frame(&fork, label, secret_length);
	begin_operation(&fork, KEY);
	overwrite(&fork, secret, secret_length);

	randombytes_buf(random, sizeof(random));
	begin_operation(&fork, META_AD);
	absorb(&fork, "rng", 3);
	begin_operation(&fork, KEY);
	overwrite(&fork, random, sizeof(random));

	frame(&fork, "", length);
	begin_operation(&fork, PRF);
	squeeze(&fork, out, length);
	sodium_memzero(&fork, sizeof(fork));
	sodium_memzero(random, sizeof(random));
}
