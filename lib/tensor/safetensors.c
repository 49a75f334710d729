#include "tensor/safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

/* Headers of large models take a few hundred kB. */
#define LARGEST_HEADER (64 << 20)

/* What the header says of a tensor. */
struct entry {
	const char *name;
	const char *dtype;
	int axes;
	int64_t shape[SAFETENSORS_AXES]; /* of the first axes */
	size_t count;
	uint64_t begin, end; /* in the data */
};

struct safetensors {
	char *path;
	int descriptor;
	uint64_t data, length; /* where the data begins, and how many bytes of it there are */
	const char *map;       /* the whole file; NULL: not mapped */
	cJSON *header;         /* owns the entries' strings */
	struct entry *entries; /* by name */
	size_t count;
};

/* The names of tensors are somebody else's words. */
static int refuse(const struct safetensors *file, const char *name, struct error *err, const char *why)
{
	error_set(err, STATUS_ENVIRONMENT, "tensor \"%.200s\" of %s %s", name, file->path, why);
	text_clean(err->message);
	return -1;
}

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

/* --- entries ------------------------------------------------------------------------------------- */

static bool parse_dtype(const char *text, enum dtype *dtype)
{
	static const char *const names[] = {[DTYPE_F32] = "F32", [DTYPE_BF16] = "BF16", [DTYPE_F16] = "F16"};

	for (int i = 0; i < 3; i++)
		if (!strcmp(text, names[i])) {
			*dtype = (enum dtype)i;
			return true;
		}
	return false;
}

/* A whole number from 0 to 2^53. */
static bool parse_size(const cJSON *item, uint64_t *size)
{
	if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > 0x1p53 ||
		item->valuedouble != (double)(uint64_t)item->valuedouble)
		return false;
	*size = (uint64_t)item->valuedouble;
	return true;
}

static bool parse_shape(const struct safetensors *file, const cJSON *shape, struct entry *entry)
{
	const cJSON *item;
	uint64_t size;

	entry->count = 1;
	cJSON_ArrayForEach (item, shape) {
		if (!parse_size(item, &size) || (size && entry->count > file->length / size))
			return false;
		if (entry->axes < SAFETENSORS_AXES)
			entry->shape[entry->axes] = (int64_t)size;
		entry->axes++;
		entry->count *= size;
	}
	return true;
}

/* Any type of number may stand in a file; how long those are that are not read here is not known. */
static bool fits(const struct safetensors *file, const struct entry *entry)
{
	enum dtype dtype;

	return entry->begin <= entry->end && entry->end <= file->length &&
		(!parse_dtype(entry->dtype, &dtype) ||
			entry->end - entry->begin == entry->count * dtype_size(dtype));
}

