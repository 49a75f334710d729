/* quasar doctor: what is there, what is missing, and the command that mends it. */
#include "cmd/doctor/doctor.h"

#include <stdio.h>

#include "base/clock.h"
#include "cli/python.h"
#include "cli/report.h"
#include "cmd/commands.h"

static void print_json(const struct check_list *checks)
{
	cJSON *document = cJSON_CreateObject();

	cJSON_AddBoolToObject(document, "passed", !check_count(checks, CHECK_FAIL));
	cJSON_AddItemToObject(document, "checks", check_json(checks));
	output_json(document);
}

static void print_summary(const struct check_list *checks)
{
	size_t failed = check_count(checks, CHECK_FAIL), warnings = check_count(checks, CHECK_WARN);

	if (!failed) {
		printf("\nNothing is missing; %zu warning%s.\n", warnings, warnings == 1 ? "" : "s");
		return;
	}
	printf("\nTo fix:\n");
	for (size_t i = 0; i < checks->count; i++)
		if (checks->items[i].status == CHECK_FAIL)
			printf("  %-12s %s\n", checks->items[i].name,
				checks->items[i].remedy ? checks->items[i].remedy : checks->items[i].detail);
}

static int run(struct invocation *invocation, struct error *err)
{
	struct check_list checks = {.report = invocation->json ? NULL : report_check};
	double timeout = 0;
	int result = 0;

	if (arg_real(invocation, "timeout", 0.1, 600, &timeout, err) < 0)
		return -1;
	doctor_machine(invocation, &checks);
	doctor_python(invocation, &checks);
	doctor_workspace(invocation, &checks);
	doctor_services(invocation, &checks);
	doctor_validator(invocation, timeout, &checks);
	if (interrupted())
		result = error_set(err, STATUS_INTERRUPTED, "interrupted");
	else if (invocation->json)
		print_json(&checks);
	else
		print_summary(&checks);
	if (!result && check_count(&checks, CHECK_FAIL))
		result = error_set(err, STATUS_FAILED, "%s", "");
	check_free(&checks);
	return result;
}

const struct command cmd_doctor = {
	.name = "doctor",
	.summary = "check this machine and workspace, and say how to fix what is missing",
	.description =
		"Checks the machine (processor, GPU, libraries, memory, disk), the Python that runs the fork, "
		"the wallet, the workspace with its settings, state and fork, the files that start a miner, and the "
		"validator. It changes nothing, asks for no password, and works outside a workspace too. If "
		"something required is missing, it lists the commands that fix it and exits with 1.",
	.opts =
		(const struct opt[]){
			OPTS_WALLET,
			OPTS_VALIDATOR,
			OPT_PYTHON,
			{"timeout", 0, "SECONDS", NULL, "5", NULL,
				"Time limit for each response from the validator."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar doctor",
				"run this after setting up a machine, or when something does not work"},
			{"quasar doctor --json | jq -r '.checks[] | select(.status == \"fail\").remedy'",
				"the commands that fix what is missing"},
			{0},
		},
	.exits = (const enum status[]){STATUS_FAILED, 0},
	.run = run,
};
