/* settings: what the workspace's .env and the environment say.
 *
 * One table names every setting, its default and its meaning; `.env.example`, the `.env` that
 * `quasar init` writes and the man page are made from it. The environment wins over `.env`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

enum setting_kind {
	SETTING_PLAIN,
	SETTING_SECRET, /* never shown, logged or put into JSON */
	SETTING_UNUSED, /* nothing reads it; accepted because the .env files of other miners have it */
};

struct setting {
	const char *group;    /* heading in .env.example; NULL: the same as the one before */
	const char *name;     /* as in the environment */
	const char *fallback; /* used when it is set nowhere; NULL: none */
	enum setting_kind kind;
	const char *help;
};

/* The validators' service. */
#define PRODUCTION_API "https://quasar-validator-api.onrender.com"

/* What is said of a setting that is unused. */
#define SETTING_UNUSED_NOTE "Accepted, but has no effect."

/* Ends with an entry whose name is NULL. */
extern const struct setting settings_table[];

struct settings;

/* Reads DIRECTORY/.env when `directory` is not NULL and the file exists. A line that is not NAME=value,
 * a comment or blank is an error (STATUS_USAGE) naming file and line, never showing the line. So is a
 * file of more than 64 KiB (STATUS_ENVIRONMENT). */
struct settings *settings_load(const char *directory, struct error *err);
void settings_free(struct settings *settings);

/* Settings put together by hand, for settings_write. */
struct settings *settings_new(void);
void settings_put(struct settings *settings, const char *name, const char *value);

/* The value in force, or NULL; `source`, if not NULL, receives "the environment", "PATH/.env" or
 * "default". An empty value counts as not set. Any name may be asked for, also one that is not in the
 * table. */
const char *settings_get(const struct settings *settings, const char *name, const char **source);

/* A name in the .env that is no setting of the table and nothing that settings_export_compute() passes on:
 * the first from entry `*at` on, which is moved behind it; NULL: no more. `meant`: the setting that it is
 * a misspelling of, or NULL. */
const char *settings_unknown(const struct settings *settings, size_t *at, const char **meant);

/* Sets one in DIRECTORY/.env, whose other lines stay as they are; an .env that is not there is made. The value in the
 * environment still wins. STATUS_ENVIRONMENT. */
int settings_save(const char *directory, const char *name, const char *value, struct error *err);

/* Appends an .env file that explains every setting. `values` may be NULL, or holds values to write
 * instead of the defaults. */
void settings_write(const struct settings *values, struct buffer *out);

/* The settings of this process's environment but for the secret ones, "NAME=value" each, for a process of our
 * own. The list ends with NULL; the caller frees it, its strings stay the environment's. */
char **settings_environment(void);

/* Puts what the .env says to CUDA, PyTorch, Triton and Hugging Face (CUDA_…, PYTORCH_…, TRITON_…, HF_HOME)
 * into this process's environment, unless that says it itself: the driver reads it here, and so does the
 * fork's own process. What an earlier call put there goes. */
void settings_export_compute(const struct settings *settings);
