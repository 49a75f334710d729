#include "inference/metrics.h"

#include <inttypes.h>

#include "base/version.h"

static const double bounds[HISTOGRAM_BOUNDS] = {
	0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300};

static const char *const outcome_names[OUTCOMES] = {"ok", "invalid", "busy", "abandoned", "failed"};

void metrics_init(struct metrics *metrics)
{
	*metrics = (struct metrics){0};
	pthread_mutex_init(&metrics->mutex, NULL);
}

void metrics_destroy(struct metrics *metrics)
{
	pthread_mutex_destroy(&metrics->mutex);
}

void metrics_count(struct metrics *metrics, enum outcome outcome)
{
	pthread_mutex_lock(&metrics->mutex);
	metrics->outcomes[outcome]++;
	pthread_mutex_unlock(&metrics->mutex);
}

static void observe(struct histogram *histogram, double seconds)
{
	int bound = 0;

	while (bound < HISTOGRAM_BOUNDS && seconds > bounds[bound])
		bound++;
	histogram->counts[bound]++;
	histogram->sum += seconds;
}

void metrics_generation(struct metrics *metrics, const struct generation *generation)
{
	pthread_mutex_lock(&metrics->mutex);
	observe(&metrics->waiting, generation->started - generation->submitted);
	observe(&metrics->first_token, generation->first_token - generation->submitted);
	observe(&metrics->whole, generation->finished - generation->submitted);
	pthread_mutex_unlock(&metrics->mutex);
}

static void write_heading(struct buffer *out, const char *name, const char *type, const char *help)
{
	buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_number(
	struct buffer *out, const char *name, const char *type, const char *help, double value)
{
	write_heading(out, name, type, help);
	buffer_printf(out, "%s %.15g\n", name, value);
}

static void write_histogram(
	struct buffer *out, const char *name, const char *help, const struct histogram *histogram)
{
	uint64_t count = 0;

	write_heading(out, name, "histogram", help);
	for (int i = 0; i < HISTOGRAM_BOUNDS; i++) {
		count += histogram->counts[i];
		buffer_printf(out, "%s_bucket{le=\"%.15g\"} %" PRIu64 "\n", name, bounds[i], count);
	}
	count += histogram->counts[HISTOGRAM_BOUNDS];
	buffer_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.15g\n%s_count %" PRIu64 "\n", name,
		count, name, histogram->sum, name, count);
}

/* A label's value, in its quotes. */
static void write_label(struct buffer *out, const char *name, const char *value)
{
	buffer_printf(out, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			buffer_text(out, "\\");
		buffer_append(out, *value == '\n' ? " " : value, 1);
	}
	buffer_text(out, "\"");
}

static void write_info(struct buffer *out, const char *model, const struct model_info *info)
{
	write_heading(out, "quasar_build_info", "gauge", "What serves.");
	buffer_text(out, "quasar_build_info{version=\"" QUASAR_VERSION "\",");
	write_label(out, "model", model);
	buffer_text(out, ",");
	write_label(out, "device", info ? info->device : "");
	buffer_text(out, "} 1\n");
	write_number(out, "quasar_model_loaded", "gauge", "Whether the model is loaded.", info != NULL);
	write_number(out, "quasar_model_bytes", "gauge", "Size of the model's weights.",
		info ? (double)info->bytes : 0);
}

static void write_counts(struct buffer *out, const struct engine_counts *counts)
{
	write_number(out, "quasar_requests_running", "gauge", "Requests that are being computed.",
		counts->running);
	write_number(
		out, "quasar_requests_waiting", "gauge", "Requests that wait for a place.", counts->waiting);
	write_number(out, "quasar_steps_total", "counter", "Steps, each of them for all running requests.",
		(double)counts->steps);
	write_number(out, "quasar_prompt_tokens_total", "counter", "Tokens of prompts that were computed.",
		(double)counts->prompt_tokens);
	write_number(out, "quasar_generated_tokens_total", "counter", "Tokens that were generated.",
		(double)counts->generated_tokens);
}

void metrics_write(struct metrics *metrics, const char *model, const struct model_info *info,
	const struct engine_counts *counts, struct buffer *out)
{
	write_info(out, model, info);
	write_counts(out, counts);
	pthread_mutex_lock(&metrics->mutex);
	write_heading(out, "quasar_requests_total", "counter", "Requests to /inference, by how they ended.");
	for (int i = 0; i < OUTCOMES; i++)
		buffer_printf(out, "quasar_requests_total{outcome=\"%s\"} %" PRIu64 "\n", outcome_names[i],
			metrics->outcomes[i]);
	write_histogram(out, "quasar_queue_seconds", "Time that answered requests waited for a place.",
		&metrics->waiting);
	write_histogram(out, "quasar_first_token_seconds", "Time to the first token of answered requests.",
		&metrics->first_token);
	write_histogram(out, "quasar_request_seconds", "Time that answered requests took.", &metrics->whole);
	pthread_mutex_unlock(&metrics->mutex);
}
