#include <git2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "fork/leak.h"
#include "fork/private.h"

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* libgit2's …_INIT macros */

/* Keys and settings are smaller; what is larger is not read in search of them. */
#define LEAK_LIMIT (4 << 20)

#define SIZE_LIMIT (100 << 20)

/* --- committing ---------------------------------------------------------------------------------- */

/* Refuses a file that must not be published. `content` NULL: it was not read. */
static int check_file(
	const char *name, uint64_t size, const char *content, const char *const *secrets, struct error *err)
{
	const char *leak = leak_in_name(name);
	char *shown;

	if (!leak && content && size <= LEAK_LIMIT)
		leak = leak_in_content(content, size, secrets);
	if (!leak && size <= SIZE_LIMIT)
		return 0;
	shown = xstrdup(name);
	text_clean(shown);
	error_set(err, STATUS_FAILED, "nothing was committed: %s %s %s", shown,
		leak ? "looks like" : "is larger than", leak ? leak : "100 MiB, which is GitHub's limit");
	free(shown);
	return error_hint(err,
		"Add it to .gitignore or .git/info/exclude. If everyone may see it, commit it with git, then push "
		"again.");
}

struct staging {
	const char *root;
	const char *const *secrets;
	struct error *err;
};

/* Sees each file before it is copied into the repository, where others may read it and nothing is soon removed. */
static int on_file(const char *name, const char *pattern, void *payload)
{
	const struct staging *staging = payload;
	char *path = path_join(staging->root, name);
	struct buffer content = {0};
	struct stat status;
	struct error ignored;
	int result = 0;

	(void)pattern;
	/* links are committed as such, and a file that is gone holds nothing */
	if (lstat(path, &status) == 0 && S_ISREG(status.st_mode)) {
		if (status.st_size <= LEAK_LIMIT)
			file_read(path, LEAK_LIMIT, &content, &ignored);
		result = check_file(name, content.data ? content.length : (uint64_t)status.st_size,
			content.data, staging->secrets, staging->err);
	}
	buffer_free(&content);
	free(path);
	return result < 0 ? GIT_EUSER : 0;
}

/* Takes every change of the work tree into the index, in memory alone, and makes the tree of it that can be committed. */
static int stage(git_repository *repository, const char *const *secrets, git_index **index, git_tree **tree,
	struct error *err)
{
	git_strarray everything = {.strings = (char *[]){"*"}, .count = 1};
	struct staging staging = {git_repository_workdir(repository), secrets, err};
	int code = git_repository_index(index, repository);
	git_oid id;

	if (!code)
		code = git_index_add_all(*index, &everything, GIT_INDEX_ADD_DEFAULT, on_file, &staging);
	if (code == GIT_EUSER)
		return -1;
	if (!code)
		code = git_index_write_tree(&id, *index);
	if (!code)
		code = git_tree_lookup(tree, repository, &id);
	return code ? git_failed(code, "read the changes in", staging.root, err) : 0;
}

/* Looks once more, at what the repository got: the file may have changed in between, and git may hold another state of it
 * than the work tree. */
static int check_delta(git_repository *repository, const git_diff_delta *delta, const char *const *secrets,
	struct error *err)
{
	const git_diff_file *file = &delta->new_file;
	git_blob *blob = NULL;
	int result, code;

	if (delta->status == GIT_DELTA_DELETED || file->mode == GIT_FILEMODE_COMMIT)
		return 0;
	code = git_blob_lookup(&blob, repository, &file->id);
	if (code)
		return git_failed(code, "read", file->path, err);
	result = check_file(
		file->path, (uint64_t)git_blob_rawsize(blob), git_blob_rawcontent(blob), secrets, err);
	git_blob_free(blob);
	return result;
}

