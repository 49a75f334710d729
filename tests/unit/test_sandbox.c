/* sandbox: what strangers' code tries in there, and what comes of it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/process.h"
#include "directory.h"
#include "probe/cgroup.h"
#include "probe/sandbox.h"

#define PATIENCE 60.0

#define NOBODY 12345

static struct buffer said;
static struct error ended;

/* Where this machine makes none, as in most containers, there is nothing to be tried. */
static void need_a_sandbox(void)
{
	if (sandbox_works(&ended) < 0) {
		print_message("%s\n", ended.message);
		skip();
	}
}

/* Runs the script inside, with `place` to read; what it wrote is in `said`. Its exit status, or -1 when it was ended
 * for what it took: then `ended` says why. Each of `share` has that part of this machine's memory. */
static int run_sharing(const char *place, const char *script, int share)
{
	const struct sandbox_options options = {
		.places = (const char *[]){place, NULL}, .directory = place, .gpu = -1, .share = share};
	struct process process;
	struct sandbox *sandbox;
	const char **command;
	int status = 0;

	need_a_sandbox();
	buffer_free(&said);
	sandbox = sandbox_open(&options, &ended);
	if (!sandbox)
		fail_msg("%s", ended.message);
	command = sandbox_command(sandbox, (const char *[]){"sh", "-c", script, NULL});
	assert_int_equal(process_talk(&process, command, NULL, sandbox_files(sandbox), &ended), 0);
	free(command);
	assert_int_equal(sandbox_enter(sandbox, process.pid, &ended), 0);
	if (process_finish(&process, PATIENCE, &status, &ended) < 0)
		fail_msg("%s", ended.message);
	said = process.text;
	buffer_text(&said, "");
	if (sandbox_leave(sandbox, &ended) < 0)
		status = -1;
	else if (strstr(said.data, "bwrap: "))
		fail_msg("%s", said.data);
	sandbox_close(sandbox);
	return status;
}

static int run(const char *place, const char *script)
{
	return run_sharing(place, script, 1);
}

static void says(const char *expected)
{
	assert_string_equal(said.data, expected);
}

static void is_silent_about(const char *secret)
{
	if (strstr(said.data, secret))
		fail_msg("it knows %s: %s", secret, said.data);
}

/* Makes a file of that text in the directory, which is of this machine's /tmp. Its path; the caller frees. */
static char *make_file(const char *directory, const char *name, const char *text)
{
	char *path = path_join(directory, name);
	struct error err;

	assert_int_equal(file_write(path, text, strlen(text), 0644, FILE_NEW, &err), 0);
	return path;
}

static char *make_place(const char *directory)
{
	char *place = path_join(directory, "place");

	assert_int_equal(mkdir(place, 0755), 0);
	return place;
}

/* --- honest programs ------------------------------------------------------------------------------- */

static void a_program_runs_and_reads_its_places(void **state)
{
	char *place = make_place(*state), *file = make_file(place, "words", "hello\n");

	assert_int_equal(
		run(place, "pwd >&2; cat words >&2; echo more >/tmp/x && cat /tmp/x >&2; exit 7"), 7);
	free(place);
	place = xprintf("%s/place\nhello\nmore\n", (char *)*state);
	says(place);
	free(place);
	free(file);
}

static void python_and_a_compiler_work(void **state)
{
	char *place = make_place(*state);

	assert_int_equal(
		run(place,
			"cd /tmp && echo 'int answer(void) { return 42; }' >a.c && "
			"cc -shared -fPIC -o a.so a.c && "
			"python3 -c 'import ctypes; print(ctypes.CDLL(\"/tmp/a.so\").answer())' >&2"),
		0);
	says("42\n");
	free(place);
}

static void without_bubblewrap_it_says_what_to_install(void **state)
{
	char *path = xstrdup(getenv("PATH")), *link = path_join(*state, "choom"),
	     *other = path_join(*state, "prlimit");
	struct error err;

	assert_int_equal(symlink("/usr/bin/choom", link) | symlink("/usr/bin/prlimit", other), 0);
	setenv("PATH", *state, 1);
	assert_int_equal(sandbox_works(&err), -1);
	setenv("PATH", path, 1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "bwrap"));
	assert_non_null(strstr(err.hint, "apt install bubblewrap"));
	free(path);
	free(link);
	free(other);
}

