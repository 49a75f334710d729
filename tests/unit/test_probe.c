/* The session with a fork's Python, as far as it goes without PyTorch: tests/forks/ has the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "directory.h"
#include "layer/layer.h"
#include "probe/expected.h"
#include "probe/probe.h"
#include "tensor/compare.h"
#include "tensor/random.h"

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

/* --- what a layer should put out -------------------------------------------------------------------- */

#define TOKENS 640

/* A layer's parameters as a fork's process writes them. */
static char *write_weights(const char *directory, struct layer *layer)
{
	static const char *const shapes[] = {"512,512", "512,512", "512,512", "512,1,4", "512,1,4", "512,1,4",
		"8", "64,512", "512,64", "512", "64", "512,512"};
	char *path = path_join(directory, "weights");
	struct buffer header = {0}, data = {0}, file = {0};
	const char *name;
	struct error err;
	uint64_t size;
	size_t count;
	float *numbers;

	for (int i = 0; (numbers = layer_parameter(layer, i, &name, &count)); i++) {
		size_t start = data.length;

		buffer_append(&data, numbers, count * sizeof(*numbers));
		buffer_printf(&header,
			"%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
			i ? ',' : '{', name, shapes[i], start, data.length);
	}
	buffer_text(&header, "}");
	size = header.length;
	buffer_append(&file, &size, sizeof(size));
	buffer_append(&file, header.data, header.length);
	buffer_append(&file, data.data, data.length);
	assert_int_equal(file_write(path, file.data, file.length, 0600, FILE_REPLACE, &err), 0);
	buffer_free(&header);
	buffer_free(&data);
	buffer_free(&file);
	return path;
}

/* In fp64, and where there is no time for that by our own layer: nearly the same, but not to the bit. */
static void outputs_are_expected_in_fp64_or_from_our_own_layer(void **state)
{
	struct error err = {0};
	struct layer *layer = layer_random(LAYER_HIDDEN, LAYER_HEADS, LAYER_DIM, 1, &err);
	char *path = write_weights(*state, layer);
	size_t count = (size_t)TOKENS * LAYER_HIDDEN;
	float *x = malloc(count * sizeof(*x)), *exact = malloc(count * sizeof(*exact));
	struct expected_output outputs[2];
	struct expected *expected;
	struct comparison found;
	struct device device;

	device_open_cpu(&device);
	random_normal(2, 0, 1, x, count);
	expected = expected_open(path, &device, &err);
	assert_non_null(expected);
	for (int i = 0; i < 2; i++)
		assert_int_equal(
			expected_find(expected, SEMANTICS_CAUSAL, x, TOKENS, i ? 0 : 1000, &outputs[i], &err),
			0);
	assert_string_equal(outputs[0].from, "fp64");
	assert_string_equal(outputs[1].from, "quasar's own layer");
	for (size_t i = 0; i < count; i++)
		exact[i] = (float)outputs[0].numbers[i];
	found = compare_float_double(exact, outputs[1].numbers, count);
	assert_true(found.cosine > 0.9999 && found.relative_error > 1e-4 && found.relative_error < 0.02);
	found = compare_float(exact, exact, count);
	assert_true(found.cosine > 1 - 1e-12 && found.relative_error == 0 && found.finite);
	free(outputs[0].numbers);
	free(outputs[1].numbers);
	expected_close(expected);
	expected_close(NULL);
	device_close(&device);
	free(exact);
	free(x);
	free(path);
	layer_free(layer);
}

/* Then it is the fork that is wrong, and not this machine. */
static void other_parameters_are_the_forks_fault(void **state)
{
	struct error err = {0};
	struct device device;
	char *path = path_join(*state, "fla/weights");

	device_open_cpu(&device);
	put(*state, "fla/weights", "{}");
	assert_null(expected_open(path, &device, &err));
	assert_int_equal(err.status, STATUS_FAILED);
	device_close(&device);
	free(path);
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
		cmocka_unit_test_setup_teardown(
			outputs_are_expected_in_fp64_or_from_our_own_layer, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			other_parameters_are_the_forks_fault, make_directory, remove_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
