/* parcel: what blocks send each other where one waits for just that: three words, and a number that says of which step and
 * layer they are, in 16 bytes that are written and read as one (PTX: accesses of .b128 are single-copy atomic). So whoever
 * finds the number it waits for has the words that belong to it: nothing else has to be ordered, and there is no fence.
 *
 * Numbers never come again (a.number), so that what an earlier layer or step has left is not taken for what is to come. A
 * place is written once a layer. That nobody still looks for what it had follows from who needs what: to send something of
 * the next layer, one must have received what comes of all that was received from there. */
#pragma once

#include "model/plan.cuh"

#ifndef SEND
#define SEND 0
#endif
#ifndef BOUND
#define BOUND 0
#endif
#define SENT_ACTIVATED (STREAMED && SEND >= 1)
#define SENT_X (STREAMED && SEND >= 2)
#define SENT_ATTENDED (STREAMED && SEND >= 3)
#define SENT_HEADS (STREAMED && SEND >= 3 && !HEAD_NORMS)

#define OCTETS(columns) divide_up(columns, 8)
#define X_PARCELS 3 /* of an octet: eight numbers and the sum of their tile's squares */
#define PLANE_PARCELS divide_up(4 * MODEL_PLANES(INPUT), 3)

static __device__ __forceinline__ void send(
	void *parcels, int at, unsigned x, unsigned y, unsigned z, unsigned number)
{
	asm volatile("{ .reg .b64 low, high;\n"
		     ".reg .b128 all;\n"
		     "mov.b64 low, {%1, %2};\n"
		     "mov.b64 high, {%3, %4};\n"
		     "mov.b128 all, {low, high};\n"
		     "st.relaxed.gpu.global.b128 [%0], all; }" ::"l"((uint4 *)parcels + at),
		     "r"(x), "r"(y), "r"(z), "r"(number)
		     : "memory");
}

static __device__ __forceinline__ void look(uint4 &parcel, const uint4 *from)
{
	asm volatile("{ .reg .b64 low, high;\n"
		     ".reg .b128 all;\n"
		     "ld.relaxed.gpu.global.b128 all, [%4];\n"
		     "mov.b128 {low, high}, all;\n"
		     "mov.b64 {%0, %1}, low;\n"
		     "mov.b64 {%2, %3}, high; }"
		     : "=r"(parcel.x), "=r"(parcel.y), "=r"(parcel.z), "=r"(parcel.w)
		     : "l"(from)
		     : "memory");
}

/* Variants: NAP: nanoseconds between looks; GATE: the last parcel is looked for alone first; COPIES: of x, so that not all
 * blocks look at the same lines; HINT: bits of exchanges that are counted, too, without order, and looked at only then. */
#ifndef NAP
#define NAP 0
#endif
#ifndef GATE
#define GATE 0
#endif
#ifndef COPIES
#define COPIES 1
#endif
#ifndef HINT
#define HINT 0
#endif

static __device__ __forceinline__ void look_for(uint4 &parcel, const uint4 *from, unsigned number)
{
	look(parcel, from);
	while (parcel.w != number && !BOUND) {
		if (NAP)
			__nanosleep(NAP);
		look(parcel, from);
	}
}

/* Waits for parcels `apart` from each other, and as many that begin `second` behind them if `both`; all are looked for at
 * the same time. */
template <int N>
static __device__ __forceinline__ void receive_both(uint4 (&parcels)[2 * N], const void *from, int at, int second,
	int apart, bool both, unsigned number)
{
	const uint4 *first = (const uint4 *)from + at;
	bool all;

	if (GATE)
		look_for(parcels[0], first + (both ? second : 0), number);
#pragma unroll
	for (int i = 0; i < 2 * N; i++)
		if (i < N || both)
			look(parcels[i], first + (i < N ? i * apart : second + (i - N) * apart));
	do {
		all = true;
#pragma unroll
		for (int i = 0; i < 2 * N; i++)
			if ((i < N || both) && parcels[i].w != number)
				all = false;
		if (all || BOUND)
			break;
		if (NAP)
			__nanosleep(NAP);
#pragma unroll
		for (int i = 0; i < 2 * N; i++)
			if ((i < N || both) && parcels[i].w != number)
				look(parcels[i], first + (i < N ? i * apart : second + (i - N) * apart));
	} while (true);
}

/* Waits for `count` of parcels that are `apart` from each other; all are looked for at the same time. */
template <int N>
static __device__ __forceinline__ void receive(
	uint4 (&parcels)[N], const void *from, int at, int apart, int count, unsigned number)
{
	const uint4 *first = (const uint4 *)from + at;
	bool all;

	if (GATE && N > 1)
		look_for(parcels[0], first + (count - 1) * apart, number);
#pragma unroll
	for (int i = 0; i < N; i++)
		if (i < count)
			look(parcels[i], first + i * apart);
	do {
		all = true;
#pragma unroll
		for (int i = 0; i < N; i++)
			if (i < count && parcels[i].w != number)
				all = false;
		if (all || BOUND)
			break;
		if (NAP)
			__nanosleep(NAP);
#pragma unroll
		for (int i = 0; i < N; i++)
			if (i < count && parcels[i].w != number)
				look(parcels[i], first + i * apart);
	} while (true);
}
