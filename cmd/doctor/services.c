#include <cjson/cJSON.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "cmd/doctor/doctor.h"
#include "space/launcher.h"
#include "space/workspace.h"

#define FILE_LIMIT ((size_t)1 << 20)

/* What was found that starts a miner, and how much of it starts nothing any more. */
struct services {
	struct check_list *checks;
	size_t found, broken;
};

/* A file that starts `program`. Takes the remedy over. */
static void add(struct services *services, enum check_status status, const char *file, const char *program,
	char *remedy)
{
	services->found++;
	if (access(program, X_OK) < 0) {
		services->broken++;
		check_add(services->checks, "service", status, remedy,
			"%s starts %s, which is not there any more", file, program);
	}
	free(remedy);
}

/* The program that a file of that kind starts; NULL: there is no such file, or it starts none. The caller frees. */
static char *program_in(const struct launcher *launcher, const char *path)
{
	struct buffer text = {0};
	struct error ignored;
	char *program = NULL;

	if (path_exists(path) && file_read(path, FILE_LIMIT, &text, &ignored) == 0)
		program = launcher_program(launcher, text.data);
	buffer_free(&text);
	return program;
}

/* What `quasar init` wrote, for whoever uses it next. */
static void check_workspace_files(struct services *services, const char *directory)
{
	char *workspace = shell_word(directory);

	for (size_t i = 0; i < LAUNCHER_KINDS; i++) {
		char *path = path_join(directory, launchers[i].path), *file = shell_word(path);
		char *program = program_in(&launchers[i], path);

		if (program)
			add(services, CHECK_WARN, path, program,
				xprintf("rm %s && quasar init %s", file, workspace));
		free(program);
		free(file);
		free(path);
	}
	free(workspace);
}

static bool is_quasar(const char *program)
{
	const char *slash = strrchr(program, '/');

	return !strcmp(slash ? slash + 1 : program, "quasar");
}

/* The units in a folder of systemd's; others than ours are none of our business. */
static void check_units(struct services *services, const char *folder, const char *reload)
{
	const struct launcher *launcher = &launchers[LAUNCHER_SYSTEMD];
	char *pattern = path_join(folder, "*.service");
	glob_t units = {0};

	glob(pattern, 0, NULL, &units);
	for (size_t i = 0; i < units.gl_pathc; i++) {
		const char *path = units.gl_pathv[i];
		char *program = program_in(launcher, path), *file = shell_word(path);

		if (program && is_quasar(program))
			add(services, CHECK_FAIL, path, program,
				xprintf("cp %s %s && %s daemon-reload", launcher->path, file, reload));
		free(file);
		free(program);
	}
	globfree(&units);
	free(pattern);
}

/* What `pm2 save` wrote down, to be started after a reboot. */
static void check_pm2(struct services *services)
{
	const char *home = getenv("PM2_HOME");
	char *folder = path_expand(home && *home ? home : "~/.pm2"), *path = path_join(folder, "dump.pm2");
	struct buffer text = {0};
	struct error ignored;
	const cJSON *app;
	cJSON *document = NULL;

	if (path_exists(path) && file_read(path, FILE_LIMIT, &text, &ignored) == 0)
		document = json_parse(text.data, text.length, &ignored);
	cJSON_ArrayForEach (app, document) {
		const char *program = NULL, *name = NULL;
		char *word;

		if (json_string(app, "pm_exec_path", JSON_REQUIRED, &program, &ignored) < 0 ||
			json_string(app, "name", JSON_REQUIRED, &name, &ignored) < 0 || !is_quasar(program))
			continue;
		word = shell_word(name);
		add(services, CHECK_FAIL, path, program,
			xprintf("pm2 delete %s && pm2 start %s && pm2 save", word,
				launchers[LAUNCHER_PM2].path));
		free(word);
	}
	cJSON_Delete(document);
	buffer_free(&text);
	free(path);
	free(folder);
}

static void check_user_units(struct services *services)
{
	const char *home = getenv("XDG_CONFIG_HOME");
	char *configuration = path_expand(home && *home ? home : "~/.config");
	char *folder = path_join(configuration, "systemd/user");

	check_units(services, folder, "systemctl --user");
	free(folder);
	free(configuration);
}

void doctor_services(const struct invocation *invocation, struct check_list *checks)
{
	struct services services = {.checks = checks};

	if (invocation->workspace && workspace_exists(invocation->workspace))
		check_workspace_files(&services, invocation->workspace);
	check_user_units(&services);
	check_units(&services, "/etc/systemd/system", "systemctl");
	check_pm2(&services);
	if (!services.found)
		check_add(checks, "service", CHECK_SKIP, NULL, "nothing here starts a miner");
	else if (!services.broken)
		check_add(checks, "service", CHECK_OK, NULL,
			"%zu file%s for systemd, pm2 or screen; what they start is there", services.found,
			services.found == 1 ? "" : "s");
}
