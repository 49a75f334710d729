/* operate: an operation on tensors that another program made.
 *
 *     operate DEVICE OP SEMANTICS DTYPE BATCH TOKENS HEADS KEY_HEADS KEY_DIM VALUE_DIM <inputs >outputs
 *
 * Inputs are the family's tensors in its order, saved ones included and initial ones left out, contiguous, as they are;
 * so are the outputs, final ones included. Ends with status 77 where there is no such device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure/device.h"

#define NO_DEVICE 77

static struct device device;

static void must(int result, const struct error *err)
{
	if (result == 0)
		return;
	fprintf(stderr, "operate: %s\n", err->message);
	exit(1);
}

static int64_t number(const char *text)
{
	return strtoll(text, NULL, 10);
}

static enum dtype dtype_of(const char *name)
{
	enum dtype dtype = DTYPE_F32;

	while (strcmp(dtype_name(dtype), name))
		dtype++;
	return dtype;
}

int main(int argc, char **argv)
{
	const struct family *family = argc == 11 ? family_find(argv[2]) : NULL;
	int options[FAMILY_OPTIONS];
	size_t bytes[FAMILY_TENSORS];
	struct op_problem problem;
	struct op_shape shape;
	struct error err = {0};

	if (!family)
		return 2;
	must(family_options_parse(family, argv[3], options, &err), &err);
	if (device_open(argv[1], &device, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		return NO_DEVICE;
	}
	shape = (struct op_shape){number(argv[5]), number(argv[6]), (int)number(argv[7]),
		(int)number(argv[9]), (int)number(argv[10]), (int)number(argv[8]), 0};
	problem = family_problem(family, &shape, dtype_of(argv[4]), options);
	for (int i = 0; family->tensors[i].name; i++) {
		struct tensor *tensor = &problem.tensors[i];
		int64_t size[4];
		void *host;

		bytes[i] = (size_t)family_tensor_size(&family->tensors[i], &shape, size) *
			dtype_size(tensor->dtype);
		if (family->tensors[i].role == TENSOR_INITIAL || !function_has_tensor(family, options, i))
			continue;
		host = malloc(bytes[i]);
		tensor->data = device.allocate(&device, bytes[i], &err);
		must(tensor->data && host ? 0 : -1, &err);
		if (tensor_is_output(&family->tensors[i]))
			memset(host, 0xff, bytes[i]);
		else if (fread(host, 1, bytes[i], stdin) != bytes[i])
			return 3;
		must(device.upload(&device, tensor->data, host, bytes[i], &err), &err);
		free(host);
	}
	must(device.operate(&device, family, &problem, NULL, &err), &err);
	for (int i = 0; family->tensors[i].name; i++) {
		void *host = malloc(bytes[i]);

		if (tensor_is_output(&family->tensors[i])) {
			must(device.download(&device, host, problem.tensors[i].data, bytes[i], &err), &err);
			fwrite(host, 1, bytes[i], stdout);
		}
		free(host);
		device.release(&device, problem.tensors[i].data);
	}
	device_close(&device);
	return 0;
}
