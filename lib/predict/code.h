/* code: what the instructions of a kernel's machine code ask of a multiprocessor, as far as the model
 * needs to know.
 *
 * NVIDIA does not document the encoding. From compute capability 8.0 to 12.0 an instruction takes 16
 * bytes, of which the lowest 12 bits are the operation; what is read here was found by comparing code with
 * NVIDIA's disassembler. An instruction that is not known counts as one that asks for nothing but its
 * turn. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Of one warp. */
struct code {
	int instructions;
	double mma_flops, wgmma_flops; /* on the tensor cores, by mma.sync and by wgmma */
	double shared_bytes;           /* through the path to shared memory, local memory included */
};

/* What all of the code does once, and what its longest loop does each time, which is then not in `once`: a
 * loop runs from the target of a branch backwards to that branch, and nothing in between ends the thread.
 * `beside`: the same of the longest loop that is apart from it. No loop: zeros. */
void code_read(const uint8_t *text, size_t length, int capability, struct code *once, struct code *loop,
	struct code *beside);