static void a_bubblewrap_that_says_nothing_is_no_sandbox(void **state)
{
	char *path = xstrdup(getenv("PATH")), *first = xprintf("%s:%s", (char *)*state, path),
	     *silent = path_join(*state, "bwrap");
	struct error err;

	assert_int_equal(symlink("/bin/false", silent), 0);
	setenv("PATH", first, 1);
	assert_int_equal(sandbox_works(&err), -1);
	setenv("PATH", path, 1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_string_equal(err.message, "a sandbox does not work here: bubblewrap ended with status 1");
	free(path);
	free(first);
	free(silent);
}

static void no_place_may_hold_the_home(void **state)
{
	char *home = xstrdup(getenv("HOME") ? getenv("HOME") : "/root"), *inner = path_join(*state, "home");
	const struct sandbox_options options = {
		.places = (const char *[]){*state, NULL}, .directory = "/", .gpu = -1, .share = 1};
	struct error err;

	assert_int_equal(mkdir(inner, 0755), 0);
	setenv("HOME", inner, 1);
	assert_null(sandbox_open(&options, &err));
	setenv("HOME", home, 1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, *state));
	free(home);
	free(inner);
}

/* --- what is kept from it -------------------------------------------------------------------------- */

static void files_of_ours_are_not_there(void **state)
{
	char *place = make_place(*state), *key = make_file(*state, "key", "SECRET");
	char *script = xprintf(
		"cat %s /proc/*/root%s /etc/passwd /etc/shadow >&2; find / -name key -path '*quasar-test*'"
		" >&2; ls -A /home /root /run /var /etc/ssh ~/.ssh >&2; true",
		key, key);

	assert_int_equal(run(place, script), 0);
	is_silent_about("SECRET");
	is_silent_about("root:");
	is_silent_about("key\n/"); /* found */
	free(script);
	free(key);
	free(place);
}

static void the_environment_is_not_there(void **state)
{
	char *place = make_place(*state);

	setenv("GITHUB_TOKEN", "SECRET", 1);
	setenv("SOMETHING", "SECRET", 1);
	assert_int_equal(run(place, "env >&2; cat /proc/*/environ /proc/1/environ >&2; true"), 0);
	unsetenv("GITHUB_TOKEN");
	unsetenv("SOMETHING");
	is_silent_about("SECRET");
	assert_non_null(strstr(said.data, "HOME=/tmp"));
	free(place);
}

static void other_processes_are_neither_seen_nor_reached(void **state)
{
	char *place = make_place(*state);
	char *script = xprintf(
		"for p in %d %d; do kill -9 $p; ls /proc/$p/fd; done 2>/dev/null >&2; "
		"set -- /proc/[0-9]*; echo $# >&2; readlink /proc/1/exe >&2", /* the shell counts itself */
		getpid(), getppid());

	assert_int_equal(run(place, script), 0);
	says("2\n/usr/bin/bwrap\n");
	free(script);
	free(place);
}

/* Listens; the descriptor. */
static int listen_at(struct sockaddr *address, socklen_t *length)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, address, *length), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, address, length), 0);
	return fd;
}

