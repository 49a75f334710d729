/* clock: how fast a GPU's multiprocessors run at the moment, as NVML knows, which comes with the driver. Power and heat
 * change that under load, and times with it. */
#pragma once

#include "gpu/gpu.h"

struct gpu_clock;

/* NULL where NVML is not there, or knows no such GPU; the log says so, for whoever wants to know. */
struct gpu_clock *gpu_clock_open(const struct gpu_properties *properties);
void gpu_clock_close(struct gpu_clock *clock); /* NULL is fine */

/* In MHz; NAN: not known, as of NULL. Any thread. */
double gpu_clock_mhz(const struct gpu_clock *clock);
