/* share: what a block works on: a group of chunks, or some chunks, of one head's sequence; and where what the passes leave each
 * other of it lies in working memory. */
#pragma once

#include "quasar/block.cuh"

/* A group, or some chunks, of one head's sequence. */
struct share {
	int sequence; /* of each head: where its states are */
	int index;    /* which of the sequence's groups, or of its parts of so many chunks */
	long long first, tokens;
	int number; /* of a packed sequence */
};

/* Of the sequence. */
static __device__ __forceinline__ long long tokens_of(
	const struct quasar_chunk_arguments &a, const struct share &share)
{
	return PACKED ? share.tokens : a.tokens;
}

static __device__ __forceinline__ int chunks_of(
	const struct quasar_chunk_arguments &a, const struct share &share)
{
	return PACKED ? (int)((tokens_of(a, share) + CHUNK - 1) / CHUNK) : a.chunks;
}

static __device__ __forceinline__ int groups_of(
	const struct quasar_chunk_arguments &a, const struct share &share)
{
	return PACKED ? max((chunks_of(a, share) + a.chunks_per_group - 1) / a.chunks_per_group, 1)
		      : a.groups;
}

static __device__ __forceinline__ long long start_of(const struct quasar_chunk_arguments &a, int number)
{
	return min(max(a.starts[number], 0ll), a.tokens);
}

/* Packed sequences: a block looks for its own. A part is so many tokens; sequence n has the parts from starts[n] / part
 * + n on, of which there are enough, whatever its length is: nobody needs to count parts beforehand. Without its last part,
 * whose transition nobody asks for, they begin at starts[n] / part. False: there is nothing to do. */
static __device__ __forceinline__ bool find_share(
	struct share &share, const struct quasar_chunk_arguments &a, long long part, bool last_too)
{
	const long long own = blockIdx.x / a.heads;
	long long step = 1;
	int found = 0;

	while (step * 32 < a.sequences)
		step *= 32;
	for (; step; step /= 32) { /* each lane asks at one of 32 places */
		const long long candidate = found + threadIdx.x % 32 * step;
		const bool before = candidate < a.sequences &&
			start_of(a, (int)candidate) / part + (last_too ? candidate : 0) <= own;

		found += (__popc(__ballot_sync(~0u, before)) - 1) * (int)step;
	}
	share.number = found;
	share.sequence = found * a.heads + blockIdx.x % a.heads;
	share.first = start_of(a, found);
	share.tokens = max(start_of(a, found + 1) - share.first, 0ll);
	share.index = (int)(own - share.first / part - (last_too ? found : 0));
	return share.index * part < share.tokens - (last_too ? 0 : part) || (last_too && !share.index);
}

static __device__ __forceinline__ bool make_share(
	struct share &share, const struct quasar_chunk_arguments &a, long long part, bool last_too)
{
	if (PACKED)
		return find_share(share, a, part, last_too);
	share.sequence = blockIdx.x % (a.batch * a.heads);
	share.index = blockIdx.x / (a.batch * a.heads);
	share.first = 0;
	return true;
}

/* Where one of its groups and chunks is in working memory. */
static __device__ __forceinline__ long long place_of_group(
	const struct quasar_chunk_arguments &a, const struct share &share, int group)
{
	if (PACKED)
		return (share.first / ((long long)a.chunks_per_group * CHUNK) + group) * a.heads +
			share.sequence % a.heads;
	return (long long)share.sequence * a.groups + group;
}

static __device__ __forceinline__ long long place_of_chunk(
	const struct quasar_chunk_arguments &a, const struct share &share, int chunk)
{
	if (PACKED)
		return (share.first / CHUNK + share.number + chunk) * a.heads + share.sequence % a.heads;
	return (long long)share.sequence * a.chunks + chunk;
}

static __device__ __forceinline__ unsigned char *transition_of(
	const struct quasar_chunk_arguments &a, const struct share &share, int group)
{
	return (unsigned char *)a.transitions + place_of_group(a, share, group) * TRANSITION_BYTES;
}

static __device__ __forceinline__ int *forgotten_of(
	const struct quasar_chunk_arguments &a, const struct share &share, int group)
{
	return a.forgotten + (PACKED ? place_of_group(a, share, group) : share.sequence * a.groups + group);
}

static __device__ __forceinline__ unsigned char *inverse_of(
	const struct quasar_chunk_arguments &a, const struct share &share, int chunk)
{
	return (unsigned char *)a.inverses + place_of_chunk(a, share, chunk) * SQUARE_BYTES;
}
