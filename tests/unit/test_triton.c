/* triton: what a fork's process tells of its kernels is hostile; what can be tuned has the declared configurations first, and
 * more around them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/memory.h"
#include "tune/triton.h"

#define ITEM(name, configs, chosen)                                                                          \
	"{\"kernel\":\"" name "\",\"configs\":[" configs "],\"chosen\":" chosen "}"
#define CONFIG(block, warps)                                                                                 \
	"{\"kwargs\":{\"BLOCK\":" #block "},\"num_warps\":" #warps                                           \
	",\"num_stages\":2,\"num_ctas\":1,\"maxnreg\":null}"
#define NAME "fla/ops/quasar/chunk.py:kernel"

static int read_item(const char *text, struct triton_kernel *kernel, struct error *err)
{
	cJSON *item = json_parse(text, strlen(text), err);
	int result;

	assert_non_null(item);
	result = triton_kernel_read(item, kernel, err);
	cJSON_Delete(item);
	return result;
}

static void a_kernel_has_what_it_declares_and_more(void **state)
{
	struct triton_kernel kernel;
	struct error err = {0};
	const char *function;
	char text[256], *json;
	size_t length;
	cJSON *config;

	(void)state;
	assert_int_equal(
		read_item(ITEM(NAME, CONFIG(32, 4) "," CONFIG(64, 8), CONFIG(64, 8)), &kernel, &err), 0);
	function = triton_function(&kernel, &length);
	assert_string_equal(function, "kernel");
	assert_int_equal(length, strlen("fla/ops/quasar/chunk.py"));
	assert_int_equal(kernel.declared, 2);
	config_format(kernel.parameters, &kernel.configs[0], text, sizeof(text));
	assert_string_equal(text, "BLOCK=64 num_warps=8 num_stages=2 maxnreg=255");
	config_format(kernel.parameters, &kernel.configs[1], text, sizeof(text));
	assert_string_equal(text, "BLOCK=32 num_warps=4 num_stages=2 maxnreg=255");
	assert_int_equal(kernel.count, 4 * 5 * 5 * 4); /* BLOCK 16, 32, 64, 128 */
	for (size_t i = 0; i < kernel.count; i++)
		for (size_t j = 0; j < i; j++)
			assert_memory_not_equal(
				&kernel.configs[i], &kernel.configs[j], sizeof(*kernel.configs));
	config = triton_config_json(&kernel, &kernel.configs[0]);
	json = cJSON_PrintUnformatted(config);
	assert_string_equal(json, "{\"kwargs\":{\"BLOCK\":64},\"num_warps\":8,\"num_stages\":2}");
	cJSON_free(json);
	cJSON_Delete(config);
	triton_kernel_free(&kernel);
}

static void a_bound_and_a_cluster_are_kept(void **state)
{
	static const char one[] =
		"{\"kwargs\":{},\"num_warps\":4,\"num_stages\":3,\"num_ctas\":2,\"maxnreg\":128}";
	struct triton_kernel kernel;
	struct error err = {0};
	char *text = xprintf("{\"kernel\":\"" NAME "\",\"configs\":[%s],\"chosen\":%s}", one, one), *json;
	cJSON *config;

	(void)state;
	assert_int_equal(read_item(text, &kernel, &err), 0);
	config = triton_config_json(&kernel, &kernel.configs[0]);
	json = cJSON_PrintUnformatted(config);
	assert_string_equal(
		json, "{\"kwargs\":{},\"num_warps\":4,\"num_stages\":3,\"num_ctas\":2,\"maxnreg\":128}");
	cJSON_free(json);
	cJSON_Delete(config);
	triton_kernel_free(&kernel);
	free(text);
}

/* Of 76 million that could be made of its values there are some, at once. */
static void a_kernel_with_many_values_has_some_of_them(void **state)
{
	struct buffer text = {0};
	struct triton_kernel kernel;
	struct error err = {0};

	(void)state;
	for (int i = 0; i < 15; i++)
		buffer_printf(&text,
			"%s{\"kwargs\":{\"A\":%d,\"B\":%d,\"C\":%d,\"D\":%d,\"E\":%d},\"num_warps\":4}",
			i ? "," : "{\"kernel\":\"" NAME "\",\"configs\":[", 3 + i, 3 + i, 3 + i, 3 + i,
			3 + i);
	buffer_text(&text,
		"],\"chosen\":{\"kwargs\":{\"A\":3,\"B\":3,\"C\":3,\"D\":3,\"E\":3},\"num_warps\":4}}");
	assert_int_equal(read_item(text.data, &kernel, &err), 0);
	assert_int_equal(kernel.declared, 15);
	assert_true(kernel.count > 10000 && kernel.count < 100000);
	for (size_t i = kernel.declared; i < kernel.count; i++)
		assert_memory_not_equal(&kernel.configs[0], &kernel.configs[i], sizeof(*kernel.configs));
	triton_kernel_free(&kernel);
	buffer_free(&text);
}

