/* benchmarks: what was measured in a workspace, kept in the state store. What may be claimed is made from it
 * (space/claim.h), so whose code was measured, and on what, are columns and not words. Errors are
 * STATUS_ENVIRONMENT. */
#pragma once

#include "space/store.h"

enum benchmark_code {
	BENCHMARK_FORK,   /* the fork's own layer, by its Python */
	BENCHMARK_NATIVE, /* quasar's */
};

enum benchmark_device { BENCHMARK_CPU, BENCHMARK_CUDA };

struct benchmark {
	int64_t id;
	double when; /* Unix time */
	enum benchmark_code code;
	char *operation; /* a family's name (op/family.h); NULL: the whole layer */
	char *semantics; /* "upstream", "causal"; "": whatever the fork computes */
	char *weights;   /* the file of the layer's weights; NULL: random ones of the validators' shape */
	enum benchmark_device device;
	int device_index;  /* of the GPU; 0 for the CPU */
	char *device_name; /* for people: "cpu (AMD EPYC 7763, 2 threads)", "cuda:0 (NVIDIA H200, …)" */
	int64_t seq;       /* tokens */
	int runs;
	double tokens_per_sec; /* median over the runs */
	double spread;         /* between the runs, as a part of the median (measure/sample.h) */
	double noise;          /* how far the median may be off, as a part of it; NAN: not known */
	double memory_mb;      /* peak; NAN: not measured */
	char *fork_commit;     /* NULL: none */
	bool dirty;            /* the fork's files were others than the commit's */
	char *version;         /* of quasar */
};

/* `id` is not read. The strings stay the caller's. */
int benchmark_insert(struct store *store, const struct benchmark *benchmark, struct error *err);

struct benchmark_filter {
	/* the same code, operation, semantics, weights, device (by its description) and length; NULL: any */
	const struct benchmark *like;
	const char *fork_commit; /* NULL: any */
};

struct benchmark_list {
	struct benchmark *items;
	size_t count;
};

/* Those that pass the filter, newest first, at most `limit` (0: no limit). Free with benchmark_list_free. */
int benchmark_list(struct store *store, const struct benchmark_filter *filter, size_t limit,
	struct benchmark_list *list, struct error *err);
void benchmark_list_free(struct benchmark_list *list);

/* From one benchmark to another one like it. */
struct benchmark_change {
	double change; /* of the speed, as a part of the older one's */
	double noise;  /* that both together may be off; where it is not known, their spreads */
	bool real;     /* the change is larger than that */
};
struct benchmark_change benchmark_compare(const struct benchmark *now, const struct benchmark *then);

/* The fastest of the list, the newest of several; NULL: the list is empty. */
const struct benchmark *benchmark_best(const struct benchmark_list *list);
