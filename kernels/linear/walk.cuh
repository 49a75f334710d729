/* walk: a warp's way through the chunks of a group, of which NUM_STAGES − 1 are on their way to shared memory. */
#pragma once

#include "linear/output.cuh"

/* A stage of the output has x first; then, causal, y and w; then what the derivative is taken at. One of the sum has y and
 * w, then o, where r and f are made. Both end with r and f where they are read. */
template <bool OUTPUT> struct stage {
	static constexpr bool UPDATES = !OUTPUT || CAUSAL, DERIVES = OUTPUT && AUGMENTED,
			      MAKES_NUMBERS = !OUTPUT && PASS == PASS_DK,
			      READS_O = MAKES_NUMBERS && NORMALISED,
			      READS_NUMBERS = OUTPUT && LINEAR_OUTPUT_NUMBERS(CAUSAL, PASS);
	static constexpr int BYTES = OUTPUT ? LINEAR_OUTPUT_STAGE(INPUT, KEY_DIM, VALUE_TILE, CAUSAL, PASS)
					    : LINEAR_SUM_STAGE(INPUT, KEY_DIM, VALUE_TILE, PASS, NORMALISED);
	static constexpr int Y = OUTPUT ? ROWS_BYTES : 0, W = Y + ROWS_BYTES,
			     AT = UPDATES ? W + COLUMNS_BYTES : ROWS_BYTES, O = AT,
			     OUT = DERIVES ? AT
		: UPDATES                  ? W
					   : 0, /* when it has been read */
		NUMBERS = BYTES - LINEAR_NUMBERS_BYTES;

	/* of the next chunk to be copied; those that are not read cost nothing */
	struct cursor x, y, w, at, o;

	__device__ __forceinline__ stage(const struct linear_arguments &a, const struct place &place)
	    : x(tile_cursor<key_tile>(a.x, place, 0)), y(tile_cursor<key_tile>(a.y, place, 0)),
	      w(tile_cursor<value_tile>(a.w, place, place.first_value)),
	      at(tile_cursor<value_tile>(a.at, place, place.first_value)),
	      o(tile_cursor<key_tile>(a.o, place, 0))
	{
	}

	template <typename TILE>
	__device__ __forceinline__ void copy_next(struct cursor &from, const struct device_tensor &tensor,
		const struct place &place, int left, unsigned address)
	{
		copy_tile<TILE>(from, tensor, place, left, address);
		from.advance(place.step);
	}

	__device__ __forceinline__ void copy(
		const struct linear_arguments &a, const struct place &place, int chunk, unsigned address)
	{
		const int left = (int)(a.tokens - (long long)chunk * LINEAR_CHUNK);

		if (OUTPUT)
			copy_next<key_tile>(x, a.x, place, left, address);
		if (UPDATES) {
			copy_next<key_tile>(y, a.y, place, left, address + Y);
			copy_next<value_tile>(w, a.w, place, left, address + W);
		}
		if (DERIVES)
			copy_next<value_tile>(at, a.at, place, left, address + AT);
		if (READS_O) {
			copy_next<key_tile>(o, a.o, place, left, address + O);
			copy_numbers(a, a.divisors, a.divisors, place, chunk, address + NUMBERS);
		}
		if (READS_NUMBERS)
			copy_numbers(a, a.scales, a.offsets, place, chunk, address + NUMBERS);
	}
};

