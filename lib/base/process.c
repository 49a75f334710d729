#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

#define TEXT_LIMIT (1 << 20)
#define GRACE_SECONDS 1.0  /* between SIGTERM and SIGKILL, and after that */
#define LOOK_SECONDS 0.02  /* between two looks whether a process has ended */
#define LISTEN_SECONDS 1.0 /* at a time, for the signal to stop may have come to another thread */
#define NOT_FOUND 127      /* as the shell says it */

/* --- what it sees of the environment ------------------------------------------------------------- */

/* What a program needs to run, find its libraries and its GPU, and speak the user's language. */
static const char *const passed[] = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*",
	"TZ", "TERM", "COLUMNS", "NO_COLOR", "TMPDIR", "DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_*",
	"LD_LIBRARY_PATH", "LD_PRELOAD", "SSL_CERT_FILE", "SSL_CERT_DIR", "VIRTUAL_ENV", "CONDA_*", "PYTHON*",
	"CC", "CXX", "CPATH", "LIBRARY_PATH", "CUDA_*", "CUDNN_*", "CUBLAS_*", "NVIDIA_*", "NCCL_*",
	"PYTORCH_*", "TORCH_*", "TORCHINDUCTOR_*", "TRITON_*", "FLA_*", "OMP_*", "GOMP_*", "KMP_*", "MKL_*",
	"OPENBLAS_*", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS"};

/* No such name is passed on, whatever it begins with: NVIDIA_API_KEY, CONDA_TOKEN. */
static const char *const secret[] = {
	"*KEY", "*KEY_*", "*TOKEN*", "*SECRET*", "*PASS*", "*CREDENTIAL*", "*AUTH*"};

static bool matches(const char *const *patterns, size_t count, const char *name)
{
	while (count--)
		if (!fnmatch(patterns[count], name, 0))
			return true;
	return false;
}

static bool may_pass(const char *assignment)
{
	char *name = xstrdup(assignment);
	bool may;

	name[strcspn(name, "=")] = '\0';
	may = matches(passed, sizeof(passed) / sizeof(*passed), name) &&
		!matches(secret, sizeof(secret) / sizeof(*secret), name);
	free(name);
	return may;
}

static bool assigns(char *const *list, const char *assignment)
{
	size_t name = strcspn(assignment, "=") + 1;

	for (; list && *list; list++)
		if (!strncmp(*list, assignment, name))
			return true;
	return false;
}

/* Its strings stay where they are; the caller frees the list. */
static char **make_environment(char *const *more)
{
	size_t count = 0, kept = 0;
	char **list;

	while (environ && environ[count])
		count++;
	for (size_t i = 0; more && more[i]; i++)
		count++;
	list = xcalloc(count + 1, sizeof(*list));
	for (char **variable = environ; variable && *variable; variable++)
		if (may_pass(*variable) && !assigns(more, *variable))
			list[kept++] = *variable;
	while (more && *more)
		list[kept++] = *more++;
	return list;
}

/* --- its life ------------------------------------------------------------------------------------ */

/* The text as a file that can be read from its beginning; -1 on error. */
static int text_file(const char *text)
{
	int fd = memfd_create("input", MFD_CLOEXEC);
	size_t length = strlen(text);

	if (fd >= 0 && (write(fd, text, length) != (ssize_t)length || lseek(fd, 0, SEEK_SET) != 0)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* In the child, too. What libraries open is not always closed by exec: the connections of libcurl are not. */
static void keep_files(const int *files)
{
	struct rlimit most;

	if (close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0) { /* Linux before 5.11 */
		getrlimit(RLIMIT_NOFILE, &most);
		for (int fd = STDERR_FILENO + 1; fd < (int)most.rlim_cur; fd++)
			fcntl(fd, F_SETFD, FD_CLOEXEC);
	}
	for (; files && *files >= 0; files++)
		fcntl(*files, F_SETFD, 0);
}

/* In the child: only what is allowed between fork and exec. */
static void become(const char *const *argv, char *const *environment, const int standard[3], const int *files,
	pid_t parent)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL); /* an ignored signal stays ignored in the program */
	signal(SIGHUP, SIG_DFL);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int fd = 0; fd < 3; fd++)
		if (dup2(standard[fd], fd) < 0)
			_exit(127);
	keep_files(files);
	if (getppid() == parent)
		execve(argv[0], (char *const *)argv, environment);
	_exit(127);
}

