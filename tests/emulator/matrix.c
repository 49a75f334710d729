/* matrix: products of small matrices by a whole warp, and what brings their fragments from shared memory.
 *
 * In all fragments lane 4g + t has elements of row g. A register of 32 bits has E elements of a factor: of the left one
 * those from column tE on, of the right one those from row tE on of its column g. Further registers have the rows eight
 * below, then the next 4E columns. Of sums a lane has columns 2t and 2t + 1, in rows g and g + 8. */
#include <stdio.h>
#include <string.h>

#include "access.h"
#include "half.h"

#define GROUP(lane) ((lane) >> 2)
#define PLACE(lane) ((lane)&3)
#define MOST_K 32

bool all_here(struct warp *warp, const struct instruction *instruction)
{
	if (warp->live != ALL_LANES)
		fault(warp, instruction, __builtin_ctz(~warp->live), CUDA_ERROR_ILLEGAL_INSTRUCTION,
			"this lane takes no part in what all must do");
	return warp->active == ALL_LANES || (warp_wait(warp), false);
}

/* --- fragments ---------------------------------------------------------------------------------------- */

/* The types of factors' elements, the type to compute in, and the value of such an ELEMENT. */
#define FACTORS(_)                                                                                           \
	_(bf16, uint16_t, float, bf16_to_float(ELEMENT))                                                     \
	_(f16, uint16_t, float, f16_to_float(ELEMENT))                                                       \
	_(tf32, uint32_t, float, float_of_bits(ELEMENT & ~0x1fffu))                                          \
	_(s8, int8_t, int32_t, ELEMENT)                                                                      \
	_(u8, uint8_t, int32_t, ELEMENT)

/* Four lanes side by side have all that a register has of a row of the left factor, or of a column of the right one. */
#define LOADER(name, element, type, x)                                                                       \
	static inline void load_left_##name(const struct warp *warp, const struct instruction *instruction,  \
		int slot, int m, int k, type to[16][MOST_K])                                                 \
	{                                                                                                    \
		const int count = 16 / (int)sizeof(element), high = m / 8;                                   \
                                                                                                             \
		for (int i = 0; i < high * k / count; i++)                                                   \
			for (int row = 0; row < 8; row++)                                                    \
				for (int j = 0; j < count; j++) {                                            \
					const element ELEMENT = SLOT(element, slot + i)[row * count + j];    \
                                                                                                             \
					to[i % high * 8 + row][i / high * count + j] = (x);                  \
				}                                                                            \
	}                                                                                                    \
	static inline void load_right_##name(const struct warp *warp, const struct instruction *instruction, \
		int slot, int k, type to[MOST_K][8])                                                         \
	{                                                                                                    \
		const int count = 16 / (int)sizeof(element);                                                 \
                                                                                                             \
		for (int i = 0; i < k / count; i++)                                                          \
			for (int column = 0; column < 8; column++)                                           \
				for (int j = 0; j < count; j++) {                                            \
					const element ELEMENT = SLOT(element, slot + i)[column * count + j]; \
                                                                                                             \
					to[i * count + j][column] = (x);                                     \
				}                                                                            \
	}
FACTORS(LOADER)

/* --- products ----------------------------------------------------------------------------------------- */

#define MULTIPLY(type)                                                                                       \
	static inline void multiply_##type(                                                                  \
		type sums[2][64], type left[16][MOST_K], type right[MOST_K][8], int m, int k)                \
	{                                                                                                    \
		for (int row = 0; row < m; row++) {                                                          \
			type *sum = sums[row / 8] + row % 8 * 8, total[8];                                   \
                                                                                                             \
			memcpy(total, sum, sizeof(total));                                                   \
			for (int i = 0; i < k; i++)                                                          \
				for (int column = 0; column < 8; column++)                                   \
					total[column] += left[row][i] * right[i][column];                    \
			memcpy(sum, total, sizeof(total));                                                   \
		}                                                                                            \
	}
MULTIPLY(float)
MULTIPLY(int32_t)
MULTIPLY(double)

/* A sum of 32 bits, and pairs of fp16. */
#define SUMS(_)                                                                                              \
	_(f32, float, 2, SLOT(float, slot + row * 2 + e)[lane], SLOT(float, row * 2 + e)[lane] = value)      \
	_(s32, int32_t, 2, SLOT(int32_t, slot + row * 2 + e)[lane],                                          \
		SLOT(int32_t, row * 2 + e)[lane] = value)                                                    \
	_(f16, float, 1, f16_to_float((uint16_t)(SLOT(uint32_t, slot + row)[lane] >> 16 * e)),               \
		SLOT(uint16_t, row)[lane * 2 + e] = f16_of_float(value))

