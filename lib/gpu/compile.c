#include "gpu/compile.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/embed.h"
#include "base/log.h"
#include "base/memory.h"
#include "gpu/cache.h"
#include "gpu/cuda.h"

#define CACHE_LIMIT ((size_t)256 << 20)

/* The files of kernels/: those with kernels, and the headers that they include. */
#define SOURCES(_)                                                                                           \
	_(delay, "common/delay.cu")                                                                          \
	_(flash_forward, "flash/forward.cu")                                                                 \
	_(flash_backward, "flash/backward.cu")                                                               \
	_(quasar_chunk, "quasar/chunk.cu")                                                                   \
	_(quasar_forward_substitution, "quasar/forward_substitution.cu")                                     \
	_(quasar_gate, "quasar/gate.cu")                                                                     \
	_(quasar_gradient, "quasar/gradient.cu")                                                             \
	_(quasar_recurrent, "quasar/recurrent.cu")                                                           \
	_(quasar_reference, "quasar/reference.cu")                                                           \
	_(layer_convolve, "layer/convolve.cu")                                                               \
	_(layer_gate, "layer/gate.cu")                                                                       \
	_(layer_gather, "layer/gather.cu")                                                                   \
	_(layer_project, "layer/project.cu")                                                                 \
	_(linear_attention, "linear/attention.cu")                                                           \
	_(model_step, "model/step.cu")
#define HEADERS(_)                                                                                           \
	_(common_arguments, "common/arguments.h")                                                            \
	_(common_dtype, "common/dtype.h")                                                                    \
	_(common_element, "common/element.cuh")                                                              \
	_(common_launch, "common/launch.cuh")                                                                \
	_(common_mbarrier, "common/mbarrier.cuh")                                                            \
	_(common_tile, "common/tile.cuh")                                                                    \
	_(flash_arguments, "flash/arguments.h")                                                              \
	_(flash_atomics, "flash/atomics.cuh")                                                                \
	_(flash_common, "flash/flash.cuh")                                                                   \
	_(flash_layout, "flash/layout.h")                                                                    \
	_(flash_roles, "flash/roles.cuh")                                                                    \
	_(quasar_arguments, "quasar/arguments.h")                                                            \
	_(quasar_block, "quasar/block.cuh")                                                                  \
	_(quasar_decay, "quasar/decay.cuh")                                                                  \
	_(quasar_gate_formula, "quasar/gate.cuh")                                                            \
	_(quasar_gradient_chain, "quasar/gradient_chain.cuh")                                                \
	_(quasar_gradient_maps, "quasar/gradient_maps.cuh")                                                  \
	_(quasar_gradient_rows, "quasar/gradient_rows.cuh")                                                  \
	_(quasar_gradient_tiles, "quasar/gradient_tiles.cuh")                                                \
	_(quasar_inverse, "quasar/inverse.cuh")                                                              \
	_(quasar_layout, "quasar/layout.h")                                                                  \
	_(quasar_lower, "quasar/lower.cuh")                                                                  \
	_(quasar_matrices, "quasar/matrices.cuh")                                                            \
	_(quasar_output, "quasar/output.cuh")                                                                \
	_(quasar_roles, "quasar/roles.cuh")                                                                  \
	_(quasar_rows, "quasar/rows.cuh")                                                                    \
	_(quasar_share, "quasar/share.cuh")                                                                  \
	_(quasar_step, "quasar/step.cuh")                                                                    \
	_(quasar_transition, "quasar/transition.cuh")                                                        \
	_(quasar_walk, "quasar/walk.cuh")                                                                    \
	_(layer_arguments, "layer/arguments.h")                                                              \
	_(layer_layout, "layer/layout.h")                                                                    \
	_(layer_segment, "layer/segment.cuh")                                                                \
	_(layer_silu, "layer/silu.cuh")                                                                      \
	_(linear_arguments, "linear/arguments.h")                                                            \
	_(linear_factor, "linear/factor.cuh")                                                                \
	_(linear_feature, "linear/feature.cuh")                                                              \
	_(linear_layout, "linear/layout.h")                                                                  \
	_(linear_numbers, "linear/numbers.cuh")                                                              \
	_(linear_output, "linear/output.cuh")                                                                \
	_(linear_state, "linear/state.cuh")                                                                  \
	_(linear_tile, "linear/tile.cuh")                                                                    \
	_(linear_walk, "linear/walk.cuh")                                                                    \
	_(linear_warp, "linear/warp.cuh")                                                                    \
	_(model_activation, "model/activation.cuh")                                                          \
	_(model_arguments, "model/arguments.h")                                                              \
	_(model_attention, "model/attention.cuh")                                                            \
	_(model_barrier, "model/barrier.cuh")                                                                \
	_(model_layout, "model/layout.h")                                                                    \
	_(model_parcel, "model/parcel.cuh")                                                                  \
	_(model_plan, "model/plan.cuh")                                                                      \
	_(model_product, "model/product.cuh")                                                                \
	_(model_result, "model/result.cuh")                                                                  \
	_(model_ring, "model/ring.cuh")                                                                      \
	_(model_stream, "model/stream.cuh")

