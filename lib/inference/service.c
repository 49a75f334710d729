#include "inference/service.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "inference/answer.h"
#include "inference/metrics.h"
#include "inference/request.h"

/* Bytes of logits that are captured, or on their way out, at a time. */
#define CAPTURE_LIMIT ((size_t)1 << 30)

/* Seconds that a client may take to send a request, or to fetch its answer: megabytes for some. */
#define REQUEST_SECONDS 120

/* Text that a token takes in a request, even if it is set out neatly; and what else a request may hold. */
#define TOKEN_BYTES 24
#define OTHER_BYTES ((size_t)16 << 10)
#define OTHER_VALUES 1000

struct service {
	struct service_options options;
	struct engine *engine;
	struct server *server;
	struct metrics metrics;
	atomic_size_t captured; /* bytes, of CAPTURE_LIMIT */
};

/* A request to /inference, until its answer has been sent. */
struct call {
	struct answer answer; /* first, for free_answered() */
	struct generation generation;
	struct service *service;
	struct exchange *exchange;
	struct inference_request request;
	int32_t *tokens;
	float *logits;
	size_t held;
};

static void free_call(struct call *call)
{
	atomic_fetch_sub(&call->service->captured, call->held);
	answer_end(&call->answer);
	inference_request_free(&call->request);
	free(call->tokens);
	free(call->logits);
	free(call);
}

static void free_answered(struct server_content *content)
{
	free_call((struct call *)content);
}

/* Makes the answer, to which the call belongs from then on. */
static void reply_with(struct call *call, struct server_reply *reply)
{
	struct answer *answer = &call->answer;

	answer->content.close = free_answered;
	answer->request = &call->request;
	answer->tokens = call->tokens;
	answer->logits = call->logits;
	answer->vocabulary = engine_info(call->service->engine)->vocabulary;
	answer->seconds = call->generation.finished - call->generation.started;
	answer_begin(answer);
	reply->content = &answer->content;
}

static bool is_wanted(struct generation *generation)
{
	const struct call *call = (const struct call *)((char *)generation -
		offsetof(struct call, generation));

	return !server_abandoned(call->exchange);
}

static void refuse_loading(struct server_reply *reply)
{
	server_refuse(reply, 503, "Model not loaded");
	reply->retry_after = 1;
}

static void refuse_busy(struct server_reply *reply)
{
	server_refuse(reply, 503, "Server busy");
	reply->retry_after = 1;
}

/* What is said of a request that was not answered. */
static enum outcome refuse_ended(enum generation_end how, struct server_reply *reply)
{
	switch (how) {
	case GENERATION_CROWDED:
	case GENERATION_STOPPED:
		refuse_busy(reply);
		return OUTCOME_BUSY;
	case GENERATION_ABANDONED: /* nobody is there to read it */
		refuse_busy(reply);
		return OUTCOME_ABANDONED;
	case GENERATION_NOT_FINITE:
		server_refuse(reply, 500, "The model's logits are not finite");
		return OUTCOME_FAILED;
	default:
		server_fault(reply);
		return OUTCOME_FAILED;
	}
}

/* In the engine's thread. */
static void on_end(struct generation *generation, enum generation_end how)
{
	struct call *call = (struct call *)((char *)generation - offsetof(struct call, generation));
	struct service *service = call->service;
	struct exchange *exchange = call->exchange;
	struct server_reply reply = {0};

	if (how == GENERATION_DONE) {
		metrics_generation(&service->metrics, generation);
		metrics_count(&service->metrics, OUTCOME_OK);
		reply_with(call, &reply);
	} else {
		metrics_count(&service->metrics, refuse_ended(how, &reply));
		free_call(call);
	}
	server_answer(exchange, &reply);
}

/* Memory for what is generated and captured; false when there is none now. */
static bool make_room(struct call *call, int vocabulary)
{
	const struct inference_request *request = &call->request;
	size_t bytes = (size_t)request->step_count * (size_t)vocabulary * sizeof(float);

	call->held = bytes;
	if (atomic_fetch_add(&call->service->captured, bytes) + bytes > CAPTURE_LIMIT)
		return false;
	call->tokens = xcalloc((size_t)request->length + 1, sizeof(*call->tokens));
	call->logits = malloc(bytes + 1);
	return call->logits != NULL;
}

static struct generation make_generation(const struct call *call)
{
	return (struct generation){
		.prompt = call->request.prompt,
		.prompt_length = call->request.prompt_length,
		.length = call->request.length,
		.steps = call->request.steps,
		.step_count = call->request.step_count,
		.tokens = call->tokens,
		.logits = call->logits,
		.wanted = is_wanted,
		.ended = on_end,
	};
}

/* Hands a request to the engine. False: the reply is made, and the call is the reply's or gone. */
static bool submit(struct call *call, const struct model_info *info, struct server_reply *reply)
{
	bool room = make_room(call, info->vocabulary);

	if (room && !call->request.length) {
		metrics_count(&call->service->metrics, OUTCOME_OK);
		reply_with(call, reply);
		return false;
	}
	call->generation = make_generation(call);
	if (room && engine_submit(call->service->engine, &call->generation))
		return true;
	metrics_count(&call->service->metrics, OUTCOME_BUSY);
	refuse_busy(reply);
	free_call(call);
	return false;
}

static bool take_inference(struct exchange *exchange, const struct server_request *request,
	struct server_reply *reply, void *context)
{
	struct service *service = context;
	const struct model_info *info = engine_info(service->engine);
	struct inference_limits limits;
	struct call *call;