/* `standard`: its stdin, stdout and stderr. */
static int start(struct process *process, const char *const *argv, char *const *more, const int standard[3],
	const int *files, struct error *err)
{
	char **environment = make_environment(more);
	pid_t parent = getpid();

	signal(SIGCHLD,
		SIG_DFL); /* ignored, as some supervisors leave it, it would take the exit status away */
	process->pid = fork();
	if (!process->pid)
		become(argv, environment, standard, files, parent);
	free(environment);
	if (process->pid > 0) {
		setpgid(process->pid, process->pid); /* whichever of the two comes first */
		return 0;
	}
	process->pid = 0;
	return error_set(err, STATUS_ENVIRONMENT, "cannot start %s: %s", argv[0], strerror(errno));
}

static void close_end(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_ends(struct process *process)
{
	close_end(&process->output);
	close_end(&process->talk);
}

int process_start(struct process *process, const char *const *argv, char *const *more, const char *input,
	struct error *err)
{
	int ends[2] = {-1, -1}, in = text_file(input), result;

	*process = (struct process){.output = -1, .talk = -1};
	if (in < 0 || pipe2(ends, O_CLOEXEC) < 0) {
		result = error_set(err, STATUS_ENVIRONMENT, "cannot start %s: %s", argv[0], strerror(errno));
	} else {
		process->output = ends[0];
		fcntl(ends[0], F_SETFL, O_NONBLOCK);
		result = start(process, argv, more, (int[]){in, ends[1], STDERR_FILENO}, NULL, err);
	}
	if (result)
		close_ends(process);
	close_end(&ends[1]);
	close_end(&in);
	return result;
}

int process_talk(struct process *process, const char *const *argv, char *const *more, const int *files,
	struct error *err)
{
	int ends[2] = {-1, -1}, talk[2] = {-1, -1}, result;

	*process = (struct process){.output = -1, .talk = -1};
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk) < 0 || pipe2(ends, O_CLOEXEC) < 0) {
		result = error_set(err, STATUS_ENVIRONMENT, "cannot start %s: %s", argv[0], strerror(errno));
	} else {
		process->output = ends[0];
		fcntl(ends[0], F_SETFL, O_NONBLOCK);
		result = start(process, argv, more, (int[]){talk[1], talk[1], ends[1]}, files, err);
	}
	process->talk = talk[0];
	if (result)
		close_ends(process);
	close_end(&ends[1]);
	close_end(&talk[1]);
	return result;
}

