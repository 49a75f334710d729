/* QuasarAttention of the tensors on standard input, to standard output: batch, tokens, heads, head dimension, packed
 * sequences (or 0) and whether there is a gate as int64; then q, k, v, beta, initial states and log gates in fp32, and the
 * sequences' bounds as int64. Out come o and the final states of the fp64 reference in fp64, and of the CPU version in fp32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/quasar/cpu.h"
#include "op/quasar/reference.h"

enum { BATCH, TOKENS, HEADS, DIM, SEQUENCES, GATED, HEADER };

static void *take(size_t count, size_t size)
{
	void *memory = calloc(count + 1, size);

	if (!memory || fread(memory, size, count, stdin) != count)
		exit(2);
	return memory;
}

int main(void)
{
	int64_t *header = take(HEADER, sizeof(*header));
	size_t rows = (size_t)(header[BATCH] * header[TOKENS] * header[HEADS]), dim = (size_t)header[DIM];
	size_t states = (size_t)((header[SEQUENCES] ? header[SEQUENCES] : header[BATCH]) * header[HEADS]);
	size_t count = rows * dim, state_count = states * dim * dim;
	int64_t tokens = header[TOKENS];
	int heads = (int)header[HEADS];
	struct tensor tensors[4];
	struct quasar_problem problem = {
		.semantics = SEMANTICS_CAUSAL, .batch = header[BATCH], .tokens = tokens};
	double *o = calloc(count, sizeof(*o)), *final = calloc(state_count, sizeof(*final));
	float *final_state = calloc(state_count, sizeof(*final_state));
	struct error err;

	for (int i = 0; i < 4; i++) /* the last one only for its memory */
		tensors[i] = tensor_contiguous(
			i < 3 ? take(count, sizeof(float)) : calloc(count, sizeof(float)), DTYPE_F32, tokens,
			heads, (int)dim);
	problem.heads = heads;
	problem.dim = (int)dim;
	problem.q = tensors[0];
	problem.k = tensors[1];
	problem.v = tensors[2];
	problem.o = tensors[3];
	problem.beta = take((size_t)heads, sizeof(float));
	problem.initial_state = take(state_count, sizeof(float));
	problem.final_state = final_state;
	problem.gated = header[GATED];
	problem.log_gate = header[GATED] ? take(rows, sizeof(float)) : NULL;
	problem.sequences = header[SEQUENCES];
	problem.starts = header[SEQUENCES] ? take((size_t)header[SEQUENCES] + 1, sizeof(int64_t)) : NULL;
	if (quasar_reference(&problem, o, final, &err) < 0 || quasar_cpu(&problem, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	return fwrite(o, sizeof(*o), count, stdout) != count ||
		fwrite(final, sizeof(*final), state_count, stdout) != state_count ||
		fwrite(tensors[3].data, sizeof(float), count, stdout) != count ||
		fwrite(final_state, sizeof(float), state_count, stdout) != state_count;
}
