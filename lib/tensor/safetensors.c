#include "tensor/safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "tensor/dtype.h"

/* Headers of large models take a few hundred kB. */
#define LARGEST_HEADER (64 << 20)

struct safetensors {
	char *path;
	int descriptor;
	cJSON *header;
	uint64_t data, length; /* where the data begins, and how many bytes of it there are */
};

struct entry {
	enum dtype dtype;
	const cJSON *shape;
	size_t count;
	uint64_t start; /* in the file */
};

static int read_fully(
	const struct safetensors *file, void *to, size_t length, uint64_t from, struct error *err)
{
	for (size_t done = 0; done < length;) {
		ssize_t got = pread(file->descriptor, (char *)to + done, length - done, (off_t)(from + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return error_set(err, STATUS_ENVIRONMENT, "cannot read %s: %s", file->path,
				got ? strerror(errno) : "it is too short");
		done += (size_t)got;
	}
	return 0;
}

static int read_header(struct safetensors *file, struct error *err)
{
	unsigned char prefix[8];
	uint64_t length = 0;
	struct stat status;
	char *text;
	int result;

	if (fstat(file->descriptor, &status) < 0 || !S_ISREG(status.st_mode))
		return error_set(err, STATUS_ENVIRONMENT, "%s is not a file", file->path);
	if (read_fully(file, prefix, sizeof(prefix), 0, err) < 0)
		return -1;
	for (int i = 7; i >= 0; i--)
		length = length << 8 | prefix[i];
	if (length > LARGEST_HEADER || length > (uint64_t)status.st_size - sizeof(prefix))
		return error_set(err, STATUS_ENVIRONMENT,
			"%s is not a safetensors file: a header of %llu bytes in a file of %lld", file->path,
			(unsigned long long)length, (long long)status.st_size);
	file->data = sizeof(prefix) + length;
	file->length = (uint64_t)status.st_size - file->data;
	text = xmalloc(length + 1);
	text[length] = '\0';
	result = read_fully(file, text, length, sizeof(prefix), err);
	if (!result) {
		file->header = json_parse(text, length, err);
		if (!file->header || !cJSON_IsObject(file->header)) {
			error_set(err, STATUS_ENVIRONMENT,
				"%s is not a safetensors file: its header is not a JSON object", file->path);
			result = -1;
		}
	}
	free(text);
	return result;
}

struct safetensors *safetensors_open(const char *path, struct error *err)
{
	struct safetensors *file = xcalloc(1, sizeof(*file));

	file->path = xstrdup(path);
	file->descriptor = file_open(path, err);
	if (file->descriptor < 0 || read_header(file, err) < 0) {
		safetensors_close(file);
		return NULL;
	}
	return file;
}

void safetensors_close(struct safetensors *file)
{
	if (!file)
		return;
	if (file->descriptor >= 0)
		close(file->descriptor);
	cJSON_Delete(file->header);
	free(file->path);
	free(file);
}

static int parse_dtype(const char *text, enum dtype *dtype)
{
	static const char *const names[] = {[DTYPE_F32] = "F32", [DTYPE_BF16] = "BF16", [DTYPE_F16] = "F16"};

	for (int i = 0; i < 3; i++)
		if (!strcmp(text, names[i])) {
			*dtype = (enum dtype)i;
			return 0;
		}
	return -1;
}

/* A whole number from 0 to 2^53. */
static int parse_size(const cJSON *item, uint64_t *size)
{
	if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > 0x1p53 ||
		item->valuedouble != (double)(uint64_t)item->valuedouble)
		return -1;
	*size = (uint64_t)item->valuedouble;
	return 0;
}

static int find(const struct safetensors *file, const char *name, struct entry *entry, struct error *err)
{
	const cJSON *object = cJSON_GetObjectItemCaseSensitive(file->header, name), *offsets, *item;
	const char *dtype;
	uint64_t begin, end, count = 1, size;

	if (!object)
		return error_set(err, STATUS_ENVIRONMENT, "%s has no tensor \"%s\"", file->path, name);
	if (json_string(object, "dtype", JSON_REQUIRED, &dtype, err) < 0 ||
		json_array(object, "shape", JSON_REQUIRED, &entry->shape, err) < 0 ||
		json_array(object, "data_offsets", JSON_REQUIRED, &offsets, err) < 0) {
		error_context(err, "tensor \"%s\" of %s", name, file->path);
		err->status = STATUS_ENVIRONMENT;
		return -1;
	}
	if (parse_dtype(dtype, &entry->dtype) < 0)
		return error_set(err, STATUS_ENVIRONMENT,
			"tensor \"%s\" of %s is %s: F32, BF16 and F16 are read", name, file->path, dtype);
	cJSON_ArrayForEach (item, entry->shape) {
		if (parse_size(item, &size) < 0 || (size && count > file->length / size))
			return error_set(err, STATUS_ENVIRONMENT,
				"tensor \"%s\" of %s has a shape that the file cannot hold", name,
				file->path);
		count *= size;
	}
	if (cJSON_GetArraySize(offsets) != 2 || parse_size(cJSON_GetArrayItem(offsets, 0), &begin) < 0 ||
		parse_size(cJSON_GetArrayItem(offsets, 1), &end) < 0 || begin > end || end > file->length ||
		end - begin != count * dtype_size(entry->dtype))
		return error_set(err, STATUS_ENVIRONMENT,
			"tensor \"%s\" of %s: its offsets fit neither its shape nor the file", name,
			file->path);
	entry->count = count;
	entry->start = file->data + begin;
	return 0;
}

int safetensors_shape(
	const struct safetensors *file, const char *name, int64_t *shape, int capacity, struct error *err)
{
	struct entry entry;
	const cJSON *item;
	int count = 0;

	if (find(file, name, &entry, err) < 0)
		return -1;
	cJSON_ArrayForEach (item, entry.shape) {
		if (count == capacity)
			return error_set(err, STATUS_ENVIRONMENT,
				"tensor \"%s\" of %s has too many dimensions", name, file->path);
		shape[count++] = (int64_t)item->valuedouble;
	}
	return count;
}

int safetensors_read(
	const struct safetensors *file, const char *name, float *out, size_t count, struct error *err)
{
	struct entry entry;
	size_t size;
	char *raw;
	int result;

	if (find(file, name, &entry, err) < 0)
		return -1;
	if (entry.count != count)
		return error_set(err, STATUS_ENVIRONMENT,
			"tensor \"%s\" of %s has %zu numbers instead of %zu", name, file->path, entry.count,
			count);
	size = count * dtype_size(entry.dtype);
	raw = malloc(size ? size : 1);
	if (!raw)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for tensor \"%s\"", name);
	result = read_fully(file, raw, size, entry.start, err);
	for (size_t i = 0; i < count && !result; i++)
		out[i] = dtype_load(raw, entry.dtype, (int64_t)i);
	free(raw);
	return result;
}
