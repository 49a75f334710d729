#include "inference/engine.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

struct engine {
	struct engine_options options;
	pthread_t thread;
	bool has_thread;
	int event;

	/* the thread's own */
	struct generation **running; /* [batch] */
	struct model_piece *pieces;  /* [batch] */
	int running_count;

	pthread_mutex_t mutex; /* guards all that follows */
	pthread_cond_t wake;
	struct model *model; /* only its info is read by others */
	struct error failure;
	bool loaded, failed;
	struct generation *waiting, **waiting_end;
	struct engine_counts counts;
	bool stopping;
	double stop_by;
};

/* --- the requests that wait ---------------------------------------------------------------------- */

bool engine_submit(struct engine *engine, struct generation *generation)
{
	bool taken;

	generation->submitted = clock_elapsed();
	generation->session = NULL;
	generation->next = NULL;
	generation->prompt_taken = generation->generated = generation->captured = 0;
	pthread_mutex_lock(&engine->mutex);
	taken = engine->loaded && !engine->stopping && engine->counts.waiting < engine->options.queue;
	if (taken) {
		*engine->waiting_end = generation;
		engine->waiting_end = &generation->next;
		engine->counts.waiting++;
		pthread_cond_signal(&engine->wake);
	}
	pthread_mutex_unlock(&engine->mutex);
	return taken;
}

/* The first of those who wait. With nothing to do, waits for one; NULL then: the engine stops. */
static struct generation *take_waiting(struct engine *engine)
{
	struct generation *first;

	pthread_mutex_lock(&engine->mutex);
	while (!engine->waiting && !engine->running_count && !engine->stopping)
		pthread_cond_wait(&engine->wake, &engine->mutex);
	first = engine->waiting;
	if (first) {
		engine->waiting = first->next;
		engine->waiting_end = engine->waiting ? engine->waiting_end : &engine->waiting;
		engine->counts.waiting--;
	}
	pthread_mutex_unlock(&engine->mutex);
	return first;
}

static void put_back(struct engine *engine, struct generation *generation)
{
	pthread_mutex_lock(&engine->mutex);
	generation->next = engine->waiting;
	engine->waiting_end = engine->waiting ? engine->waiting_end : &generation->next;
	engine->waiting = generation;
	engine->counts.waiting++;
	pthread_mutex_unlock(&engine->mutex);
}

/* --- the requests that run ----------------------------------------------------------------------- */

static void end(struct generation *generation, enum generation_end how)
{
	generation->finished = clock_elapsed();
	model_session_close(generation->session);
	generation->ended(generation, how);
}

static void set_running(struct engine *engine, int count)
{
	pthread_mutex_lock(&engine->mutex);
	engine->running_count = engine->counts.running = count;
	pthread_mutex_unlock(&engine->mutex);
}

/* Ends the one at a place of the list, which another one takes. It no longer counts as running when its client hears. */
static void end_running(struct engine *engine, int place, enum generation_end how)
{
	struct generation *generation = engine->running[place];

	engine->running[place] = engine->running[engine->running_count - 1];
	set_running(engine, engine->running_count - 1);
	end(generation, how);
}

/* False: there is no memory for it now. */
static bool begin(struct engine *engine, struct generation *generation)
{
	struct error err = {0};

	/* the last token that is generated is not taken */
	generation->session = model_session_open(
		engine->model, generation->prompt_length + generation->length - 1, &err);
	generation->started = clock_elapsed();
	return generation->session != NULL;
}

/* Fills the batch from those who wait. */
static void admit(struct engine *engine)
{
	struct generation *next;

	while (engine->running_count < engine->options.batch && (next = take_waiting(engine))) {
		if (!next->wanted(next)) {
			end(next, GENERATION_ABANDONED);
		} else if (begin(engine, next)) {
			engine->running[engine->running_count] = next;
			set_running(engine, engine->running_count + 1);
		} else if (engine->running_count) {
			put_back(engine, next); /* until others have ended */
			return;
		} else {
			end(next, GENERATION_CROWDED);
		}
	}
}

