/* service: a miner's inference server, as validators of both versions call it: POST /inference, GET /health,
 * GET /model_info; and GET /metrics for whoever runs it. It answers from the start on, with 503 while the model is
 * loading. */
#pragma once

#include <stddef.h>

#include "inference/engine.h"
#include "net/server.h"

struct service_options {
	struct engine_options engine;
	const char *name; /* what the model is called in answers; NULL: as engine.model says */
	const char *listen;
	unsigned port;
	int tokens; /* of a request, prompt and answer together, at most; no more than the model's context counts */
	size_t connections;
};

struct service;

/* Listens, and begins to load the model. */
struct service *service_start(const struct service_options *options, struct error *err);

struct engine *service_engine(struct service *service);
const struct server *service_server(const struct service *service);

/* Refuses what is new, finishes what runs within so many seconds, and ends. */
void service_stop(struct service *service, double seconds);
