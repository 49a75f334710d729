/* device: what a model needs of the device that it runs on. A table of functions for each kind of device. */
#pragma once

#include "model/config.h"
#include "model/model.h"
#include "model/weights.h"

/* The model as the device keeps it; the weights stay the caller's, and outlive it. */
struct model_place;
/* The keys and values of a session. */
struct model_cache;

/* What a step does for one session, its tokens known to be good. */
struct model_task {
	struct model_cache *cache;
	int length; /* tokens that the session has before the step */
	struct model_piece *piece;
};

struct model_device {
	enum dtype arithmetic;
	bool breaks; /* a step that failed leaves it without the means for another, as a fault leaves a GPU */
	/* `index`: which device of the kind. */
	struct model_place *(*open)(int index, const struct model_config *config,
		const struct model_weights *weights, struct error *err);
	void (*close)(struct model_place *place); /* NULL is fine */
	void (*describe)(const struct model_place *place, char *text, size_t size);

	size_t (*cache_bytes)(const struct model_config *config, int tokens);
	/* NULL: not enough memory; says nothing. */
	struct model_cache *(*cache_open)(struct model_place *place, int tokens);
	void (*cache_close)(struct model_cache *cache);
	/* As model_step(). Caches may get new tokens even when it fails: nobody looks behind a session's length. */
	int (*step)(struct model_place *place, const struct model_task *tasks, int count, bool (*stop)(void),
		struct error *err);
};

extern const struct model_device model_device_cpu, model_device_cuda;
