#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define TEXT_LIMIT (1 << 20)

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

/* In the child: only what is allowed between fork and exec. */
static void become(const char *const *argv, char *const *environment, int input, int output, pid_t parent)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL); /* an ignored signal stays ignored in the program */
	signal(SIGHUP, SIG_DFL);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent && dup2(input, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0)
		execve(argv[0], (char *const *)argv, environment);
	_exit(127);
}

int process_start(struct process *process, const char *const *argv, char *const *environment,
	const char *input, struct error *err)
{
	int ends[2] = {-1, -1}, in = text_file(input);
	pid_t parent = getpid();

	*process = (struct process){.output = -1};
	if (in < 0 || pipe2(ends, O_CLOEXEC) < 0 || (process->pid = fork()) < 0) {
		error_set(err, STATUS_ENVIRONMENT, "cannot start %s: %s", argv[0], strerror(errno));
		process->pid = 0;
	} else if (!process->pid) {
		become(argv, environment, in, ends[1], parent);
	} else {
		setpgid(process->pid, process->pid); /* whichever of the two comes first */
		process->output = ends[0];
		fcntl(ends[0], F_SETFL, O_NONBLOCK);
		ends[0] = -1;
	}
	for (int i = 0; i < 2; i++)
		if (ends[i] >= 0)
			close(ends[i]);
	if (in >= 0)
		close(in);
	return process->pid ? 0 : -1;
}

static int reap(struct process *process)
{
	int status = 0;

	while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR)
		;
	close(process->output);
	process->pid = 0;
	process->output = -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool process_ended(struct process *process, int *status)
{
	char part[4096];
	ssize_t got;

	while ((got = read(process->output, part, sizeof(part))) > 0)
		if (process->text.length + (size_t)got <= TEXT_LIMIT)
			buffer_append(&process->text, part, (size_t)got);
	if (got < 0) /* EAGAIN: nothing more as yet */
		return false;
	*status = reap(process);
	return true;
}

void process_kill(struct process *process)
{
	if (!process->pid)
		return;
	kill(-process->pid, SIGKILL);
	reap(process);
	buffer_free(&process->text);
}

int process_finish(struct process *process, double seconds, int *status, struct error *err)
{
	double deadline = clock_elapsed() + seconds;

	while (!process_ended(process, status)) {
		struct pollfd wait = {.fd = process->output, .events = POLLIN};
		double left = deadline - clock_elapsed();

		if (left > 0 && clock_poll(&wait, 1, left, err) == 0)
			continue;
		process_kill(process);
		return left > 0 ? -1 : error_set(err, STATUS_ENVIRONMENT, "no answer within %.0f s", seconds);
	}
	return 0;
}
