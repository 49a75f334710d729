/* cpu: the operation on the CPU, by chunks, fp32 arithmetic, all cores.
 *
 * The kernels are compiled once for each instruction set ("variant"); the best one that the machine has
 * is in use until another is selected. The number of threads changes results by rounding only. */
#pragma once

#include "op/quasar.h"

int quasar_cpu(const struct quasar_problem *problem, struct error *err);

/* The variants this machine can run, slowest first; ends with NULL. */
const char *const *cpu_variants(void);
const char *cpu_variant(void); /* the one in use */
/* For tests and measurements; not while an operation runs. -1 when it is not one of cpu_variants(). */
int cpu_variant_select(const char *name);

/* Threads that work is spread over: every core the process may use, unless set. 0 goes back to that. */
int cpu_threads(void);
void cpu_threads_set(int threads);

/* "cpu (AMD EPYC 7763, 2 threads, x86-64-v3)" */
void cpu_describe(char *text, size_t size);