static void nobody_can_be_talked_to(void **state)
{
	struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_un abstract = {.sun_family = AF_UNIX}, named = {.sun_family = AF_UNIX};
	socklen_t lengths[] = {sizeof(tcp), sizeof(sa_family_t), sizeof(named)};
	char *place = make_place(*state), *script;
	int sockets[3];

	snprintf(named.sun_path, sizeof(named.sun_path), "%s/socket", place);
	sockets[0] = listen_at((struct sockaddr *)&tcp, &lengths[0]);
	sockets[1] = listen_at((struct sockaddr *)&abstract, &lengths[1]);
	sockets[2] = listen_at((struct sockaddr *)&named, &lengths[2]);
	script = xprintf("exec python3 - >&2 <<'END'\n"
			 "import socket\n"
			 "def attempt(family, address):\n"
			 "    try:\n"
			 "        socket.socket(family, socket.SOCK_STREAM).connect(address)\n"
			 "        print('reached', address)\n"
			 "    except OSError as error:\n"
			 "        print(error.strerror)\n"
			 "attempt(socket.AF_INET, ('127.0.0.1', %d))\n"
			 "attempt(socket.AF_INET, ('1.1.1.1', 80))\n"
			 "attempt(socket.AF_UNIX, b'\\0%s')\n"
			 "attempt(socket.AF_VSOCK, (2, 1))\n"
			 "END",
		ntohs(tcp.sin_port), abstract.sun_path + 1);
	assert_int_equal(run(place, script), 0);
	says("Connection refused\nNetwork is unreachable\nConnection refused\n"
	     "Address family not supported by protocol\n");
	for (int i = 0; i < 3; i++)
		close(sockets[i]);
	free(script);
	free(place);
}

static void nothing_can_be_written_but_in_tmp(void **state)
{
	char *place = make_place(*state), *file = make_file(place, "words", "hello\n");

	assert_int_equal(
		run(place,
			"for f in words new /new /usr/new /etc/new /dev/new /proc/sys/vm/swappiness; do "
			"(echo 60 >$f) 2>/dev/null && echo $f >&2; done; chmod 777 words 2>/dev/null; "
			"find / -path '/proc/[0-9]*' -prune -o -path '/tmp*' -prune -o -path '/dev/*' -prune "
			"-o ! -type l -writable -print >&2 2>/dev/null; "
			"for c in 'mount -t tmpfs none /usr' 'umount /usr' 'unshare -U true'; do "
			"$c 2>/dev/null && echo $c >&2; done; true"),
		0);
	says("");
	free(file);
	free(place);
}

/* CUDA does it, and does not start otherwise. */
static void threads_can_be_named(void **state)
{
	char *place = make_place(*state);

	assert_int_equal(run(place, "printf name >/proc/self/task/$$/comm && cat /proc/$$/comm >&2"), 0);
	says("name\n");
	free(place);
}

static void no_descriptor_and_no_terminal_is_handed_in(void **state)
{
	char *place = make_place(*state);

	assert_int_equal(
		run(place,
			"exec python3 - >&2 <<'END'\n"
			"import fcntl, os, termios\n"
			"print([fd for fd in range(3, 100) if os.path.exists(f'/proc/self/fd/{fd}')])\n"
			"for path in ('/dev/tty', '/dev/pts/0', '/dev/console'):\n"
			"    try:\n"
			"        open(path, 'rb', 0)\n"
			"        print('opened', path)\n"
			"    except OSError:\n"
			"        pass\n"
			"for fd in range(3):\n"
			"    try:\n"
			"        fcntl.ioctl(fd, termios.TIOCSTI, b'x')\n"
			"        print('typed')\n"
			"    except OSError:\n"
			"        pass\n"
			"END"),
		0);
	says("[]\n");
	free(place);
}

static void dangerous_system_calls_are_missing(void **state)
{
	char *place = make_place(*state);

	assert_int_equal(
		run(place,
			"exec python3 - >&2 <<'END'\n"
			"import ctypes, errno, platform\n"
			"libc = ctypes.CDLL(None, use_errno=True)\n"
			"numbers = {'x86_64': [248, 250, 319, 447, 29, 64, 278, 321, 425, 298, 323],\n"
			"           'aarch64': [217, 219, 279, 447, 194, 190, 75, 280, 425, 241, 282]}\n"
			"for number in numbers[platform.machine()]:\n"
			"    assert libc.syscall(number, 0, 0, 0, 0) == -1\n"
			"    assert ctypes.get_errno() == errno.ENOSYS, number\n"
			"END"),
		0);
	says("");
	free(place);
}

/* --- what it takes --------------------------------------------------------------------------------- */

