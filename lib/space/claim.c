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
	{BENCHMARK_FORK, BENCHMARK_CUDA}, {BENCHMARK_FORK, BENCHMARK_CPU},
	{BENCHMARK_NATIVE, BENCHMARK_CPU}, /* in a rehearsal */
};
enum { BASES = sizeof(bases) / sizeof(bases[0]) };

/* Why nothing may be claimed from the benchmark, though it is of the commit; NULL: something may. */
static const char *why_not(const struct benchmark *benchmark, bool rehearsal)
{
	if (benchmark->dirty)
		return "only with changes that are not committed";
	if (benchmark->operation)
		return "only of an operation by itself";
	if (benchmark->code == BENCHMARK_FORK)
		return NULL;
	if (!rehearsal || benchmark->device != BENCHMARK_CPU)
		return "only of quasar's own layer, which validators do not run";
	/* it has to do what the fork does by itself */
	if (benchmark->weights || strcmp(benchmark->semantics, semantics_name(SEMANTICS_UPSTREAM)))
		return "only of quasar's own layer with other semantics or weights than validators time";
	return NULL;
}

static bool is_of(const struct benchmark *benchmark, const char *commit)
{
	return benchmark->fork_commit && !strcmp(benchmark->fork_commit, commit);
}

/* The index of what it is a basis of; BASES: of nothing. */
static int basis_of(const struct benchmark *benchmark, const struct claim_terms *terms)
{
	int i = 0;

	if (!is_of(benchmark, terms->commit) || why_not(benchmark, terms->rehearsal))
		return BASES;
	while (i < BASES && (benchmark->code != bases[i].code || benchmark->device != bases[i].device))
		i++;
	return i;
}

/* The best basis that was measured at `tokens` (0: at any length); BASES: none. */
static int best_basis(
	const struct benchmark_list *benchmarks, const struct claim_terms *terms, int64_t tokens)
{
	int best = BASES;

	for (size_t i = 0; i < benchmarks->count; i++) {
		int basis = basis_of(&benchmarks->items[i], terms);

		if ((!tokens || benchmarks->items[i].seq == tokens) && basis < best)
			best = basis;
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

double claim_margin(double margin, double spread)
{
	return fmax(margin, spread / (1 + spread));
}

static void claim_from(
	const struct benchmark *benchmark, const struct claim_terms *terms, struct claim *claim)
{
	claim->measured = benchmark->tokens_per_sec;
	claim->margin = claim_margin(terms->margin, benchmark->spread);
	claim->memory_mb = benchmark->memory_mb;
	claim->runs = benchmark->runs;
	claim->stands_in = benchmark->code == BENCHMARK_NATIVE;
	claim->tokens_per_sec = floor(claim->measured * (1 - claim->margin));
}

/* What there is of the commit at that length instead; NULL: nothing. */
static const char *what_is_there(const struct benchmark_list *benchmarks, const struct claim_terms *terms)
{
	for (size_t i = 0; i < benchmarks->count; i++)
		if (is_of(&benchmarks->items[i], terms->commit) && benchmarks->items[i].seq == terms->tokens)
			return why_not(&benchmarks->items[i], terms->rehearsal);
	return NULL;
}

static int nothing_to_claim(const struct benchmark_list *benchmarks, const struct claim_terms *terms,
	const struct claim *claim, struct error *err)
{
	const char *instead = what_is_there(benchmarks, terms);

	if (claim->measured > 0)
		error_set(err, STATUS_ENVIRONMENT,
			"fork commit %.10s at %lld tokens: nothing is left to claim of the %.3g tokens/s measured, "
			"less the margin of %.3g %%",
			terms->commit, (long long)terms->tokens, claim->measured, claim->margin * 100);
	else
		error_set(err, STATUS_ENVIRONMENT,
			"fork commit %.10s has no benchmark at %lld tokens to make a claim from%s%s",
			terms->commit, (long long)terms->tokens, instead ? ": " : "", instead ? instead : "");
	return error_hint(err,
		"Measure it with `quasar bench --seq %lld`, or give the claim yourself: --claim N.",
		(long long)terms->tokens);
}

int claim_make(const struct benchmark_list *benchmarks, const struct claim_terms *terms, struct claim *claim,
	struct error *err)
{
	int basis = best_basis(benchmarks, terms, terms->tokens);

	*claim = (struct claim){.memory_mb = NAN, .benchmarks = cJSON_CreateObject()};
	if (basis == BASES)
		basis = best_basis(benchmarks, terms, 0); /* to be sent with a claim by hand */
	for (size_t i = 0; i < benchmarks->count && basis < BASES; i++) {
		const struct benchmark *benchmark = &benchmarks->items[i];

		if (basis_of(benchmark, terms) != basis)
			continue;
		add(claim->benchmarks, benchmark);
		if (benchmark->seq != terms->tokens)
			continue;
		claim->spread = fmax(claim->spread, benchmark->spread);
		if (!(claim->measured > 0))
			claim_from(benchmark, terms, claim); /* the newest */
	}
	return claim->tokens_per_sec > 0 ? 0 : nothing_to_claim(benchmarks, terms, claim, err);
}

void claim_free(struct claim *claim)
{
	cJSON_Delete(claim->benchmarks);
	*claim = (struct claim){0};
}

int claim_refuse_changes(const char *changed, struct error *err)
{
	error_set(err, STATUS_ENVIRONMENT,
		"the fork has uncommitted changes, for example in %s: no claim is made from measuring them",
		changed);
	return error_hint(
		err, "Commit and push them with `quasar push`; then `quasar bench` measures the commit.");
}
