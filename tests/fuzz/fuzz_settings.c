/* An .env file: what is read from it, written and read again stays the same. */
#include "fuzz.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "space/settings.h"

/* DIRECTORY/.env leads to a file in memory. */
static char directory[] = "/tmp/quasar-fuzz-XXXXXX", *path;
static int file = -1;

static void remove_directory(void)
{
	unlink(path);
	rmdir(directory);
	free(path);
}

static void make_directory(void)
{
	char target[32];

	file = memfd_create("env", MFD_CLOEXEC);
	REQUIRE(file >= 0 && fchmod(file, 0600) == 0 && mkdtemp(directory));
	path = path_join(directory, ".env");
	snprintf(target, sizeof(target), "/proc/self/fd/%d", file);
	REQUIRE(symlink(target, path) == 0);
	atexit(remove_directory);
}

static struct settings *load(const void *data, size_t size, struct error *err)
{
	REQUIRE(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size);
	return settings_load(directory, err);
}

static void require_equal(const struct settings *one, const struct settings *other)
{
	for (const struct setting *setting = settings_table; setting->name; setting++) {
		const char *a = settings_get(one, setting->name, NULL);
		const char *b = settings_get(other, setting->name, NULL);

		REQUIRE(!a == !b && (!a || !strcmp(a, b)));
	}
}

static void write_and_read(const struct settings *settings)
{
	struct buffer text = {0};
	struct error err = {0};
	struct settings *again;

	settings_write(settings, &text);
	again = load(text.data, text.length, &err);
	REQUIRE(again);
	require_equal(settings, again);
	settings_free(again);
	buffer_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct settings *settings;
	struct error err = {0};

	if (file < 0)
		make_directory();
	settings = load(data, size, &err);
	REQUIRE(settings || err.message[0]);
	if (settings)
		write_and_read(settings);
	settings_free(settings);
	return 0;
}
