#include "cli/tuned.h"

#include "base/log.h"
#include "fork/export.h"
#include "tune/results.h"

size_t command_tuned_file(struct buffer *text)
{
	struct tune_result_list list = {0};
	char hash[EXPORT_KERNELS_HASH];
	size_t count;
	struct error err;

	if (tune_results_current(&list, &err) < 0)
		log_warn("tuning results are not used: %s", err.message);
	export_kernels_hash(hash);
	count = tune_fork_file(&list, export_text(EXPORT_TUNED_PATH), hash, text);
	tune_result_list_free(&list);
	return count;
}
