#include "fork/fork.h"

#include <git2.h>
#include <git2/sys/mempack.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "fork/private.h"

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* libgit2's …_INIT macros */

/* Whether the error is the remote's no rather than a fault on the way. libgit2 says so in words only. */
static bool is_refusal(int code, const char *message)
{
	static const char *const words[] = {"status code: 401", "status code: 403", "status code: 404",
		"does not appear to be a git repository", "epository not found", "Wrong passphrase",
		NO_PUBLIC_ADDRESS};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(message, words[i]))
			return true;
	return code == GIT_EAUTH;
}

static bool is_network_fault(int code, int klass, const char *message)
{
	return klass == GIT_ERROR_NET || klass == GIT_ERROR_SSL || klass == GIT_ERROR_HTTP ||
		klass == GIT_ERROR_SSH || code == GIT_EEOF || !strncmp(message, "failed to connect", 17);
}

static void start_git(void)
{
	git_libgit2_init();
}

void git_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start_git);
}

int git_failed(int code, const char *attempt, const char *on, struct error *err)
{
	const git_error *last = git_error_last();
	char *message = xstrdup(last && last->message ? last->message : "no reason given");
	char *clean = fork_url_clean(on), *word = shell_word(on);
	size_t length = strlen(message);

	while (length && strchr("\r\n ", message[length - 1]))
		message[--length] = '\0';
	text_clean(message); /* a remote may have written it */
	error_set(err, STATUS_ENVIRONMENT, "cannot %s %s: %s", attempt, clean, message);
	if (*on == '/' && !path_exists(on)) {
		error_hint(err,
			"Put it back, name your clone in FORK_PATH, or let `quasar init` make what is missing.");
	} else if (code == GIT_EOWNER) {
		error_hint(err,
			"It belongs to another user. If you trust it: git config --global --add "
			"safe.directory %s",
			word);
	} else if (code == GIT_ECERTIFICATE) {
		err->status = STATUS_NETWORK;
		error_hint(err,
			"The server could not prove its identity. For https, check the clock and the "
			"certificates (SSL_CERT_FILE); for ssh, connect once with: ssh HOST");
	} else if (is_refusal(code, message)) {
		err->status = STATUS_REFUSED;
		error_hint(err,
			"Check the address. For a private repository, set GITHUB_TOKEN (https), or load a "
			"key with read access into ssh-agent.");
	} else if (is_network_fault(code, last ? last->klass : GIT_ERROR_NONE, message)) {
		err->status = STATUS_NETWORK;
		error_hint(err, "Check the address and the connection, then try again.");
	}
	free(word);
	free(clean);
	free(message);
	return -1;
}

/* --- the state of a clone ------------------------------------------------------------------------ */

static int read_head(git_repository *repository, struct fork_state *state)
{
	git_reference *head = NULL;
	git_object *commit = NULL;
	int code = git_repository_head(&head, repository);

	if (code == GIT_EUNBORNBRANCH || code == GIT_ENOTFOUND)
		return 0;
	if (!code)
		code = git_reference_peel(&commit, head, GIT_OBJECT_COMMIT);
	if (!code) {
		git_oid_tostr(state->commit, sizeof(state->commit), git_object_id(commit));
		if (git_reference_is_branch(head))
			state->branch = xstrdup(git_reference_shorthand(head));
	}
	git_object_free(commit);
	git_reference_free(head);
	return code;
}

static int read_changes(git_repository *repository, struct fork_state *state)
{
	git_status_options options = GIT_STATUS_OPTIONS_INIT;
	git_status_list *list = NULL;
	int code;

	options.flags = GIT_STATUS_OPT_INCLUDE_UNTRACKED | GIT_STATUS_OPT_EXCLUDE_SUBMODULES;
	code = git_status_list_new(&list, repository, &options);
	if (code)
		return code;
	state->changed = git_status_list_entrycount(list);
	if (state->changed) {
		const git_status_entry *entry = git_status_byindex(list, 0);
		const git_diff_delta *delta = entry->index_to_workdir ? entry->index_to_workdir
								      : entry->head_to_index;

		state->changed_name = xstrdup(delta->new_file.path);
	}
	git_status_list_free(list);
	return 0;
}

