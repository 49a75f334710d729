#include "cli/device.h"

#include <sodium.h>

#include "base/number.h"
#include "cpu/cpu.h"

int command_compute(const struct invocation *invocation, struct error *err)
{
	const char *source, *threads = settings_get(invocation->settings, "QUASAR_THREADS", &source);
	int64_t count = 0;

	if (threads && (number_parse_integer(threads, &count) < 0 || count < 1 || count > 4096))
		return error_set(err, STATUS_USAGE,
			"QUASAR_THREADS (from %s): \"%s\" is not a valid number of threads", source, threads);
	cpu_threads_set((int)count);
	return 0;
}

int command_device(
	const struct invocation *invocation, const char *name, struct device *device, struct error *err)
{
	if (command_compute(invocation, err) < 0)
		return -1;
	name = name ? name : settings_get(invocation->settings, "DEVICE", NULL);
	return device_open(name, device, err);
}

int command_semantics(const struct invocation *invocation, const struct family *family,
	int options[FAMILY_OPTIONS], struct error *err)
{
	return family_options_parse(family, arg_string(invocation, "semantics"), options, err);
}

int command_layer_semantics(const int options[FAMILY_OPTIONS], enum semantics *semantics, struct error *err)
{
	if (options[0] == QUASAR_UPSTREAM || options[0] == QUASAR_CAUSAL) {
		*semantics = (enum semantics)options[0];
		return 0;
	}
	error_set(err, STATUS_USAGE, "the layer has only upstream and causal semantics");
	return error_hint(err, "For the operation alone, add --op.");
}

const struct family *command_family(const struct invocation *invocation)
{
	const char *name = arg_string(invocation, "op");

	return name && *name ? family_find(name) : families[0];
}

uint64_t command_seed(void)
{
	return randombytes_random();
}