/* By what a tree differs from HEAD. */
static int find_changes(git_repository *repository, git_tree *tree, git_diff **changes)
{
	git_diff_options options = GIT_DIFF_OPTIONS_INIT;
	git_object *head = NULL;
	int code = 0;

	options.flags = GIT_DIFF_INCLUDE_TYPECHANGE;
	if (git_repository_head_unborn(repository) != 1)
		code = git_revparse_single(&head, repository, "HEAD^{tree}");
	if (!code)
		code = git_diff_tree_to_tree(changes, repository, (git_tree *)head, tree, &options);
	git_object_free(head);
	return code;
}

/* HEAD has to be a branch, born or not, with nothing half done. */
static int check_state(git_repository *repository, const char *path, struct error *err)
{
	if (git_repository_is_bare(repository))
		return error_set(
			err, STATUS_ENVIRONMENT, "%s is a bare repository: there are no files to push", path);
	if (git_repository_head_detached(repository)) {
		error_set(err, STATUS_ENVIRONMENT, "%s is not on a branch", path);
		return error_hint(err, "Create one with: git switch -c NAME");
	}
	return git_settled(repository, path, err);
}

static int write_commit(git_repository *repository, git_index *index, git_tree *tree, const char *message)
{
	git_signature *author = NULL;
	git_object *parent = NULL;
	git_oid id;
	int code = git_index_write(index);

	if (!code)
		code = fork_author(&author, repository);
	if (!code && git_repository_head_unborn(repository) != 1)
		code = git_revparse_single(&parent, repository, "HEAD");
	if (!code)
		code = git_commit_create_v(
			&id, repository, "HEAD", author, author, NULL, message, tree, parent != NULL, parent);
	git_object_free(parent);
	git_signature_free(author);
	return code;
}

/* What a commit says that nobody gave a message. The caller frees. */
static char *message_of(const git_diff *changes)
{
	size_t count = git_diff_num_deltas(changes);

	return count == 1 ? xprintf("Update %s", git_diff_get_delta(changes, 0)->new_file.path)
			  : xprintf("Update %zu files", count);
}

/* Looks at what is about to be committed. `text` receives what the commit says; NULL: there is nothing to commit. */
static int check_changes(git_repository *repository, git_tree *tree, const char *message,
	const char *const *secrets, char **text, struct error *err)
{
	git_diff *changes = NULL;
	int code = find_changes(repository, tree, &changes), result = 0;
	size_t count = code ? 0 : git_diff_num_deltas(changes);

	if (code)
		result = git_failed(code, "read the changes in", git_repository_workdir(repository), err);
	for (size_t i = 0; !result && i < count; i++)
		result = check_delta(repository, git_diff_get_delta(changes, i), secrets, err);
	if (!result && count)
		*text = message ? xstrdup(message) : message_of(changes);
	git_diff_free(changes);
	return result;
}

int fork_commit(
	const char *path, const char *message, const char *const *secrets, bool *made, struct error *err)
{
	git_repository *repository = NULL;
	git_index *index = NULL;
	git_tree *tree = NULL;
	char *text = NULL;
	int code, result;

	git_begin();
	git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
	code = git_repository_open_ext(&repository, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL);
	result = code ? git_failed(code, "open the repository", path, err)
		      : check_state(repository, path, err);
	if (!result)
		result = stage(repository, secrets, &index, &tree, err);
	if (!result)
		result = check_changes(repository, tree, message, secrets, &text, err);
	if (!result && text) {
		code = write_commit(repository, index, tree, text);
		result = code ? git_failed(code, "commit in", path, err) : 0;
	}
	*made = !result && text;
	free(text);
	git_tree_free(tree);
	git_index_free(index);
	git_repository_free(repository);
	return result;
}

/* --- pushing ------------------------------------------------------------------------------------- */

/* What the remote said to the branch, where it is not yes. */
static int on_answer(const char *reference, const char *status, void *payload)
{
	(void)reference;
	(void)payload;
	if (!status)
		return 0;
	git_error_set(GIT_ERROR_NET, "the remote rejected it: %s", status);
	return GIT_EUSER;
}

