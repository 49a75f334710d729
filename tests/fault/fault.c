/* A library to be preloaded: it counts the calls with which a process reaches its disk and its peers, and
 * at one of them ends the process or lets the call fail.
 *
 *	FAULT=before@N   SIGKILL before the Nth call
 *	FAULT=after@N    SIGKILL after it
 *	FAULT=tear@N     SIGKILL when half of what it was to write or send is through
 *	FAULT=ENOSPC@N   the call fails (EIO, EROFS, ECONNRESET alike); ENOSPC@N+: all from there on do
 *	FAULT_CALLS=a,b  only these calls are counted
 *	FAULT_LOG=FILE   receives a line for each counted call
 *	FAULT_CLOCK=FILE the wall clock is off by as many seconds as FILE says at that moment
 *	FAULT_SLEEP=FILE the machine has slept for so many: all clocks but CLOCK_MONOTONIC have gone on
 *
 * Only the process that was started counts, not its children. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum fault { FAULT_NONE, FAULT_BEFORE, FAULT_AFTER, FAULT_TEAR, FAULT_ERROR };

static struct {
	enum fault fault;
	int error;          /* of FAULT_ERROR */
	unsigned at, count; /* calls */
	bool lasting;
	char only[128];
	const char *clock, *sleep;
	int log;
	pid_t process;
} plan = {.log = -1};

static void read_fault(const char *text)
{
	static const struct {
		const char *name;
		enum fault fault;
		int error;
	} names[] = {
		{"before", FAULT_BEFORE, 0},
		{"after", FAULT_AFTER, 0},
		{"tear", FAULT_TEAR, 0},
		{"ENOSPC", FAULT_ERROR, ENOSPC},
		{"EIO", FAULT_ERROR, EIO},
		{"EROFS", FAULT_ERROR, EROFS},
		{"ECONNRESET", FAULT_ERROR, ECONNRESET},
	};
	size_t length = strcspn(text, "@");
	char *end;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i].name) == length && !strncmp(names[i].name, text, length)) {
			plan.fault = names[i].fault;
			plan.error = names[i].error;
		}
	if (!plan.fault || !text[length]) {
		fprintf(stderr, "FAULT=%s is not understood\n", text);
		abort();
	}
	plan.at = (unsigned)strtoul(text + length + 1, &end, 10);
	plan.lasting = *end == '+';
}

__attribute__((constructor)) static void begin(void)
{
	const char *fault = getenv("FAULT"), *only = getenv("FAULT_CALLS"), *log = getenv("FAULT_LOG");

	if (fault)
		read_fault(fault);
	if (only)
		snprintf(plan.only, sizeof(plan.only), ",%s,", only);
	if (log)
		plan.log = (int)syscall(
			SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	plan.clock = getenv("FAULT_CLOCK");
	plan.sleep = getenv("FAULT_SLEEP");
	plan.process = getpid();
	unsetenv("LD_PRELOAD");
}

static bool is_counted(const char *name)
{
	char entry[64];

	if (getpid() != plan.process)
		return false;
	snprintf(entry, sizeof(entry), ",%s,", name);
	return !plan.only[0] || strstr(plan.only, entry);
}

/* What is to happen to this call. */
static enum fault arrive(const char *name)
{
	bool here;

	if (!is_counted(name))
		return FAULT_NONE;
	plan.count++;
	if (plan.log >= 0) {
		char line[64];
		int length = snprintf(line, sizeof(line), "%s\n", name);

		syscall(SYS_write, plan.log, line, length);
	}
	here = plan.count == plan.at || (plan.lasting && plan.count > plan.at);
	return here ? plan.fault : FAULT_NONE;
}

static void die(void)
{
	kill(plan.process, SIGKILL);
	for (;;)
		pause();
}

/* Makes the call `whole`, or what the plan has in its place; `half` is what a torn one gets done. */
#define MEET(name, whole, half)                                                                              \
	({                                                                                                   \
		enum fault fault = arrive(name);                                                             \
		__typeof__(whole) result = -1;                                                               \
                                                                                                             \
		if (fault == FAULT_BEFORE)                                                                   \
			die();                                                                               \
		if (fault == FAULT_TEAR) {                                                                   \
			(void)(half);                                                                        \
			die();                                                                               \
		}                                                                                            \
		if (fault == FAULT_ERROR)                                                                    \
			errno = plan.error;                                                                  \
		else                                                                                         \
			result = (whole);                                                                    \
		if (fault == FAULT_AFTER)                                                                    \
			die();                                                                               \
		result;                                                                                      \
	})

#define REAL(name)                                                                                           \
	static __typeof__(name) *real;                                                                       \
	if (!real)                                                                                           \
	real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* --- the clock -------------------------------------------------------------------------------------- */

/* Seconds; 0 while there is no such file. */
static double read_seconds(const char *path)
{
	char text[32] = "";
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		syscall(SYS_read, fd, text, sizeof(text) - 1);
		syscall(SYS_close, fd);
	}
	return strtod(text, NULL);
}

