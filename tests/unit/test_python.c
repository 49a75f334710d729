/* the miner's Python: which one is found, and what it says of itself */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "directory.h"
#include "probe/python.h"

#define ANSWER "\"path\": \"%s\", \"version\": \"3.11.7\""

/* A program at `directory`/`path` that answers as Python would be asked for, of itself; `rest` of the JSON. */
static char *make_program(const char *directory, const char *path, const char *rest)
{
	char *whole = path_join(directory, path), *folder = xstrdup(whole), *text;
	struct error err;

	*strrchr(folder, '/') = '\0';
	text = xprintf("#!/bin/sh\necho noise\necho '{" ANSWER ", %s}'\n", whole, rest);
	assert_int_equal(directory_make(folder, 0700, &err), 0);
	assert_int_equal(file_write(whole, text, strlen(text), 0700, FILE_REPLACE, &err), 0);
	free(text);
	free(folder);
	return whole;
}

#define BARE "\"virtual\": false, \"pip\": true, \"torch\": null, \"cuda\": null"

static void expect(const struct python_search *search, const char *path, const char *found_by)
{
	struct python python;
	struct error err = {0};

	if (python_find(search, &python, &err) < 0)
		fail_msg("%s", err.message);
	assert_string_equal(python.path, path);
	assert_string_equal(python.found_by, found_by);
	assert_string_equal(python.version, "3.11.7");
	python_free(&python);
}