static void drop_abandoned(struct engine *engine)
{
	for (int i = engine->running_count; i-- > 0;)
		if (!engine->running[i]->wanted(engine->running[i]))
			end_running(engine, i, GENERATION_ABANDONED);
}

/* Whether the time to finish has passed. */
static bool must_stop(struct engine *engine)
{
	bool must;

	pthread_mutex_lock(&engine->mutex);
	must = engine->stopping && clock_elapsed() >= engine->stop_by;
	pthread_mutex_unlock(&engine->mutex);
	return must;
}

static void end_all(struct engine *engine)
{
	struct generation *next;

	while (engine->running_count)
		end_running(engine, engine->running_count - 1, GENERATION_STOPPED);
	while ((next = take_waiting(engine)))
		end(next, GENERATION_STOPPED);
}

/* --- a step -------------------------------------------------------------------------------------- */

static bool in_prompt(const struct generation *generation)
{
	return generation->prompt_taken < generation->prompt_length;
}

/* What a request does in the next step, with so many tokens of a prompt at most. */
static struct model_piece make_piece(
	const struct engine *engine, const struct generation *generation, int most)
{
	int left = generation->prompt_length - generation->prompt_taken;
	struct model_piece piece = {.session = generation->session, .predicts = true};
	bool wanted = generation->captured < generation->step_count &&
		generation->steps[generation->captured] == generation->generated + 1;

	if (left) {
		piece.tokens = generation->prompt + generation->prompt_taken;
		piece.count = left < most ? left : most;
		piece.predicts = piece.count == left;
	} else {
		piece.tokens = generation->tokens + generation->generated - 1;
		piece.count = 1;
	}
	if (wanted && piece.predicts)
		piece.logits = generation->logits +
			(size_t)generation->captured * (size_t)model_info(engine->model)->vocabulary;
	return piece;
}

/* Those who generate come first, then the prompts, as far as a step takes them: so a long prompt delays nobody for
 * longer than a step. Leaves those who take part at the front of the list; returns their number. */
static int make_pieces(struct engine *engine)
{
	int count = 0, room = MODEL_STEP_TOKENS;

	for (int prompts = 0; prompts < 2; prompts++)
		for (int i = count; i < engine->running_count && room; i++) {
			struct generation *generation = engine->running[i];

			if (in_prompt(generation) != (prompts == 1))
				continue;
			engine->running[i] = engine->running[count];
			engine->running[count] = generation;
			engine->pieces[count] = make_piece(engine, generation, room);
			room -= engine->pieces[count++].count;
		}
	return count;
}

static void note_first_token(struct generation *generation)
{
	if (!generation->generated)
		generation->first_token = clock_elapsed();
}

/* True when that was its last step. */
static bool take_result(
	struct generation *generation, const struct model_piece *piece, enum generation_end *how)
{
	if (in_prompt(generation))
		generation->prompt_taken += piece->count;
	if (!piece->predicts)
		return false;
	*how = piece->next < 0 ? GENERATION_NOT_FINITE : GENERATION_DONE;
	if (piece->next < 0)
		return true;
	note_first_token(generation);
	generation->captured += piece->logits != NULL;
	generation->tokens[generation->generated++] = piece->next;
	return generation->generated == generation->length;
}

static void count_step(struct engine *engine, int pieces)
{
	pthread_mutex_lock(&engine->mutex);
	engine->counts.steps++;
	for (int i = 0; i < pieces; i++) {
		engine->counts.prompt_tokens += in_prompt(engine->running[i]) ? engine->pieces[i].count : 0;
		engine->counts.generated_tokens += engine->pieces[i].predicts;
	}
	pthread_mutex_unlock(&engine->mutex);
}

/* Whether there is a model from now on; without one it takes no requests, and says why when it is asked. */
static void tell_model(struct engine *engine, bool loaded, const struct error *why)
{
	pthread_mutex_lock(&engine->mutex);
	engine->loaded = loaded;
	engine->failed = !loaded;
	engine->failure = *why;
	pthread_mutex_unlock(&engine->mutex);
	eventfd_write(engine->event, 1);
}

