/* quasar serve: the inference server whose logits validators compare with the reference model's. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/service.h"
#include "cli/device.h"
#include "cmd/commands.h"
#include "inference/service.h"
#include "logits/responder.h"

#define HEALTH_SECONDS 5

static int read_options(const struct invocation *invocation, struct service_options *options, double *drain,
	struct error *err)
{
	int64_t port = 0, batch = 0, queue = 0, tokens = 0, connections = 0;

	options->engine.model = arg_string(invocation, "model");
	options->engine.device = arg_string(invocation, "device");
	options->name = arg_string(invocation, "name");
	options->listen = arg_string(invocation, "host");
	if (arg_integer(invocation, "port", 0, 65535, &port, err) < 0 ||
		arg_integer(invocation, "batch", 1, MODEL_STEP_TOKENS, &batch, err) < 0 ||
		arg_integer(invocation, "queue", 1, 100000, &queue, err) < 0 ||
		arg_integer(invocation, "max-tokens", 2, 1 << 18, &tokens, err) < 0 ||
		arg_integer(invocation, "connections", 1, 100000, &connections, err) < 0 ||
		arg_real(invocation, "drain", 0, 3600, drain, err) < 0)
		return -1;
	options->port = (unsigned)port;
	options->engine.batch = (int)batch;
	options->engine.queue = (int)queue;
	options->tokens = (int)tokens;
	options->connections = (size_t)connections;
	return command_compute(invocation, err);
}

/* --- the server ---------------------------------------------------------------------------------- */

static void announce(const struct invocation *invocation, const struct service *service,
	const struct service_options *options)
{
	const struct server *server = service_server(service);
	cJSON *document;

	if (!invocation->json) {
		printf("Listening on %s; loading %s …\n", server_url(server), options->engine.model);
		return;
	}
	document = cJSON_CreateObject();
	cJSON_AddStringToObject(document, "url", server_url(server));
	cJSON_AddNumberToObject(document, "port", server_port(server));
	cJSON_AddStringToObject(document, "model", options->engine.model);
	cJSON_AddNumberToObject(document, "pid", getpid());
	output_json_line(document);
}

/* Waits until the model is loaded. */
static int wait_loaded(struct service *service, struct error *err)
{
	struct engine *engine = service_engine(service);
	double started = clock_elapsed();
	const struct model_info *info;

	if (clock_wait_readable(engine_event(engine), err) < 0 || engine_loaded(engine, err) < 0)
		return -1;
	info = engine_info(engine);
	if (!info)
		return engine_loaded(engine, err); /* lost at once */
	log_note("Ready after %.1f s: %s, %.1f million parameters in %s, on %s. Press Ctrl-C to stop.",
		clock_elapsed() - started, info->name, (double)info->parameters * 1e-6,
		dtype_name(info->weights), info->device);
	service_notify(SERVICE_READY "\nSTATUS=serving %s", info->name);
	return 0;
}

/* Until the user asks to stop, or the model is lost: a process manager starts it again. Always -1. */
static int wait_for_end(struct service *service, struct error *err)
{
	struct engine *engine = service_engine(service);

	while (engine_loaded(engine, err) > 0) {
		eventfd_t events;

		if (clock_wait_readable(engine_event(engine), err) < 0)
			return -1;
		eventfd_read(engine_event(engine), &events);
	}
	return -1;
}

static void finish(struct service *service, double drain)
{
	struct engine_counts counts;

	service_notify(SERVICE_STOPPING);
	engine_counts(service_engine(service), &counts);
	if (counts.running + counts.waiting)
		log_note("Stopping; finishing %d requests, for at most %g s", counts.running + counts.waiting,
			drain);
	else
		log_note("Stopping");
	service_stop(service, drain);
}

static int serve(const struct invocation *invocation, const struct service_options *options, double drain,
	struct error *err)
{
	struct service *service;
	int result;

	service_begin();
	service = service_start(options, err);
	if (!service)
		return -1;
	announce(invocation, service, options);
	result = wait_loaded(service, err);
	if (!result)
		result = wait_for_end(service, err);
	if (result && err->status != STATUS_INTERRUPTED) {
		service_stop(service, 0);
		return -1;
	}
	finish(service, drain);
	return 0;
}

