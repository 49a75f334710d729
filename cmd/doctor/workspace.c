#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/hotkey.h"
#include "cmd/doctor/doctor.h"
#include "fork/fork.h"
#include "fork/inspect.h"
#include "space/workspace.h"

/* Whether an encrypted hotkey opens with nobody there to type its password. */
static void check_password(const struct invocation *invocation, struct check_list *checks)
{
	struct password_source source = {
		.setting = settings_get(invocation->settings, "WALLET_PASSWORD", NULL)};
	struct error err = {0};
	struct keypair *keypair = wallet_open_hotkey(arg_string(invocation, "path"),
		arg_string(invocation, "wallet"), arg_string(invocation, "hotkey"), &source, &err);

	if (keypair)
		check_add(checks, "wallet", CHECK_OK, NULL, "%s, encrypted; the password is correct",
			keypair_address(keypair));
	else
		check_problem(checks, "wallet", source.setting ? CHECK_FAIL : CHECK_WARN, &err);
	keypair_free(keypair);
}

static void check_key_file(
	const struct invocation *invocation, const struct hotkey *hotkey, struct check_list *checks)
{
	char *word, *remedy;

	if (hotkey->fault)
		check_add(checks, "wallet", CHECK_FAIL, "quasar wallet import --force", "%s: %s",
			hotkey->path, hotkey->fault);
	else if (hotkey->encrypted)
		check_password(invocation, checks);
	else
		check_add(checks, "wallet", CHECK_OK, NULL, "%s", hotkey->address);
	if (!hotkey->exposed)
		return;
	word = shell_word(hotkey->path);
	remedy = xprintf("chmod 600 %s", word);
	check_add(checks, "permissions", CHECK_WARN, remedy, "%s is readable by other users", hotkey->path);
	free(remedy);
	free(word);
}

static void check_wallet(const struct invocation *invocation, struct check_list *checks)
{
	struct error err = {0};
	struct hotkey hotkey;

	if (wallet_inspect_hotkey(arg_string(invocation, "path"), arg_string(invocation, "wallet"),
		    arg_string(invocation, "hotkey"), &hotkey, &err) < 0) {
		if (!err.hint[0])
			error_hint(&err, "quasar wallet new, or quasar wallet import");
		check_problem(checks, "wallet", CHECK_FAIL, &err);
		return;
	}
	check_key_file(invocation, &hotkey, checks);
	hotkey_free(&hotkey);
}

/* What holds secrets belongs to one person. */
static void check_permissions(const char *directory, struct check_list *checks)
{
	static const char *const names[] = {".env", ".quasar", ".quasar/state.db"};
	size_t exposed = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *path = path_join(directory, names[i]), *word = shell_word(path), *remedy;
		struct stat status;

		if (stat(path, &status) == 0 && status.st_mode & (S_IRWXG | S_IRWXO)) {
			remedy = xprintf("chmod %s %s", S_ISDIR(status.st_mode) ? "700" : "600", word);
			check_add(checks, "permissions", CHECK_WARN, remedy,
				"%s is accessible to other users (mode %04o)", path, status.st_mode & 07777);
			free(remedy);
			exposed++;
		}
		free(word);
		free(path);
	}
	if (!exposed)
		check_add(checks, "permissions", CHECK_OK, NULL, "settings and state are private");
}

/* A misspelt name would be ignored without a word. */
static void check_settings(const struct settings *settings, struct check_list *checks)
{
	const char *name, *meant;
	size_t at = 0, unknown = 0;

	while ((name = settings_unknown(settings, &at, &meant))) {
		char *remedy = meant ? xprintf("Did you mean %s?", meant)
				     : xstrdup("`quasar generate env` lists the names.");

		check_add(checks, "settings", CHECK_WARN, remedy, ".env sets %s, which nothing reads", name);
		free(remedy);
		unknown++;
	}
	if (!unknown)
		check_add(checks, "settings", CHECK_OK, NULL, "every name in .env is known");
}

/* A command that puts a fork where there is none: `quasar init` leaves alone what is there. The caller frees. */
static char *way_to_fork(const char *path)
{
	char *old, *word, *old_word, *command;

	if (!path_exists(path))
		return xstrdup("quasar init");
	old = xprintf("%s.old", path);
	word = shell_word(path);
	old_word = shell_word(old);
	command = xprintf("mv %s %s && quasar init", word, old_word);
	free(old_word);
	free(word);
	free(old);
	return command;
}

static void check_fork(const struct workspace *workspace, struct check_list *checks)
{
	const char *path = workspace->fork_path;
	struct fork_state state = {0};
	struct error err = {0};
	char *remedy;

	if (fork_state_read(path, &state, &err) == 0) {
		inspect_git(&state, workspace->fork_url, false, checks);
	} else {
		remedy = way_to_fork(path);
		check_add(checks, "fork", CHECK_FAIL, remedy, "%s", err.message);
		free(remedy);
	}
	fork_state_free(&state);
}

/* Nothing is submitted that cannot be stored first. */
static void check_writable(const char *directory, struct check_list *checks)
{
	char *state = path_join(directory, ".quasar");

	if (access(state, W_OK) == 0)
		check_add(checks, "workspace", CHECK_OK, NULL, "%s", directory);
	else
		check_add(checks, "workspace", CHECK_FAIL, "Make it and its file system writable.",
			"cannot write to %s: %s", state, strerror(errno));
	free(state);
}

void doctor_workspace(const struct invocation *invocation, struct check_list *checks)
{
	const char *directory = invocation->workspace;
	struct submission_list list = {0};
	struct workspace workspace;
	struct error err = {0};

	check_wallet(invocation, checks);
	if (!directory || !workspace_exists(directory)) {
		check_add(checks, "workspace", CHECK_WARN, "quasar init DIR", "not in a workspace");
		return;
	}
	check_permissions(directory, checks);
	check_settings(invocation->settings, checks);
	if (workspace_open(directory, invocation->settings, &workspace, &err) < 0) {
		check_problem(checks, "store", CHECK_FAIL, &err);
		return;
	}
	check_writable(directory, checks);
	if (store_submissions(workspace.store, NULL, &list, &err) < 0)
		check_problem(checks, "store", CHECK_FAIL, &err);
	else
		check_add(checks, "store", CHECK_OK, NULL, "sound, %zu submission%s", list.count,
			list.count == 1 ? "" : "s");
	submission_list_free(&list);
	check_fork(&workspace, checks);
	workspace_close(&workspace);
}
