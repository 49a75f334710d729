#include "op/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "op/cpu.h"
#include "op/layer.h"

/* The kernel keeps a process's peak of resident memory, and forgets it when told so. */
static void cpu_memory_reset(void)
{
	FILE *file = fopen("/proc/self/clear_refs", "we");

	if (!file)
		return;
	fputs("5", file);
	fclose(file);
}

static double cpu_memory_peak(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];
	double kib = NAN;
	struct rusage usage;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmHWM: %lf", &kib) == 1)
			break;
	if (file)
		fclose(file);
	if (isnan(kib) && getrusage(RUSAGE_SELF, &usage) == 0)
		kib = (double)usage.ru_maxrss;
	return kib / 1024;
}

int device_open(const char *name, struct device *device, struct error *err)
{
	if (!strncmp(name, "cuda", 4) && (!name[4] || name[4] == ':')) {
		error_set(err, STATUS_ENVIRONMENT, "device %s: this build of quasar has no GPU path yet", name);
		return error_hint(err, "Use --device cpu, or set DEVICE=cpu or DEVICE=auto.");
	}
	if (strcmp(name, "auto") && strcmp(name, "cpu")) {
		error_set(err, STATUS_USAGE, "unknown device \"%s\"", name);
		return error_hint(err, "Devices are auto, cpu, cuda and cuda:N.");
	}
	*device = (struct device){
		.kind = "cpu",
		.quasar = quasar_cpu,
		.layer = layer_cpu,
		.memory_reset = cpu_memory_reset,
		.memory_peak = cpu_memory_peak,
	};
	cpu_describe(device->description, sizeof(device->description));
	return 0;
}