#define TAKE_IN(symbol, path) EMBED(kernels_##symbol, "kernels/" path);
SOURCES(TAKE_IN)
HEADERS(TAKE_IN)

#define ENTRY(symbol, path) {path, kernels_##symbol},
static const struct {
	const char *name, *text;
} sources[] = {SOURCES(ENTRY)};

#define NAME(symbol, path) path,
#define TEXT(symbol, path) kernels_##symbol,
static const char *const header_names[] = {HEADERS(NAME)};
static const char *const header_texts[] = {HEADERS(TEXT)};

enum { SOURCE_COUNT = sizeof(sources) / sizeof(*sources) };
enum { HEADER_COUNT = sizeof(header_names) / sizeof(*header_names) };

#define MOST_OPTIONS 24

struct options {
	char *items[MOST_OPTIONS + 1]; /* ends with NULL */
	int count;
};

/* Takes the option. */
static int option_add(struct options *options, char *option, struct error *err)
{
	if (options->count == MOST_OPTIONS) {
		error_set(err, STATUS_USAGE, "%s exceeds the %d options that a kernel may have", option,
			MOST_OPTIONS);
		free(option);
		return -1;
	}
	options->items[options->count++] = option;
	return 0;
}

static void options_free(struct options *options)
{
	for (int i = 0; i < options->count; i++)
		free(options->items[i]);
}

/* The capability to compile for: the device's, or the newest older one that the compiler knows. */
static int compiler_target(const struct nvrtc *nvrtc, int capability)
{
	int count = 0, best = 0, *known;

	nvrtc->nvrtcGetNumSupportedArchs(&count);
	known = xcalloc((size_t)count + 1, sizeof(*known));
	nvrtc->nvrtcGetSupportedArchs(known);
	for (int i = 0; i < count; i++)
		if (known[i] <= capability && known[i] > best)
			best = known[i];
	free(known);
	return best;
}

static int compile_failed(const struct nvrtc *nvrtc, struct nvrtc_program *program, const char *source,
	const struct options *options, int code, struct error *err)
{
	struct buffer line = {0};
	size_t size = 0;
	char *log;

	nvrtc->nvrtcGetProgramLogSize(program, &size);
	log = xcalloc(size + 1, 1);
	nvrtc->nvrtcGetProgramLog(program, log);
	for (int i = 0; i < options->count; i++)
		buffer_printf(&line, " %s", options->items[i]);
	error_set(err, STATUS_ENVIRONMENT, "compiling kernels/%s failed (%s) with%s:\n%s", source,
		nvrtc->nvrtcGetErrorString(code), line.data, log);
	buffer_free(&line);
	free(log);
	return -1;
}

static int run_compiler(const struct nvrtc *nvrtc, const char *source, const char *text,
	const struct options *options, bool ptx, struct buffer *image, struct error *err)
{
	struct nvrtc_program *program = NULL;
	int code = nvrtc->nvrtcCreateProgram(
		&program, text, source, HEADER_COUNT, header_texts, header_names);
	size_t size = 0;
	char *bytes;

	if (code)
		return error_set(err, STATUS_ENVIRONMENT, "compiling kernels/%s: %s", source,
			nvrtc->nvrtcGetErrorString(code));
	code = nvrtc->nvrtcCompileProgram(program, options->count, (const char *const *)options->items);
	if (code) {
		compile_failed(nvrtc, program, source, options, code, err);
	} else {
		code = ptx ? nvrtc->nvrtcGetPTXSize(program, &size)
			   : nvrtc->nvrtcGetCUBINSize(program, &size);
		bytes = xcalloc(size + 1, 1);
		code = code   ? code
			: ptx ? nvrtc->nvrtcGetPTX(program, bytes)
			      : nvrtc->nvrtcGetCUBIN(program, bytes);
		if (code)
			error_set(err, STATUS_ENVIRONMENT, "compiling kernels/%s produced no code: %s",
				source, nvrtc->nvrtcGetErrorString(code));
		else
			buffer_append(image, bytes, size);
		free(bytes);
	}
	nvrtc->nvrtcDestroyProgram(&program);
	return code ? -1 : 0;
}

