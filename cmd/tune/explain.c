/* tune --explain: why a configuration leads, and how far it is from what the GPU's data sheet allows. */
#include <math.h>
#include <stdio.h>

#include "cmd/tune/tune.h"
#include "gpu/models.h"

struct roofline {
	double bytes, operations;        /* of a call, at least */
	double memory_ms, arithmetic_ms; /* that these take by the data sheet; NAN: it is not known */
};

static struct roofline roofline_of(const struct tune_request *request, const struct gpu_model *model)
{
	const struct tuning_cost cost = tuning_cost_of(
		request->family, &request->shape, request->dtype, request->options);
	struct roofline roof = {cost.bytes, cost.operations, NAN, NAN};

	if (model) {
		roof.memory_ms = roof.bytes / model->bandwidth_gbs / 1e6;
		roof.arithmetic_ms = roof.operations / model->bf16_tflops / 1e9;
	}
	return roof;
}

void tune_explain_json(const struct tune_request *request, const struct gpu_model *model,
	const struct tune_row *best, cJSON *object)
{
	const struct roofline roof = roofline_of(request, model);

	cJSON_AddNumberToObject(object, "bytes", roof.bytes);
	cJSON_AddNumberToObject(object, "operations", roof.operations);
	cJSON_AddNumberToObject(object, "operations_per_byte", roof.operations / roof.bytes);
	if (isnan(roof.memory_ms))
		return;
	cJSON_AddNumberToObject(object, "floor_ms", fmax(roof.memory_ms, roof.arithmetic_ms));
	cJSON_AddStringToObject(
		object, "floor_bound", roof.memory_ms > roof.arithmetic_ms ? "memory" : "tensor cores");
	cJSON_AddNumberToObject(
		object, "floor_fraction", fmax(roof.memory_ms, roof.arithmetic_ms) / best->ms);
}

void tune_explain(
	const struct tune_request *request, const struct gpu_model *model, const struct tune_row *best)
{
	const struct roofline roof = roofline_of(request, model);
	bool memory = roof.memory_ms > roof.arithmetic_ms;

	printf("\nThe first configuration:\n");
	if (!isnan(best->occupancy))
		printf("  fills %.0f %% of the warps that a multiprocessor can hold; what limits that: %s\n",
			best->occupancy * 100, best->limited_by);
	if (best->registers >= 0)
		printf("  takes %d registers a thread, %d bytes of shared memory a block, and spills %d bytes a thread\n",
			best->registers, best->shared_bytes, best->spills);
	printf("  moves %.1f MB and makes %.1f GFLOP at least: %.0f operations a byte\n", roof.bytes / 1e6,
		roof.operations / 1e9, roof.operations / roof.bytes);
	if (!isnan(roof.memory_ms))
		printf("  could by the data sheet take %.4f ms, for which %s would be the bound: it reaches %.1f %% of that\n",
			memory ? roof.memory_ms : roof.arithmetic_ms, memory ? "memory" : "the tensor cores",
			fmax(roof.memory_ms, roof.arithmetic_ms) / best->ms * 100);
}
