/* parcel: what blocks send each other in a single token's step, where one waits for just that: three words, and a number that
 * says of which layer of which step they are, in 16 bytes that are written and read as one (PTX: an access of .b128 is
 * single-copy atomic). Who finds the number it waits for has the words that belong to it: nothing else has to be ordered, so
 * there is no fence, and no second way to memory for the words.
 *
 * No number comes twice (`a.number`), so that what an earlier layer or step has left is not taken for what is to come. Each place
 * is written once a layer, and not before all who look there have found what was there before. For each part of a layer needs
 * all that the part before it has sent, and a block sends after it has received: so whoever writes a place again, a layer
 * later, has received, by way of the parts between, something of each block that looks there, sent after it had looked. A block
 * that has nothing to send in a part must not look for what that part needs. Loads are done when something is sent, as
 * it depends on what they brought; nothing but that dependence is needed, and no order of other accesses. */
#pragma once

#include "model/plan.cuh"

#define SENDS_HEADS                                                                                          \
	(STREAMED && !HEAD_NORMS) /* else heads are normalised first, by others than those who make them */

/* Eight columns: of x, with the sum of their tile's squares; of what is activated, as planes. */
#define OCTETS(columns) divide_up(columns, 8)
#define X_PARCELS 3
#define PLANE_PARCELS divide_up(4 * MODEL_PLANES(INPUT), 3)

/* Where they are. A kind's parcels of the same index are side by side, so that a warp's accesses are whole lines. */
enum {
	X_AT,                                       /* after the output product */
	NEXT_X_AT = X_AT + MODEL_X_PARCELS(HIDDEN), /* after the down product */
	ACTIVATED_AT = NEXT_X_AT + MODEL_X_PARCELS(HIDDEN),
	HEADS_AT = ACTIVATED_AT +
		MODEL_ACTIVATED_PARCELS(INTERMEDIATE, INPUT), /* two numbers, half a head apart */
	ATTENDED_AT = HEADS_AT + MODEL_HEADS_PARCELS(HEADS, KV_HEADS, HEAD_DIM),
	/* four columns of a part's sums in two parcels, with its largest score and the sum of its weights */
	BEST_AT = ATTENDED_AT + MODEL_ATTENDED_PARCELS(HEADS, HEAD_DIM), /* of each block */
	PARCELS_END = BEST_AT + BLOCKS,
};
static_assert(PARCELS_END == MODEL_PARCELS(HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, INPUT, BLOCKS),
	"as the host counts");

/* .b128 is in PTX since CUDA 12.3; before, the four words are named, for which ptxas makes the same instructions. */
#define HAS_B128 (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 3))

static __device__ __forceinline__ void send(
	const struct model_step_arguments &a, int at, unsigned x, unsigned y, unsigned z, unsigned number)
{
#if HAS_B128
	asm volatile("{ .reg .b64 low, high;\n"
		     ".reg .b128 all;\n"
		     "mov.b64 low, {%1, %2};\n"
		     "mov.b64 high, {%3, %4};\n"
		     "mov.b128 all, {low, high};\n"
		     "st.relaxed.gpu.global.b128 [%0], all; }" ::"l"((uint4 *)a.parcels + at),
		     "r"(x), "r"(y), "r"(z), "r"(number)
		     : "memory");
#else
	asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"((uint4 *)a.parcels + at),
		     "r"(x), "r"(y), "r"(z), "r"(number)
		     : "memory");
#endif
}

static __device__ __forceinline__ void send(
	const struct model_step_arguments &a, int at, float x, float y, float z, unsigned number)
{
	send(a, at, __float_as_uint(x), __float_as_uint(y), __float_as_uint(z), number);
}

static __device__ __forceinline__ uint4 look(const struct model_step_arguments &a, int at)
{
	uint4 parcel;

#if HAS_B128
	asm volatile("{ .reg .b64 low, high;\n"
		     ".reg .b128 all;\n"
		     "ld.relaxed.gpu.global.b128 all, [%4];\n"
		     "mov.b128 {low, high}, all;\n"
		     "mov.b64 {%0, %1}, low;\n"
		     "mov.b64 {%2, %3}, high; }"
		     : "=r"(parcel.x), "=r"(parcel.y), "=r"(parcel.z), "=r"(parcel.w)
		     : "l"((const uint4 *)a.parcels + at)
		     : "memory");
#else
	asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(parcel.x), "=r"(parcel.y), "=r"(parcel.z), "=r"(parcel.w)
		     : "l"((const uint4 *)a.parcels + at)
		     : "memory");
#endif
	return parcel;
}

/* Waits for the first `count` of N parcels, which are looked for at the same time; number i is there where at(i) says. */
template <int N, typename AT>
static __device__ __forceinline__ void receive(
	const struct model_step_arguments &a, uint4 (&parcels)[N], int count, unsigned number, AT at)
{
	bool all;

#pragma unroll
	for (int i = 0; i < N; i++)
		parcels[i].w = ~number;
	do {
		all = true;
#pragma unroll
		for (int i = 0; i < N; i++)
			if (i < count && parcels[i].w != number)
				parcels[i] = look(a, at(i));
#pragma unroll
		for (int i = 0; i < N; i++)
			all &= i >= count || parcels[i].w == number;
	} while (!all);
}
