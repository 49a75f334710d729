/* quasar init: a workspace. Each step is made only when it is missing, the state store last: it is what
 * makes the directory a workspace, so an interrupted init is none and simply continues when run again. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/progress.h"
#include "cli/tuned.h"
#include "cmd/commands.h"
#include "cmd/init/init.h"
#include "fork/export.h"
#include "fork/fork.h"
#include "fork/template.h"
#include "key/wallet.h"
#include "probe/environment.h"
#include "score/score.h"
#include "space/launcher.h"
#include "space/store.h"
#include "space/workspace.h"

/* What the competition is about, and how long GitHub may take to fork it. */
#define UPSTREAM "troy12x/flash-linear-attention"
#define FORK_SECONDS 300

/* --- what is asked for --------------------------------------------------------------------------- */

/* The option's value if the command line gives it. */
static const char *option(const struct invocation *invocation, const char *name)
{
	return arg_given(invocation, name) ? arg_string(invocation, name) : NULL;
}

static int check_options(const struct invocation *invocation, struct error *err)
{
	const char *url = option(invocation, "fork-url"), *api = option(invocation, "api");
	int64_t seq;

	if ((url != NULL) + arg_given(invocation, "from") + arg_flag(invocation, "github") > 1)
		return error_set(err, STATUS_USAGE, "use only one of --fork-url, --from and --github");
	if (url && fork_url_check(url, true, err) < 0)
		return -1;
	if (api && strncmp(api, "http://", 7) && strncmp(api, "https://", 8))
		return error_set(err, STATUS_USAGE, "--api: \"%s\" is not an http or https URL", api);
	return arg_integer(invocation, "seq", 1, MOST_TOKENS, &seq, err);
}

/* --from must name a clone, and is remembered by its absolute path. */
static int find_existing(struct plan *plan, struct error *err)
{
	const char *from = option(plan->invocation, "from");
	struct fork_state state;

	if (!from)
		return 0;
	plan->existing = realpath(from, NULL);
	if (!plan->existing)
		return error_set(err, STATUS_ENVIRONMENT, "--from %s: %s", from, strerror(errno));
	if (fork_state_read(plan->existing, &state, err) < 0) {
		if (!err->hint[0])
			error_hint(err, "Name a git clone of your fork, or have it cloned: --fork-url URL");
		return error_context(err, "--from");
	}
	fork_state_free(&state);
	return 0;
}

/* To be taken away if it fails. */
static void note_created(struct plan *plan, const char *path)
{
	cJSON_AddItemToArray(plan->created, cJSON_CreateString(path));
}

/* Makes a directory; what is made of it and its parents is noted. */
static int create_directory(struct plan *plan, const char *path, mode_t mode, struct error *err)
{
	char *parent = xstrdup(path), *first = NULL;
	int result;

	while (*parent && !path_exists(parent)) {
		size_t length = strlen(parent);

		free(first);
		first = xstrdup(parent);
		while (length && parent[length - 1] == '/')
			length--;
		while (length && parent[length - 1] != '/')
			length--;
		parent[length] = '\0';
	}
	result = directory_make(path, mode, err);
	if (first && path_exists(first)) {
		char *real = realpath(first, NULL);

		note_created(plan, real ? real : first);
		free(real);
	}
	free(first);
	free(parent);
	return result;
}

/* The directory asked for, else the workspace that we are in, else the current directory. What is in it already
 * is trusted if it was named as the workspace. */
static int make_directory(struct plan *plan, struct error *err)
{
	const struct invocation *invocation = plan->invocation;
	const char *named = invocation->positional_count ? invocation->positionals[0]
		: invocation->workspace                  ? invocation->workspace
							 : ".";

	for (const char *at = named; *at; at++)
		if (iscntrl((unsigned char)*at))
			return error_set(
				err, STATUS_USAGE, "the directory name contains a control character");
	if (!*named)
		return error_set(err, STATUS_USAGE, "the directory name is empty");
	if (create_directory(plan, named, 0755, err) < 0)
		return -1;
	plan->directory = realpath(named, NULL);
	if (!plan->directory)
		return error_set(err, STATUS_ENVIRONMENT, "%s: %s", named, strerror(errno));
	if ((!invocation->workspace || strcmp(plan->directory, invocation->workspace)) &&
		workspace_check(plan->directory, err) < 0)
		return -1;
	return 0;
}