static void step(struct engine *engine)
{
	enum generation_end how = GENERATION_FAILED;
	struct error err = {0};
	int count = make_pieces(engine);
	bool failed = model_step(engine->model, engine->pieces, count, NULL, &err) < 0;

	if (failed)
		log_warn("%d requests failed: %s", count, err.message);
	else
		count_step(engine, count);
	while (count-- > 0)
		if (failed || take_result(engine->running[count], &engine->pieces[count], &how))
			end_running(engine, count, how);
	if (failed && model_is_broken(engine->model))
		tell_model(engine, false, &err);
}

/* --- the thread ---------------------------------------------------------------------------------- */

static bool load(struct engine *engine)
{
	struct error err = {0};

	engine->model = model_open(engine->options.model, engine->options.device, &err);
	tell_model(engine, engine->model != NULL, &err);
	return engine->model != NULL;
}

static void *work(void *argument)
{
	struct engine *engine = argument;

	if (!load(engine))
		return NULL;
	while (admit(engine), engine->running_count) {
		if (must_stop(engine))
			end_all(engine);
		drop_abandoned(engine);
		if (engine->running_count)
			step(engine);
	}
	return NULL;
}

struct engine *engine_open(const struct engine_options *options, struct error *err)
{
	char *path = model_find(options->model, err);
	struct engine *engine;

	if (!path)
		return NULL;
	free(path);
	engine = xcalloc(1, sizeof(*engine));
	engine->options = *options;
	engine->running = xcalloc((size_t)options->batch, sizeof(*engine->running));
	engine->pieces = xcalloc((size_t)options->batch, sizeof(*engine->pieces));
	engine->waiting_end = &engine->waiting;
	pthread_mutex_init(&engine->mutex, NULL);
	pthread_cond_init(&engine->wake, NULL);
	engine->event = eventfd(0, EFD_CLOEXEC);
	if (engine->event >= 0)
		return engine;
	error_set(err, STATUS_ENVIRONMENT, "cannot open an eventfd: %s", strerror(errno));
	engine_close(engine);
	return NULL;
}

/* Its thread takes no signals, nor do those that the model starts. */
int engine_load(struct engine *engine, struct error *err)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	engine->has_thread = pthread_create(&engine->thread, NULL, work, engine) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return engine->has_thread ? 0 : error_set(err, STATUS_ENVIRONMENT, "cannot start the model's thread");
}

int engine_event(const struct engine *engine)
{
	return engine->event;
}

int engine_loaded(struct engine *engine, struct error *err)
{
	int result;

	pthread_mutex_lock(&engine->mutex);
	result = engine->failed ? -1 : engine->loaded;
	if (engine->failed)
		*err = engine->failure;
	pthread_mutex_unlock(&engine->mutex);
	return result;
}

const struct model_info *engine_info(struct engine *engine)
{
	const struct model_info *info;

	pthread_mutex_lock(&engine->mutex);
	info = engine->loaded ? model_info(engine->model) : NULL;
	pthread_mutex_unlock(&engine->mutex);
	return info;
}

void engine_counts(struct engine *engine, struct engine_counts *counts)
{
	pthread_mutex_lock(&engine->mutex);
	*counts = engine->counts;
	pthread_mutex_unlock(&engine->mutex);
}

void engine_stop(struct engine *engine, double seconds)
{
	pthread_mutex_lock(&engine->mutex);
	engine->stopping = true;
	engine->stop_by = clock_elapsed() + seconds;
	pthread_cond_signal(&engine->wake);
	pthread_mutex_unlock(&engine->mutex);
	if (engine->has_thread)
		pthread_join(engine->thread, NULL);
	engine->has_thread = false;
}

void engine_close(struct engine *engine)
{
	if (!engine)
		return;
	engine_stop(engine, 0);
	model_close(engine->model);
	if (engine->event >= 0)
		close(engine->event);
	pthread_cond_destroy(&engine->wake);
	pthread_mutex_destroy(&engine->mutex);
	free(engine->running);
	free(engine->pieces);
	free(engine);
}
