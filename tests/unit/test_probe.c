/* The session with a fork's Python, as far as it goes without PyTorch: tests/forks/ has the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "directory.h"
#include "probe/probe.h"

/* A file of the fork. */
static void put(const char *fork, const char *name, const char *text)
{
	char *path = path_join(fork, name), *folder = xstrdup(path);
	struct error err;

	*strrchr(folder, '/') = '\0';
	if (directory_make(folder, 0700, &err) < 0 ||
		file_write(path, text, strlen(text), 0600, FILE_REPLACE, &err) < 0)
		fail_msg("%s", err.message);
	free(folder);
	free(path);
}

static struct probe *open_probe(const char *fork, const char *python, struct error *err)
{
	return probe_open(&(struct probe_options){.fork = fork,
				  .python = python,
				  .script = "test_temp_512.py",
				  .gpu = -1,
				  .seconds = 60},
		err);
}

static void files_are_compiled_without_being_run(void **state)
{
	struct error err;
	struct probe *probe;

	put(*state, "fla/layers/quasar.py", "raise SystemExit\n");
	put(*state, "fla/ops/quasar/chunk.py", "import nothing_of_that_name\n");
	probe = open_probe(*state, NULL, &err);
	assert_non_null(probe);
	assert_int_equal(probe_compile(probe, &err), 0);
	put(*state, "fla/ops/quasar/chunk.py", "x = 1\ndef broken(:\n");
	assert_int_equal(probe_compile(probe, &err), -1);
	assert_int_equal(err.status, STATUS_FAILED);
	assert_string_equal(err.message, "fla/ops/quasar/chunk.py:2: SyntaxError: invalid syntax");
	assert_true(probe_alive(probe));
	assert_null(probe_torch(probe));
	probe_close(probe);
	probe_close(NULL);
}

/* What lies at the root of a fork takes no part before the fork is imported. */
static void a_fork_cannot_stand_in_for_what_the_session_uses(void **state)
{
	struct error err;
	struct probe *probe;

	put(*state, "json.py", "raise SystemExit\n");
	put(*state, "traceback.py", "raise SystemExit\n");
	put(*state, "fla/layers/quasar.py", "");
	probe = open_probe(*state, NULL, &err);
	assert_non_null(probe);
	assert_int_equal(probe_compile(probe, &err), 0);
	probe_close(probe);
}

static void a_session_needs_a_fork_and_a_python(void **state)
{
	struct error err;

	put(*state, "fla/layers/quasar.py", "");
	assert_null(open_probe("/no/such/fork", NULL, &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_null(open_probe(*state, "no-such-python", &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "no-such-python"));
	assert_null(open_probe(*state, "true", &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			files_are_compiled_without_being_run, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			a_fork_cannot_stand_in_for_what_the_session_uses, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			a_session_needs_a_fork_and_a_python, make_directory, remove_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
