/* probe: the layer of a fork, run by a Python of its own in a session: it is started as a validator starts
 * it, then told what to do.
 *
 * The Python sees a directory with the fork's files, but those that git ignores, and the script, as a
 * validator's clone has them; the fork itself is only read. Errors tell whose fault it was: STATUS_FAILED
 * for the fork (what Python said last, and the fork's file and line), STATUS_ENVIRONMENT for this machine
 * (no Python, no PyTorch, no GPU, no room), STATUS_INTERRUPTED. After any but STATUS_FAILED, and after an
 * end or a timeout, there is nothing more to be asked: probe_alive() tells. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "probe/sandbox.h"

#define PROBE_SCRIPT "test_temp_%lld.py" /* what validators call it, with the tokens */
#define PROBE_SECONDS 300.0              /* what validators give one length */
#define PROBE_ROUNDS 16

struct probe;

struct probe_options {
	const char *fork;         /* its directory */
	const char *python;       /* a path, or a name in the PATH; NULL: python3 */
	const char *script;       /* its name */
	char *const *environment; /* beside what process_start() passes on; may be NULL */
	int gpu;                  /* index, as the driver counts; -1: the CPU */
	double seconds;           /* the session may take; see probe_limit() */
	/* Runs it in a sandbox: its places are what the Python needs, the rest is filled in here, and the
	 * environment is what a sandbox gives. Outputs cannot be had from there, only times. NULL: without
	 * one. */
	const struct sandbox_options *sandbox;
	bool elsewhere; /* nothing around it looks like a validator's */
};

/* Starts the Python; nothing of the fork runs yet. NULL on error. */
struct probe *probe_open(const struct probe_options *options, struct error *err);
void probe_close(struct probe *probe); /* NULL is fine */

/* From now on the session may take so many seconds; then what runs is ended, and the fork has failed. */
void probe_limit(struct probe *probe, double seconds);

/* Whether there is still somebody to ask. */
bool probe_alive(const struct probe *probe);

/* Whether the last failure came from code that is made for a GPU and found none. */
bool probe_needs_gpu(const struct probe *probe);

/* Compiles the layer and fla/ops/quasar/, without running anything. Needs no PyTorch. */
int probe_compile(struct probe *probe, struct error *err);

/* Has it begin to import PyTorch, and does not wait for that: what is asked next does, or probe_await(), which fails when
 * the process ended over it. An exception comes again in probe_start_torch(). */
int probe_prepare(struct probe *probe, struct error *err);
int probe_await(struct probe *probe, struct error *err);

/* Imports PyTorch; everything below needs that. STATUS_ENVIRONMENT when there is none, or it finds no GPU. */
int probe_start_torch(struct probe *probe, struct error *err);
const char *probe_torch(const struct probe *probe); /* its version; NULL before */

/* Imports the layer, and constructs it in the validator's shape. A file at the fork's root that Python
 * would take for one of PyTorch's or its own is a failure of the import. */
int probe_import(struct probe *probe, struct error *err);
int probe_construct(struct probe *probe, struct error *err);

/* All of the above but compiling. */
int probe_load(struct probe *probe, struct error *err);

/* The layer's parameters, as a safetensors file; `path` lives as long as the session. Another session of the same fork
 * can take them from there. */
int probe_save_weights(struct probe *probe, const char **path, struct error *err);
int probe_load_weights(struct probe *probe, const char *path, struct error *err);

/* Negates a parameter, by its name in the state dict, as an optimiser would change it. */
int probe_negate(struct probe *probe, const char *parameter, struct error *err);

/* An input, x [tokens, LAYER_HIDDEN]. Where one of that name and shape is there, its memory gets the new numbers, and
 * PyTorch is not told. */
int probe_input(struct probe *probe, const char *name, const float *x, int64_t tokens, struct error *err);

/* Calls the layer, as fp32 [tokens, LAYER_HIDDEN]: fp32 input and weights under bf16 autocast, autograd
 * on. `poison`: a byte that memory is filled with before it is handed out; 0: none. An output of another
 * shape is the fork's failure. */
int probe_call(
	struct probe *probe, const char *input, int64_t tokens, int poison, float *out, struct error *err);

/* The type of the outputs, "Tensor"; once another was returned, that one. */
const char *probe_output_type(const struct probe *probe);

/* Gradients of the output's product with `direction` [tokens, LAYER_HIDDEN], as a safetensors file: those of the
 * parameters by their names, the input's as "x". None at all is no tensor in it. */
int probe_gradients(struct probe *probe, const char *input, int64_t tokens, const float *direction,
	const char **path, struct error *err);

struct probe_timing {
	int64_t tokens;
	const char *const *inputs; /* names, the calls take turns; ends with NULL. NULL: random numbers */
	int warmups, calls;        /* of a round */
	int rounds;                /* at most PROBE_ROUNDS */
	double seconds;            /* no further round begins after so many */
	double rest;               /* seconds in which the GPU has nothing to do, before the first of them */
	/* Outputs of timed calls [tokens, LAYER_HIDDEN]: the last one's as it was when the clock stopped,
	 * and that of one that was drawn by lot after it had been made. NULL: not wanted. */
	float *last, *drawn;
};

/* A round's seconds, for all of its calls: by the clock of the process, as a validator's script reads it, and by our
 * own, which stops when nothing runs any more. They agree for an honest fork but for what passing a line on takes, a
 * tenth of a millisecond. */
struct probe_times {
	double process[PROBE_ROUNDS], own[PROBE_ROUNDS];
	int rounds, calls;
	double memory_mb; /* peak until the end of the first round, in MiB */
	int drawn;        /* which input that output is of */
};

/* Times calls of the layer as validators do. */
int probe_time(
	struct probe *probe, const struct probe_timing *timing, struct probe_times *times, struct error *err);

/* Calls the layer, and says which of the fork's kernels Triton's autotuner chose configurations for: a
 * list of {"kernel": "fla/ops/quasar/chunk.py:NAME", "configs": […], "chosen": {…}}, a configuration being
 * {"kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg"}, with "more" where that is not all that it has; and "builds",
 * what lib/tune/triton.py compiles others from. The caller deletes it. NULL on error. */
cJSON *probe_autotuners(struct probe *probe, const char *input, struct error *err);

/* From now on kernels run in one configuration each, those that `configs` has by their names, and all others as the fork
 * has them, in a layer that is made anew with the same weights, and is called once. STATUS_FAILED when that call does not
 * run them so. */
int probe_configure(struct probe *probe, const cJSON *configs, const char *input, struct error *err);

/* What a validator's script counts on and the fork has replaced, "time.time, torch.cuda.synchronize"; "" when nothing;
 * the caller frees. `settled`: whether outputs of timed calls are still what they were when the clock stopped. */
int probe_replaced(struct probe *probe, char **what, bool *settled, struct error *err);

/* On a GPU: MiB that were taken past PyTorch's count since PyTorch started, and whether a call takes back the peak that
 * was reached before it. */
int probe_memory(struct probe *probe, const char *input, double *outside_mb, bool *reset, struct error *err);

/* Lets the process come to its own end. STATUS_FAILED when it does not: it still runs, or another one that it started and
 * that can print. */
int probe_finish(struct probe *probe, struct error *err);

/* What was printed, the last of it where that is much. */
const struct buffer *probe_printed(const struct probe *probe);
