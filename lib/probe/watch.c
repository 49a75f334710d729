#include "probe/watch.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/number.h"

#define LOOK_MILLISECONDS 20
#define END_MILLISECONDS 10000
#define BLIND_SECONDS 30.0 /* a sandbox that is not to be seen by then never will be */
#define RESERVE_MIB 256    /* of this machine's memory, for everybody else */
#define INFO_BYTES 1024
#define STATUS_BYTES 4096

enum finding { FINE, TASKS, MEMORY, MACHINE_MEMORY, BLIND };

struct watch {
	struct watch_bounds bounds;
	int process, first; /* as descriptors, which never come to mean another one; -1: not there yet */
	pid_t first_pid;
	int info, stop;
	DIR *proc; /* the sandbox's own /proc, which lists its processes and no other; NULL: not there yet */
	double available;  /* MiB of this machine's memory at the start */
	double socket_kib; /* that a socket can hold */
	pthread_t thread;
	enum finding finding; /* the thread's until it has ended */
	int reason;           /* errno of BLIND */
};

/* --- where it is ----------------------------------------------------------------------------------- */

/* The process that bubblewrap told, or 0. */
static pid_t first_process(int info)
{
	char text[INFO_BYTES];
	ssize_t length = pread(info, text, sizeof(text), 0);
	cJSON *document = length > 0 ? cJSON_ParseWithLength(text, (size_t)length) : NULL;
	const cJSON *pid = cJSON_GetObjectItemCaseSensitive(document, "child-pid");
	pid_t result = cJSON_IsNumber(pid) ? (pid_t)pid->valuedouble : 0;

	cJSON_Delete(document);
	return result;
}

/* Before the sandbox has made a /proc of its own, the way there leads to this machine's, or nowhere. */
static bool is_our_own(int directory)
{
	struct stat theirs, ours;

	return fstat(directory, &theirs) < 0 || stat("/proc", &ours) < 0 || theirs.st_dev == ours.st_dev;
}

static int open_process(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static void find_first(struct watch *watch)
{
	if (watch->first >= 0)
		return;
	watch->first_pid = first_process(watch->info);
	watch->first = watch->first_pid ? open_process(watch->first_pid) : -1;
}

/* Opens the sandbox's /proc. True when it is open, or there is no such thing yet. */
static bool find_proc(struct watch *watch)
{
	char path[64];
	int fd;

	find_first(watch);
	if (watch->first < 0)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/root/proc", (int)watch->first_pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		if (errno == ENOENT || errno == ESRCH)
			return true;
		watch->reason = errno;
		return false;
	}
	if (is_our_own(fd))
		close(fd);
	else
		watch->proc = fdopendir(fd);
	return true;
}

/* --- what it takes --------------------------------------------------------------------------------- */

/* Reads a file of /proc; false when there is none any more. */
static bool read_text(int directory, const char *path, char text[STATUS_BYTES])
{
	int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, STATUS_BYTES - 1);

	text[length > 0 ? length : 0] = '\0';
	if (fd >= 0)
		close(fd);
	return length > 0;
}

static bool read_status(int directory, const char *entry, char text[STATUS_BYTES])
{
	char path[64];

	snprintf(path, sizeof(path), "%.32s/status", entry);
	return read_text(directory, path, text);
}

/* The number in a line of its own: a process may call itself like a field, but not break the line. 0: no such line. */
static double field(const char *status, const char *name)
{
	const char *line = strstr(status, name);

	return line ? strtod(line + strlen(name), NULL) : 0;
}

/* Memory that is its own (pages of files are the system's to take back), swapped out or not, in KiB. */
static double memory_of(const char *status)
{
	return field(status, "\nRssAnon:") + field(status, "\nRssShmem:") + field(status, "\nVmSwap:") +
		field(status, "\nVmPTE:");
}

/* What waits in a socket to be read is no process's memory. In KiB. */
static double most_of_socket(void)
{
	char sent[STATUS_BYTES], received[STATUS_BYTES];

	read_text(AT_FDCWD, "/proc/sys/net/core/wmem_max", sent);
	read_text(AT_FDCWD, "/proc/sys/net/core/rmem_max", received);
	return 2 * (atof(sent) + atof(received)) / 1024; /* the kernel doubles what is asked for */
}

static double memory_of_sockets(const struct watch *watch)
{
	char text[STATUS_BYTES];

	if (!read_text(dirfd(watch->proc), "1/net/sockstat", text))
		return 0;
	return field(text, "sockets: used") * watch->socket_kib;
}

/* The number of the next process, or thread, in a list of them; NULL at its end. */
static const char *next_process(DIR *proc)
{
	const struct dirent *entry;

	while ((entry = readdir(proc)))
		if (isdigit((unsigned char)entry->d_name[0]))
			return entry->d_name;
	return NULL;
}

/* The same of one whose first thread has ended, which shows at its others only. */
static double memory_of_threads(int proc, const char *pid, char status[STATUS_BYTES])
{
	double memory = 0;
	char path[64];
	const char *thread;
	DIR *threads;
	int fd;

	snprintf(path, sizeof(path), "%.32s/task", pid);
	fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	threads = fd < 0 ? NULL : fdopendir(fd);
	while (!memory && threads && (thread = next_process(threads)))
		if (read_status(fd, thread, status))
			memory = memory_of(status);
	if (threads)
		closedir(threads);
	return memory;
}

