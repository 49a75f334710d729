/* cpu: what this machine's processor can do, and how many of its cores work.
 *
 * Numeric kernels are compiled once for each instruction set ("variant"); the best one that the machine has
 * is in use until another is selected. Which kernel that means is known to whoever has kernels. */
#pragma once

#include <stddef.h>

/* Slowest first. */
enum cpu_variant { CPU_BASELINE, CPU_X86_64_V3, CPU_X86_64_V4, CPU_X86_64_AMX, CPU_VARIANTS };

/* The one in use. */
enum cpu_variant cpu_variant(void);
const char *cpu_variant_name(void); /* "x86_64_v4" */

/* The names of those that this machine can run, slowest first; ends with NULL. */
const char *const *cpu_variants(void);
/* For tests and measurements; not while an operation runs. -1 when it is not one of cpu_variants(). */
int cpu_variant_select(const char *name);

/* Threads that work is spread over: every core the process may use, unless set. 0 goes back to that. */
int cpu_threads(void);
void cpu_threads_set(int threads);

/* "cpu (AMD EPYC 7763, 2 threads, x86_64_v3)" */
void cpu_describe(char *text, size_t size);