/* --- --health ------------------------------------------------------------------------------------ */

/* Asks the server of this machine. */
static int check_health(const struct service_options *options, struct error *err)
{
	char *url = xprintf("http://127.0.0.1:%u", options->port);
	int result = responder_wait(url, HEALTH_SECONDS, false, err);

	free(url);
	return result;
}

static int run(struct invocation *invocation, struct error *err)
{
	struct service_options options = {0};
	double drain = 0;

	if (read_options(invocation, &options, &drain, err) < 0)
		return -1;
	return arg_flag(invocation, "health") ? check_health(&options, err)
					      : serve(invocation, &options, drain, err);
}

const struct command cmd_serve = {
	.name = "serve",
	.summary = "serve the reference model, for validators to verify its logits",
	.description =
		"The inference server that a miner runs beside the miner itself. A validator sends token ids; it "
		"gets the greedy continuation and the logits of the steps that it names, and compares them with "
		"its own. It answers what both versions of the validator ask: POST /inference, GET /health and "
		"GET /model_info. GET /metrics is for Prometheus.\n\n"
		"DIR holds config.json and .safetensors files, as Hugging Face has them: a model of the "
		"architectures Qwen2, Qwen3 or Llama. NAME, as Qwen/Qwen2.5-0.5B-Instruct, is looked for in the "
		"Hugging Face cache (HF_HOME); nothing is downloaded. It runs on the GPU if there is one that has "
		"room for it, else on the CPU.\n\n"
		"The server answers at once, with 503 until the model is loaded. Requests that come together are "
		"computed together, up to --batch; then --queue wait, and more get 503. What is longer than "
		"--max-tokens, or holds tokens that are not in the vocabulary, gets 422. A request whose client "
		"leaves is given up.\n\n"
		"SIGTERM and SIGINT end it: requests that have come are finished first, within --drain. By "
		"default, it can be reached only from this machine; validators need --host 0.0.0.0, and a way "
		"through your firewall. Anyone who can reach it may use it.",
	.opts =
		(const struct opt[]){
			{"model", 'm', "DIR|NAME", "REFERENCE_MODEL", NULL, NULL,
				"The model: a folder, or a name in the Hugging Face cache."},
			{"port", 'p', "N", "MINER_INFERENCE_PORT", NULL, NULL,
				"Port to listen on; 0: any free port."},
			{"host", 0, "ADDRESS", NULL, "127.0.0.1", NULL,
				"Address to listen on; 0.0.0.0: every interface."},
			OPT_DEVICE,
			{"name", 0, "NAME", NULL, NULL, NULL,
				"What the model is called in answers. Default: as --model says."},
			{"batch", 0, "N", NULL, "32", NULL, "Requests that are computed together, at most."},
			{"queue", 0, "N", NULL, "256", NULL, "Requests that wait beside them, at most."},
			{"max-tokens", 0, "N", NULL, "4096", NULL,
				"Tokens of a request, prompt and answer together, at most."},
			{"drain", 0, "SECONDS", NULL, "30", NULL,
				"Time to finish requests when it is stopped."},
			{"connections", 0, "N", NULL, "1000", NULL,
				"Maximum number of connections; beyond it, the one idle the longest is "
				"closed."},
			{"health", 0, NULL, NULL, NULL, NULL,
				"Serve nothing: ask the server on this machine's --port whether it is healthy."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar serve --model Qwen/Qwen2.5-0.5B-Instruct --host 0.0.0.0",
				"serve validators, on port 8001"},
			{"quasar serve --model ~/models/qwen --port 8000 --batch 64",
				"a folder, on another port, for many at a time"},
			{"quasar serve --health", "exit code 0 when the server on this machine is healthy"},
			{0},
		},
	.exits = (const enum status[]){STATUS_FAILED, STATUS_ENVIRONMENT, STATUS_NETWORK, 0},
	.run = run,
};
