#include "probe/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"
#include "gpu/gpu.h"
#include "probe/cgroup.h"
#include "probe/filter.h"
#include "probe/watch.h"

#define MOST_MEMORY_MIB 16384 /* what validators' own sandboxes give */
#define MOST_FILES_MIB 2048
#define MEMORY_SHARE 0.8 /* of what this machine has to give; files come on top */
#define FILES_SHARE 0.1
#define SHARED_MEMORY_MIB 64LL /* of /dev/shm, as containers have it */
#define MOST_TASKS 512         /* the same */
/* What the kernel lets pass: between two looks of the watch, a fork bomb could take all that this machine has. Nearer to what
 * the watch lets pass, it would often be over before it was seen. */
#define TASKS_WALL (8 * MOST_TASKS)
#define MOST_DESCRIPTORS 4096

#define TRY_SECONDS 10.0
#define INFORMATION_BYTES 4096
#define MINOR_FIELD "Device Minor:"

enum file { FILTER, INFO, FILES };

struct sandbox {
	char **words; /* the command up to the program's own; ends with NULL */
	size_t count;
	int files[FILES +
		1]; /* that bubblewrap gets: the filter, which it reads, and what it tells of itself; then -1 */
	char *group; /* of processes, as cgroup_make() gave it */
	struct watch_bounds bounds;
	struct watch *watch; /* NULL: nothing runs */
};

/* --- the command ------------------------------------------------------------------------------------- */

/* Takes the word over. */
static void add_word(struct sandbox *sandbox, char *word)
{
	sandbox->words = xrealloc(sandbox->words, (sandbox->count + 2) * sizeof(*sandbox->words));
	sandbox->words[sandbox->count++] = word;
	sandbox->words[sandbox->count] = NULL;
}

/* Adds words up to a NULL. */
__attribute__((sentinel)) static void add(struct sandbox *sandbox, ...)
{
	const char *word;
	va_list words;

	va_start(words, sandbox);
	while ((word = va_arg(words, const char *)))
		add_word(sandbox, xstrdup(word));
	va_end(words);
}

__attribute__((format(printf, 2, 3))) static void add_format(struct sandbox *sandbox, const char *format, ...)
{
	va_list values;

	va_start(values, format);
	add_word(sandbox, xvprintf(format, values));
	va_end(values);
}

/* All that it sees of the environment, bubblewrap included: that is a process of the sandbox, too, and can be read
 * there. */
static void add_environment(struct sandbox *sandbox)
{
	/* where libraries and compilers are, and how they are set up */
	static const char *const passed[] = {"PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH",
		"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREADS", "MKL_NUM_THREADS"};

	add(sandbox, "/usr/bin/env", "-i", "HOME=/tmp", "TMPDIR=/tmp", "USER=fork", "LANG=C.UTF-8", NULL);
	for (size_t i = 0; i < sizeof(passed) / sizeof(*passed); i++)
		if (getenv(passed[i]))
			add_format(sandbox, "%s=%s", passed[i], getenv(passed[i]));
}

/* The programs of the system, with what they read of /etc. */
static void add_system(struct sandbox *sandbox)
{
	static const char *const roots[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64"};
	static const char *const maybe[] = {"/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime",
		"/nix/store", "/sys/devices/system"};

	add(sandbox, "--ro-bind", "/usr", "/usr", NULL);
	for (size_t i = 0; i < sizeof(roots) / sizeof(*roots); i++) {
		char target[256];
		ssize_t length = readlink(roots[i], target, sizeof(target) - 1);

		target[length > 0 ? length : 0] = '\0';
		if (length > 0)
			add(sandbox, "--symlink", target, roots[i], NULL);
		else
			add(sandbox, "--ro-bind-try", roots[i], roots[i], NULL);
	}
	for (size_t i = 0; i < sizeof(maybe) / sizeof(*maybe); i++)
		add(sandbox, "--ro-bind-try", maybe[i], maybe[i], NULL);
}

/* A /proc of its own. Of that, the machine's part is read-only: where root validates, it could be written to like root's.
 * The processes' part stays writable: CUDA does not start without naming its threads there. */
static void add_proc(struct sandbox *sandbox)
{
	DIR *proc = opendir("/proc");
	const struct dirent *entry;

	add(sandbox, "--proc", "/proc", NULL);
	while (proc && (entry = readdir(proc))) {
		char *path = path_join("/proc", entry->d_name);
		struct stat status;

		if (!strchr(".0123456789", entry->d_name[0]) && lstat(path, &status) == 0 &&
			(S_ISDIR(status.st_mode) || (S_ISREG(status.st_mode) && status.st_mode & 0222)))
			add(sandbox, "--ro-bind", path, path, NULL);
		free(path);
	}
	if (proc)
		closedir(proc);
}

/* Whether `place` is, or holds, what lies at `path`. Both by their real names. */
static bool holds(const char *place, const char *path)
{
	char *outer = realpath(place, NULL), *inner = path ? realpath(path, NULL) : NULL;
	size_t length = outer ? strlen(outer) : 0;
	bool result = outer && inner && !strncmp(outer, inner, length) &&
		(strchr("/", inner[length]) || length == 1);

	free(outer);
	free(inner);
	return result;
}

/* Keys and settings lie in the home directory, in a workspace and where one works: no place may hold these. */
static bool is_private(const char *place)
{
	char *home = path_expand("~"), *settings = path_join(place, ".env");
	bool result = holds(place, home) || holds(place, ".") || path_exists(settings);

	free(settings);
	free(home);
	return result;
}

/* Shows a place, which has to be there unless `option` says otherwise. What lies in /usr is there already. */
static void add_place(struct sandbox *sandbox, const char *option, const char *place)
{
	if (strncmp(place, "/usr/", 5) != 0 && strcmp(place, "/usr") != 0)
		add(sandbox, option, place, place, NULL);
}

static int add_places(struct sandbox *sandbox, const char *const *places, struct error *err)
{
	for (; places && *places; places++) {
		if (is_private(*places)) {
			error_set(err, STATUS_ENVIRONMENT,
				"a fork would get to read %s, which holds your home or current directory, or a .env",
				*places);
			return error_hint(err,
				"Use a Python whose folder holds nothing else, as a virtual "
				"environment has it: --python PATH.");
		}
		add_place(sandbox, "--ro-bind", *places);
	}
	return 0;
}

/* Where libraries are looked for, as far as that shows nothing else. */
static void add_library_places(struct sandbox *sandbox)
{
	const char *const lists[] = {getenv("LD_LIBRARY_PATH"), getenv("CUDA_HOME"), getenv("CUDA_PATH")};

	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
		char *list = xstrdup(lists[i] ? lists[i] : ""), *rest = list, *place;

		while ((place = strsep(&rest, ":")))
			if (*place == '/' && !is_private(place))
				add_place(sandbox, "--ro-bind-try", place);
		free(list);
	}
}

