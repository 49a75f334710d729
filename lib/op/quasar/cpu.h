/* cpu: the operation on the CPU, by chunks, fp32 arithmetic, all cores. The number of threads and the
 * instruction set (cpu/cpu.h) change results by rounding only. */
#pragma once

#include "op/quasar/problem.h"

/* Tensors, beta and states are in the host's memory. STATUS_USAGE for a problem that quasar_check refuses,
 * STATUS_ENVIRONMENT without memory. */
int quasar_cpu(const struct quasar_problem *problem, struct error *err);