#define SUM(name, type, registers, read, write)                                                              \
	static void load_sums_##name(const struct warp *warp, const struct instruction *instruction,         \
		int slot, int m, type sums[2][64])                                                           \
	{                                                                                                    \
		for (int row = 0; row < m / 8; row++)                                                        \
			for (int lane = 0; lane < LANES; lane++)                                             \
				for (int e = 0; e < 2; e++)                                                  \
					sums[row][lane * 2 + e] = read;                                      \
	}                                                                                                    \
	static void store_sums_##name(                                                                       \
		const struct warp *warp, const struct instruction *instruction, int m, type sums[2][64])     \
	{                                                                                                    \
		for (int row = 0; row < m / 8; row++)                                                        \
			for (int lane = 0; lane < LANES; lane++)                                             \
				for (int e = 0; e < 2; e++) {                                                \
					const type value = sums[row][lane * 2 + e];                          \
                                                                                                             \
					write;                                                               \
				}                                                                            \
	}
SUMS(SUM)

/* d, a, b, c: of each as many registers as its fragment has. */
#define PRODUCT(name, left_type, right_type, sum_type, type, m, k, size, sum_registers)                      \
	OPERATION(mma_##name)                                                                                \
	{                                                                                                    \
		const int a = sum_registers, b = a + m * k * size / 1024, c = b + 8 * k * size / 1024;       \
		type left[16][MOST_K], right[MOST_K][8], sums[2][64];                                        \
                                                                                                             \
		if (!all_here(warp, instruction))                                                            \
			return;                                                                              \
		load_left_##left_type(warp, instruction, a, m, k, left);                                     \
		load_right_##right_type(warp, instruction, b, k, right);                                     \
		load_sums_##sum_type(warp, instruction, c, m, sums);                                         \
		multiply_##type(sums, left, right, m, k);                                                    \
		store_sums_##sum_type(warp, instruction, m, sums);                                           \
	}

#define PRODUCTS(_)                                                                                          \
	_(m16n8k8_bf16_f32, bf16, bf16, f32, float, 16, 8, 16, 4)                                            \
	_(m16n8k16_bf16_f32, bf16, bf16, f32, float, 16, 16, 16, 4)                                          \
	_(m16n8k8_f16_f32, f16, f16, f32, float, 16, 8, 16, 4)                                               \
	_(m16n8k16_f16_f32, f16, f16, f32, float, 16, 16, 16, 4)                                             \
	_(m16n8k8_f16_f16, f16, f16, f16, float, 16, 8, 16, 2)                                               \
	_(m16n8k16_f16_f16, f16, f16, f16, float, 16, 16, 16, 2)                                             \
	_(m16n8k4_tf32_f32, tf32, tf32, f32, float, 16, 4, 32, 4)                                            \
	_(m16n8k8_tf32_f32, tf32, tf32, f32, float, 16, 8, 32, 4)                                            \
	_(m8n8k16_s8_s32, s8, s8, s32, int32_t, 8, 16, 8, 2)                                                 \
	_(m8n8k16_u8_s32, u8, u8, s32, int32_t, 8, 16, 8, 2)                                                 \
	_(m16n8k16_s8_s32, s8, s8, s32, int32_t, 16, 16, 8, 4)                                               \
	_(m16n8k16_u8_s32, u8, u8, s32, int32_t, 16, 16, 8, 4)                                               \
	_(m16n8k32_s8_s32, s8, s8, s32, int32_t, 16, 32, 8, 4)                                               \
	_(m16n8k32_u8_s32, u8, u8, s32, int32_t, 16, 32, 8, 4)
PRODUCTS(PRODUCT)

/* fp64 has registers of its own size. */
OPERATION(mma_m8n8k4_f64_f64)
{
	double left[16][MOST_K], right[MOST_K][8], sums[2][64];

	if (!all_here(warp, instruction))
		return;
	for (int lane = 0; lane < LANES; lane++) {
		left[GROUP(lane)][PLACE(lane)] = SLOT(double, 2)[lane];
		right[PLACE(lane)][GROUP(lane)] = SLOT(double, 3)[lane];
		for (int e = 0; e < 2; e++)
			sums[0][lane * 2 + e] = SLOT(double, 4 + e)[lane];
	}
	multiply_double(sums, left, right, 8, 4);
	for (int lane = 0; lane < LANES; lane++)
		for (int e = 0; e < 2; e++)
			SLOT(double, e)[lane] = sums[0][lane * 2 + e];
}

#define ENTRY(name, left, right, sum, type, m, k, size, sums)                                                \
	{#name, mma_##name, 2 * sums + (m + 8) * k * size / 1024, 4},
static const struct {
	const char *name;
	operation *execute;
	int operands, width;
} products[] = {PRODUCTS(ENTRY){"m8n8k4_f64_f64", mma_m8n8k4_f64_f64, 6, 8}};

/* mma.sync.aligned.SHAPE.row.col.D.A.B.C d, a, b, c */
static int decode_product(struct decoding *decoding, struct error *err)
{
	char name[64];

	drop_parts(decoding, "sync aligned row col");
	if (decoding->part_count != 6 || strcmp(decoding->parts[2], decoding->parts[5]) ||
		strcmp(decoding->parts[3], decoding->parts[4]))
		return not_understood(decoding, err, "an unknown product");
	snprintf(name, sizeof(name), "%s_%s_%s", decoding->parts[1], decoding->parts[3], decoding->parts[2]);
	for (size_t i = 0; i < sizeof(products) / sizeof(*products); i++) {
		if (strcmp(products[i].name, name))
			continue;
		if (decoding->statement->operand_count != products[i].operands)
			return not_understood(decoding, err, "not the registers that are expected");
		decoding->instruction->execute = products[i].execute;
		for (int j = 0; j < products[i].operands; j++)
			if (decode_operand(decoding, j, j, products[i].width, err) < 0)
				return -1;
		return 0;
	}
	return not_understood(decoding, err, "an unknown product");
}

/* --- 8 × 8 matrices of 16 bits ------------------------------------------------------------------------ */

/* Lane 4r + t has elements 2t and 2t + 1 of row r: a register of all lanes is the matrix, row behind row. */
static void copy_matrix(uint16_t *to, const uint16_t *from, bool transposed)
{
	for (int row = 0; row < 8; row++)
		for (int column = 0; column < 8; column++)
			to[row * 8 + column] = transposed ? from[column * 8 + row] : from[row * 8 + column];
}

/* Lane 8i + r has the address of row r of matrix i. */
OPERATION(load_matrices)
{
	struct view view = view_of(warp, instruction, READ);
	uint16_t matrix[64];

	if (!all_here(warp, instruction))
		return;
	for (int i = 0; i < instruction->count; i++) {
		for (int row = 0; row < 8; row++)
			memcpy(matrix + row * 8,
				reach_address(warp, instruction, i * 8 + row, 16, READ, &view), 16);
		copy_matrix(SLOT(uint16_t, i), matrix, instruction->variant);
	}
}

OPERATION(store_matrices)
{
	struct view view = view_of(warp, instruction, WRITE);
	uint16_t matrix[64];

	if (!all_here(warp, instruction))
		return;
	for (int i = 0; i < instruction->count; i++) {
		copy_matrix(matrix, SLOT(uint16_t, i), instruction->variant);
		for (int row = 0; row < 8; row++)
			memcpy(reach_address(warp, instruction, i * 8 + row, 16, WRITE, &view),
				matrix + row * 8, 16);
	}
}

OPERATION(transpose_matrix)
{
	uint16_t matrix[64];

	if (!all_here(warp, instruction))
		return;
	memcpy(matrix, SLOT(uint16_t, 1), sizeof(matrix));
	copy_matrix(SLOT(uint16_t, 0), matrix, true);
}

static int decode_matrices(struct decoding *decoding, bool load, struct error *err)
{
	struct instruction *instruction = decoding->instruction;
	int first = load ? 0 : 1;

	drop_parts(decoding, "sync aligned m8n8 b16");
	instruction->count = take_part(decoding, "x4") ? 4 : take_part(decoding, "x2") ? 2 : 1;
	drop_parts(decoding, "x1");
	instruction->variant = take_part(decoding, "trans");
	decode_space(decoding);
	if (no_parts_left(decoding, err) < 0)
		return -1;
	if (decoding->statement->operand_count != instruction->count + 1)
		return not_understood(decoding, err, "not one register for each matrix");
	instruction->execute = load ? load_matrices : store_matrices;
	for (int i = 0; i < instruction->count; i++)
		if (decode_operand(decoding, first + i, i, 4, err) < 0)
			return -1;
	return decode_address(decoding, load ? instruction->count : 0, err);
}

static int decode_load_matrices(struct decoding *decoding, struct error *err)
{
	return decode_matrices(decoding, true, err);
}

static int decode_store_matrices(struct decoding *decoding, struct error *err)
{
	return decode_matrices(decoding, false, err);
}

static int decode_transpose(struct decoding *decoding, struct error *err)
{
	drop_parts(decoding, "sync aligned m8n8 trans b16");
	decoding->instruction->execute = transpose_matrix;
	if (no_parts_left(decoding, err) < 0 || decode_operand(decoding, 0, 0, 4, err) < 0)
		return -1;
	return decode_operand(decoding, 1, 1, 4, err);
}

const struct family matrix_families[] = {{"mma", decode_product}, {"ldmatrix", decode_load_matrices},
	{"stmatrix", decode_store_matrices}, {"movmatrix", decode_transpose}, {0}};
