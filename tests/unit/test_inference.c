/* The engine and its service with a model that fails, waits and runs out of memory when it is told to; with a real
 * one they are tested in tests/cli/test_serve.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "api/http.h"
#include "base/log.h"
#include "base/memory.h"
#include "inference/service.h"

#define VOCABULARY 10

/* --- the model ----------------------------------------------------------------------------------- */

struct model {
	struct model_info info;
};

/* What follows is the last digit of one more than the sum of what came before. */
struct model_session {
	int room, length, sum;
};

static struct {
	sem_t may_load, may_step;
	bool load_held, steps_held;
	bool load_fails, step_fails, breaks; /* `breaks`: it is broken once a step has failed */
	int not_finite_after;                /* tokens of a session; 0: never */
	atomic_int sessions, sessions_most;
	int most_pieces, longest_prompt; /* in a step */
} fake;

char *model_find(const char *name, struct error *err)
{
	if (!strcmp(name, "absent")) {
		error_set(err, STATUS_ENVIRONMENT, "absent is not here");
		return NULL;
	}
	return xstrdup(name);
}

struct model *model_open(const char *name, const char *device, struct error *err)
{
	struct model *model;

	assert_string_equal(device, "auto");
	if (fake.load_held)
		sem_wait(&fake.may_load);
	if (fake.load_fails) {
		error_set(err, STATUS_ENVIRONMENT, "model.norm.weight is missing");
		return NULL;
	}
	model = xcalloc(1, sizeof(*model));
	model->info = (struct model_info){.name = name,
		.device = "cpu (fake)",
		.vocabulary = VOCABULARY,
		.hidden = 4,
		.layers = 2,
		.heads = 1,
		.context = 2000};
	return model;
}

void model_close(struct model *model)
{
	free(model);
}

const struct model_info *model_info(const struct model *model)
{
	return &model->info;
}

struct model_session *model_session_open(struct model *model, int tokens, struct error *err)
{
	struct model_session *session;

	(void)model;
	assert_in_range(tokens, 1, 2000);
	if (fake.sessions >= fake.sessions_most) {
		error_set(err, STATUS_ENVIRONMENT, "no memory");
		return NULL;
	}
	fake.sessions++;
	session = xcalloc(1, sizeof(*session));
	session->room = tokens;
	return session;
}

void model_session_close(struct model_session *session)
{
	fake.sessions -= session != NULL;
	free(session);
}

static void take_piece(struct model_piece *piece)
{
	struct model_session *session = piece->session;

	for (int i = 0; i < piece->count; i++) {
		assert_in_range(piece->tokens[i], 0, VOCABULARY - 1);
		session->sum += piece->tokens[i];
	}
	session->length += piece->count;
	assert_in_range(session->length, 1, session->room);
	piece->next = (session->sum + 1) % VOCABULARY;
	if (fake.not_finite_after && session->length >= fake.not_finite_after)
		piece->next = -1;
	for (int i = 0; piece->logits && i < VOCABULARY; i++)
		piece->logits[i] = i == piece->next;
}

int model_step(
	struct model *model, struct model_piece *pieces, int count, bool (*stop)(void), struct error *err)
{
	int tokens = 0;

	(void)model;
	assert_null(stop);
	if (fake.steps_held)
		sem_wait(&fake.may_step);
	if (fake.step_fails)
		return error_set(err, STATUS_ENVIRONMENT, "no memory for a step");
	for (int i = 0; i < count; i++) {
		for (int n = 0; n < i; n++)
			assert_ptr_not_equal(pieces[i].session, pieces[n].session);
		tokens += pieces[i].count;
		fake.longest_prompt = pieces[i].count > fake.longest_prompt ? pieces[i].count
									    : fake.longest_prompt;
		take_piece(&pieces[i]);
	}
	assert_in_range(tokens, 1, MODEL_STEP_TOKENS);
	fake.most_pieces = count > fake.most_pieces ? count : fake.most_pieces;
	return 0;
}

bool model_is_broken(const struct model *model)
{
	(void)model;
	return fake.breaks && fake.step_fails;
}

/* --- requests to an engine ----------------------------------------------------------------------- */

struct job {
	struct generation generation; /* first */
	int32_t prompt[1200], tokens[64];
	float logits[2][VOCABULARY];
	atomic_bool unwanted;
	enum generation_end how;
	sem_t ended;
};