	if (!info) {
		metrics_count(&service->metrics, OUTCOME_BUSY);
		refuse_loading(reply);
		return false;
	}
	limits.vocabulary = info->vocabulary;
	limits.tokens = service->options.tokens < info->context ? service->options.tokens : info->context;
	call = xcalloc(1, sizeof(*call));
	call->service = service;
	call->exchange = exchange;
	if (inference_request_read(request, &limits, &call->request, reply))
		return submit(call, info, reply);
	metrics_count(&service->metrics, OUTCOME_INVALID);
	free_call(call);
	return false;
}

static const char *model_name(const struct service *service)
{
	return service->options.name ? service->options.name : service->options.engine.model;
}

/* "cpu", "cuda": as validators write it. */
static void add_device(cJSON *body, const struct service *service, const struct model_info *info)
{
	char *device = xstrdup(info ? info->device : service->options.engine.device);

	device[strcspn(device, " :")] = '\0';
	cJSON_AddStringToObject(body, "device", device);
	free(device);
}

static bool check_health(struct server_request *request, struct server_reply *reply, void *context)
{
	struct service *service = context;
	const struct model_info *info = engine_info(service->engine);

	(void)request;
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "status", info ? "healthy" : "loading");
	cJSON_AddStringToObject(reply->body, "model_name", model_name(service));
	add_device(reply->body, service, info);
	return true;
}

/* As PyTorch calls them. */
static const char *torch_name(enum dtype dtype)
{
	return dtype == DTYPE_BF16   ? "torch.bfloat16"
		: dtype == DTYPE_F16 ? "torch.float16"
				     : "torch.float32";
}

static bool check_model_info(struct server_request *request, struct server_reply *reply, void *context)
{
	struct service *service = context;
	const struct model_info *info = engine_info(service->engine);
	cJSON *config;

	(void)request;
	if (!info) {
		refuse_loading(reply);
		return false;
	}
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "model_name", model_name(service));
	cJSON_AddNumberToObject(reply->body, "vocab_size", info->vocabulary);
	add_device(reply->body, service, info);
	cJSON_AddStringToObject(reply->body, "dtype", torch_name(info->arithmetic));
	config = cJSON_AddObjectToObject(reply->body, "model_config");
	cJSON_AddNumberToObject(config, "hidden_size", info->hidden);
	cJSON_AddNumberToObject(config, "num_hidden_layers", info->layers);
	cJSON_AddNumberToObject(config, "num_attention_heads", info->heads);
	return true;
}

/* --- /metrics ------------------------------------------------------------------------------------ */

struct page {
	struct server_content content;
	struct buffer text;
	size_t sent;
};

static size_t read_page(struct server_content *content, char *out, size_t most)
{
	struct page *page = (struct page *)content;
	size_t left = page->text.length - page->sent, length = left < most ? left : most;

	memcpy(out, page->text.data + page->sent, length);
	page->sent += length;
	return length;
}

static void close_page(struct server_content *content)
{
	struct page *page = (struct page *)content;

	buffer_free(&page->text);
	free(page);
}

static bool check_metrics(struct server_request *request, struct server_reply *reply, void *context)
{
	struct service *service = context;
	struct page *page = xcalloc(1, sizeof(*page));
	struct engine_counts counts;

	(void)request;
	page->content = (struct server_content){
		"text/plain; version=0.0.4; charset=utf-8", read_page, close_page};
	engine_counts(service->engine, &counts);
	metrics_write(
		&service->metrics, model_name(service), engine_info(service->engine), &counts, &page->text);
	reply->content = &page->content;
	return true;
}

static const struct server_route routes[] = {
	{"POST", "/inference", true, NULL, NULL},
	{"GET", "/health", false, check_health, NULL},
	{"GET", "/model_info", false, check_model_info, NULL},
	{"GET", "/metrics", false, check_metrics, NULL},
	{0},
};

/* --- start and stop ------------------------------------------------------------------------------ */

static void free_service(struct service *service)
{
	if (service->server)
		server_stop(service->server); /* answers that are being sent are the service's */
	engine_close(service->engine);
	metrics_destroy(&service->metrics);
	free(service);
}

struct service *service_start(const struct service_options *options, struct error *err)
{
	struct service *service = xcalloc(1, sizeof(*service));
	const struct server_options server = {
		.listen = options->listen,
		.port = options->port,
		.routes = routes,
		.take = take_inference,
		.context = service,
		.body_limit = OTHER_BYTES + TOKEN_BYTES * (size_t)options->tokens,
		.value_limit = OTHER_VALUES + (size_t)options->tokens,
		.connection_limit = options->connections,
		.request_seconds = REQUEST_SECONDS,
		.dialect = {.redirects_slashes = true},
	};

	service->options = *options;
	metrics_init(&service->metrics);
	service->engine = engine_open(&options->engine, err);
	if (!service->engine)
		goto failed;
	service->server = server_start(&server, err);
	if (service->server && engine_load(service->engine, err) == 0)
		return service;
failed:
	free_service(service);
	return NULL;
}

struct engine *service_engine(struct service *service)
{
	return service->engine;
}

const struct server *service_server(const struct service *service)
{
	return service->server;
}

void service_stop(struct service *service, double seconds)
{
	engine_stop(service->engine, seconds);
	free_service(service);
}
