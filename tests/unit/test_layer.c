/* The layer on the CPU against its fp64 reference, its pieces by hand, and weights from files. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/memory.h"
#include "tensor/compare.h"
#include "cpu/cpu.h"
#include "tensor/dtype.h"
#include "layer/layer.h"
#include "tensor/random.h"
#include "tensor/safetensors.h"

#define HIDDEN 64
#define HEADS 3
#define DIM 32
#define WIDTH (HEADS * DIM)

struct fixture {
	struct layer *layer;
	struct layer_call call;
	float *x;
	double *expected;
	size_t count;
};

static void fixture_make(struct fixture *fixture, enum semantics semantics, int64_t batch, int64_t tokens)
{
	struct error err = {0};

	fixture->count = (size_t)(batch * tokens * HIDDEN);
	fixture->layer = layer_random(HIDDEN, HEADS, DIM, 3, &err);
	assert_non_null(fixture->layer);
	fixture->x = xmalloc(fixture->count * sizeof(float));
	fixture->expected = xmalloc(fixture->count * sizeof(double));
	random_normal(5, 1, 1, fixture->x, fixture->count);
	fixture->call = (struct layer_call){
		.semantics = semantics,
		.batch = batch,
		.tokens = tokens,
		.x = fixture->x,
		.out = xmalloc(fixture->count * sizeof(uint16_t)),
	};
	memset(fixture->call.out, 0xff, fixture->count * sizeof(uint16_t)); /* NaN */
	assert_int_equal(layer_reference(fixture->layer, &fixture->call, fixture->expected, &err), 0);
}

static void fixture_free(struct fixture *fixture)
{
	layer_free(fixture->layer);
	free(fixture->x);
	free(fixture->call.out);
	free(fixture->expected);
}

static void run(const struct fixture *fixture, const struct layer_call *call)
{
	struct error err = {0};

	if (layer_cpu(fixture->layer, call, &err) < 0)
		fail_msg("%s", err.message);
}

static void assert_agrees(const struct fixture *fixture)
{
	struct comparison found = compare_bf16_double(fixture->call.out, fixture->expected, fixture->count);

	/* bf16 between the steps leaves about 1 % */
	if (!found.finite || found.cosine < 0.9998 || found.relative_error > 0.02)
		fail_msg("%s, %s, %lld tokens: cosine %.6f, relative error %g%s", cpu_variant_name(),
			semantics_name(fixture->call.semantics), (long long)fixture->call.tokens,
			found.cosine, found.relative_error, found.finite ? "" : ", not finite");
}

static void agrees_with_the_reference(void **state)
{
	/* 2100 and 4200 take more than one segment */
	static const int64_t tokens[] = {1, 3, 64, 100, 2100, 4200};

	(void)state;
	for (int semantics = 0; semantics < 2; semantics++)
		for (size_t i = 0; i < sizeof(tokens) / sizeof(*tokens); i++) {
			struct fixture f;

			fixture_make(&f, (enum semantics)semantics, tokens[i] < 1000 ? 2 : 1, tokens[i]);
			for (const char *const *name = cpu_variants(); *name; name++) {
				assert_int_equal(cpu_variant_select(*name), 0);
				memset(f.call.out, 0xff, f.count * sizeof(uint16_t));
				run(&f, &f.call);
				assert_agrees(&f);
			}
			fixture_free(&f);
		}
}

/* A causal sequence in three calls with a cache is the sequence in one. */
static void a_cache_continues(void **state)
{
	struct layer_cache cache = {
		.convolution = xcalloc(9 * 2 * WIDTH, sizeof(float)),
		.state = xcalloc(2 * HEADS * DIM * DIM, sizeof(float)),
	};
	static const int64_t cuts[] = {0, 70, 72, 130};
	struct fixture f;

	(void)state;
	fixture_make(&f, SEMANTICS_CAUSAL, 2, 130);
	for (int part = 0; part < 3; part++) {
		int64_t tokens = cuts[part + 1] - cuts[part];
		size_t piece = (size_t)(tokens * HIDDEN);
		float *x = xmalloc(2 * piece * sizeof(*x));
		uint16_t *out = xmalloc(2 * piece * sizeof(*out));
		struct layer_call call = {SEMANTICS_CAUSAL, 2, tokens, x, out, &cache};

		for (size_t b = 0; b < 2; b++)
			memcpy(x + b * piece, f.x + (b * 130 + (size_t)cuts[part]) * HIDDEN,
				piece * sizeof(*x));
		run(&f, &call);
		for (size_t b = 0; b < 2; b++)
			memcpy(f.call.out + (b * 130 + (size_t)cuts[part]) * HIDDEN, out + b * piece,
				piece * sizeof(*out));
		free(x);
		free(out);
	}
	assert_agrees(&f);
	free(cache.convolution);
	free(cache.state);
	fixture_free(&f);
}