/* A workspace is nobody else's: what lies in a repository is committed and pushed by accident. */
static int check_repository(const struct plan *plan, struct error *err)
{
	char *root = workspace_exists(plan->directory) ? NULL : fork_around(plan->directory);
	char *real = root ? realpath(root, NULL) : NULL, *word;
	int result = 0;

	if (real && !(plan->existing && !strcmp(plan->existing, real))) {
		result = error_set(
			err, STATUS_ENVIRONMENT, "%s lies in the git repository %s", plan->directory, real);
		word = shell_word(real);
		error_hint(err,
			"Choose a directory outside of it, for example `quasar init ~/miner`, or have the repository "
			"ignore this one. If it is your fork: quasar init ~/miner --from %s",
			word);
		free(word);
	}
	free(real);
	free(root);
	return result;
}

static int make_hidden(struct plan *plan, struct error *err)
{
	char *hidden = path_join(plan->directory, ".quasar");
	int result = create_directory(plan, hidden, 0700, err);

	free(hidden);
	return result;
}

/* The newest first. What cannot be taken away is left. */
static void undo(const struct plan *plan)
{
	struct error ignored;

	for (int i = cJSON_GetArraySize(plan->created); i-- > 0;)
		directory_remove(cJSON_GetArrayItem(plan->created, i)->valuestring, &ignored);
}

/* --- the steps ----------------------------------------------------------------------------------- */

/* Files of the workspace go by their path in it. */
static void note(const struct plan *plan, cJSON *list, const char *name)
{
	size_t length = strlen(plan->directory);

	if (!strncmp(name, plan->directory, length) && name[length] == '/')
		name += length + 1;
	cJSON_AddItemToArray(list, cJSON_CreateString(name));
}

/* Writes a file of the workspace, unless something of its name is there. */
static int write_once(
	struct plan *plan, const char *name, const char *text, mode_t permissions, struct error *err)
{
	char *path = path_join(plan->directory, name);
	bool exists = path_exists(path);
	int result = exists ? 0 : file_write(path, text, strlen(text), permissions, FILE_NEW, err);

	if (!result)
		note(plan, exists ? plan->kept : plan->made, name);
	if (!result && !exists)
		note_created(plan, path);
	free(path);
	return result;
}

static void show_progress(const struct fork_progress *state, void *context)
{
	struct progress *progress = context;

	progress->total = (double)state->total_objects;
	progress_update(progress, (double)state->objects);
}

static int clone_fork(struct plan *plan, const char *url, bool own, const char *path, struct error *err)
{
	struct progress progress;
	struct fork_remote remote = {
		.token = settings_get(plan->settings, "GITHUB_TOKEN", NULL),
		.token_api = settings_get(plan->settings, "GITHUB_API_URL", NULL),
		.allow_local = true,
		.own = own,
		.timeout = 3600,
		.progress = show_progress,
		.context = &progress,
	};
	int result;

	progress_begin(&progress, "cloning", 0, "objects");
	result = fork_clone(url, path, NULL, &remote, err);
	progress_end(&progress);
	return result;
}

/* Has GitHub fork the competition's repository, and clones that. */
static int fork_on_github(struct plan *plan, const char *path, struct error *err)
{
	struct github_request request = {
		.api_url = settings_get(plan->settings, "GITHUB_API_URL", NULL),
		.token = settings_get(plan->settings, "GITHUB_TOKEN", NULL),
		.upstream = UPSTREAM,
		.name = settings_get(plan->settings, "GITHUB_FORK_NAME", NULL),
		.timeout = FORK_SECONDS,
	};

	if (!request.token) {
		error_set(err, STATUS_ENVIRONMENT, "--github needs GITHUB_TOKEN");
		return error_hint(err,
			"Create a token with the scope public_repo at https://github.com/settings/tokens "
			"and set it in the environment or in .env.");
	}
	log_note("Asking %s to fork %s …", request.api_url, UPSTREAM);
	if (github_fork(&request, &plan->github, err) < 0)
		return -1;
	return clone_fork(plan, plan->github.clone_url, false, path, err);
}

/* Quasar's own fork as a repository, in the configurations that are known to be fastest. */
static int create_own(const char *origin, struct error *err)
{
	struct fork_file *files = xcalloc(template_fork_count, sizeof(*files));
	struct buffer tuned = {0};
	size_t configurations = command_tuned_file(&tuned);
	int result;

	for (size_t i = 0; i < template_fork_count; i++) {
		files[i] = template_fork[i];
		if (configurations && !strcmp(files[i].path, EXPORT_TUNED_PATH))
			files[i].text = tuned.data;
	}
	result = fork_create(origin, files, template_fork_count, err);
	buffer_free(&tuned);
	free(files);
	return result;
}