static void expect_error(const struct python_search *search, const char *words)
{
	struct python python;
	struct error err = {0};

	assert_int_equal(python_find(search, &python, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	if (!strstr(err.message, words) || !strstr(err.hint, "--python"))
		fail_msg("%s (%s)", err.message, err.hint);
	python_free(&python);
}

/* One rule after the other is taken away. */
static void the_first_rule_that_holds_counts(void **state)
{
	const char *directory = *state;
	char *named = make_program(directory, "named/bin/python", BARE);
	char *active = make_program(directory, "active/bin/python", BARE);
	char *of_workspace = make_program(directory, "workspace/.venv/bin/python", BARE);
	char *of_fork = make_program(directory, "fork/.venv/bin/python", BARE);
	char *in_path = make_program(directory, "bin/python3", BARE);
	char *folder = path_join(directory, "named"), *environment = path_join(directory, "active");
	char *workspace = path_join(directory, "workspace"), *fork = path_join(directory, "fork");
	char *path = xprintf("%s/bin:/bin", directory);
	struct python_search search = {
		.named = named, .named_by = "--python", .workspace = workspace, .fork = fork};

	setenv("VIRTUAL_ENV", environment, true);
	setenv("PATH", path, true);
	expect(&search, named, "--python");
	search.named = folder; /* of the virtual environment */
	expect(&search, named, "--python");
	search.named = "python3"; /* in the PATH */
	expect(&search, in_path, "--python");
	search.named = NULL;
	expect(&search, active, "VIRTUAL_ENV");
	unsetenv("VIRTUAL_ENV");
	expect(&search, of_workspace, "the workspace's .venv");
	unlink(of_workspace);
	expect(&search, of_fork, "the fork's .venv");
	search.fork = NULL; /* a stranger's */
	expect(&search, in_path, "PATH");
	search.workspace = NULL;
	expect(&search, in_path, "PATH");
	unlink(in_path);
	setenv("PATH", folder, true);
	expect_error(&search, "no python3 in the PATH");
	free(path);
	free(fork);
	free(workspace);
	free(environment);
	free(folder);
	free(in_path);
	free(of_fork);
	free(of_workspace);
	free(active);
	free(named);
}

/* Nothing stands in for the one that was meant. */
static void one_that_was_meant_and_does_not_run_is_an_error(void **state)
{
	char *missing = path_join(*state, "missing"), *broken = make_program(*state, "broken", "no JSON");
	char *failing = path_join(*state, "failing");
	static const char script[] = "#!/bin/sh\necho 'first line' >&2\necho 'the last line' >&2\nexit 1\n";
	struct python_search search = {.named = missing, .named_by = "--python"};
	struct error err;

	expect_error(&search, "the Python from --python: cannot run");
	search.named = "no-such-python";
	expect_error(&search, "no no-such-python in the PATH");
	search.named = broken;
	expect_error(&search, "the Python from --python");
	assert_int_equal(file_write(failing, script, strlen(script), 0700, FILE_REPLACE, &err), 0);
	search.named = failing;
	expect_error(&search, "the last line");
	search.named = NULL;
	setenv("VIRTUAL_ENV", missing, true);
	expect_error(&search, "the Python from VIRTUAL_ENV: cannot run");
	unsetenv("VIRTUAL_ENV");
	free(failing);
	free(broken);
	free(missing);
}

static void expect_install(
	const char *directory, const char *answer, const char *workspace, const char *words)
{
	char *program = make_program(directory, "python", answer);
	const struct python_search search = {
		.named = program, .named_by = "--python", .workspace = workspace};
	struct python python;
	struct error err = {0};

	assert_int_equal(python_find(&search, &python, &err), 0);
	assert_int_equal(python_require_torch(&python, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	if (!strstr(err.hint, words) || !strstr(err.message, program))
		fail_msg("%s (%s)", err.message, err.hint);
	python_free(&python);
	free(program);
}

static void what_is_missing_is_said_with_the_command_that_installs_it(void **state)
{
	char *program;
	struct python python;
	struct error err = {0};

	expect_install(*state, BARE, "/ws", "quasar init --venv, and name no other Python by --python");
	expect_install(*state, BARE, NULL, "/python -m pip install torch");
	expect_install(*state, "\"virtual\": true, \"pip\": true", "/ws", "/python -m pip install torch");
	expect_install(*state, "\"virtual\": true, \"pip\": false", "/ws", "uv pip install --python /");
	program = make_program(*state, "python",
		"\"virtual\": true, \"pip\": true, \"torch\": \"2.9.0\", \"cuda\": \"13.0\"");
	assert_int_equal(
		python_find(&(struct python_search){.named = program, .named_by = "--python"}, &python, &err),
		0);
	assert_string_equal(python.torch, "2.9.0");
	assert_string_equal(python.cuda, "13.0");
	assert_int_equal(python_require_torch(&python, &err), 0);
	python_free(&python);
	free(program);
}

/* The script itself, by this machine's Python, beside packages that the test makes. */
static void a_real_python_says_what_it_has(void **state)
{
	static const struct {
		const char *path, *text;
	} files[] = {
		{"torch/__init__.py", "raise SystemExit('torch is not to be imported')"},
		{"torch/version.py", "__version__ = '9.8.7+cu999'\ncuda = '99.9'\n"},
		{"torch-9.8.7.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 9.8.7\n"},
	};
	const struct python_search search = {.named = "/usr/bin/python3", .named_by = "--python"};
	struct python python;
	struct error err = {0};

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		char *path = path_join(*state, files[i].path), *folder = xstrdup(path);

		*strrchr(folder, '/') = '\0';
		assert_int_equal(directory_make(folder, 0700, &err), 0);
		assert_int_equal(
			file_write(path, files[i].text, strlen(files[i].text), 0600, FILE_NEW, &err), 0);
		free(folder);
		free(path);
	}
	setenv("PYTHONPATH", *state, true);
	if (python_find(&search, &python, &err) < 0)
		fail_msg("%s", err.message);
	unsetenv("PYTHONPATH");
	assert_string_equal(python.path, "/usr/bin/python3");
	assert_string_equal(python.torch, "9.8.7+cu999");
	assert_string_equal(python.cuda, "99.9");
	assert_string_equal(python.places[0], "/usr"); /* where the packages of a distribution lie, too */
	assert_null(python.places[1]);
	python_free(&python);
}

static void the_forks_layer_is_imported(void **state)
{
	struct python python = {.path = (char *)"/usr/bin/python3", .install = (char *)"pip install"};
	char *folder = path_join(*state, "fla/layers"), *layer = path_join(folder, "quasar.py");
	static const char good[] =
		"import os\nassert os.getcwd() == os.path.dirname(os.path.dirname(__file__))[:-4]\n";
	static const char bad[] = "import os\nraise ValueError('not today')\n";
	static const char wrong[] = "def f(:\n";
	static const char more[] = "import nobody_has.this\n";
	struct error err = {0};

	assert_int_equal(python_import_layer(&python, *state, &err), -1);
	assert_non_null(strstr(err.message, "No module named 'fla'"));
	assert_non_null(strstr(err.hint, "quasar export"));
	assert_int_equal(directory_make(folder, 0700, &err), 0);
	assert_int_equal(file_write(layer, good, strlen(good), 0600, FILE_REPLACE, &err), 0);
	if (python_import_layer(&python, *state, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(file_write(layer, bad, strlen(bad), 0600, FILE_REPLACE, &err), 0);
	assert_int_equal(python_import_layer(&python, *state, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "fla/layers/quasar.py:2: ValueError: not today"));
	assert_int_equal(file_write(layer, wrong, strlen(wrong), 0600, FILE_REPLACE, &err), 0);
	assert_int_equal(python_import_layer(&python, *state, &err), -1);
	assert_non_null(strstr(err.message, "fla/layers/quasar.py:1: SyntaxError: "));
	assert_int_equal(file_write(layer, more, strlen(more), 0600, FILE_REPLACE, &err), 0);
	assert_int_equal(python_import_layer(&python, *state, &err), -1);
	assert_string_equal(err.hint, "pip install nobody_has");
	free(layer);
	free(folder);
}

/* The rules look at the environment, which every test finds as it was. */
static char *path_before;

static int make_place(void **state)
{
	path_before = xstrdup(getenv("PATH"));
	unsetenv("VIRTUAL_ENV");
	return make_directory(state);
}

static int remove_place(void **state)
{
	setenv("PATH", path_before, true);
	free(path_before);
	return remove_directory(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_first_rule_that_holds_counts, make_place, remove_place),
		cmocka_unit_test_setup_teardown(
			one_that_was_meant_and_does_not_run_is_an_error, make_place, remove_place),
		cmocka_unit_test_setup_teardown(
			what_is_missing_is_said_with_the_command_that_installs_it, make_place, remove_place),
		cmocka_unit_test_setup_teardown(a_real_python_says_what_it_has, make_place, remove_place),
		cmocka_unit_test_setup_teardown(the_forks_layer_is_imported, make_place, remove_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
