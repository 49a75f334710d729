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

static void read_tensor(const struct safetensors *file, const char *name)
{
	struct error err = {0};
	int64_t shape[3];
	size_t count = 1;
	float *numbers;
	int axes = safetensors_shape(file, name, shape, 3, &err);

	REQUIRE(axes <= 3 && (axes >= 0 || err.message[0]));
	for (int axis = 0; axis < axes; axis++)
		count *= (size_t)shape[axis]; /* fits the file, or there is no shape */
	if (axes < 0 || count > 1 << 20)
		return;
	numbers = malloc(count * sizeof(*numbers) + 1);
	REQUIRE(numbers && safetensors_read(file, name, numbers, count, &err) == 0);
	REQUIRE(safetensors_read(file, name, numbers, count + 1, &err) < 0);
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
