#include "device.h"

#include <sodium.h>
#include <string.h>

#include "base/number.h"
#include "op/cpu.h"

const char *command_device_option(const struct invocation *invocation)
{
	return arg_given(invocation, "device") ? arg_string(invocation, "device") : NULL;
}

int command_device(const struct invocation *invocation, const char *name, enum workload workload,
	struct device *device, struct error *err)
{
	const char *source, *threads = settings_get(invocation->settings, "QUASAR_THREADS", &source);
	bool insists = name && strcmp(name, "auto");
	int64_t count = 0;

	if (threads && (number_parse_integer(threads, &count) < 0 || count < 1 || count > 4096))
		return error_set(err, STATUS_USAGE,
			"QUASAR_THREADS (from %s): \"%s\" is not a number of threads", source, threads);
	cpu_threads_set((int)count);
	name = name ? name : settings_get(invocation->settings, "DEVICE", NULL);
	if (device_open(name, device, err) < 0)
		return -1;
	if (!insists && workload == WORKLOAD_LAYER && !device->layer)
		device_open_cpu(device);
	return 0;
}

enum semantics command_semantics(const struct invocation *invocation)
{
	enum semantics semantics = SEMANTICS_UPSTREAM;

	semantics_parse(arg_string(invocation, "semantics"), &semantics);
	return semantics;
}

uint64_t command_seed(void)
{
	return randombytes_random();
}