/* Quasar's own fork: an origin inside the workspace, to be pushed to and cloned from like any other. */
static int make_own(struct plan *plan, const char *path, struct error *err)
{
	char *origin = path_join(plan->directory, ".quasar/origin.git"), *url = fork_file_url(origin);
	int result = 0;

	if (!path_exists(origin)) {
		result = create_own(origin, err);
		note_created(plan, origin);
	}
	if (!result)
		result = clone_fork(plan, url, true, path, err);
	free(url);
	free(origin);
	return result;
}

static int make_fork(struct plan *plan, const char *path, struct error *err)
{
	const char *url = option(plan->invocation, "fork-url");
	int result = 0;

	if (!url && !plan->existing && !arg_flag(plan->invocation, "github"))
		url = settings_get(plan->settings, "FORK_URL", NULL);
	if (path_exists(path)) {
		char *origin = fork_origin(path), *wanted = url ? fork_url_clean(url) : NULL;

		if (!origin)
			log_warn("%s is kept, but it is not a clone with a remote \"origin\"", path);
		else if (wanted && strcmp(origin, wanted))
			log_warn("%s is kept, though it is a clone of %s, not of %s", path, origin, wanted);
		note(plan, plan->kept, path);
		free(wanted);
		free(origin);
	} else {
		if (url)
			result = clone_fork(plan, url, false, path, err);
		else if (arg_flag(plan->invocation, "github"))
			result = fork_on_github(plan, path, err);
		else
			result = make_own(plan, path, err);
		if (!result) {
			note(plan, plan->made, path);
			note_created(plan, path);
		}
	}
	return result;
}

/* The Python that runs the fork. */
static int make_python(struct plan *plan, struct error *err)
{
	char *path;
	bool exists;
	int result;

	if (!arg_flag(plan->invocation, "venv"))
		return 0;
	path = path_join(plan->directory, ".venv");
	exists = path_exists(path);
	result = environment_make(path, &plan->torch, err);
	if (!result && !exists)
		note_created(plan, path);
	if (!result)
		note(plan, plan->made, path);
	free(path);
	return result;
}

/* Puts a value into the new .env, or, where one exists and says otherwise, says that it stays. */
static void choose(
	const struct plan *plan, struct settings *wanted, bool exists, const char *name, const char *value)
{
	const char *now = settings_get(plan->settings, name, NULL);

	settings_put(wanted, name, value);
	if (exists && (!now || strcmp(now, value)))
		log_warn("%s/.env is unchanged; edit it to set %s=\"%s\"", plan->directory, name, value);
}

static int write_settings(struct plan *plan, const char *fork, struct error *err)
{
	static const char *const options[][2] = {
		{"api", "VALIDATOR_API_URL"},
		{"wallet", "WALLET_MINER_NAME"},
		{"hotkey", "WALLET_HOTKEY"},
		{"path", "BT_WALLET_PATH"},
	};
	const struct invocation *invocation = plan->invocation;
	const char *network = arg_string(invocation, "network");
	struct settings *wanted = settings_new();
	char *path = path_join(plan->directory, ".env"), *origin = fork_origin(fork);
	bool exists = path_exists(path);
	struct buffer text = {0};
	char number[32];
	int64_t seq;
	int result;

	if (arg_given(invocation, "from"))
		choose(plan, wanted, exists, "FORK_PATH", fork);
	if ((arg_given(invocation, "fork-url") || plan->github.clone_url) && origin)
		choose(plan, wanted, exists, "FORK_URL", origin);
	if (network) {
		choose(plan, wanted, exists, "VALIDATOR_API_URL", network_named(network)->api_url);
		if (network_named(network)->subtensor)
			choose(plan, wanted, exists, "SUBTENSOR_NETWORK", network_named(network)->subtensor);
	}
	if (plan->github.owner)
		choose(plan, wanted, exists, "GITHUB_USERNAME", plan->github.owner);
	if (arg_given(invocation, "seq") && arg_integer(invocation, "seq", 1, MOST_TOKENS, &seq, err) == 0) {
		snprintf(number, sizeof(number), "%lld", (long long)seq);
		choose(plan, wanted, exists, "TARGET_SEQUENCE_LENGTH", number);
	}
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (arg_given(invocation, options[i][0]))
			choose(plan, wanted, exists, options[i][1], arg_string(invocation, options[i][0]));
	settings_write(wanted, &text);
	result = write_once(plan, ".env", text.data, 0600, err);
	buffer_free(&text);
	settings_free(wanted);
	free(origin);
	free(path);
	return result;
}

/* The workspace's own, so that a process manager can have several miners. */
static char *miner_name(const char *directory)
{
	char *name = xprintf("quasar-%s", strrchr(directory, '/') + 1);

	for (char *letter = name; *letter; letter++)
		if (!isalnum((unsigned char)*letter) && !strchr("-_.", *letter))
			*letter = '-';
	return name;
}