/* Counted first, for when there are too many of them, there is no time to look at each. */
static bool are_too_many(const struct watch *watch)
{
	long count = 0;

	rewinddir(watch->proc);
	while (count <= watch->bounds.tasks && next_process(watch->proc))
		count++;
	return count > watch->bounds.tasks;
}

/* Memory that processes share, as one that was just forked does, is counted with each of them, and sockets as if they were
 * full: it is too much only when so much is gone from this machine's, too. */
static enum finding look(const struct watch *watch)
{
	double memory = 0, tasks = 0, available;
	char status[STATUS_BYTES];
	const char *pid;

	if (are_too_many(watch))
		return TASKS;
	rewinddir(watch->proc);
	while ((pid = next_process(watch->proc)))
		if (read_status(dirfd(watch->proc), pid, status)) {
			double own = memory_of(status);

			tasks += field(status, "\nThreads:");
			memory += own ? own : memory_of_threads(dirfd(watch->proc), pid, status);
		}
	if (tasks > watch->bounds.tasks)
		return TASKS;
	memory += memory_of_sockets(watch);
	available = memory_available();
	if (fmin(memory / 1024, watch->available - available) > watch->bounds.memory_mb)
		return MEMORY;
	return available < RESERVE_MIB ? MACHINE_MEMORY : FINE;
}

/* --- its end ----------------------------------------------------------------------------------------- */

static void kill_process(int process)
{
	syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
}

/* Before all others, where that may be asked for: where root validates, for whom the kernel does not bound the number of
 * processes. */
static void put_first(pid_t thread)
{
	const struct sched_param first = {.sched_priority = 1};

	sched_setscheduler(thread, SCHED_RR, &first);
}

/* With the first process the kernel ends all the others; it has to get its turn among them to die. */
static void end_all(const struct watch *watch)
{
	kill_process(watch->process);
	if (!watch->proc)
		return;
	kill_process(watch->first);
	put_first(watch->first_pid);
}

/* That may take the kernel a moment. */
static void wait_for_end(struct watch *watch)
{
	struct pollfd first;

	find_first(watch);
	first = (struct pollfd){.fd = watch->first, .events = POLLIN};
	if (watch->first >= 0)
		poll(&first, 1, END_MILLISECONDS);
}

/* --- the thread ------------------------------------------------------------------------------------ */

static enum finding look_or_find(struct watch *watch, double since)
{
	if (watch->proc)
		return look(watch);
	if (!find_proc(watch) || clock_elapsed() - since > BLIND_SECONDS)
		return BLIND;
	return FINE;
}

static void *keep_looking(void *context)
{
	struct watch *watch = context;
	struct pollfd stop = {.fd = watch->stop, .events = POLLIN};
	double since = clock_elapsed();

	put_first(0);
	while (watch->finding == FINE && poll(&stop, 1, LOOK_MILLISECONDS) <= 0)
		watch->finding = look_or_find(watch, since);
	if (watch->finding != FINE)
		end_all(watch);
	return NULL;
}

/* The signals that ask this program to stop are for its other threads. */
static int start_thread(struct watch *watch)
{
	sigset_t all, before;
	int reason;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	reason = pthread_create(&watch->thread, NULL, keep_looking, watch);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return reason;
}

static void close_file(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void release(struct watch *watch)
{
	if (watch->proc)
		closedir(watch->proc);
	close_file(watch->stop);
	close_file(watch->process);
	close_file(watch->first);
	free(watch);
}

struct watch *watch_start(pid_t process, int info, const struct watch_bounds *bounds, struct error *err)
{
	struct watch *watch = xcalloc(1, sizeof(*watch));
	int reason;

	*watch = (struct watch){
		.bounds = *bounds,
		.process = open_process(process),
		.first = -1,
		.info = info,
		.available = memory_available(),
		.socket_kib = most_of_socket(),
		.stop = eventfd(0, EFD_CLOEXEC),
	};
	reason = watch->process < 0 || watch->stop < 0 ? errno : start_thread(watch);
	if (!reason)
		return watch;
	error_set(err, STATUS_ENVIRONMENT, "cannot watch a sandbox: %s", strerror(reason));
	release(watch);
	return NULL;
}

int watch_end(struct watch *watch, struct error *err)
{
	enum finding finding;
	char number[48];
	int result = 0;

	eventfd_write(watch->stop, 1);
	pthread_join(watch->thread, NULL);
	wait_for_end(watch);
	finding = watch->finding;
	if (finding == TASKS)
		result = error_set(err, STATUS_FAILED, "it ran more than %ld processes and threads at a time",
			watch->bounds.tasks);
	if (finding == MEMORY) {
		number_grouped(floor(watch->bounds.memory_mb), number);
		result = error_set(
			err, STATUS_FAILED, "it took more than the %s MiB of memory that it may", number);
	}
	if (finding == MACHINE_MEMORY)
		result = error_set(err, STATUS_ENVIRONMENT, "this machine ran out of memory");
	if (finding == BLIND)
		result = error_set(err, STATUS_ENVIRONMENT, "cannot watch a sandbox: %s",
			watch->reason ? strerror(watch->reason) : "its processes are not to be seen");
	release(watch);
	return result;
}
