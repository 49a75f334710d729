/* gpus: the GPUs of this machine, and those that are known from data sheets. */
#include <stdio.h>

#include "cli/table.h"
#include "cmd/commands.h"
#include "gpu/cuda.h"
#include "gpu/gpu.h"
#include "gpu/models.h"

static void known_json(cJSON *list)
{
	for (size_t i = 0; i < gpu_model_count; i++) {
		const struct gpu_model *model = &gpu_models[i];
		cJSON *item = cJSON_CreateObject();

		cJSON_AddStringToObject(item, "name", model->name);
		cJSON_AddNumberToObject(item, "compute_capability", model->capability / 10.0);
		cJSON_AddNumberToObject(item, "multiprocessors", model->multiprocessors);
		cJSON_AddNumberToObject(item, "shared_kib", model->shared_kib);
		cJSON_AddNumberToObject(item, "registers", model->registers);
		cJSON_AddNumberToObject(item, "clock_mhz", model->clock_mhz);
		cJSON_AddNumberToObject(item, "l2_mib", model->l2_mib);
		cJSON_AddNumberToObject(item, "memory_gib", model->memory_gib);
		cJSON_AddNumberToObject(item, "bandwidth_gbs", model->bandwidth_gbs);
		cJSON_AddNumberToObject(item, "bf16_tflops", model->bf16_tflops);
		cJSON_AddItemToArray(list, item);
	}
}

static void present_json(cJSON *list, int index, const struct gpu_properties *properties)
{
	const struct gpu_model *model = gpu_model_find(properties->name);
	cJSON *item = cJSON_CreateObject();
	char device[16];

	snprintf(device, sizeof(device), "cuda:%d", index);
	cJSON_AddStringToObject(item, "device", device);
	cJSON_AddStringToObject(item, "name", properties->name);
	cJSON_AddNumberToObject(item, "compute_capability", properties->capability / 10.0);
	cJSON_AddNumberToObject(item, "multiprocessors", properties->multiprocessors);
	cJSON_AddNumberToObject(item, "shared_kib", properties->shared_per_multiprocessor / 1024);
	cJSON_AddNumberToObject(item, "registers", properties->registers);
	cJSON_AddNumberToObject(item, "clock_mhz", properties->clock_khz / 1000);
	cJSON_AddNumberToObject(item, "l2_mib", (double)properties->l2_bytes / 0x1p20);
	cJSON_AddNumberToObject(item, "memory_gib", (double)properties->memory_bytes / 0x1p30);
	cJSON_AddNumberToObject(item, "bandwidth_gbs", properties->bandwidth_gbs);
	cJSON_AddStringToObject(item, "model", model ? model->name : "");
	cJSON_AddItemToArray(list, item);
}

static const char *const headings[] = {
	"", "compute", "SMs", "shared/SM", "registers/SM", "L2", "memory", "bandwidth", "bf16"};

static void present_row(struct table *table, int index, const struct gpu_properties *properties)
{
	const struct gpu_model *model = gpu_model_find(properties->name);

	table_cell(table, "cuda:%d %s", index, properties->name);
	table_cell(table, "%d.%d", properties->capability / 10, properties->capability % 10);
	table_cell(table, "%d", properties->multiprocessors);
	table_cell(table, "%d KiB", properties->shared_per_multiprocessor / 1024);
	table_cell(table, "%d", properties->registers);
	table_cell(table, "%.0f MiB", (double)properties->l2_bytes / 0x1p20);
	table_cell(table, "%.0f GiB", (double)properties->memory_bytes / 0x1p30);
	table_cell(table, "%.0f GB/s", properties->bandwidth_gbs);
	if (model)
		table_cell(table, "%.0f TFLOP/s", model->bf16_tflops);
	else
		table_cell(table, "?");
}