static int write_launchers(struct plan *plan, struct error *err)
{
	char *executable = realpath("/proc/self/exe", NULL), *name;
	const char *path = getenv("PATH");
	struct launcher_values values;
	int result = 0;

	if (!executable)
		return error_set(
			err, STATUS_ENVIRONMENT, "cannot find the path of this program: %s", strerror(errno));
	name = miner_name(plan->directory);
	values = (struct launcher_values){
		.program = executable,
		.workspace = plan->directory,
		.name = name,
		.path = path ? path : "/usr/local/bin:/usr/bin:/bin",
	};
	for (size_t i = 0; !result && i < LAUNCHER_KINDS; i++) {
		const struct launcher *launcher = &launchers[i];
		char *text = launcher_fill(launcher, &values);

		result = write_once(plan, launcher->path, text, launcher->permissions, err);
		free(text);
	}
	free(name);
	free(executable);
	return result;
}

/* Last of all: from here on the directory is a workspace. */
static int make_store(struct plan *plan, struct error *err)
{
	bool exists = store_exists(plan->directory);
	struct store *store;

	if (store_create(plan->directory, err) < 0)
		return -1;
	store = store_open(plan->directory, err);
	store_close(store);
	note(plan, exists ? plan->kept : plan->made, ".quasar/state.db");
	return store ? 0 : -1;
}

/* --- the report ---------------------------------------------------------------------------------- */

/* Whether the one that the workspace's settings name is there. */
static bool has_hotkey(const char *directory)
{
	struct error ignored;
	struct settings *settings = settings_load(directory, &ignored);
	struct hotkey hotkey;
	bool result = settings &&
		wallet_inspect_hotkey(settings_get(settings, "BT_WALLET_PATH", NULL),
			settings_get(settings, "WALLET_MINER_NAME", NULL),
			settings_get(settings, "WALLET_HOTKEY", NULL), &hotkey, &ignored) == 0;

	if (result)
		hotkey_free(&hotkey);
	settings_free(settings);
	return result;
}

static void report(struct plan *plan, const char *fork)
{
	bool changed = cJSON_GetArraySize(plan->made) > 0;
	struct fork_state state;
	struct error ignored;
	const cJSON *name;
	char *word;

	if (fork_state_read(fork, &state, &ignored) < 0)
		state = (struct fork_state){0};
	if (plan->invocation->json) {
		cJSON *document = cJSON_CreateObject(), *about;

		cJSON_AddStringToObject(document, "workspace", plan->directory);
		cJSON_AddBoolToObject(document, "changed", changed);
		cJSON_AddItemReferenceToObject(document, "made", plan->made);
		cJSON_AddItemReferenceToObject(document, "kept", plan->kept);
		about = cJSON_AddObjectToObject(document, "fork");
		cJSON_AddStringToObject(about, "path", fork);
		cJSON_AddStringToObject(about, "commit", state.commit);
		if (state.remote_url)
			cJSON_AddStringToObject(about, "url", state.remote_url);
		json_add_text(document, "torch", plan->torch);
		output_json(document);
	} else if (changed) {
		cJSON_ArrayForEach (name, plan->made)
			printf("made  %s\n", name->valuestring);
		cJSON_ArrayForEach (name, plan->kept)
			printf("kept  %s\n", name->valuestring);
		printf("Workspace %s is ready; its fork %s%.12s.\n", plan->directory,
			state.commit[0] ? "is at " : "has no commit yet", state.commit);
		if (plan->torch)
			printf("The fork's Python is its .venv, with PyTorch %s.\n", plan->torch);
		word = shell_word(plan->directory);
		printf("Next: cd %s && quasar %s\n", word,
			has_hotkey(plan->directory) ? "register" : "wallet new && quasar register");
		free(word);
	} else {
		printf("%s is already a workspace: nothing changed.\n", plan->directory);
	}
	fork_state_free(&state);
}

static int make_all(struct plan *plan, const char *fork, struct error *err)
{
	if (make_fork(plan, fork, err) < 0 || make_python(plan, err) < 0 ||
		write_settings(plan, fork, err) < 0 || write_launchers(plan, err) < 0)
		return -1;
	return make_store(plan, err);
}