static void is_ended_for(const char *what)
{
	assert_int_equal(ended.status, STATUS_FAILED);
	if (!strstr(ended.message, what))
		fail_msg("%s", ended.message);
}

static void too_many_processes_are_ended(void **state)
{
	char *place = make_place(*state);

	assert_int_equal(run(place, "bomb() { bomb | bomb & }; bomb; sleep 600"), -1);
	is_ended_for("processes and threads");
	assert_int_equal(run(place,
				 "exec python3 -c 'import threading, time\n"
				 "while True: threading.Thread(target=time.sleep, args=(600,)).start()'"),
		-1);
	is_ended_for("processes and threads");
	free(place);
}

/* As where processes multiply faster than the watch looks. */
static void the_kernel_bounds_processes_too(void **state)
{
	static const char script[] = "import os, signal, time\n"
				     "started = 0\n"
				     "try:\n"
				     "    while started < 6000:\n"
				     "        if not os.fork(): time.sleep(600)\n"
				     "        started += 1\n"
				     "except BlockingIOError:\n"
				     "    pass\n"
				     "os.write(2, str(started).encode())\n";
	const struct sandbox_options options = {
		.directory = *state, .places = (const char *[]){*state, NULL}, .gpu = -1, .share = 1};
	struct sandbox *sandbox;
	struct process process;
	const char **command;
	char *group = cgroup_make(1);
	int status;

	if (geteuid() == 0 && !group) {
		print_message("root cannot make a cgroup here\n");
		skip();
	}
	cgroup_remove(group);
	free(group);
	need_a_sandbox();
	sandbox = sandbox_open(&options, &ended);
	assert_non_null(sandbox);
	command = sandbox_command(sandbox, (const char *[]){"python3", "-c", script, NULL});
	assert_int_equal(process_talk(&process, command, NULL, sandbox_files(sandbox), &ended), 0);
	free(command);
	assert_int_equal(process_finish(&process, PATIENCE, &status, &ended), 0);
	buffer_free(&said);
	said = process.text;
	assert_in_range(atoi(said.data), 4000, 4096);
	sandbox_close(sandbox);
}

#define MEMORY_SHARES 64

static void too_much_memory_is_ended(void **state)
{
	static const char *const ways[] = {
		"x = []\n"
		"while True: x.append(b'x' * 2**22)",
		/* shared */
		"import mmap\n"
		"x = []\n"
		"while True:\n"
		"    x.append(mmap.mmap(-1, 2**22))\n"
		"    x[-1].write(b'x' * 2**22)",
		/* in sockets, that nobody reads from */
		"import socket\n"
		"pairs = []\n"
		"while True:\n"
		"    pairs.append(socket.socketpair())\n"
		"    pairs[-1][0].setblocking(False)\n"
		"    pairs[-1][0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**30)\n"
		"    try:\n"
		"        while True: pairs[-1][0].send(b'x' * 2**16)\n"
		"    except BlockingIOError: pass",
		/* by many, none of which has much */
		"import os, time\n"
		"while os.fork(): time.sleep(0.01)\n"
		"x = b'x' * 2**25\n"
		"time.sleep(600)",
		/* under a misleading name, its first thread gone */
		"import ctypes, threading\n"
		"libc = ctypes.CDLL(None)\n"
		"libc.prctl(15, b'RssAnon: 0')\n"
		"def grow():\n"
		"    x = []\n"
		"    while True: x.append(b'x' * 2**22)\n"
		"threading.Thread(target=grow).start()\n"
		"libc.syscall({'x86_64': 60, 'aarch64': 93}[__import__('platform').machine()], 0)",
	};
	char *place = make_place(*state);

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		char *script = xprintf("exec python3 -c \"%s\"", ways[i]);

		if (run_sharing(place, script, MEMORY_SHARES) >= 0)
			fail_msg("%s: %s", ways[i], said.data);
		is_ended_for("MiB of memory");
		free(script);
	}
	free(place);
}