static void put_off(struct timespec *time, double seconds)
{
	long nanoseconds = time->tv_nsec + (long)((seconds - (double)(time_t)seconds) * 1e9) + 1000000000;

	time->tv_sec += (time_t)seconds + nanoseconds / 1000000000 - 1;
	time->tv_nsec = nanoseconds % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int result;

	REAL(clock_gettime);
	result = real(clock, now);
	if (plan.clock && clock == CLOCK_REALTIME)
		put_off(now, read_seconds(plan.clock));
	if (plan.sleep && (clock == CLOCK_REALTIME || clock == CLOCK_BOOTTIME))
		put_off(now, read_seconds(plan.sleep));
	return result;
}

/* --- the disk --------------------------------------------------------------------------------------- */

int fsync(int fd)
{
	REAL(fsync);
	return MEET("fsync", real(fd), 0);
}

int fdatasync(int fd)
{
	REAL(fdatasync);
	return MEET("fsync", real(fd), 0);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset)
{
	REAL(pwrite);
	return MEET("write", real(fd, data, length, offset), real(fd, data, length / 2, offset));
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset)
{
	REAL(pwrite64);
	return MEET("write", real(fd, data, length, offset), real(fd, data, length / 2, offset));
}

ssize_t write(int fd, const void *data, size_t length)
{
	struct stat status;

	REAL(write);
	if (fd <= STDERR_FILENO || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
		return real(fd, data, length);
	return MEET("write", real(fd, data, length), real(fd, data, length / 2));
}

int ftruncate(int fd, off_t length)
{
	REAL(ftruncate);
	return MEET("truncate", real(fd, length), 0);
}

int ftruncate64(int fd, off64_t length)
{
	REAL(ftruncate64);
	return MEET("truncate", real(fd, length), 0);
}

/* Only opening that makes a file counts. */
static mode_t creation_mode(int flags, va_list more)
{
	return flags & O_CREAT ? va_arg(more, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
	va_list more;
	mode_t mode;

	REAL(open);
	va_start(more, flags);
	mode = creation_mode(flags, more);
	va_end(more);
	return flags & O_CREAT ? MEET("create", real(path, flags, mode), 0) : real(path, flags);
}

int open64(const char *path, int flags, ...)
{
	va_list more;
	mode_t mode;

	REAL(open64);
	va_start(more, flags);
	mode = creation_mode(flags, more);
	va_end(more);
	return flags & O_CREAT ? MEET("create", real(path, flags, mode), 0) : real(path, flags);
}

int rename(const char *from, const char *to)
{
	REAL(rename);
	return MEET("rename", real(from, to), 0);
}

int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags)
{
	REAL(renameat2);
	return MEET("rename", real(from_directory, from, to_directory, to, flags), 0);
}

int link(const char *from, const char *to)
{
	REAL(link);
	return MEET("link", real(from, to), 0);
}

int unlink(const char *path)
{
	REAL(unlink);
	return MEET("unlink", real(path), 0);
}

int mkdir(const char *path, mode_t mode)
{
	REAL(mkdir);
	return MEET("mkdir", real(path, mode), 0);
}

/* --- the network ------------------------------------------------------------------------------------ */

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	REAL(connect);
	return MEET("connect", real(fd, address, length), 0);
}

ssize_t send(int fd, const void *data, size_t length, int flags)
{
	REAL(send);
	return MEET("send", real(fd, data, length, flags), real(fd, data, length / 2, flags));
}

ssize_t recv(int fd, void *data, size_t length, int flags)
{
	REAL(recv);
	return MEET("recv", real(fd, data, length, flags), real(fd, data, length / 2, flags));
}
