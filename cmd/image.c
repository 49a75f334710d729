/* quasar image: the container image of the inference server, that validators pull. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "cmd/commands.h"
#include "cpu/blas.h"
#include "image/builder.h"
#include "image/image.h"
#include "image/tool.h"
#include "model/model.h"
#include "space/workspace.h"

#define LOCAL_NAME "localhost/quasar-miner:latest"

struct work {
	const struct invocation *invocation;
	const char *tool;
	char *name, *reference; /* with the digest, once it is pushed */
	struct model *model;
	char *model_name; /* that the server says */
	char *folder;     /* of what it is built from */
	bool temporary;   /* ours to remove */
};

/* The name to build under: what is asked for, or what the settings submit, without a digest. */
static int choose_name(struct work *work, struct error *err)
{
	const char *tag = arg_string(work->invocation, "tag");

	work->name = tag ? xstrdup(tag) : workspace_docker_image(work->invocation->settings);
	if (!work->name && arg_flag(work->invocation, "push")) {
		error_set(err, STATUS_USAGE, "--push needs a name to push to");
		return error_hint(err, "Name it with --tag REGISTRY/YOU/NAME:TAG, or set DOCKER_USERNAME.");
	}
	if (!work->name)
		work->name = xstrdup(LOCAL_NAME);
	work->name[strcspn(work->name, "@")] = '\0';
	return image_check_syntax(work->name, err);
}

/* Opens the model, so that a damaged one gets into no image; and what the server needs beside it. */
static int check_model(struct work *work, struct error *err)
{
	const char *name = arg_string(work->invocation, "model");

	if (blas_open(err) < 0)
		return -1;
	if (arg_flag(work->invocation, "no-model"))
		return 0;
	log_note("Checking %s …", name);
	work->model = model_open(name, "cpu", err);
	return work->model ? 0 : -1;
}

static int choose_folder(struct work *work, struct error *err)
{
	const char *named = arg_string(work->invocation, "context"), *temporary = getenv("TMPDIR");

	if (named) {
		work->folder = xstrdup(named);
		return 0;
	}
	work->folder = xprintf("%s/quasar-image-XXXXXX", temporary && *temporary ? temporary : "/var/tmp");
	work->temporary = mkdtemp(work->folder) != NULL;
	if (work->temporary)
		return 0;
	return error_set(
		err, STATUS_ENVIRONMENT, "cannot create a folder like %s: %s", work->folder, strerror(errno));
}

/* Has the workspace submit what was pushed. */
static int pin(const struct work *work, struct error *err)
{
	const char *directory = work->invocation->workspace, *source;
	const char *now;

	if (!directory || settings_save(directory, "MINER_DOCKER_IMAGE", work->reference, err) < 0)
		return directory ? -1 : 0;
	now = settings_get(work->invocation->settings, "MINER_DOCKER_IMAGE", &source);
	if (now && !strcmp(source, "the environment") && strcmp(now, work->reference))
		log_warn("MINER_DOCKER_IMAGE in the environment names another image, and wins over .env");
	return 0;
}

/* As it was asked for; of a folder only the last part, for the image tells it to everybody. The caller frees. */
static char *public_name(const char *model)
{
	char *expanded = path_expand(model), *folder = realpath(expanded, NULL),
	     *name = xstrdup(folder ? strrchr(folder, '/') + 1 : model);

	free(expanded);
	free(folder);
	return name;
}

static int build(struct work *work, struct error *err)
{
	const struct model_info *info = work->model ? model_info(work->model) : NULL;
	const struct image_plan plan = {
		.name = work->name,
		.model = info ? info->path : NULL,
		.model_name = work->model_name,
	};

	if (image_write_context(&plan, work->folder, err) < 0)
		return -1;
	if (!work->temporary)
		return 0;
	log_note("Building %s with %s …", work->name, work->tool);
	if (image_build(&plan, work->tool, work->folder, err) < 0)
		return -1;
	if (!arg_flag(work->invocation, "push"))
		return 0;
	log_note("Pushing %s …", work->name);
	work->reference = image_push(work->tool, work->name, err);
	return work->reference ? pin(work, err) : -1;
}