static void what_cannot_be_tuned_is_refused(void **state)
{
	static const char *const items[] = {
		"{}",
		"[]",
		"3",
		ITEM("fla/../../etc/passwd.py:kernel", CONFIG(32, 4), CONFIG(32, 4)),
		ITEM("/etc/passwd.py:kernel", CONFIG(32, 4), CONFIG(32, 4)),
		ITEM("fla/chunk.py", CONFIG(32, 4), CONFIG(32, 4)),
		ITEM("fla/chunk.so:kernel", CONFIG(32, 4), CONFIG(32, 4)),
		ITEM("fla/chunk.py:ker nel", CONFIG(32, 4), CONFIG(32, 4)),
		ITEM("fla/\\u001bchunk.py:kernel", CONFIG(32, 4), CONFIG(32, 4)),
		ITEM(NAME, CONFIG(32, 4), "null"),
		ITEM(NAME, CONFIG(32, 4), CONFIG(-32, 4)),
		ITEM(NAME, CONFIG(32, 4), CONFIG(1e9, 4)),
		ITEM(NAME, CONFIG("BIG", 4), CONFIG(32, 4)),
		ITEM(NAME, CONFIG(32, 4), "{\"kwargs\":{\"BLOCK\":1.5}}"),
		ITEM(NAME, CONFIG(32, 4), "{\"kwargs\":{\"A B\":1}}"),
		ITEM(NAME, CONFIG(32, 4), "{\"kwargs\":{\"A\":1}}"),
		ITEM(NAME, "{\"kwargs\":{}}", CONFIG(32, 4)),
		ITEM(NAME, CONFIG(32, 4), "{\"kwargs\":{\"A\":1,\"B\":1,\"C\":1,\"D\":1,\"E\":1,\"F\":1}}"),
		ITEM(NAME, "{\"kwargs\":{\"BLOCK\":32},\"num_ctas\":2}", CONFIG(32, 4)),
		ITEM(NAME, "{\"kwargs\":{\"BLOCK\":32},\"more\":true}", CONFIG(32, 4)),
	};
	struct triton_kernel kernel;
	struct error err;

	(void)state;
	for (size_t i = 0; i < sizeof(items) / sizeof(*items); i++) {
		err = (struct error){0};
		if (read_item(items[i], &kernel, &err) == 0)
			fail_msg("taken: %s", items[i]);
		assert_int_equal(err.status, STATUS_FAILED);
		assert_null(strchr(err.message, '\033'));
		triton_kernel_free(&kernel);
	}
}

/* What a kernel is compiled from goes back as it came. */
static void a_build_is_asked_for_as_it_was_told(void **state)
{
	static const char text[] = "{\"kernel\":\"" NAME "\",\"configs\":[" CONFIG(
		64, 8) "],\"chosen\":" CONFIG(64, 8) ",\"builds\":%s}";
	static const char *const builds[] = {"[{\"module\":\"m\"}]", "[]", "null", "7"};
	struct error err = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(builds) / sizeof(*builds); i++) {
		struct triton_kernel kernel;
		char *item = xprintf(text, builds[i]), *line;
		cJSON *request;

		assert_int_equal(read_item(item, &kernel, &err), 0);
		request = triton_build_request(&kernel, &kernel.configs[0]);
		line = cJSON_PrintUnformatted(request);
		assert_int_equal(!request, i > 0);
		if (request)
			assert_string_equal(line,
				"{\"do\":\"build\",\"builds\":[{\"module\":\"m\"}],\"config\":{\"kwargs\":{\"BLOCK\":64},"
				"\"num_warps\":8,\"num_stages\":2}}");
		cJSON_free(line);
		cJSON_Delete(request);
		triton_kernel_free(&kernel);
		free(item);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_build_is_asked_for_as_it_was_told),
		cmocka_unit_test(a_kernel_has_what_it_declares_and_more),
		cmocka_unit_test(a_bound_and_a_cluster_are_kept),
		cmocka_unit_test(a_kernel_with_many_values_has_some_of_them),
		cmocka_unit_test(what_cannot_be_tuned_is_refused),
	};

	return cmocka_run_group_tests_name("triton", tests, NULL, NULL);
}
