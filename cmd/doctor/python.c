#include <stdlib.h>

#include "base/file.h"
#include "cli/python.h"
#include "cmd/doctor/doctor.h"
#include "gpu/gpu.h"
#include "probe/sandbox.h"
#include "space/workspace.h"

/* A PyTorch that cannot see the GPU that is here measures nothing that counts. */
static void check_torch(const struct python *python, struct check_list *checks)
{
	struct error err = {0};

	if (python_require_torch(python, &err) < 0)
		check_add(checks, "torch", CHECK_WARN, python->install_torch, "%s", err.message);
	else if (!python->cuda && gpu_count(&err) > 0)
		check_add(checks, "torch", CHECK_WARN, "Install a PyTorch that is built for CUDA.",
			"%s, for the CPU only: it does not use this machine's GPU", python->torch);
	else
		check_add(checks, "torch", CHECK_OK, NULL, "%s, %s%s", python->torch,
			python->cuda ? "CUDA " : "for the CPU only", python->cuda ? python->cuda : "");
}

static void check_import(const struct python *python, const char *fork, struct check_list *checks)
{
	const char *missing = !fork  ? "workspace"
		: !path_exists(fork) ? "fork"
		: !python->torch     ? "PyTorch"
				     : NULL;
	struct error err = {0};

	if (missing)
		check_add(checks, "fork.import", CHECK_SKIP, NULL, "there is no %s", missing);
	else if (python_import_layer(python, fork, &err) < 0)
		check_problem(checks, "fork.import", CHECK_FAIL, &err);
	else
		check_add(checks, "fork.import", CHECK_OK, NULL, "fla.layers.quasar, from %s", fork);
}

/* Only who judges others needs one. */
static void check_sandbox(struct check_list *checks)
{
	struct error err = {0};

	if (sandbox_works(&err) == 0)
		check_add(checks, "sandbox", CHECK_OK, NULL, "strangers' forks can be run: quasar validate");
	else
		check_add(checks, "sandbox", CHECK_WARN, err.hint, "%s; only `quasar validate` needs it",
			err.message);
}

void doctor_python(const struct invocation *invocation, struct check_list *checks)
{
	char *fork = invocation->workspace && workspace_exists(invocation->workspace)
		? workspace_fork_path(invocation->workspace, invocation->settings)
		: NULL;
	struct python python = {0};
	struct error err = {0};

	if (command_python(invocation, fork, &python, &err) < 0) {
		check_problem(checks, "python", CHECK_WARN, &err);
	} else {
		check_add(checks, "python", CHECK_OK, NULL, "%s %s, from %s", python.version, python.path,
			python.found_by);
		check_torch(&python, checks);
		check_import(&python, fork, checks);
	}
	check_sandbox(checks);
	python_free(&python);
	free(fork);
}
