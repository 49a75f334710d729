#include "device.h"

#include <sodium.h>

#include "base/number.h"
#include "cpu/cpu.h"

int command_device(
	const struct invocation *invocation, const char *name, struct device *device, struct error *err)
{
	const char *source, *threads = settings_get(invocation->settings, "QUASAR_THREADS", &source);
	int64_t count = 0;

	if (threads && (number_parse_integer(threads, &count) < 0 || count < 1 || count > 4096))
		return error_set(err, STATUS_USAGE,
			"QUASAR_THREADS (from %s): \"%s\" is not a number of threads", source, threads);
	cpu_threads_set((int)count);
	name = name ? name : settings_get(invocation->settings, "DEVICE", NULL);
	return device_open(name, device, err);
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