static void report(const struct work *work)
{
	char *folder;
	cJSON *document;

	if (work->invocation->json) {
		document = cJSON_CreateObject();
		if (work->temporary)
			cJSON_AddStringToObject(document, "image", work->name);
		else
			cJSON_AddStringToObject(document, "context", work->folder);
		if (work->reference)
			cJSON_AddStringToObject(document, "reference", work->reference);
		output_json(document);
	} else if (!work->temporary) {
		folder = shell_word(work->folder);
		printf("%s holds the Containerfile and its files. Next: podman build --format docker -t %s %s\n",
			work->folder, work->name, folder);
		free(folder);
	} else if (!work->reference)
		printf("Built %s. Next: quasar verify --image=%s\n", work->name, work->name);
	else if (work->invocation->workspace)
		printf("Pushed %s; MINER_DOCKER_IMAGE in .env names it now.\nNext: quasar verify --image=%s\n",
			work->reference, work->reference);
	else
		printf("Pushed %s.\nNext: set MINER_DOCKER_IMAGE to it in the .env of your workspace.\n",
			work->reference);
}

static int run(struct invocation *invocation, struct error *err)
{
	struct work work = {.invocation = invocation};
	struct error ignored;
	int result = -1;

	if (arg_given(invocation, "context") && arg_flag(invocation, "push"))
		return error_set(err, STATUS_USAGE, "--context builds nothing that --push could push");
	if (choose_name(&work, err) < 0)
		goto done;
	if (!arg_given(invocation, "context") &&
		!(work.tool = tool_find(arg_string(invocation, "tool"), TOOL_BUILDS, err)))
		goto done;
	work.model_name = public_name(arg_string(invocation, "model"));
	if (check_model(&work, err) < 0 || choose_folder(&work, err) < 0 || build(&work, err) < 0)
		goto done;
	report(&work);
	result = 0;
done:
	if (work.temporary)
		directory_remove(work.folder, &ignored);
	model_close(work.model);
	free(work.model_name);
	free(work.folder);
	free(work.reference);
	free(work.name);
	return result;
}

const struct command cmd_image = {
	.name = "image",
	.summary = "build the container image of the inference server",
	.description =
		"Validators from April 2026 on rank only submissions that name an image. They pull it, run it "
		"with a root that it cannot write, and challenge the inference server in it, on port 8000. This "
		"command builds such an image from scratch: this program, the libraries that it uses and the "
		"model; no other image is pulled. It runs as a user without rights, writes only to /tmp, and has "
		"a health check.\n\n"
		"It is built with podman, docker or buildah, the first that works here. --push sends it to its "
		"registry, with the login that the tool has, and writes MINER_DOCKER_IMAGE, with the digest, into "
		"the workspace's .env. Then check it with `quasar verify --image`.",
	.opts =
		(const struct opt[]){
			{"model", 'm', "DIR|NAME", "REFERENCE_MODEL", NULL, NULL,
				"The model: a folder, or a name in the Hugging Face cache."},
			{"tag", 't', "NAME", NULL, NULL, NULL,
				"What to call the image. Default: as MINER_DOCKER_IMAGE or DOCKER_USERNAME say."},
			{"push", 0, NULL, NULL, NULL, NULL, "Push it, and name it in .env by its digest."},
			{"no-model", 0, NULL, NULL, NULL, NULL,
				"Leave the model out: it is to be mounted at /model."},
			{"tool", 0, "NAME", NULL, NULL, "podman|docker|buildah",
				"What to build with. Default: the first that works here."},
			{"context", 0, "DIR", NULL, NULL, NULL,
				"Build nothing: write what it would be built from to DIR."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar image --model Qwen/Qwen3-4B-Instruct-2507 --tag docker.io/you/miner:1 --push",
				"build it, push it, and submit it from now on"},
			{"quasar image --tag quasar-miner", "build it for this machine alone"},
			{"quasar image --context image", "look at what is in it"},
			{0},
		},
	.exits = (const enum status[]){STATUS_FAILED, STATUS_ENVIRONMENT, 0},
	.run = run,
};