static void known_table(void)
{
	struct table table;

	table_begin(&table, headings, "lrrrrrrrr");
	for (size_t i = 0; i < gpu_model_count; i++) {
		const struct gpu_model *model = &gpu_models[i];

		table_cell(&table, "%s", model->name);
		table_cell(&table, "%d.%d", model->capability / 10, model->capability % 10);
		table_cell(&table, "%d", model->multiprocessors);
		table_cell(&table, "%d KiB", model->shared_kib);
		table_cell(&table, "%d", model->registers);
		table_cell(&table, "%.0f MiB", model->l2_mib);
		table_cell(&table, "%.0f GiB", model->memory_gib);
		table_cell(&table, "%.0f GB/s", model->bandwidth_gbs);
		table_cell(&table, "%.0f TFLOP/s", model->bf16_tflops);
	}
	table_print(&table, stdout);
}

/* The GPUs of this machine, as rows or as JSON. Returns how many; why there are none in `err`. */
static int show_present(struct invocation *invocation, cJSON *list, struct error *err)
{
	struct table table;
	int count;

	settings_export_compute(invocation->settings);
	count = gpu_count(err);
	if (count > 0 && !invocation->json)
		table_begin(&table, headings, "lrrrrrrrr");
	for (int i = 0; i < count; i++) {
		struct gpu_properties properties;

		if (gpu_query(i, &properties, err) < 0)
			return -1;
		present_json(list, i, &properties);
		if (!invocation->json)
			present_row(&table, i, &properties);
	}
	if (count > 0 && !invocation->json)
		table_print(&table, stdout);
	return count;
}

static int run_gpus(struct invocation *invocation, struct error *err)
{
	cJSON *document = cJSON_CreateObject(), *present = cJSON_AddArrayToObject(document, "present");
	struct error no_gpu = {0}, no_compiler = {0}, no_products = {0};
	int major = 0, minor = 0, count = show_present(invocation, present, &no_gpu);
	const struct nvrtc *nvrtc = nvrtc_library(&no_compiler);
	const struct cublaslt *products = cublaslt_library(&no_products);

	(void)err;
	if (nvrtc)
		nvrtc->nvrtcVersion(&major, &minor);
	known_json(cJSON_AddArrayToObject(document, "known"));
	cJSON_AddStringToObject(document, "problem", count < 0 ? no_gpu.message : "");
	cJSON_AddStringToObject(document, "driver", cuda_driver_path());
	cJSON_AddStringToObject(document, "compiler", nvrtc_path());
	cJSON_AddStringToObject(document, "matrix_products", cublaslt_path());
	if (invocation->json) {
		output_json(document);
		return 0;
	}
	cJSON_Delete(document);
	if (count <= 0)
		printf("No GPU found: %s.\n", count < 0 ? no_gpu.message : "the driver lists none");
	if (count < 0 && no_gpu.hint[0])
		printf("%s\n", no_gpu.hint);
	if (nvrtc)
		printf("Kernel compiler: NVRTC %d.%d, %s.\n", major, minor, nvrtc_path());
	else
		printf("No kernel compiler: %s.\n%s\n", no_compiler.message, no_compiler.hint);
	if (products)
		printf("Matrix products: cuBLASLt %zu.%zu, %s.\n", products->cublasLtGetVersion() / 10000,
			products->cublasLtGetVersion() / 100 % 100, cublaslt_path());
	else
		printf("No matrix products: %s.\n%s\n", no_products.message, no_products.hint);
	printf("\nFrom data sheets:\n\n");
	known_table();
	return 0;
}

const struct command cmd_gpus = {
	.name = "gpus",
	.summary = "list this machine's GPUs, and the data sheets of common ones",
	.description =
		"Lists the GPUs of this machine under the names that --device takes, and where NVIDIA's "
		"libraries were found. A table of common GPUs with figures from their data sheets "
		"follows. It is not an error if there is no GPU.",
	.examples =
		(const struct example[]){
			{"quasar gpus", "this machine's GPUs, and the table"},
			{"quasar gpus --json | jq -r '.present[].name'", "their names, for a script"},
			{0},
		},
	.run = run_gpus,
};