/* Whether it runs no more. It stays to be reaped: until then no other process can get its number. */
static bool has_exited(pid_t child)
{
	siginfo_t info = {0};

	while (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
		if (errno != EINTR)
			return true;
	return info.si_pid == child;
}

/* The same, looking again and again for a while. */
static bool exits_in_time(pid_t child)
{
	const struct timespec pause = {.tv_nsec = (long)(LOOK_SECONDS * 1e9)};
	double deadline = clock_elapsed() + GRACE_SECONDS;

	while (!has_exited(child)) {
		if (clock_elapsed() >= deadline)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

void process_reap(pid_t child)
{
	kill(child, SIGKILL);
	if (exits_in_time(child))
		waitpid(child, NULL, 0);
}

/* Adds to its text. Of a program that says what it has to say elsewhere, the last words are kept. */
static void keep(struct process *process, const char *part, size_t length)
{
	struct buffer *text = &process->text;

	if (process->talk >= 0 && text->length + length > TEXT_LIMIT) {
		text->length -= TEXT_LIMIT / 2;
		memmove(text->data, text->data + TEXT_LIMIT / 2, text->length);
	}
	if (text->length + length <= TEXT_LIMIT)
		buffer_append(text, part, length);
}

/* Takes what has been written, but not for ever from one that does not stop writing. */
static void take_output(struct process *process)
{
	char part[4096];
	size_t taken = 0;
	ssize_t got;

	while (process->output >= 0 && taken < TEXT_LIMIT &&
		(got = read(process->output, part, sizeof(part))) >= 0) {
		taken += (size_t)got;
		if (got)
			keep(process, part, (size_t)got);
		else
			close_end(&process->output);
	}
}

bool process_ended(struct process *process, int *status)
{
	int ended = 0;

	take_output(process);
	if (process->output >= 0 || !has_exited(process->pid))
		return false;
	waitpid(process->pid, &ended, 0);
	*status = WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
	process->pid = 0;
	close_end(&process->talk);
	buffer_free(&process->heard);
	return true;
}

double process_pause(const struct process *process)
{
	return process->pid && process->output < 0 ? LOOK_SECONDS : INFINITY;
}

void process_kill(struct process *process)
{
	if (!process->pid)
		return;
	kill(-process->pid, SIGTERM);
	kill(-process->pid, SIGCONT); /* one that was stopped does not hear it before */
	exits_in_time(process->pid);
	kill(-process->pid, SIGKILL);
	process_reap(process->pid);
	process->pid = 0;
	close_ends(process);
	buffer_free(&process->text);
	buffer_free(&process->heard);
}

int process_finish(struct process *process, double seconds, int *status, struct error *err)
{
	double deadline = clock_elapsed() + seconds;

	while (!process_ended(process, status)) {
		struct pollfd wait = {.fd = process->output, .events = POLLIN};
		double left = fmin(deadline - clock_elapsed(), process_pause(process));

		if (left > 0 && clock_poll(&wait, 1, left, err) == 0)
			continue;
		process_kill(process);
		return left > 0 ? -1
				: error_set(err, STATUS_ENVIRONMENT, "no response within %.0f s", seconds);
	}
	return 0;
}

/* --- talking --------------------------------------------------------------------------------------- */

int process_say(struct process *process, const char *line, struct error *err)
{
	char *whole = xprintf("%s\n", line);
	size_t length = strlen(whole);
	/* a line fits into the socket, unless earlier ones were not read */
	bool said = send(process->talk, whole, length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)length;

	free(whole);
	return said ? 0 : error_set(err, STATUS_FAILED, "it does not listen");
}

void process_hush(struct process *process)
{
	shutdown(process->talk, SHUT_WR);
}

/* A whole line out of what was heard; NULL when there is none yet. */
static char *take_line(struct buffer *heard)
{
	char *end = heard->length ? memchr(heard->data, '\n', heard->length) : NULL, *line;

	if (!end)
		return NULL;
	*end++ = '\0';
	line = xstrdup(heard->data);
	heard->length -= (size_t)(end - heard->data);
	memmove(heard->data, end, heard->length);
	return line;
}

/* Takes what it has said; -1 when it says no more. */
static int listen_once(struct process *process)
{
	char part[4096];
	ssize_t got = recv(process->talk, part, sizeof(part), MSG_DONTWAIT);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	buffer_append(&process->heard, part, (size_t)got);
	return got && process->heard.length <= TEXT_LIMIT ? 0 : -1;
}

char *process_hear(struct process *process, double seconds, struct error *err)
{
	double deadline = clock_elapsed() + seconds;
	char *line;

	while (!(line = take_line(&process->heard))) {
		struct pollfd wait[] = {
			{.fd = process->talk, .events = POLLIN}, {.fd = process->output, .events = POLLIN}};
		double left = deadline - clock_elapsed();

		if (left <= 0) {
			error_set(err, STATUS_ENVIRONMENT, "no response within %.0f s", seconds);
			return NULL;
		}
		if (clock_poll(wait, 2, fmin(left, LISTEN_SECONDS), err) < 0)
			return NULL;
		if (wait[1].revents)
			take_output(process);
		if (wait[0].revents && listen_once(process) < 0) {
			error_set(err, STATUS_FAILED, "it ended");
			return NULL;
		}
	}
	return line;
}

char *process_ask(const char *const *argv, char *const *more, double seconds, struct error *err)
{
	/* the shell finds it in the PATH, and its complaints are part of what it says */
	const char *shell[] = {"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh"};
	const size_t before = sizeof(shell) / sizeof(*shell);
	struct process process;
	const char **words;
	size_t count = 0;
	int status, result;

	while (argv[count])
		count++;
	words = xcalloc(before + count + 1, sizeof(*words));
	memcpy(words, shell, sizeof(shell));
	memcpy(words + before, argv, count * sizeof(*words));
	result = process_start(&process, words, more, "", err);
	free(words);
	if (result < 0)
		return NULL;
	if (process_finish(&process, seconds, &status, err) < 0) {
		error_context(err, "%s", argv[0]);
		return NULL;
	}
	buffer_text(&process.text, "");
	if (!status)
		return process.text.data;
	if (status == NOT_FOUND)
		error_set(err, STATUS_ENVIRONMENT,
			strchr(argv[0], '/') ? "cannot run %s: there is no such program"
					     : "no %s in the PATH",
			argv[0]);
	else
		error_set(err, STATUS_ENVIRONMENT, "%s: %.500s", argv[0], text_last_line(process.text.data));
	buffer_free(&process.text);
	return NULL;
}
