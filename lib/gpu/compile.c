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

EMBED(source_delay, "kernels/delay.cu");
EMBED(source_forward_substitution, "kernels/forward_substitution.cu");
EMBED(source_layer_convolve, "kernels/layer_convolve.cu");
EMBED(source_layer_gate, "kernels/layer_gate.cu");
EMBED(source_layer_narrow, "kernels/layer_narrow.cu");
EMBED(source_quasar_chunk, "kernels/quasar_chunk.cu");
EMBED(source_quasar_gate, "kernels/quasar_gate.cu");
EMBED(source_quasar_recurrent, "kernels/quasar_recurrent.cu");
EMBED(source_quasar_reference, "kernels/quasar_reference.cu");
EMBED(header_arguments, "kernels/arguments.h");
EMBED(header_element, "kernels/element.cuh");
EMBED(header_tile, "kernels/tile.cuh");

static const struct {
	const char *name, *text;
} sources[] = {
	{"delay.cu", source_delay},
	{"forward_substitution.cu", source_forward_substitution},
	{"layer_convolve.cu", source_layer_convolve},
	{"layer_gate.cu", source_layer_gate},
	{"layer_narrow.cu", source_layer_narrow},
	{"quasar_chunk.cu", source_quasar_chunk},
	{"quasar_gate.cu", source_quasar_gate},
	{"quasar_recurrent.cu", source_quasar_recurrent},
	{"quasar_reference.cu", source_quasar_reference},
};

static const char *const header_names[] = {"arguments.h", "element.cuh", "tile.cuh"};
static const char *const header_texts[] = {header_arguments, header_element, header_tile};

#define HEADERS 3
#define MOST_OPTIONS 24

struct options {
	char *items[MOST_OPTIONS + 1]; /* ends with NULL */
	int count;
};

static void option_add(struct options *options, char *option)
{
	options->items[options->count++] = option;
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
	int code = nvrtc->nvrtcCreateProgram(&program, text, source, HEADERS, header_texts, header_names);
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
		code = code  ? code
		       : ptx ? nvrtc->nvrtcGetPTX(program, bytes)
			     : nvrtc->nvrtcGetCUBIN(program, bytes);
		if (code)
			error_set(err, STATUS_ENVIRONMENT, "compiling kernels/%s gave no code: %s", source,
				nvrtc->nvrtcGetErrorString(code));
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
	const char *texts[MOST_OPTIONS + HEADERS + 3];
	char version[32];
	int major = 0, minor = 0, count = 0;

	nvrtc->nvrtcVersion(&major, &minor);
	snprintf(version, sizeof(version), "nvrtc %d.%d", major, minor);
	texts[count++] = version;
	texts[count++] = text;
	for (int i = 0; i < HEADERS; i++)
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

int kernel_compile(const char *source, const struct kernel_parameter *parameters, int capability,
	struct buffer *image, struct error *err)
{
	const struct nvrtc *nvrtc = nvrtc_library(err);
	struct options options = {0};
	int index = 0, target, result;

	if (!nvrtc)
		return -1;
	while (strcmp(sources[index].name, source))
		index++;
	target = compiler_target(nvrtc, capability);
	if (!target) {
		error_set(err, STATUS_ENVIRONMENT, "%s does not compile for compute capability %d.%d",
			nvrtc_path(), capability / 10, capability % 10);
		return error_hint(err, "GPUs from compute capability 8.0 (Ampere) on are supported.");
	}
	option_add(&options,
		xprintf("--gpu-architecture=%s_%d", target == capability ? "sm" : "compute", target));
	option_add(&options, xstrdup("--std=c++17"));
	option_add(&options, xstrdup("--diag-suppress=177"));
	for (; parameters && parameters->name; parameters++)
		option_add(&options, xprintf("-D%s=%d", parameters->name, parameters->value));
	result = compile_cached(
		nvrtc, source, sources[index].text, &options, target != capability, image, err);
	options_free(&options);
	return result;
}
