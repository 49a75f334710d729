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
	struct safetensors_tensor tensor;
	float *numbers;
	int found = safetensors_find(file, name, &tensor, &err);

	REQUIRE(found == 0 || err.message[0]);
	if (found < 0 || tensor.count > 1 << 20)
		return;
	REQUIRE(tensor.axes <= SAFETENSORS_AXES);
	numbers = malloc(tensor.count * sizeof(*numbers) + 1);
	REQUIRE(numbers);
	safetensors_widen(&tensor, numbers);
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
