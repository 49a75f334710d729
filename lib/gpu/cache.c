#include "gpu/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hex.h"
#include "base/memory.h"

#define LARGEST_ENTRY ((size_t)64 << 20)
#define SUFFIX ".kernel"

struct header {
	char magic[8];
	uint64_t length;
	uint8_t hash[32];
};

static const char magic[8] = "QKERNEL1";

char *cache_directory(void)
{
	const char *base = getenv("XDG_CACHE_HOME");

	return base && base[0] == '/' ? path_join(base, "quasar/kernels")
				      : path_expand("~/.cache/quasar/kernels");
}

void cache_key(char key[CACHE_KEY], const char *const *texts)
{
	crypto_generichash_state state;
	uint8_t hash[32];

	crypto_generichash_init(&state, NULL, 0, sizeof(hash));
	for (; *texts; texts++)
		crypto_generichash_update(&state, (const uint8_t *)*texts, strlen(*texts) + 1);
	crypto_generichash_final(&state, hash, sizeof(hash));
	hex_encode(hash, sizeof(hash), key);
}

static char *entry_path(const char *directory, const char *key)
{
	return xprintf("%s/%s" SUFFIX, directory, key);
}

bool cache_get(const char *directory, const char *key, struct buffer *out)
{
	char *path = entry_path(directory, key);
	struct buffer file = {0};
	struct header header;
	struct error err;
	uint8_t hash[32];
	bool good = file_read(path, LARGEST_ENTRY, &file, &err) == 0 && file.length > sizeof(header);

	if (good) {
		memcpy(&header, file.data, sizeof(header));
		crypto_generichash(hash, sizeof(hash), (const uint8_t *)file.data + sizeof(header),
			file.length - sizeof(header), NULL, 0);
		good = !memcmp(header.magic, magic, sizeof(magic)) &&
			header.length == file.length - sizeof(header) &&
			!memcmp(header.hash, hash, sizeof(hash));
	}
	if (good) {
		utimensat(AT_FDCWD, path, NULL, 0); /* used now */
		buffer_append(out, file.data + sizeof(header), file.length - sizeof(header));
	}
	buffer_free(&file);
	free(path);
	return good;
}

/* --- keeping it small ---------------------------------------------------------------------------- */

struct entry {
	char *path;
	struct timespec used;
	size_t size;
};

static int by_use(const void *a, const void *b)
{
	const struct timespec *x = &((const struct entry *)a)->used, *y = &((const struct entry *)b)->used;

	if (x->tv_sec != y->tv_sec)
		return x->tv_sec < y->tv_sec ? -1 : 1;
	return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static void trim(const char *directory, const char *kept, size_t limit)
{
	DIR *listing = opendir(directory);
	struct entry *entries = NULL;
	size_t count = 0, total = 0;

	for (struct dirent *found; listing && (found = readdir(listing));) {
		const char *suffix = strrchr(found->d_name, '.');
		struct stat info;
		char *path;

		if (!suffix || strcmp(suffix, SUFFIX))
			continue;
		path = path_join(directory, found->d_name);
		if (stat(path, &info) < 0) {
			free(path);
			continue;
		}
		entries = xrealloc(entries, (count + 1) * sizeof(*entries));
		entries[count++] = (struct entry){path, info.st_mtim, (size_t)info.st_size};
		total += (size_t)info.st_size;
	}
	if (listing)
		closedir(listing);
	if (count)
		qsort(entries, count, sizeof(*entries), by_use);
	for (size_t i = 0; i < count; i++) {
		if (total > limit && strcmp(entries[i].path, kept) && remove(entries[i].path) == 0)
			total -= entries[i].size;
		free(entries[i].path);
	}
	free(entries);
}

int cache_put(const char *directory, const char *key, const void *data, size_t length, size_t limit,
	struct error *err)
{
	struct header header = {.length = length};
	struct buffer file = {0};
	char *path = entry_path(directory, key);
	int result = directory_make(directory, 0700, err);

	memcpy(header.magic, magic, sizeof(magic));
	crypto_generichash(header.hash, sizeof(header.hash), data, length, NULL, 0);
	buffer_append(&file, &header, sizeof(header));
	buffer_append(&file, data, length);
	if (!result)
		result = file_write(path, file.data, file.length, 0600, FILE_REPLACE, err);
	if (!result)
		trim(directory, path, limit);
	buffer_free(&file);
	free(path);
	return result;
}