/* The device file of the GPU, /dev/nvidia0 or another one. NULL on error; the caller frees. */
static char *gpu_file(int index, struct error *err)
{
	struct gpu_properties properties;
	struct buffer text = {0};
	char *path, *file = NULL;
	const char *minor;

	if (gpu_query(index, &properties, err) < 0)
		return NULL;
	path = xprintf("/proc/driver/nvidia/gpus/%s/information", properties.pci);
	if (file_read(path, INFORMATION_BYTES, &text, err) == 0) {
		minor = strstr(text.data, MINOR_FIELD);
		if (minor)
			file = xprintf("/dev/nvidia%d", atoi(minor + strlen(MINOR_FIELD)));
		else
			error_set(err, STATUS_ENVIRONMENT, "%s does not name the device file", path);
	}
	buffer_free(&text);
	free(path);
	return file;
}

static int add_devices(struct sandbox *sandbox, int gpu, struct error *err)
{
	/* not /dev/nvidia-caps: who may open these, as root's processes may in here, can divide the GPU up */
	static const char *const common[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
	char *file = gpu < 0 ? NULL : gpu_file(gpu, err);

	if (gpu >= 0 && !file)
		return -1;
	add(sandbox, "--dev", "/dev", "--size", NULL);
	add_format(sandbox, "%lld", SHARED_MEMORY_MIB << 20);
	add(sandbox, "--tmpfs", "/dev/shm", NULL);
	if (file) {
		add(sandbox, "--dev-bind", file, file, NULL);
		for (size_t i = 0; i < sizeof(common) / sizeof(*common); i++)
			add(sandbox, "--dev-bind-try", common[i], common[i], NULL);
	}
	add(sandbox, "--remount-ro", "/dev", NULL);
	free(file);
	return 0;
}

static int make_command(struct sandbox *sandbox, const struct sandbox_options *options, struct error *err)
{
	double available = memory_available() / options->share;

	sandbox->bounds = (struct watch_bounds){
		.memory_mb = fmin(MEMORY_SHARE * available, MOST_MEMORY_MIB),
		.tasks = MOST_TASKS,
	};
	add_environment(sandbox);
	if (sandbox->group)
		add(sandbox, "/bin/sh", "-c", "echo $$ >\"$0\" && exec \"$@\"", sandbox->group, NULL);
	/* should memory run out all the same, it goes first */
	add(sandbox, "choom", "-n", "1000", "--", "prlimit", "--core=0", NULL);
	add_format(sandbox, "--nofile=%d", MOST_DESCRIPTORS);
	add(sandbox, "--", "bwrap", "--die-with-parent", "--new-session", "--cap-drop", "ALL", NULL);
	add(sandbox, "--unshare-all", "--unshare-user", "--disable-userns", NULL);
	add(sandbox, "--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--seccomp", NULL);
	add_format(sandbox, "%d", sandbox->files[FILTER]);
	add(sandbox, "--info-fd", NULL);
	add_format(sandbox, "%d", sandbox->files[INFO]);
	add_system(sandbox);
	add_proc(sandbox);
	if (add_devices(sandbox, options->gpu, err) < 0)
		return -1;
	add(sandbox, "--size", NULL);
	add_format(sandbox, "%.0f", fmin(FILES_SHARE * available, MOST_FILES_MIB) * 0x1p20);
	add(sandbox, "--tmpfs", "/tmp", NULL);
	add_library_places(sandbox);
	for (const char *const *place = options->own; place && *place; place++)
		add_place(sandbox, "--ro-bind", *place);
	if (add_places(sandbox, options->places, err) < 0)
		return -1;
	add(sandbox, "--remount-ro", "/", "--chdir", options->directory, "--", "prlimit", NULL);
	/* counts in here only, and not for root */
	add_format(sandbox, "--nproc=%d", TASKS_WALL);
	add(sandbox, "--", NULL);
	return 0;
}

/* --- its life ---------------------------------------------------------------------------------------- */

struct sandbox *sandbox_open(const struct sandbox_options *options, struct error *err)
{
	struct sandbox *sandbox = xcalloc(1, sizeof(*sandbox));

	sandbox->files[FILTER] = filter_open(err);
	sandbox->files[INFO] = memfd_create("info", MFD_CLOEXEC);
	if (sandbox->files[FILTER] >= 0 && sandbox->files[INFO] < 0)
		error_set(err, STATUS_ENVIRONMENT, "cannot make a file in memory: %s", strerror(errno));
	sandbox->files[FILES] = -1;
	sandbox->group = cgroup_make(TASKS_WALL);
	if (sandbox->files[FILTER] >= 0 && sandbox->files[INFO] >= 0 &&
		make_command(sandbox, options, err) == 0)
		return sandbox;
	sandbox_close(sandbox);
	return NULL;
}

void sandbox_close(struct sandbox *sandbox)
{
	struct error ignored;

	if (!sandbox)
		return;
	sandbox_leave(sandbox, &ignored);
	for (size_t i = 0; i < sandbox->count; i++)
		free(sandbox->words[i]);
	free(sandbox->words);
	cgroup_remove(sandbox->group);
	free(sandbox->group);
	if (sandbox->files[FILTER] >= 0)
		close(sandbox->files[FILTER]);
	if (sandbox->files[INFO] >= 0)
		close(sandbox->files[INFO]);
	free(sandbox);
}

const char **sandbox_command(const struct sandbox *sandbox, const char *const *argv)
{
	size_t count = 0;
	const char **command;

	while (argv[count])
		count++;
	command = xcalloc(sandbox->count + count + 1, sizeof(*command));
	memcpy(command, sandbox->words, sandbox->count * sizeof(*command));
	memcpy(command + sandbox->count, argv, count * sizeof(*command));
	return command;
}

const int *sandbox_files(const struct sandbox *sandbox)
{
	return sandbox->files;
}

int sandbox_enter(struct sandbox *sandbox, pid_t process, struct error *err)
{
	sandbox->watch = watch_start(process, sandbox->files[INFO], &sandbox->bounds, err);
	return sandbox->watch ? 0 : -1;
}

int sandbox_leave(struct sandbox *sandbox, struct error *err)
{
	struct watch *watch = sandbox->watch;

	sandbox->watch = NULL;
	return watch ? watch_end(watch, err) : 0;
}

/* --- whether it works -------------------------------------------------------------------------------- */

/* What ended by itself, without having been a sandbox. */
static int ended_early(const struct process *process, int status, struct error *err)
{
	if (process->text.length)
		return error_set(err, STATUS_ENVIRONMENT, "%.500s", text_last_line(process->text.data));
	return error_set(err, STATUS_ENVIRONMENT, "bubblewrap ended with status %d", status);
}

/* A program that may not even start one process is ended: then it was started, seen, and reached. */
static int try(struct sandbox *sandbox, struct error *err)
{
	const char **command = sandbox_command(sandbox, (const char *[]){"sleep", "infinity", NULL});
	struct process process;
	int status = 0, result;

	sandbox->bounds.tasks = 0;
	result = process_talk(&process, command, NULL, sandbox->files, err);
	free(command);
	if (result)
		return -1;
	result = sandbox_enter(sandbox, process.pid, err);
	if (!result)
		result = process_finish(&process, TRY_SECONDS, &status, err);
	process_kill(&process);
	if (!result && sandbox_leave(sandbox, err) == 0)
		ended_early(&process, status, err);
	buffer_free(&process.text);
	return !result && err->status == STATUS_FAILED ? 0 : -1;
}

int sandbox_works(struct error *err)
{
	const struct sandbox_options options = {.directory = "/", .gpu = -1, .share = 1};
	struct sandbox *sandbox = sandbox_open(&options, err);
	int result = sandbox ? try(sandbox, err) : -1;

	sandbox_close(sandbox);
	if (result == 0 || err->status == STATUS_INTERRUPTED)
		return result;
	error_context(err, "a sandbox does not work here");
	return error_hint(err,
		"Install bubblewrap 0.8 or later (apt install bubblewrap), and let it make namespaces: a container "
		"needs --privileged, Ubuntu 24.04 sysctl kernel.apparmor_restrict_unprivileged_userns=0.");
}
