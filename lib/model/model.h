/* model: language models as Hugging Face keeps them, and the token that each says next: config.json and one or
 * several .safetensors of the architectures Qwen2, Qwen3 and Llama, in bf16, fp16 or fp32. Greedy.
 *
 * A model is opened once. Each request has a session, which remembers the keys and values of its tokens. One call
 * of model_step() takes any number of sessions a step further, prompts and single tokens together: requests may
 * come and go between steps, and a request is cancelled by closing its session.
 *
 * Threads: a model is used by one thread at a time; what its info says may be read by all. On the CPU, model_step()
 * itself uses cpu_threads() threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tensor/dtype.h"

struct model;
struct model_session;

/* Strings belong to the model. */
struct model_info {
	const char *name;     /* as it was asked for: "Qwen/Qwen2.5-0.5B-Instruct", or the folder */
	const char *path;     /* the folder */
	const char *revision; /* the commit, where the cache tells it; else NULL */
	const char *type;     /* "qwen2", "qwen3" or "llama", as config.json has it in model_type */
	const char *device;   /* "cpu (AMD EPYC 7763, 2 threads, x86_64_v3)", "cuda:0 (NVIDIA H200, …)" */
	int vocabulary;       /* tokens are 0 … vocabulary − 1 */
	int hidden, layers, heads, kv_heads, head_dim, intermediate;
	int context; /* the most tokens of a session */
	bool tied;   /* the output matrix is the embedding */
	enum dtype weights,
		arithmetic; /* as they lie in the files (of the embedding); what sums are made in */
	int64_t parameters;
	size_t bytes; /* of the weights */
};

/* The folder of a model: `name` is one that holds a config.json, or the model's name in the Hugging Face cache
 * ($HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub), "OWNER/MODEL" or "OWNER/MODEL@REVISION"
 * (default: what "main" stands for). The caller frees. NULL: STATUS_ENVIRONMENT, with the command that gets it,
 * or STATUS_USAGE for what is no name. */
char *model_find(const char *name, struct error *err);

/* Finds a model and opens it on a device: "auto", "cpu", "cuda" or "cuda:N"; "auto" is the first GPU if it
 * can take the model, else the CPU. Every tensor is checked: that it is there, its type, its shape, its
 * place in the file and that its numbers are finite. The files stay mapped, and must not be changed while
 * it is open. NULL: STATUS_ENVIRONMENT, naming file and tensor; STATUS_USAGE; STATUS_INTERRUPTED. May take
 * seconds. */
struct model *model_open(const char *name, const char *device, struct error *err);

/* After its sessions. NULL is fine. */
void model_close(struct model *model);

const struct model_info *model_info(const struct model *model);

/* A session without tokens yet that has room for `tokens`, 1 … info.context. NULL: STATUS_ENVIRONMENT when memory
 * does not suffice, STATUS_USAGE. */
struct model_session *model_session_open(struct model *model, int tokens, struct error *err);
void model_session_close(struct model_session *session); /* NULL is fine */

/* Tokens that it has taken so far. */
int model_session_length(const struct model_session *session);

/* The most tokens that a step takes, all pieces together. A longer prompt takes several steps. */
#define MODEL_STEP_TOKENS 512

/* What a step does for one session; a session has at most one piece in a step. */
struct model_piece {
	struct model_session *session;
	const int32_t *tokens; /* `count` of them, at least 1: the session's next ones */
	int count;
	bool predicts; /* wants to know what follows the last one: false within a prompt */
	float *logits; /* gets what was predicted, [vocabulary], unless NULL */
	int32_t next; /* the token that was predicted, the lowest of equals; −1: some logits are not finite */
};

/* Takes `count` sessions a step further. `stop` is asked now and then, and ends the step when it says true; NULL:
 * it runs to its end. -1 with all sessions as they were: STATUS_USAGE for tokens that are not in the vocabulary, or
 * for which there is no room; STATUS_ENVIRONMENT without memory or OpenBLAS, or
 * when the GPU fails; STATUS_INTERRUPTED: stopped. */
int model_step(
	struct model *model, struct model_piece *pieces, int count, bool (*stop)(void), struct error *err);

/* Whether a step has failed so that no other can succeed: its GPU had a fault. */
bool model_is_broken(const struct model *model);
