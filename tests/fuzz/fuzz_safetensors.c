/* A safetensors file that somebody else made. */
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "layer/layer.h"
#include "tensor/safetensors.h"

/* The input as a file without a name; returns its path and descriptor. */
static int open_file(const uint8_t *data, size_t size, char path[32])
{
	int fd = memfd_create("safetensors", MFD_CLOEXEC);

	REQUIRE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

static void read_tensor(struct safetensors *file, const char *name)
{
	struct error err = {0};
	struct safetensors_tensor tensor;
	float *numbers;
	volatile unsigned sum = 0; /* all of it can be read */
	int found = safetensors_find(file, name, &tensor, &err);

	REQUIRE(found == 0 || err.message[0]);
	if (found < 0 || tensor.count > 1 << 20)
		return;
	REQUIRE(tensor.axes <= SAFETENSORS_AXES);
	numbers = malloc(tensor.count * sizeof(*numbers) + 1);
	REQUIRE(numbers && safetensors_read(file, name, numbers, tensor.count, &err) == 0);
	REQUIRE(safetensors_read(file, name, numbers, tensor.count + 1, &err) < 0);
	REQUIRE(safetensors_map(file, &err) == 0 && safetensors_find(file, name, &tensor, &err) == 0);
	for (size_t i = 0; i < tensor.count * dtype_size(tensor.dtype); i++)
		sum += ((const uint8_t *)tensor.data)[i];
	free(numbers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error err = {0};
	struct safetensors *file;
	struct layer *layer;
	char path[32];
	int fd = open_file(data, size, path);

	file = safetensors_open(path, &err);
	REQUIRE(file || err.message[0]);
	if (file) {
		read_tensor(file, "beta_log");
		read_tensor(file, "q_proj.weight");
		read_tensor(file, "");
		layer = layer_load(path, &err);
		layer_free(layer);
	}
	safetensors_close(file);
	close(fd);
	return 0;
}