static bool is_wanted(struct generation *generation)
{
	return !((struct job *)generation)->unwanted;
}

static void on_end(struct generation *generation, enum generation_end how)
{
	struct job *job = (struct job *)generation;

	job->how = how;
	sem_post(&job->ended);
}

static struct job *make_job(int prompt_length, int length)
{
	static const int32_t steps[] = {1, 3};
	struct job *job = xcalloc(1, sizeof(*job));

	for (int i = 0; i < prompt_length; i++)
		job->prompt[i] = i % 7;
	job->generation = (struct generation){.prompt = job->prompt,
		.prompt_length = prompt_length,
		.length = length,
		.steps = steps,
		.step_count = length < 3 ? 1 : 2,
		.tokens = job->tokens,
		.logits = job->logits[0],
		.wanted = is_wanted,
		.ended = on_end};
	sem_init(&job->ended, 0, 0);
	return job;
}

static void free_job(struct job *job)
{
	sem_destroy(&job->ended);
	free(job);
}

/* Waits for the end, which it returns; answers have to be right. */
static enum generation_end finish(struct job *job)
{
	enum generation_end how;
	int sum = 1;

	sem_wait(&job->ended);
	for (int i = 0; i < job->generation.prompt_length; i++)
		sum += job->prompt[i];
	for (int i = 0; job->how == GENERATION_DONE && i < job->generation.length; i++) {
		assert_int_equal(job->tokens[i], sum % VOCABULARY);
		sum += job->tokens[i];
	}
	if (job->how == GENERATION_DONE)
		for (int i = 0; i < job->generation.step_count; i++)
			assert_true(job->logits[i][job->tokens[job->generation.steps[i] - 1]] == 1);
	how = job->how;
	free_job(job);
	return how;
}

static struct engine *engine;

static void wait_loaded(struct engine *which)
{
	struct pollfd event = {.fd = engine_event(which), .events = POLLIN};

	assert_int_equal(poll(&event, 1, -1), 1);
}

static struct engine *start_engine(int batch, int queue)
{
	const struct engine_options options = {"fake", "auto", batch, queue};
	struct error err;

	engine = engine_open(&options, &err);
	assert_non_null(engine);
	assert_int_equal(engine_load(engine, &err), 0);
	wait_loaded(engine);
	return engine;
}

static int set_up(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	fake.sessions_most = 100;
	sem_init(&fake.may_load, 0, 0);
	sem_init(&fake.may_step, 0, 0);
	log_set_level(LOG_QUIET);
	engine = NULL;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	engine_close(engine);
	assert_int_equal(fake.sessions, 0);
	sem_destroy(&fake.may_load);
	sem_destroy(&fake.may_step);
	return 0;
}

static void prompts_and_answers_share_steps(void **state)
{
	struct job *jobs[6];
	struct engine_counts counts;

	(void)state;
	start_engine(4, 10);
	fake.steps_held = true;
	for (int i = 0; i < 6; i++) {
		jobs[i] = make_job(i % 2 ? 1200 : 5, 20 + i);
		assert_true(engine_submit(engine, &jobs[i]->generation));
	}
	for (int i = 0; i < 1000; i++)
		sem_post(&fake.may_step);
	for (int i = 0; i < 6; i++)
		assert_int_equal(finish(jobs[i]), GENERATION_DONE);
	assert_int_equal(fake.most_pieces, 4);
	assert_in_range(fake.longest_prompt, MODEL_STEP_TOKENS - 4, MODEL_STEP_TOKENS);
	engine_counts(engine, &counts);
	assert_int_equal(counts.prompt_tokens, 3 * 1200 + 3 * 5);
	assert_int_equal(counts.generated_tokens, 20 + 21 + 22 + 23 + 24 + 25);
}

static void a_request_that_does_not_fit_waits_for_the_others(void **state)
{
	struct job *first = make_job(3, 5), *second = make_job(4, 5);

	(void)state;
	fake.sessions_most = 1;
	start_engine(4, 10);
	assert_true(engine_submit(engine, &first->generation));
	assert_true(engine_submit(engine, &second->generation));
	assert_int_equal(finish(first), GENERATION_DONE);
	assert_int_equal(finish(second), GENERATION_DONE);
	fake.sessions_most = 0;
	first = make_job(3, 5);
	assert_true(engine_submit(engine, &first->generation));
	assert_int_equal(finish(first), GENERATION_CROWDED);
}