static int parse_entry(
	const struct safetensors *file, const cJSON *object, struct entry *entry, struct error *err)
{
	const cJSON *shape, *offsets;

	*entry = (struct entry){.name = object->string};
	if (json_string(object, "dtype", JSON_REQUIRED, &entry->dtype, err) < 0 ||
		json_array(object, "shape", JSON_REQUIRED, &shape, err) < 0 ||
		json_array(object, "data_offsets", JSON_REQUIRED, &offsets, err) < 0) {
		char *why = xprintf("cannot be read: %s", err->message);

		refuse(file, entry->name, err, why);
		free(why);
		return -1;
	}
	if (!parse_shape(file, shape, entry))
		return refuse(file, entry->name, err, "has a shape that the file cannot hold");
	if (cJSON_GetArraySize(offsets) != 2 || !parse_size(cJSON_GetArrayItem(offsets, 0), &entry->begin) ||
		!parse_size(cJSON_GetArrayItem(offsets, 1), &entry->end) || !fits(file, entry))
		return refuse(file, entry->name, err, "has offsets that fit neither its shape nor the file");
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static int by_begin(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
				    : (x->end > y->end) - (x->end < y->end);
}

static int overlap(
	const struct safetensors *file, const struct entry *a, const struct entry *b, struct error *err)
{
	char *why = xprintf("shares bytes with \"%.200s\"", b->name);

	refuse(file, a->name, err, why);
	free(why);
	return -1;
}

/* Leaves the entries in the order of their names. */
static int check_entries(struct safetensors *file, struct error *err)
{
	struct entry *entries = file->entries;

	qsort(entries, file->count, sizeof(*entries), by_begin);
	for (size_t i = 1; i < file->count; i++)
		if (entries[i].begin < entries[i - 1].end)
			return overlap(file, &entries[i], &entries[i - 1], err);
	qsort(entries, file->count, sizeof(*entries), by_name);
	for (size_t i = 1; i < file->count; i++)
		if (!by_name(&entries[i], &entries[i - 1]))
			return refuse(file, entries[i].name, err, "is there twice");
	return 0;
}

static int read_entries(struct safetensors *file, struct error *err)
{
	const cJSON *object;

	file->entries = xcalloc((size_t)cJSON_GetArraySize(file->header) + 1, sizeof(*file->entries));
	cJSON_ArrayForEach (object, file->header) {
		if (!strcmp(object->string, "__metadata__"))
			continue;
		if (parse_entry(file, object, &file->entries[file->count], err) < 0)
			return -1;
		file->count++;
	}
	return check_entries(file, err);
}

/* --- the file ------------------------------------------------------------------------------------ */

struct safetensors *safetensors_open(const char *path, struct error *err)
{
	struct safetensors *file = xcalloc(1, sizeof(*file));

	file->path = xstrdup(path);
	file->descriptor = file_open(path, err);
	if (file->descriptor >= 0 && read_header(file, err) == 0 && read_entries(file, err) == 0)
		return file;
	safetensors_close(file);
	return NULL;
}

void safetensors_close(struct safetensors *file)
{
	if (!file)
		return;
	if (file->map)
		munmap((void *)file->map, file->data + file->length);
	if (file->descriptor >= 0)
		close(file->descriptor);
	cJSON_Delete(file->header);
	free(file->entries);
	free(file->path);
	free(file);
}

int safetensors_map(struct safetensors *file, struct error *err)
{
	void *map = file->map
		? (void *)file->map
		: mmap(NULL, file->data + file->length, PROT_READ, MAP_SHARED, file->descriptor, 0);

	if (map == MAP_FAILED)
		return error_set(err, STATUS_ENVIRONMENT, "cannot map %s: %s", file->path, strerror(errno));
	file->map = map;
	return 0;
}

/* --- tensors ------------------------------------------------------------------------------------- */

static const struct entry *find(
	const struct safetensors *file, const char *name, enum dtype *dtype, struct error *err)
{
	const struct entry wanted = {.name = name};
	const struct entry *entry = bsearch(&wanted, file->entries, file->count, sizeof(wanted), by_name);
	char *why;

	if (!entry) {
		error_set(err, STATUS_ENVIRONMENT, "%s has no tensor \"%s\"", file->path, name);
		return NULL;
	}
	if (parse_dtype(entry->dtype, dtype))
		return entry;
	why = xprintf("is %.40s: F32, BF16 and F16 are read", entry->dtype);
	refuse(file, name, err, why);
	free(why);
	return NULL;
}

int safetensors_find(const struct safetensors *file, const char *name, struct safetensors_tensor *tensor,
	struct error *err)
{
	enum dtype dtype;
	const struct entry *entry = find(file, name, &dtype, err);

	if (!entry)
		return -1;
	if (entry->axes > SAFETENSORS_AXES)
		return refuse(file, name, err, "has too many dimensions");
	*tensor = (struct safetensors_tensor){
		.dtype = dtype,
		.axes = entry->axes,
		.count = entry->count,
		.data = file->map ? file->map + file->data + entry->begin : NULL,
	};
	memcpy(tensor->shape, entry->shape, sizeof(entry->shape));
	return 0;
}

int safetensors_read(
	const struct safetensors *file, const char *name, float *out, size_t count, struct error *err)
{
	enum dtype dtype;
	const struct entry *entry = find(file, name, &dtype, err);
	char *raw;
	int result;

	if (!entry)
		return -1;
	if (entry->count != count)
		return error_set(err, STATUS_ENVIRONMENT,
			"tensor \"%s\" of %s has %zu numbers instead of %zu", name, file->path, entry->count,
			count);
	raw = malloc(entry->end - entry->begin + 1);
	if (!raw)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for tensor \"%s\"", name);
	result = read_fully(file, raw, entry->end - entry->begin, file->data + entry->begin, err);
	for (size_t i = 0; i < count && !result; i++)
		out[i] = dtype_load(raw, dtype, (int64_t)i);
	free(raw);
	return result;
}
