#include "gpu/clock.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"

enum { NVML_CLOCK_SM = 1 };

struct nvmlDevice_st;

struct gpu_clock {
	void *library;
	struct nvmlDevice_st *device;
	int (*shutdown)(void);
	int (*read)(struct nvmlDevice_st *device, int which, unsigned *mhz);
};

static int find_device(struct gpu_clock *clock, const char *pci)
{
	int (*init)(void) = dlsym(clock->library, "nvmlInit_v2");
	int (*find)(const char *pci, struct nvmlDevice_st **device) = dlsym(
		clock->library, "nvmlDeviceGetHandleByPciBusId_v2");

	clock->shutdown = dlsym(clock->library, "nvmlShutdown");
	clock->read = dlsym(clock->library, "nvmlDeviceGetClockInfo");
	if (!init || !find || !clock->shutdown || !clock->read || init())
		return -1;
	if (!find(pci, &clock->device))
		return 0;
	clock->shutdown();
	return -1;
}

struct gpu_clock *gpu_clock_open(const struct gpu_properties *properties)
{
	struct gpu_clock *clock = xcalloc(1, sizeof(*clock));

	clock->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (clock->library && find_device(clock, properties->pci) == 0)
		return clock;
	log_debug("the clock of %s is not watched: NVML %s", properties->name,
		clock->library ? "does not know it" : "is not there");
	if (clock->library)
		dlclose(clock->library);
	free(clock);
	return NULL;
}

void gpu_clock_close(struct gpu_clock *clock)
{
	if (!clock)
		return;
	clock->shutdown();
	dlclose(clock->library);
	free(clock);
}

double gpu_clock_mhz(const struct gpu_clock *clock)
{
	unsigned mhz = 0;

	return clock && !clock->read(clock->device, NVML_CLOCK_SM, &mhz) && mhz ? mhz : NAN;
}