static void a_failing_step_ends_who_took_part(void **state)
{
	struct job *job = make_job(3, 5);

	(void)state;
	start_engine(4, 10);
	fake.step_fails = true;
	assert_true(engine_submit(engine, &job->generation));
	assert_int_equal(finish(job), GENERATION_FAILED);
	fake.step_fails = false;
	job = make_job(3, 5);
	assert_true(engine_submit(engine, &job->generation));
	assert_int_equal(finish(job), GENERATION_DONE);
}

/* As after a GPU's fault: it takes nothing more, and says why. */
static void a_broken_model_is_told(void **state)
{
	struct job *job = make_job(3, 5), *late = make_job(3, 5);
	struct error err;

	(void)state;
	start_engine(4, 10);
	fake.breaks = fake.step_fails = true;
	assert_true(engine_submit(engine, &job->generation));
	assert_int_equal(finish(job), GENERATION_FAILED);
	while (engine_loaded(engine, &err) >= 0)
		sched_yield();
	assert_string_equal(err.message, "no memory for a step");
	assert_false(engine_submit(engine, &late->generation));
	assert_null(engine_info(engine));
	free_job(late);
}

static void logits_that_are_not_finite_end_their_request_alone(void **state)
{
	struct job *longer = make_job(3, 9), *shorter = make_job(3, 2);

	(void)state;
	fake.not_finite_after = 6;
	start_engine(4, 10);
	assert_true(engine_submit(engine, &longer->generation));
	assert_true(engine_submit(engine, &shorter->generation));
	assert_int_equal(finish(longer), GENERATION_NOT_FINITE);
	assert_int_equal(finish(shorter), GENERATION_DONE);
}

static void the_queue_is_bounded_and_the_unwanted_leave_it(void **state)
{
	struct job *running = make_job(3, 2), *waiting = make_job(3, 2), *refused = make_job(3, 2);

	(void)state;
	start_engine(1, 1);
	fake.steps_held = true;
	assert_true(engine_submit(engine, &running->generation));
	while (!fake.sessions) /* until it runs */
		sched_yield();
	assert_true(engine_submit(engine, &waiting->generation));
	assert_false(engine_submit(engine, &refused->generation));
	waiting->unwanted = true;
	sem_post(&fake.may_step);
	sem_post(&fake.may_step);
	assert_int_equal(finish(running), GENERATION_DONE);
	assert_int_equal(finish(waiting), GENERATION_ABANDONED);
	free_job(refused);
}