char **fork_ignored(const char *path)
{
	git_status_options options = GIT_STATUS_OPTIONS_INIT;
	git_repository *repository = NULL;
	git_status_list *list = NULL;
	char **paths = xcalloc(1, sizeof(*paths));
	size_t count = 0;

	options.show = GIT_STATUS_SHOW_WORKDIR_ONLY;
	options.flags = GIT_STATUS_OPT_INCLUDE_IGNORED | GIT_STATUS_OPT_EXCLUDE_SUBMODULES;
	git_begin();
	if (git_repository_open_ext(&repository, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL) == 0)
		git_status_list_new(&list, repository, &options);
	for (size_t i = 0; list && i < git_status_list_entrycount(list); i++) {
		const git_status_entry *entry = git_status_byindex(list, i);

		if (!(entry->status & GIT_STATUS_IGNORED))
			continue;
		paths = xrealloc(paths, (count + 2) * sizeof(*paths));
		paths[count++] = xstrdup(entry->index_to_workdir->new_file.path);
		paths[count] = NULL;
	}
	git_status_list_free(list);
	git_repository_free(repository);
	return paths;
}

/* The configured URL of "origin" as it stands; NULL when there is none. Read from the configuration itself:
 * git_remote_lookup leaks memory with every configuration line (libgit2 1.5 with PCRE2). */
static char *configured_origin(git_repository *repository)
{
	git_config *config = NULL;
	git_buf value = {0};
	char *url = NULL;

	if (git_repository_config(&config, repository) == 0 &&
		git_config_get_string_buf(&value, config, "remote.origin.url") == 0)
		url = xstrdup(value.ptr);
	git_buf_dispose(&value);
	git_config_free(config);
	return url;
}

/* A URL without its secrets, in the place of one with them. */
static char *cleaned(char *url)
{
	char *clean = url ? fork_url_clean(url) : NULL;

	free(url);
	return clean;
}

static int read_origin(git_repository *repository, struct fork_state *state)
{
	git_revwalk *walk = NULL;
	git_oid id;
	int code;

	state->remote_url = cleaned(configured_origin(repository));
	if (!state->remote_url || !state->commit[0])
		return 0;
	code = git_revwalk_new(&walk, repository);
	if (!code)
		code = git_revwalk_push_head(walk);
	if (!code)
		code = git_revwalk_hide_glob(walk, "refs/remotes/origin/*");
	while (!code && (code = git_revwalk_next(&id, walk)) == 0)
		state->ahead++;
	git_revwalk_free(walk);
	if (code != GIT_ITEROVER)
		return code;
	state->published = state->ahead == 0;
	return 0;
}

char *fork_root(const char *path, struct error *err)
{
	char *root = realpath(path, NULL);
	struct stat status;

	if (root && stat(root, &status) == 0 && S_ISDIR(status.st_mode))
		return root;
	free(root);
	error_set(err, STATUS_ENVIRONMENT, "there is no fork at %s", path);
	error_hint(err,
		"Name your clone with --fork DIR or FORK_PATH, or clone one with `quasar init --fork-url URL`.");
	return NULL;
}

int fork_state_read(const char *path, struct fork_state *state, struct error *err)
{
	git_repository *repository = NULL;
	int code, result;

	*state = (struct fork_state){0};
	git_begin();
	code = git_repository_open_ext(&repository, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL);
	if (!code)
		code = read_head(repository, state);
	if (!code)
		code = read_changes(repository, state);
	if (!code)
		code = read_origin(repository, state);
	result = code ? git_failed(code, "read the repository", path, err) : 0;
	git_repository_free(repository);
	if (result)
		fork_state_free(state);
	return result;
}

bool fork_is_still(const char *path, const struct fork_state *then)
{
	struct fork_state now;
	struct error ignored;
	bool same = fork_state_read(path, &now, &ignored) == 0 && !strcmp(now.commit, then->commit) &&
		now.changed == then->changed;

	fork_state_free(&now);
	return same;
}

