/* cpu: the operation on the CPU, by chunks, fp32 arithmetic, all cores.
 *
 * The kernels are compiled once for each instruction set ("variant"); the best one that the machine has
 * is chosen when first used. Results do not depend on the number of threads beyond rounding. */
#pragma once

#include "op/quasar.h"

int quasar_cpu(const struct quasar_problem *problem, struct error *err);

/* The variants this machine can run, slowest first; ends with NULL. The last one is in use. */
const char *const *cpu_variants(void);

/* Uses another variant from now on, in all threads; for tests and measurements. -1: not one of them. */
int cpu_variant_select(const char *name);
const char *cpu_variant_selected(void);

/* Threads that work is spread over: QUASAR_THREADS, or what cpu_threads_set said, or every core the
 * process may use. */
int cpu_threads(void);
void cpu_threads_set(int threads);

/* "Intel Xeon Platinum 8480C, 2 threads, x86-64-v4": for reports. */
void cpu_describe(char *text, size_t size);