/* Everything that the machine code depends on. */
static void make_key(
	char key[CACHE_KEY], const struct nvrtc *nvrtc, const char *text, const struct options *options)
{
	const char *texts[MOST_OPTIONS + HEADER_COUNT + 3];
	char version[32];
	int major = 0, minor = 0, count = 0;

	nvrtc->nvrtcVersion(&major, &minor);
	snprintf(version, sizeof(version), "nvrtc %d.%d", major, minor);
	texts[count++] = version;
	texts[count++] = text;
	for (int i = 0; i < HEADER_COUNT; i++)
		texts[count++] = header_texts[i];
	for (int i = 0; i < options->count; i++)
		texts[count++] = options->items[i];
	texts[count] = NULL;
	cache_key(key, texts);
}

static int compile_cached(const struct nvrtc *nvrtc, const char *source, const char *text,
	const struct options *options, bool ptx, struct buffer *image, struct error *err)
{
	char key[CACHE_KEY], *directory = cache_directory();
	struct error unwritten = {0};
	double started = clock_elapsed();
	int result = 0;

	make_key(key, nvrtc, text, options);
	if (!cache_get(directory, key, image)) {
		result = run_compiler(nvrtc, source, text, options, ptx, image, err);
		if (!result) {
			log_debug("compiled kernels/%s in %.1f s", source, clock_elapsed() - started);
			if (cache_put(directory, key, image->data, image->length, CACHE_LIMIT, &unwritten) <
				0)
				log_debug("not cached: %s", unwritten.message);
		}
	}
	free(directory);
	return result;
}

static const char *source_text(const char *source, struct error *err)
{
	for (int i = 0; i < SOURCE_COUNT; i++)
		if (!strcmp(sources[i].name, source))
			return sources[i].text;
	error_set(err, STATUS_USAGE, "there is no kernels/%s", source);
	return NULL;
}

void kernel_source_hash(const char *source, char hash[KERNEL_SOURCE_HASH])
{
	const char *texts[HEADER_COUNT + 2] = {0};
	struct error none;

	texts[0] = source_text(source, &none);
	memcpy(texts + 1, header_texts, sizeof(header_texts));
	hash[0] = '\0';
	if (texts[0])
		cache_key(hash, texts);
}

/* What is Hopper's alone, as wgmma, may be used where the code is `exact`ly for the target, not for later GPUs. */
static int make_options(struct options *options, const struct kernel_parameter *parameters, bool ptx,
	bool exact, int target, struct error *err)
{
	if (option_add(options,
		    xprintf("--gpu-architecture=%s_%d%s", ptx ? "compute" : "sm", target,
			    exact && target == 90 ? "a" : ""),
		    err) < 0 ||
		option_add(options, xstrdup("--std=c++17"), err) < 0 ||
		option_add(options, xstrdup("--diag-suppress=177"), err) < 0)
		return -1;
	for (; parameters && parameters->name; parameters++)
		if (option_add(options, xprintf("-D%s=%d", parameters->name, parameters->value), err) < 0)
			return -1;
	return 0;
}

/* NVIDIA's own setting: the driver is to compile PTX. The emulated GPU runs nothing else. */
static bool wants_ptx(void)
{
	const char *wanted = getenv("CUDA_FORCE_PTX_JIT");

	return wanted && !strcmp(wanted, "1");
}

int kernel_compile(const char *source, const struct kernel_parameter *parameters, int capability,
	struct buffer *image, struct error *err)
{
	const char *text = source_text(source, err);
	const struct nvrtc *nvrtc = text ? nvrtc_library(err) : NULL;
	struct options options = {0};
	int target, result;
	bool ptx;

	if (!nvrtc)
		return -1;
	target = compiler_target(nvrtc, capability);
	if (!target) {
		error_set(err, STATUS_ENVIRONMENT, "%s does not compile for compute capability %d.%d",
			nvrtc_path(), capability / 10, capability % 10);
		return error_hint(err, "GPUs need compute capability 8.0 (Ampere) or later.");
	}
	ptx = target != capability || wants_ptx();
	result = make_options(&options, parameters, ptx, target == capability, target, err);
	if (!result)
		result = compile_cached(nvrtc, source, text, &options, ptx, image, err);
	options_free(&options);
	return result;
}

int kernel_compiler_check(int capability, struct error *err)
{
	const struct nvrtc *nvrtc = nvrtc_library(err);

	if (!nvrtc)
		return -1;
	if (compiler_target(nvrtc, capability) == capability)
		return 0;
	error_set(err, STATUS_ENVIRONMENT, "%s does not compile for compute capability %d.%d", nvrtc_path(),
		capability / 10, capability % 10);
	return error_hint(err, "A newer one may: `pip install --upgrade nvidia-cuda-nvrtc`.");
}