/* One token, weights of which only a few differ from zero: every step of the layer by hand. */
static void one_token_by_hand(void **state)
{
	struct fixture f;
	struct error err = {0};
	double q, k, v, alpha, o, norm, gate, y;

	(void)state;
	fixture_make(&f, SEMANTICS_CAUSAL, 1, 1);
	memset(f.layer->q_proj, 0, 3 * WIDTH * HIDDEN * sizeof(float));
	memset(f.layer->g_proj_0, 0, DIM * HIDDEN * sizeof(float));
	memset(f.layer->g_proj_1, 0, WIDTH * DIM * sizeof(float));
	memset(f.layer->g_proj_1_bias, 0, WIDTH * sizeof(float));
	memset(f.layer->o_proj, 0, HIDDEN * WIDTH * sizeof(float));
	memset(f.x, 0, f.count * sizeof(float));
	/* channel 33 of q and k, that is dimension 1 of head 1, from x[2]; channel 40 of v from x[3] */
	f.x[2] = 2;
	f.x[3] = 3;
	f.layer->q_proj[33 * HIDDEN + 2] = 1.5f;
	f.layer->k_proj[33 * HIDDEN + 2] = 0.5f;
	f.layer->v_proj[40 * HIDDEN + 3] = 1;
	f.layer->q_conv1d[33 * 4 + 3] = 1; /* the last tap is the token itself */
	f.layer->k_conv1d[33 * 4 + 3] = 2;
	f.layer->v_conv1d[40 * 4 + 3] = -1;
	f.layer->beta_log[1] = 0; /* β = softplus(0) = ln 2 */
	f.layer->g_proj_0[5 * HIDDEN + 2] = 0.25f;
	f.layer->g_proj_1[40 * DIM + 5] = 4;
	f.layer->g_proj_1_bias[40] = -1;
	f.layer->o_norm[8] = 0.5f; /* channel 40 is dimension 8 */
	f.layer->o_proj[7 * WIDTH + 40] = 3;
	assert_int_equal(layer_prepare(f.layer, &err), 0);
	q = 3 / (1 + exp(-3.0));
	k = 2 / (1 + exp(-2.0));
	v = -3 / (1 + exp(3.0));
	alpha = (1 - exp(-log(2) * k * k)) / (k * k);
	o = q * k * alpha * v;
	norm = o / sqrt(o * o / DIM + 1e-5) * 0.5;
	gate = 1 / (1 + exp(-(0.25 * 2 * 4 - 1)));
	y = norm * gate * 3;
	run(&f, &f.call);
	assert_int_equal(layer_reference(f.layer, &f.call, f.expected, &err), 0);
	for (int i = 0; i < HIDDEN; i++) {
		double expected = i == 7 ? y : 0;

		assert_true(fabs(f.expected[i] - expected) < 1e-6);
		assert_true(fabs((double)bf16_to_float(f.call.out[i]) - expected) < 0.01 * fabs(y));
	}
	fixture_free(&f);
}

static void random_weights_are_the_forks(void **state)
{
	struct error err = {0};
	struct layer *a = layer_random(512, 8, 64, 1, &err), *b = layer_random(512, 8, 64, 1, &err);
	struct layer *c = layer_random(512, 8, 64, 2, &err);
	double sum = 0, squares = 0, bound = 1 / sqrt(512);

	(void)state;
	assert_memory_equal(a->o_proj, b->o_proj, 512 * 512 * sizeof(float));
	assert_memory_not_equal(a->o_proj, c->o_proj, 512 * 512 * sizeof(float));
	assert_memory_not_equal(a->q_proj, a->k_proj, 512 * 512 * sizeof(float));
	for (int i = 0; i < 512 * 512; i++) {
		assert_true(fabs((double)a->q_proj[i]) <= bound);
		sum += (double)a->q_proj[i];
		squares += (double)(a->q_proj[i] * a->q_proj[i]);
	}
	/* evenly distributed: mean 0, variance bound² / 3 */
	assert_true(fabs(sum / (512 * 512)) < bound / 100);
	assert_true(fabs(squares / (512 * 512) / (bound * bound / 3) - 1) < 0.02);
	for (int i = 0; i < 8; i++)
		assert_true(a->beta_log[i] >= 0 && (double)a->beta_log[i] <= log(16));
	for (int i = 0; i < 64; i++)
		assert_true(a->o_norm[i] == 1.0f);
	layer_free(a);
	layer_free(b);
	layer_free(c);
}