static void stopping_ends_what_takes_too_long(void **state)
{
	struct job *jobs[3];

	(void)state;
	start_engine(2, 10);
	fake.steps_held = true;
	for (int i = 0; i < 3; i++) {
		jobs[i] = make_job(3, 5);
		assert_true(engine_submit(engine, &jobs[i]->generation));
	}
	sem_post(&fake.may_step);
	sem_post(&fake.may_step);
	engine_stop(engine, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(finish(jobs[i]), GENERATION_STOPPED);
}

static void stopping_finishes_what_it_has(void **state)
{
	struct job *jobs[3];

	(void)state;
	start_engine(1, 10);
	for (int i = 0; i < 3; i++) {
		jobs[i] = make_job(3, 5);
		assert_true(engine_submit(engine, &jobs[i]->generation));
	}
	engine_stop(engine, 60);
	for (int i = 0; i < 3; i++)
		assert_int_equal(finish(jobs[i]), GENERATION_DONE);
	jobs[0] = make_job(3, 5);
	assert_false(engine_submit(engine, &jobs[0]->generation));
	free_job(jobs[0]);
}

/* --- the service --------------------------------------------------------------------------------- */

static struct service *service;

static const struct service_options service_options = {
	.engine = {"fake", "auto", 4, 10}, .name = "Some/Name", .tokens = 100};

static int stop_service(void **state)
{
	service_stop(service, 1);
	return tear_down(state);
}

/* The status of an answer, whose text the caller frees. */
static int ask(const char *path, const char *body, char **text)
{
	char *url = xprintf("%s%s", server_url(service_server(service)), path);
	const struct http_request request = {.url = url, .body = body, .timeout = 30};
	struct http_answer answer = {0};
	struct http *http = http_open();
	struct error err;

	assert_int_equal(http_exchange(http, &request, &answer, &err), 0);
	http_close(http);
	free(url);
	*text = answer.body.data;
	return answer.status;
}

static void expect(const char *path, const char *body, int status, const char *words)
{
	char *text;

	assert_int_equal(ask(path, body, &text), status);
	assert_non_null(strstr(text, words));
	free(text);
}

static void start_service(void)
{
	struct error err;

	service = service_start(&service_options, &err);
	assert_non_null(service);
}

#define REQUEST "{\"prompt\":[1,2],\"gen_len\":3,\"logits_at_step\":2}"

static void while_it_loads_it_says_so(void **state)
{
	(void)state;
	fake.load_held = true;
	start_service();
	expect("/health", NULL, 200,
		"{\"status\":\"loading\",\"model_name\":\"Some/Name\",\"device\":\"auto\"}");
	expect("/inference", REQUEST, 503, "Model not loaded");
	expect("/model_info", NULL, 503, "Model not loaded");
	expect("/metrics", NULL, 200, "quasar_model_loaded 0\n");
	sem_post(&fake.may_load);
	wait_loaded(service_engine(service));
	expect("/health", NULL, 200,
		"{\"status\":\"healthy\",\"model_name\":\"Some/Name\",\"device\":\"cpu\"}");
	expect("/inference", REQUEST, 200,
		"{\"tokens\":[4,8,6],\"captured_logits\":[0,0,0,0,0,0,0,0,1,0],\"elapsed_sec\":");
	expect("/metrics", NULL, 200, "quasar_model_loaded 1\n");
}

static void a_model_that_cannot_be_loaded_is_known(void **state)
{
	struct error err;

	(void)state;
	fake.load_fails = true;
	start_service();
	wait_loaded(service_engine(service));
	assert_int_equal(engine_loaded(service_engine(service), &err), -1);
	assert_string_equal(err.message, "model.norm.weight is missing");
	expect("/inference", REQUEST, 503, "Model not loaded");
}

static void faults_are_answered(void **state)
{
	(void)state;
	start_service();
	wait_loaded(service_engine(service));
	fake.step_fails = true;
	expect("/inference", REQUEST, 500, "Internal Server Error");
	fake.step_fails = false;
	fake.not_finite_after = 1;
	expect("/inference", REQUEST, 500, "not finite");
	fake.not_finite_after = 0;
	fake.sessions_most = 0;
	expect("/inference", REQUEST, 503, "Server busy");
	fake.sessions_most = 1;
	expect("/inference", REQUEST, 200, "\"tokens\":[4,8,6]");
	expect("/metrics", NULL, 200, "quasar_requests_total{outcome=\"failed\"} 2\n");
	expect("/metrics", NULL, 200, "quasar_requests_total{outcome=\"busy\"} 1\n");
}

static void what_is_not_there_is_not_served(void **state)
{
	struct service_options options = service_options;
	struct error err;

	(void)state;
	options.engine.model = "absent";
	assert_null(service_start(&options, &err));
	assert_string_equal(err.message, "absent is not here");
	options = service_options;
	options.listen = "192.0.2.1"; /* of nobody */
	assert_null(service_start(&options, &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(prompts_and_answers_share_steps, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_request_that_does_not_fit_waits_for_the_others, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_failing_step_ends_who_took_part, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_broken_model_is_told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			logits_that_are_not_finite_end_their_request_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			the_queue_is_bounded_and_the_unwanted_leave_it, set_up, tear_down),
		cmocka_unit_test_setup_teardown(stopping_ends_what_takes_too_long, set_up, tear_down),
		cmocka_unit_test_setup_teardown(stopping_finishes_what_it_has, set_up, tear_down),
		cmocka_unit_test_setup_teardown(while_it_loads_it_says_so, set_up, stop_service),
		cmocka_unit_test_setup_teardown(a_model_that_cannot_be_loaded_is_known, set_up, stop_service),
		cmocka_unit_test_setup_teardown(faults_are_answered, set_up, stop_service),
		cmocka_unit_test_setup_teardown(what_is_not_there_is_not_served, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