template <bool OUTPUT>
static __device__ __forceinline__ void step(const struct linear_arguments &a, struct state &state,
	const struct place &place, const struct cursor &to, int chunk, unsigned address)
{
	typedef struct stage<OUTPUT> stage;
	const long long token = (long long)chunk * LINEAR_CHUNK;
	const unsigned numbers = address + stage::NUMBERS;
	const int left = (int)(a.tokens - token);
	float parts[2];
	rows y;
	columns w;

	if (stage::MAKES_NUMBERS)
		make_row_numbers(a, place, token, address + stage::Y, address + stage::O, numbers);
	if (stage::UPDATES) {
		if (OUTPUT)
			load_rows<true, PASS == PASS_DK, false>(
				y, place, address + stage::Y, numbers, NULL, parts);
		else
			load_columns<key_columns, KEY_FEATURE, false, PASS == PASS_DK>(
				y, place, address + stage::Y, numbers);
		load_columns<value_columns, VALUE_FEATURE, true, PASS == PASS_DV>(
			w, place, address + stage::W, numbers);
	}
	if constexpr (OUTPUT) {
		float out[4][LANE_VALUES];
		unsigned scores[PLANES][4];
		rows x;

		load_rows<false, PASS == PASS_DQ, PASS == PASS_FORWARD && NORMALISED>(
			x, place, address, numbers, state.sum, parts);
		if (CAUSAL)
			make_scores(place, left, numbers, x, y, scores, parts);
		attend(state, numbers, place, x, scores, w, out);
		if (CAUSAL) /* before out is finished, whose shuffles are waited for */
			update<true>(state, place, left, numbers, y, w);
		if (PASS == PASS_FORWARD)
			divide(a, place, token, parts, out);
		store_out(a, place, to, left, address + stage::OUT, out);
	} else {
		update<false>(state, place, left, numbers, y, w);
	}
}

/* A warp's stages. */
template <bool OUTPUT> static __device__ __forceinline__ unsigned stages_of(const struct place &place)
{
	return shared_memory() + place.warp * NUM_STAGES * stage<OUTPUT>::BYTES;
}

/* Asks for the first chunks of a group. */
template <bool OUTPUT>
static __device__ __forceinline__ void begin_walk(
	const struct linear_arguments &a, struct stage<OUTPUT> &from, const struct place &place)
{
	for (int i = 0; i < NUM_STAGES - 1; i++) {
		if (place.first + i * place.step < place.end)
			from.copy(a, place, place.first + i * place.step,
				stages_of<OUTPUT>(place) + i * stage<OUTPUT>::BYTES);
		copy_async_commit();
	}
}

/* Goes through the chunks of a group. */
template <bool OUTPUT>
static __device__ __forceinline__ void walk(const struct linear_arguments &a, struct stage<OUTPUT> &from,
	struct state &state, const struct place &place)
{
	const int bytes = stage<OUTPUT>::BYTES, ahead = (NUM_STAGES - 1) * place.step;
	const unsigned own = stages_of<OUTPUT>(place);
	struct cursor to = tile_cursor<value_tile>(a.out, place, place.first_value);
	int slot = 0;

	for (int chunk = place.first; chunk < place.end; chunk += place.step) {
		const int free = slot == 0 ? NUM_STAGES - 1 : slot - 1;

		copy_async_wait_group<NUM_STAGES - 2>();
		__syncwarp(); /* what other threads copied is there, and they have read what is overwritten */
		if (chunk + ahead < place.end)
			from.copy(a, place, chunk + ahead, own + free * bytes);
		copy_async_commit();
		step<OUTPUT>(a, state, place, to, chunk, own + slot * bytes);
		to.advance(place.step);
		slot = slot == NUM_STAGES - 1 ? 0 : slot + 1;
	}
}

/* The first warp's state becomes the sum of all, in order. */
static __device__ __forceinline__ void add_up_warps(struct state &state, const struct place &place)
{
	const unsigned own = shared_memory() + place.lane * 4;

	for (int from = NUM_WARPS - 1; from > 0; from--) {
		__syncthreads();
		if (place.warp == from)
			each_register(state, [&](int number, float &value) {
				line_at<1>(own + number * 128)->word[0] = __float_as_uint(value);
			});
		__syncthreads();
		if (place.warp == from - 1)
			each_register(state, [&](int number, float &value) {
				value += __uint_as_float(line_at<1>(own + number * 128)->word[0]);
			});
	}
}