int fork_head(const char *path, char commit[41], struct error *err)
{
	git_repository *repository = NULL;
	struct fork_state state = {0};
	int code, result;

	git_begin();
	code = git_repository_open_ext(&repository, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL);
	if (!code)
		code = read_head(repository, &state);
	result = code ? git_failed(code, "read the repository", path, err) : 0;
	memcpy(commit, state.commit, sizeof(state.commit));
	git_repository_free(repository);
	fork_state_free(&state);
	return result;
}

int git_settled(git_repository *repository, const char *path, struct error *err)
{
	if (git_repository_state(repository) == GIT_REPOSITORY_STATE_NONE)
		return 0;
	error_set(err, STATUS_ENVIRONMENT, "%s is in the middle of a merge, rebase or similar", path);
	return error_hint(err, "Finish that with git first.");
}

int fork_settled(const char *path, struct error *err)
{
	git_repository *repository = NULL;
	int code, result;

	git_begin();
	code = git_repository_open_ext(&repository, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL);
	result = code ? git_failed(code, "read the repository", path, err)
		      : git_settled(repository, path, err);
	git_repository_free(repository);
	return result;
}

/* The nearest directory above the branch's file that exists: a branch may be packed, with no file. */
static char *branch_directory(git_repository *repository)
{
	git_reference *head = NULL;
	char *path = NULL, *slash;

	if (git_reference_lookup(&head, repository, "HEAD") == 0 && git_reference_symbolic_target(head))
		path = path_join(git_repository_commondir(repository), git_reference_symbolic_target(head));
	git_reference_free(head);
	while (path && (slash = strrchr(path, '/'))) {
		*slash = '\0';
		if (path_exists(path))
			break;
	}
	return path;
}

int fork_watch(const char *path)
{
	const uint32_t changes = IN_MOVED_TO | IN_CLOSE_WRITE | IN_CREATE | IN_DELETE;
	git_repository *repository = NULL;
	char *branch;
	int fd = -1;

	git_begin();
	if (git_repository_open_ext(&repository, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL) == 0)
		fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (fd >= 0) {
		/* HEAD itself, when another branch is checked out; and what it points at */
		inotify_add_watch(fd, git_repository_path(repository), changes);
		branch = branch_directory(repository);
		if (branch)
			inotify_add_watch(fd, branch, changes);
		free(branch);
	}
	git_repository_free(repository);
	return fd;
}

char *fork_path_in_repository(git_repository *repository, const char *directory, const char *name)
{
	const char *root = git_repository_workdir(repository);
	char *real = realpath(directory, NULL), *whole = NULL, *path = NULL;

	if (real)
		whole = path_join(real, name);
	if (root && whole && !strncmp(whole, root, strlen(root))) /* the root ends with a slash */
		path = xstrdup(whole + strlen(root));
	free(whole);
	free(real);
	return path;
}

bool fork_tracks(const char *directory, const char *name)
{
	git_repository *repository = NULL;
	git_index *index = NULL;
	char *path = NULL, *folder;
	bool tracked = false;

	git_begin();
	if (git_repository_open_ext(&repository, directory, 0, NULL) == 0 &&
		git_repository_index(&index, repository) == 0)
		path = fork_path_in_repository(repository, directory, name);
	if (path) {
		folder = xprintf("%s/", path);
		tracked = git_index_get_bypath(index, path, 0) ||
			git_index_find_prefix(NULL, index, folder) == 0;
		free(folder);
	}
	free(path);
	git_index_free(index);
	git_repository_free(repository);
	return tracked;
}

char *fork_around(const char *directory)
{
	git_repository *repository = NULL;
	char *root = NULL, *path;
	int ignored = 0;

	git_begin();
	if (git_repository_open_ext(&repository, directory, 0, NULL) == 0 &&
		git_repository_workdir(repository)) {
		path = fork_path_in_repository(repository, directory, "");
		if (path)
			git_ignore_path_is_ignored(&ignored, repository, path);
		if (!ignored)
			root = xstrdup(git_repository_workdir(repository));
		free(path);
	}
	git_repository_free(repository);
	return root;
}

