#include "space/claim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "op/quasar/problem.h"

/* What a claim may rest on, the best first. */
static const struct basis {
	enum benchmark_code code;
	enum benchmark_device device;
} bases[] = {
	{BENCHMARK_FORK, BENCHMARK_CUDA},
	{BENCHMARK_FORK, BENCHMARK_CPU},
	{BENCHMARK_NATIVE, BENCHMARK_CPU},
};
enum { BASES = sizeof(bases) / sizeof(bases[0]) };

/* Quasar's layer has to do what the fork does by itself. */
static bool is_comparable(const struct benchmark *benchmark)
{
	return benchmark->code == BENCHMARK_FORK ||
		(!benchmark->weights && !strcmp(benchmark->semantics, semantics_name(SEMANTICS_UPSTREAM)));
}

/* The index of what it is a basis of; BASES: of nothing. */
static int basis_of(const struct benchmark *benchmark)
{
	int i = 0;

	if (benchmark->operation || !is_comparable(benchmark))
		return BASES;
	while (i < BASES && (benchmark->code != bases[i].code || benchmark->device != bases[i].device))
		i++;
	return i;
}

static bool is_of(const struct benchmark *benchmark, const char *commit)
{
	return benchmark->fork_commit && !strcmp(benchmark->fork_commit, commit);
}

/* The best basis that was measured at `tokens` (0: at any length); BASES: none. */
static int best_basis(const struct benchmark_list *benchmarks, const char *commit, int64_t tokens)
{
	int best = BASES;

	for (size_t i = 0; i < benchmarks->count; i++) {
		const struct benchmark *benchmark = &benchmarks->items[i];

		if (is_of(benchmark, commit) && (!tokens || benchmark->seq == tokens) &&
			basis_of(benchmark) < best)
			best = basis_of(benchmark);
	}
	return best;
}

/* Adds the benchmark to what is sent, unless a newer one of its length is there. */
static void add(cJSON *sent, const struct benchmark *benchmark)
{
	char tokens[24];
	cJSON *object;

	snprintf(tokens, sizeof(tokens), "%lld", (long long)benchmark->seq);
	if (cJSON_HasObjectItem(sent, tokens))
		return;
	object = cJSON_AddObjectToObject(sent, tokens);
	cJSON_AddNumberToObject(object, "tokens_per_sec", benchmark->tokens_per_sec);
	if (!isnan(benchmark->memory_mb))
		cJSON_AddNumberToObject(object, "vram_mb", benchmark->memory_mb);
}

/* Whether anything was measured of the commit at that length that nothing may be claimed from, but would be
 * easily taken for it. */
static const char *why_not(const struct benchmark_list *benchmarks, const char *commit, int64_t tokens)
{
	for (size_t i = 0; i < benchmarks->count; i++) {
		const struct benchmark *benchmark = &benchmarks->items[i];

		if (!is_of(benchmark, commit) || benchmark->seq != tokens)
			continue;
		if (benchmark->operation)
			return ": only of an operation by itself";
		return is_comparable(benchmark)
			? ": only of quasar's own layer on a GPU, which validators do not run"
			: ": only of quasar's own layer with other semantics or weights than validators time";
	}
	return "";
}

int claim_make(const struct benchmark_list *benchmarks, const char *commit, int64_t tokens, double margin,
	struct claim *claim, struct error *err)
{
	int basis = best_basis(benchmarks, commit, tokens);

	*claim = (struct claim){.memory_mb = NAN, .benchmarks = cJSON_CreateObject()};
	if (basis == BASES)
		basis = best_basis(benchmarks, commit, 0); /* to be sent with a claim by hand */
	for (size_t i = 0; i < benchmarks->count && basis < BASES; i++) {
		const struct benchmark *benchmark = &benchmarks->items[i];

		if (!is_of(benchmark, commit) || basis_of(benchmark) != basis)
			continue;
		add(claim->benchmarks, benchmark);
		if (benchmark->seq != tokens)
			continue;
		claim->spread = fmax(claim->spread, benchmark->spread);
		if (claim->measured > 0)
			continue; /* by a newer one */
		claim->measured = benchmark->tokens_per_sec;
		claim->memory_mb = benchmark->memory_mb;
	}
	claim->tokens_per_sec = floor(claim->measured * (1 - margin));
	if (claim->tokens_per_sec > 0)
		return 0;
	error_set(err, STATUS_ENVIRONMENT,
		"fork commit %.10s has no benchmark at %lld tokens to make a claim from%s", commit,
		(long long)tokens, why_not(benchmarks, commit, tokens));
	return error_hint(err,
		"Measure it with `quasar bench --seq %lld`, or give the claim yourself: --claim N.",
		(long long)tokens);
}

void claim_free(struct claim *claim)
{
	cJSON_Delete(claim->benchmarks);
	*claim = (struct claim){0};
}
