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

/* Why the file must not be published, as the end of a sentence; NULL: it may. The caller frees. */
static char *find_objection(const char *root, const char *name, const char *const *secrets)
{
	char *path = path_join(root, name);
	const char *leak = leak_in_name(name);
	struct buffer content = {0};
	struct stat status = {0};
	struct error ignored;
	bool regular = lstat(path, &status) == 0 && S_ISREG(status.st_mode);

	/* links are committed as such, and a file that is gone holds nothing */
	if (!leak && regular && status.st_size <= LEAK_LIMIT &&
		file_read(path, LEAK_LIMIT, &content, &ignored) == 0)
		leak = leak_in_content(content.data, content.length, secrets);
	buffer_free(&content);
	free(path);
	if (leak)
		return xprintf("looks like %s", leak);
	return status.st_size > SIZE_LIMIT ? xprintf("is larger than 100 MiB, which is GitHub's limit")
					   : NULL;
}

static const char *entry_name(const git_status_entry *entry)
{
	return entry->index_to_workdir ? entry->index_to_workdir->new_file.path
				       : entry->head_to_index->new_file.path;
}

/* Looks at what is about to be committed. `message` receives what the commit says, unless it is set. */
static int check_changes(git_repository *repository, const char *const *secrets, char **message,
	size_t *count, struct error *err)
{
	const char *root = git_repository_workdir(repository);
	git_status_options options = GIT_STATUS_OPTIONS_INIT;
	git_status_list *list = NULL;
	int result = 0, code;

	options.flags = GIT_STATUS_OPT_INCLUDE_UNTRACKED | GIT_STATUS_OPT_RECURSE_UNTRACKED_DIRS |
		GIT_STATUS_OPT_EXCLUDE_SUBMODULES;
	code = git_status_list_new(&list, repository, &options);
	if (code)
		return git_failed(code, "read the changes in", root, err);
	*count = git_status_list_entrycount(list);
	for (size_t i = 0; !result && i < *count; i++) {
		const git_status_entry *entry = git_status_byindex(list, i);
		bool gone = entry->status & GIT_STATUS_WT_DELETED;
		const char *name = entry_name(entry);
		char *objection = gone ? NULL : find_objection(root, name, secrets);

		if (objection) {
			char *shown = xstrdup(name);

			text_clean(shown);
			error_set(err, STATUS_FAILED, "nothing was committed: %s %s", shown, objection);
			result = error_hint(err,
				"Add it to .gitignore or .git/info/exclude. If everyone may see it, "
				"commit it with git, then push again.");
			free(shown);
		}
		free(objection);
	}
	if (!result && *count && !*message)
		*message = *count == 1 ? xprintf("Update %s", entry_name(git_status_byindex(list, 0)))
				       : xprintf("Update %zu files", *count);
	git_status_list_free(list);
	return result;
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

static int write_commit(git_repository *repository, const char *message)
{
	git_strarray everything = {.strings = (char *[]){"*"}, .count = 1};
	git_signature *author = NULL;
	git_object *parent = NULL;
	git_index *index = NULL;
	git_tree *tree = NULL;
	git_oid id;
	int code = git_repository_index(&index, repository);

	if (!code)
		code = git_index_add_all(index, &everything, GIT_INDEX_ADD_DEFAULT, NULL, NULL);
	if (!code)
		code = git_index_write(index);
	if (!code)
		code = git_index_write_tree(&id, index);
	if (!code)
		code = git_tree_lookup(&tree, repository, &id);
	if (!code)
		code = fork_author(&author, repository);
	if (!code && git_repository_head_unborn(repository) != 1)
		code = git_revparse_single(&parent, repository, "HEAD");
	if (!code)
		code = git_commit_create_v(
			&id, repository, "HEAD", author, author, NULL, message, tree, parent != NULL, parent);
	git_object_free(parent);
	git_signature_free(author);
	git_tree_free(tree);
	git_index_free(index);
	return code;
}

int fork_commit(
	const char *path, const char *message, const char *const *secrets, bool *made, struct error *err)
{
	git_repository *repository = NULL;
	char *text = message ? xstrdup(message) : NULL;
	size_t count = 0;
	int code, result;

	git_begin();
	git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
	code = git_repository_open_ext(&repository, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL);
	result = code ? git_failed(code, "open the repository", path, err)
		      : check_state(repository, path, err);
	if (!result)
		result = check_changes(repository, secrets, &text, &count, err);
	if (!result && count) {
		code = write_commit(repository, text);
		result = code ? git_failed(code, "commit in", path, err) : 0;
	}
	*made = !result && count;
	git_repository_free(repository);
	free(text);
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