static int init(struct plan *plan, struct error *err)
{
	char *fork = NULL;
	int lock = -1, result = -1;

	if (find_existing(plan, err) < 0 || make_directory(plan, err) < 0 || check_repository(plan, err) < 0)
		return -1;
	plan->settings = settings_load(plan->directory, err);
	if (!plan->settings || (!workspace_exists(plan->directory) && init_ask(plan, err) < 0) ||
		make_hidden(plan, err) < 0 || workspace_lock(plan->directory, &lock, err) < 0)
		return -1;
	fork = plan->existing ? xstrdup(plan->existing)
			      : workspace_fork_path(plan->directory, plan->settings);
	result = make_all(plan, fork, err);
	if (!result)
		report(plan, fork);
	close(lock);
	free(fork);
	return result;
}

static int run_init(struct invocation *invocation, struct error *err)
{
	struct plan plan = {
		.invocation = invocation,
		.made = cJSON_CreateArray(),
		.kept = cJSON_CreateArray(),
		.created = cJSON_CreateArray(),
		.answers = cJSON_CreateArray(),
	};
	int result = check_options(invocation, err);

	if (!result)
		result = init(&plan, err);
	if (result)
		undo(&plan);
	settings_free(plan.settings);
	free(plan.existing);
	free(plan.directory);
	free(plan.torch);
	github_fork_free(&plan.github);
	cJSON_Delete(plan.made);
	cJSON_Delete(plan.kept);
	cJSON_Delete(plan.created);
	cJSON_Delete(plan.answers);
	return result;
}

const struct command cmd_init = {
	.name = "init",
	.summary = "create a workspace: settings, state and the fork",
	.positionals = "[DIR]",
	.max_positionals = 1,
	.description =
		"Turns DIR into a workspace: .env for the settings (see `quasar generate env`), .quasar/ "
		"for the state of your submissions, fork/ for the fork, and files to start a miner under "
		"pm2, systemd or screen. DIR defaults to the workspace you are in, or else to the current "
		"directory.\n\n"
		"With --fork-url, the fork is cloned from that URL (https, ssh, file:// or a path). With "
		"--from, it is a clone that you already have, used in place. With --github, it is created "
		"on GitHub first and then cloned. Without any of these, and if FORK_URL is not set, it is "
		"quasar's own: the QuasarAttention layer with quasar's kernels, ready to run without the "
		"rest of flash-linear-attention, and with an origin inside the workspace, so that everything "
		"works offline. `quasar export` puts the same layer and kernels into any clone.\n\n"
		"On a terminal and without options, it asks for the network, the wallet, the fork and the sequence "
		"length, unless the environment sets them.\n\n"
		"Existing files are never overwritten. Run it again to create whatever is missing. If it fails, "
		"it takes away what it has made. It refuses a directory in somebody's git repository, where "
		"settings and state would soon be committed.",
	.opts =
		(const struct opt[]){
			{"fork-url", 0, "URL", NULL, NULL, NULL, "Clone the fork from URL."},
			{"github", 0, NULL, NULL, NULL, NULL,
				"Create a fork on GitHub with GITHUB_TOKEN, and clone it."},
			{"from", 0, "DIR", NULL, NULL, NULL, "Use an existing clone as the fork, in place."},
			{"seq", 's', "N", NULL, NULL, NULL,
				"Sequence length to compete at, in tokens; written to .env."},
			{"network", 0, "NAME", NULL, NULL, NETWORKS,
				"Where to compete: finney or test, at the validators' service, or local, at "
				"`quasar localnet`; written to .env."},
			{"api", 0, "URL", NULL, NULL, NULL,
				"Base URL of another validator API; written to .env."},
			{"wallet", 0, "WALLET", NULL, NULL, NULL,
				"Name of the wallet that holds the hotkey; written to .env."},
			{"hotkey", 0, "HOTKEY", NULL, NULL, NULL,
				"Name of the hotkey in that wallet; written to .env."},
			{"path", 0, "DIR", NULL, NULL, NULL,
				"Folder that holds the wallets; written to .env."},
			{"venv", 0, NULL, NULL, NULL, NULL,
				"Make .venv in the workspace, with PyTorch, to run the fork. Downloads some "
				"gigabytes."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar init miner", "a workspace with quasar's own fork, to try things out"},
			{"quasar init miner --network finney --fork-url https://github.com/you/flash-linear-attention "
			 "--seq 1M",
				"clone your fork, and compete at a million tokens"},
			{"quasar init miner --venv", "with PyTorch in .venv, to run the fork"},
			{"GITHUB_TOKEN=… quasar init miner --fork-url https://github.com/you/private",
				"a private fork; the token is sent only to github.com, and never stored"},
			{"GITHUB_TOKEN=… quasar init miner --github",
				"create a fork in your account, and clone it when it is ready"},
			{"quasar init --from ~/src/flash-linear-attention",
				"use a clone that you already have"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, STATUS_NETWORK, STATUS_REFUSED, 0},
	.run = run_init,
};