/* --- files ---------------------------------------------------------------------------------------- */

#define PATH "/tmp/quasar-test-layer"

static char path[64];

static void write_file(const char *header, const void *data, size_t length)
{
	struct buffer file = {0};
	uint64_t size = strlen(header);
	struct error err = {0};

	buffer_append(&file, &size, sizeof(size));
	buffer_text(&file, header);
	buffer_append(&file, data, length);
	assert_int_equal(file_write(path, file.data, file.length, 0600, FILE_REPLACE, &err), 0);
	buffer_free(&file);
}

/* Writes the layer's tensors; `bf16` stores the wide ones in 16 bits. */
static void write_layer(const struct layer *layer, bool bf16)
{
	const struct {
		const char *name, *shape;
		const float *data;
		size_t count;
	} tensors[] = {
		{"q_proj.weight", "96,64", layer->q_proj, WIDTH * HIDDEN},
		{"k_proj.weight", "96,64", layer->k_proj, WIDTH * HIDDEN},
		{"v_proj.weight", "96,64", layer->v_proj, WIDTH * HIDDEN},
		{"q_conv1d.weight", "96,1,4", layer->q_conv1d, WIDTH * 4},
		{"k_conv1d.weight", "96,1,4", layer->k_conv1d, WIDTH * 4},
		{"v_conv1d.weight", "96,1,4", layer->v_conv1d, WIDTH * 4},
		{"beta_log", "3", layer->beta_log, HEADS},
		{"g_proj.0.weight", "32,64", layer->g_proj_0, DIM * HIDDEN},
		{"g_proj.1.weight", "96,32", layer->g_proj_1, WIDTH * DIM},
		{"g_proj.1.bias", "96", layer->g_proj_1_bias, WIDTH},
		{"o_norm.weight", "32", layer->o_norm, DIM},
		{"o_proj.weight", "64,96", layer->o_proj, HIDDEN * WIDTH},
	};
	struct buffer header = {0}, data = {0};

	buffer_text(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (size_t i = 0; i < sizeof(tensors) / sizeof(*tensors); i++) {
		bool narrow = bf16 && tensors[i].count > 1000;
		size_t start = data.length;

		for (size_t n = 0; n < tensors[i].count; n++) {
			uint16_t half = bf16_of_float(tensors[i].data[n]);

			buffer_append(
				&data, narrow ? (const void *)&half : &tensors[i].data[n], narrow ? 2 : 4);
		}
		buffer_printf(&header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
			tensors[i].name, narrow ? "BF16" : "F32", tensors[i].shape, start, data.length);
	}
	buffer_text(&header, "}   ");
	write_file(header.data, data.data, data.length);
	buffer_free(&header);
	buffer_free(&data);
}

static void weights_come_from_a_file(void **state)
{
	struct error err = {0};
	struct layer *written = layer_random(HIDDEN, HEADS, DIM, 9, &err), *loaded;
	const char *name;
	size_t size;
	float *numbers;
	int count;

	(void)state;
	write_layer(written, false);
	loaded = layer_load(path, &err);
	assert_non_null(loaded);
	assert_int_equal(loaded->hidden, HIDDEN);
	assert_int_equal(loaded->heads, HEADS);
	assert_int_equal(loaded->dim, DIM);
	for (count = 0; (numbers = layer_parameter(written, count, &name, &size)); count++) {
		const char *same_name;
		size_t same_size;

		assert_memory_equal(numbers, layer_parameter(loaded, count, &same_name, &same_size),
			size * sizeof(float));
		assert_string_equal(name, same_name);
		assert_int_equal(size, same_size);
	}
	assert_int_equal(count, 12);
	layer_free(loaded);
	write_layer(written, true);
	loaded = layer_load(path, &err);
	assert_non_null(loaded);
	for (int i = 0; i < HIDDEN * WIDTH; i++)
		assert_true(loaded->o_proj[i] == bf16_to_float(bf16_of_float(written->o_proj[i])));
	layer_free(loaded);
	layer_free(written);
}

static void assert_unreadable(const char *header, const char *because)
{
	float data[4] = {1, 2, 3, 4};
	struct error err = {0};
	struct safetensors_tensor tensor;
	struct safetensors *file;

	write_file(header, data, sizeof(data));
	file = safetensors_open(path, &err);
	if (file)
		assert_int_equal(safetensors_find(file, "a", &tensor, &err), -1);
	safetensors_close(file);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	if (!strstr(err.message, because))
		fail_msg("\"%s\" does not say \"%s\"", err.message, because);
}

static void broken_files_are_refused(void **state)
{
	static const char *const good = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}";
	struct error err = {0};
	struct safetensors_tensor tensor;
	struct safetensors *file;
	float out[4], data[4] = {1, 2, 3, 4};
	char big[8] = {0, 0, 0, 0, 0, 0, 0, 0x7f};

	(void)state;
	write_file(good, data, sizeof(data));
	file = safetensors_open(path, &err);
	assert_non_null(file);
	assert_int_equal(safetensors_find(file, "a", &tensor, &err), 0);
	assert_int_equal(tensor.count, 4);
	assert_null(tensor.data);
	assert_int_equal(safetensors_read(file, "a", out, 4, &err), 0);
	assert_memory_equal(out, data, sizeof(data));
	assert_int_equal(safetensors_read(file, "a", out, 3, &err), -1);
	assert_int_equal(safetensors_read(file, "b", out, 4, &err), -1);
	assert_int_equal(safetensors_map(file, &err), 0);
	assert_int_equal(safetensors_find(file, "a", &tensor, &err), 0);
	assert_memory_equal(tensor.data, data, sizeof(data));
	assert_int_equal(safetensors_find(file, "b", &tensor, &err), -1);
	safetensors_close(file);

	assert_unreadable("[]", "not a JSON object");
	assert_unreadable("{\"a\":", "not a JSON object");
	assert_unreadable("{\"a\":{}}", "dtype");
	assert_unreadable("{\"a\":3}", "dtype");
	assert_unreadable("{\"a\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]}}", "F64");
	assert_unreadable("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[4,20]}}", "offsets");
	assert_unreadable("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]}}", "offsets");
	assert_unreadable("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", "offsets");
	assert_unreadable("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0.5,16.5]}}", "offsets");
	assert_unreadable("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}}", "offsets");
	assert_unreadable("{\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", "shape");
	assert_unreadable(
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967297],\"data_offsets\":[0,16]}}",
		"shape");
	assert_unreadable("{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
			  "\"c\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
		"\"c\" of");
	assert_unreadable("{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
			  "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
		"twice");
	assert_int_equal(file_write(path, big, sizeof(big), 0600, FILE_REPLACE, &err), 0);
	assert_null(safetensors_open(path, &err));
	assert_non_null(strstr(err.message, "not a safetensors file"));
	assert_int_equal(file_write(path, "abc", 3, 0600, FILE_REPLACE, &err), 0);
	assert_null(safetensors_open(path, &err));
	assert_null(safetensors_open("/nonexistent/file", &err));
	assert_null(safetensors_open("/tmp", &err));
}

static void layers_that_do_not_fit_are_refused(void **state)
{
	struct error err = {0};
	float data[5] = {0};

	(void)state;
	write_file("{\"q_proj.weight\":{\"dtype\":\"F32\",\"shape\":[1,4],\"data_offsets\":[0,16]},"
		   "\"beta_log\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[16,20]}}",
		data, sizeof(data));
	assert_null(layer_load(path, &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "32, 64 or 128"));
	write_file("{}", data, sizeof(data));
	assert_null(layer_load(path, &err));
	assert_non_null(strstr(err.message, "q_proj.weight"));
}

static int name_path(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "%s.%ld", PATH, (long)getpid());
	return 0;
}

static int remove_path(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_the_reference),
		cmocka_unit_test(a_cache_continues),
		cmocka_unit_test(one_token_by_hand),
		cmocka_unit_test(random_weights_are_the_forks),
		cmocka_unit_test(weights_come_from_a_file),
		cmocka_unit_test(broken_files_are_refused),
		cmocka_unit_test(layers_that_do_not_fit_are_refused),
	};

	return cmocka_run_group_tests_name("layer", tests, name_path, remove_path);
}