static void the_disk_cannot_be_filled(void **state)
{
	char *place = make_place(*state);

	assert_int_equal(run_sharing(place,
				 "for d in /tmp /dev/shm; do cat /dev/zero >$d/x; done; "
				 "test $(du -cm /tmp /dev/shm | tail -n 1 | cut -f 1) -lt 2200",
				 MEMORY_SHARES),
		0);
	says("cat: write error: No space left on device\ncat: write error: No space left on device\n");
	free(place);
}

/* Whether a process of this machine has that word in its command line. */
static bool is_running(const char *word)
{
	char *script = xprintf("grep -qsz '^%s$' /proc/[0-9]*/cmdline", word), *found;
	struct error err;

	found = process_ask((const char *[]){"sh", "-c", script, NULL}, NULL, PATIENCE, &err);
	free(script);
	free(found);
	return found != NULL;
}

static void no_daemon_stays(void **state)
{
	char *place = make_place(*state);
	char *number = xprintf("%d.%d", 1000000, getpid());
	char *script = xprintf(
		"setsid sh -c 'sleep %s & sleep %s' >/dev/null 2>&1 & until ls /proc/*/exe -l | grep -q sleep;"
		" do :; done; exit 3",
		number, number);

	assert_int_equal(run(place, script), 3);
	assert_false(is_running(number));
	free(script);
	free(number);
	free(place);
}

static void everything_ends_when_it_is_killed(void **state)
{
	char *place = make_place(*state), *number = xprintf("%d.%d", 2000000, getpid());
	char *script = xprintf(
		"trap '' TERM; sleep %s & until ls -l /proc/*/exe | grep -q sleep; do :; done; "
		"echo ready; wait",
		number);
	const struct sandbox_options options = {
		.places = (const char *[]){place, NULL}, .directory = place, .gpu = -1, .share = 1};
	struct process process;
	struct sandbox *sandbox;
	const char **command;

	need_a_sandbox();
	buffer_free(&said);
	sandbox = sandbox_open(&options, &ended);
	command = sandbox_command(sandbox, (const char *[]){"sh", "-c", script, NULL});
	assert_int_equal(process_talk(&process, command, NULL, sandbox_files(sandbox), &ended), 0);
	free(command);
	assert_int_equal(sandbox_enter(sandbox, process.pid, &ended), 0);
	free(process_hear(&process, PATIENCE, &ended));
	assert_true(is_running(number));
	process_kill(&process);
	assert_int_equal(sandbox_leave(sandbox, &ended), 0);
	assert_false(is_running(number));
	sandbox_close(sandbox);
	free(script);
	free(number);
	free(place);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

/* From now on this process has no more rights than anybody. */
static bool become_nobody(void)
{
	return setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0 &&
		prctl(PR_SET_DUMPABLE, 1) == 0 && setenv("HOME", "/nonexistent", 1) == 0;
}

/* As root, whom the kernel lets do most, and as somebody else, whose sandbox is made by other means. */
int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_program_runs_and_reads_its_places),
		TEST(python_and_a_compiler_work),
		TEST(without_bubblewrap_it_says_what_to_install),
		TEST(a_bubblewrap_that_says_nothing_is_no_sandbox),
		TEST(no_place_may_hold_the_home),
		TEST(files_of_ours_are_not_there),
		TEST(the_environment_is_not_there),
		TEST(other_processes_are_neither_seen_nor_reached),
		TEST(nobody_can_be_talked_to),
		TEST(nothing_can_be_written_but_in_tmp),
		TEST(threads_can_be_named),
		TEST(no_descriptor_and_no_terminal_is_handed_in),
		TEST(dangerous_system_calls_are_missing),
		TEST(too_many_processes_are_ended),
		TEST(the_kernel_bounds_processes_too),
		TEST(too_much_memory_is_ended),
		TEST(the_disk_cannot_be_filled),
		TEST(no_daemon_stays),
		TEST(everything_ends_when_it_is_killed),
	};
	int result;

	result = cmocka_run_group_tests_name("sandbox", tests, NULL, NULL);
	if (geteuid() == 0 && become_nobody())
		result += cmocka_run_group_tests_name("sandbox of another user", tests, NULL, NULL);

	buffer_free(&said);
	return result;
}