char *fork_origin_configured(const char *path)
{
	git_repository *repository = NULL;
	char *url = NULL;

	git_begin();
	if (git_repository_open_ext(&repository, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL) == 0)
		url = configured_origin(repository);
	git_repository_free(repository);
	return url;
}

char *fork_origin(const char *path)
{
	return cleaned(fork_origin_configured(path));
}

void fork_state_free(struct fork_state *state)
{
	free(state->branch);
	free(state->remote_url);
	free(state->changed_name);
	*state = (struct fork_state){0};
}

/* --- a new repository ---------------------------------------------------------------------------- */

static int add_file(git_repository *repository, git_index *index, const struct fork_file *file)
{
	git_index_entry entry = {.path = file->path, .mode = GIT_FILEMODE_BLOB};
	int code = git_blob_create_from_buffer(&entry.id, repository, file->text, strlen(file->text));

	return code ? code : git_index_add(index, &entry);
}

int fork_author(git_signature **author, git_repository *repository)
{
	int code = git_signature_default(author, repository);

	/* nobody told git who works here */
	return code ? git_signature_now(author, "quasar", "quasar@localhost") : 0;
}

static int commit_files(git_repository *repository, const struct fork_file *files, size_t count)
{
	git_signature *author = NULL;
	git_index *index = NULL;
	git_tree *tree = NULL;
	git_oid id;
	int code = git_index_new(&index);

	for (size_t i = 0; !code && i < count; i++)
		code = add_file(repository, index, &files[i]);
	if (!code)
		code = git_index_write_tree_to(&id, index, repository);
	if (!code)
		code = git_tree_lookup(&tree, repository, &id);
	if (!code)
		code = fork_author(&author, repository);
	if (!code)
		code = git_commit_create(
			&id, repository, "HEAD", author, author, NULL, "Start", tree, 0, NULL);
	git_signature_free(author);
	git_tree_free(tree);
	git_index_free(index);
	return code;
}

/* Collects the commit's objects in memory, and writes them as one pack: to make and sync a file for each of them would take
 * longer than all else. */
static int commit_pack(git_repository *repository, const struct fork_file *files, size_t count)
{
	const int before_others = 1000;
	git_odb *objects = NULL;
	git_odb_backend *memory = NULL;
	git_odb_writepack *writer = NULL;
	git_indexer_progress progress;
	git_buf pack = {0};
	int code = git_repository_odb(&objects, repository);

	if (!code)
		code = git_mempack_new(&memory);
	if (!code)
		code = git_odb_add_backend(objects, memory, before_others);
	if (!code)
		code = commit_files(repository, files, count);
	if (!code)
		code = git_mempack_dump(&pack, repository, memory);
	if (!code)
		code = git_odb_write_pack(&writer, objects, NULL, NULL);
	if (!code)
		code = writer->append(writer, pack.ptr, pack.size, &progress);
	if (!code)
		code = writer->commit(writer, &progress);
	if (writer)
		writer->free(writer);
	git_buf_dispose(&pack);
	git_odb_free(objects);
	return code;
}

int fork_create(const char *directory, const struct fork_file *files, size_t count, struct error *err)
{
	git_repository_init_options options = GIT_REPOSITORY_INIT_OPTIONS_INIT;
	git_repository *repository = NULL;
	char *unfinished = unfinished_name(directory);
	struct error ignored;
	int code, result = directory_remove(unfinished, err);

	if (!result) {
		git_begin();
		git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
		options.flags = GIT_REPOSITORY_INIT_BARE | GIT_REPOSITORY_INIT_MKDIR;
		options.initial_head = "main";
		code = git_repository_init_ext(&repository, unfinished, &options);
		if (!code)
			code = commit_pack(repository, files, count);
		result = code ? git_failed(code, "make the repository", directory, err) : 0;
		git_repository_free(repository);
	}
	if (!result)
		result = file_publish(unfinished, directory, err);
	if (result)
		directory_remove(unfinished, &ignored);
	free(unfinished);
	return result;
}