/* Whether the remote's branch is at HEAD. */
static int is_there(git_remote *remote, const char *branch, const git_oid *head, bool *there)
{
	const git_remote_head **heads = NULL;
	size_t count = 0;
	int code = git_remote_ls(&heads, &count, remote);

	*there = false;
	for (size_t i = 0; !code && i < count; i++)
		*there |= !strcmp(heads[i]->name, branch) && git_oid_equal(&heads[i]->oid, head);
	return code;
}

static int push_branch(struct job *job, git_repository *repository, const char *branch, const git_oid *head)
{
	git_remote_connect_options connect = GIT_REMOTE_CONNECT_OPTIONS_INIT;
	git_push_options options = GIT_PUSH_OPTIONS_INIT;
	git_strarray refspecs = {.strings = (char *[]){NULL}, .count = 1};
	git_remote *origin = NULL;
	bool there = false;
	int code = git_remote_lookup(&origin, repository, "origin");

	remote_configure(job, &connect.callbacks, &connect.proxy_opts, &connect.follow_redirects);
	remote_configure(job, &options.callbacks, &options.proxy_opts, &options.follow_redirects);
	options.callbacks.push_update_reference = on_answer;
	refspecs.strings[0] = xprintf("%s:%s", branch, branch);
	/* the address that was checked, whatever else the configuration says */
	if (!code)
		code = git_remote_set_instance_url(origin, job->url);
	if (!code)
		code = git_remote_set_instance_pushurl(origin, job->url);
	if (!code)
		code = git_remote_connect_ext(origin, GIT_DIRECTION_PUSH, &connect);
	if (!code)
		code = is_there(origin, branch, head, &there);
	job->logins = 0;
	/* also when it is there: this is how the clone comes to know */
	if (!code)
		code = git_remote_push(origin, &refspecs, &options);
	job->answer = !code && !there;
	git_remote_free(origin);
	free(refspecs.strings[0]);
	return code;
}

static int push_failed(struct job *job, int code, struct error *err)
{
	char *directory = shell_word(job->directory);

	git_failed(code, "push to", job->url, err);
	if (code == GIT_ENONFASTFORWARD) {
		error_set(err, STATUS_REFUSED, "cannot push to %s: its branch has commits that yours lacks",
			job->url);
		error_hint(err, "Pull them first: git -C %s pull --rebase", directory);
	} else if (code == GIT_EUSER) {
		err->status = STATUS_REFUSED;
		error_hint(err, "%s", "");
	} else if (err->status == STATUS_REFUSED) {
		error_hint(err,
			"Set GITHUB_TOKEN to a token with write access (https), or load a key with write "
			"access into ssh-agent.");
	}
	free(directory);
	return -1;
}

static int push_work(struct job *job, struct error *err)
{
	git_repository *repository = NULL;
	git_reference *head = NULL;
	int code, result;

	remote_start(job);
	git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
	code = git_repository_open_ext(&repository, job->directory, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL);
	if (code)
		return git_failed(code, "open the repository", job->directory, err);
	result = check_state(repository, job->directory, err);
	if (!result) {
		code = git_repository_head(&head, repository);
		if (code == GIT_EUNBORNBRANCH)
			result = error_set(err, STATUS_ENVIRONMENT,
				"%s has no commit yet, and nothing to commit", job->directory);
		else if (!code)
			code = push_branch(
				job, repository, git_reference_name(head), git_reference_target(head));
		if (!result && code)
			result = push_failed(job, code, err);
	}
	return result;
}

int fork_push(const char *path, const struct fork_remote *remote, bool *pushed, struct error *err)
{
	struct job job = {.directory = path, .remote = remote};
	char *configured = fork_origin_configured(path), *directory = shell_word(path);
	int result = -1;

	if (!configured) {
		error_set(
			err, STATUS_ENVIRONMENT, "%s is not a git repository with a remote \"origin\"", path);
		error_hint(err, "Add one with: git -C %s remote add origin URL", directory);
	} else if (fork_url_check(configured, remote->allow_local, err) == 0) {
		job.url = configured;
		result = remote_run(&job, push_work, err);
	}
	*pushed = !result && job.answer;
	free(directory);
	free(configured);
	return result;
}
