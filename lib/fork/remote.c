#include <errno.h>
#include <fcntl.h>
#include <git2.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/certificates.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/process.h"
#include "fork/private.h"

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* libgit2's …_INIT macros */

#define WINDOW_BYTES ((size_t)16 << 20) /* of a pack, mapped at once */
#define TREE_LIMIT 500000 /* files of a commit: more than any real fork, less than a hostile one */

/* --- a process of its own for whatever waits for a remote ---------------------------------------- */

/* What the child process writes into the pipe, each at once (it is shorter than PIPE_BUF). */
struct report {
	bool done;
	struct fork_progress progress;
	int result; /* these when done */
	bool answer;
	struct error err;
};

static void send_report(const struct job *job, const struct report *report)
{
	if (write(job->pipe, report, sizeof(*report)) != sizeof(*report))
		_exit(1); /* the parent is gone */
}

/* What this process has mapped. */
static rlim_t mapped_bytes(void)
{
	unsigned long long pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	if (file && fscanf(file, "%llu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* A stranger's pack can unfold to any size: that much in each file, and as much memory on top of what is there
 * now. Local repositories are packed first, which takes threads, and memory for each of them. */
static void bound(uint64_t bytes, bool local)
{
	rlim_t mapped = mapped_bytes(), memory = mapped + 4 * WINDOW_BYTES + bytes;

	setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, bytes});
	if (mapped && !local)
		setrlimit(RLIMIT_AS, &(struct rlimit){memory, memory});
}

static void child_process(struct job *job, remote_work *work, pid_t parent)
{
	struct report report = {.done = true};

	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGXFSZ, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (job->remote->max_bytes)
		bound(job->remote->max_bytes, url_is_local(job->url));
	report.result = work(job, &report.err);
	report.answer = job->answer;
	send_report(job, &report);
	_exit(0);
}

/* Waits for a report for at most `seconds`. 1: read; 0: not yet; -1: there will be no more. */
static int await_report(int pipe, double seconds, struct report *report)
{
	struct pollfd wait = {.fd = pipe, .events = POLLIN};
	ssize_t got;

	if (poll(&wait, 1, (int)(seconds * 1000)) <= 0)
		return 0;
	got = read(pipe, report, sizeof(*report));
	if (got < 0 && errno == EINTR)
		return 0;
	return got == sizeof(*report) ? 1 : -1;
}

static int follow_child(struct job *job, int pipe, struct error *err)
{
	double deadline = clock_elapsed() + job->remote->timeout;
	struct report report;

	for (;;) {
		int got = await_report(pipe, 0.1, &report);

		if (got > 0 && report.done) {
			*err = report.err;
			job->answer = report.answer;
			return report.result;
		}
		if (interrupted())
			return error_set(err, STATUS_INTERRUPTED, "interrupted");
		if (got < 0)
			return error_set(err, STATUS_NETWORK, "the transfer ended without a result");
		if (got > 0 && job->remote->progress)
			job->remote->progress(&report.progress, job->remote->context);
		if (job->remote->timeout > 0 && clock_elapsed() > deadline) {
			error_set(err, STATUS_NETWORK, "not finished after %g s", job->remote->timeout);
			return error_hint(err, "Check the address and the connection, then try again.");
		}
	}
}

int remote_run(struct job *job, remote_work *work, struct error *err)
{
	int ends[2], result;
	pid_t parent = getpid(), child;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return error_set(err, STATUS_ENVIRONMENT, "cannot create a pipe: %s", strerror(errno));
	child = fork();
	if (child == 0) {
		job->pipe = ends[1];
		child_process(job, work, parent);
	}
	close(ends[1]);
	result = child < 0 ? error_set(err, STATUS_ENVIRONMENT, "cannot start a process: %s", strerror(errno))
			   : follow_child(job, ends[0], err);
	close(ends[0]);
	if (child > 0)
		process_reap(child);
	return result;
}

/* --- callbacks of libgit2 ------------------------------------------------------------------------ */

static int login_https(struct job *job, git_credential **out)
{
	const struct fork_remote *remote = job->remote;
	bool taken = remote->token && url_takes_token(job->url, remote->token_api);

	if (job->logins == 1 && taken)
		return git_credential_userpass_plaintext_new(out, "x-access-token", remote->token);
	if (taken)
		git_error_set_str(GIT_ERROR_HTTP, "the server rejected the token");
	else if (remote->token && url_scheme(job->url) != SCHEME_HTTPS)
		git_error_set_str(
			GIT_ERROR_HTTP, "the server asks for a login, but the token is sent only over https");
	else if (remote->token)
		git_error_set(GIT_ERROR_HTTP,
			"the server asks for a login, but the token is sent only to GitHub at %s",
			remote->token_api);
	else
		git_error_set_str(GIT_ERROR_HTTP,
			"the server asks for a login: the repository is private, or does not exist");
	return GIT_EAUTH;
}

/* First the agent, then each of the usual key files. */
static int login_ssh(struct job *job, git_credential **out, const char *user)
{
	static const char *const names[] = {"id_ed25519", "id_ecdsa", "id_rsa"};

	if (job->logins == 1 && getenv("SSH_AUTH_SOCK"))
		return git_credential_ssh_key_from_agent(out, user);
	for (unsigned i = job->logins > 1 ? job->logins - 2 : 0; i < 3; i++) {
		char *folder = path_expand("~/.ssh"), *key = path_join(folder, names[i]);
		int result = GIT_PASSTHROUGH;

		if (path_exists(key))
			result = git_credential_ssh_key_new(out, user, NULL, key, NULL);
		free(key);
		free(folder);
		if (result != GIT_PASSTHROUGH) {
			job->logins = i + 2;
			return result;
		}
	}
	git_error_set_str(GIT_ERROR_SSH, "the server accepts no key from ssh-agent or ~/.ssh");
	return GIT_EAUTH;
}

static int login(git_credential **out, const char *url, const char *user, unsigned int allowed, void *payload)
{
	struct job *job = payload;

	(void)url;
	if (allowed & GIT_CREDENTIAL_USERNAME)
		return git_credential_username_new(out, user ? user : "git");
	job->logins++;
	if (allowed & GIT_CREDENTIAL_USERPASS_PLAINTEXT && url_scheme(job->url) != SCHEME_SSH)
		return login_https(job, out);
	if (allowed & GIT_CREDENTIAL_SSH_KEY)
		return login_ssh(job, out, user ? user : "git");
	git_error_set_str(GIT_ERROR_NET, "the server asks for an unsupported kind of login");
	return GIT_EAUTH;
}

static int on_transfer(const git_indexer_progress *stats, void *payload)
{
	struct job *job = payload;
	struct report report = {
		.progress = {stats->received_objects, stats->total_objects, stats->received_bytes}};
	double now = clock_elapsed();

	if (job->remote->max_bytes && stats->received_bytes > job->remote->max_bytes) {
		job->too_large = true;
		return GIT_EUSER;
	}
	if (now - job->reported > 0.05) {
		job->reported = now;
		send_report(job, &report);
	}
	return 0;
}

/* GIT_REMOTE_REDIRECT_NONE means none to another host: the token is for this one. */
void remote_configure(struct job *job, git_remote_callbacks *callbacks, git_proxy_options *proxy,
	git_remote_redirect_t *redirects)
{
	callbacks->credentials = login;
	callbacks->transfer_progress = on_transfer;
	callbacks->payload = job;
	proxy->type = job->remote->reach == FORK_REACH_ANY ? GIT_PROXY_AUTO : GIT_PROXY_NONE;
	*redirects = GIT_REMOTE_REDIRECT_NONE;
}

void remote_start(const struct job *job)
{
	const char *certificates = certificates_file();

	git_begin();
	reach_bound(job->remote->reach);
	if (job->remote->max_bytes) { /* by default it maps more than it may have now */
		git_libgit2_opts(GIT_OPT_SET_MWINDOW_SIZE, WINDOW_BYTES);
		git_libgit2_opts(GIT_OPT_SET_MWINDOW_MAPPED_LIMIT, 4 * WINDOW_BYTES);
	}
	if (certificates && !url_is_local(job->url))
		git_libgit2_opts(GIT_OPT_SET_SSL_CERT_LOCATIONS, certificates, NULL);
}

/* --- cloning ------------------------------------------------------------------------------------- */

struct tree_size {
	git_odb *odb;
	uint64_t bytes, limit, entries;
};

static int add_entry(const char *root, const git_tree_entry *entry, void *payload)
{
	struct tree_size *size = payload;
	git_object_t type;
	size_t length;

	(void)root;
	if (++size->entries > TREE_LIMIT)
		return GIT_EUSER;
	if (git_tree_entry_type(entry) != GIT_OBJECT_BLOB)
		return 0;
	if (git_odb_read_header(&length, &type, size->odb, git_tree_entry_id(entry)) < 0)
		return -1;
	size->bytes += length;
	return size->bytes > size->limit ? GIT_EUSER : 0;
}

/* A small pack can unfold to any size, so the files are counted before they are written. */
static int check_tree_size(struct job *job, git_repository *repository, const git_tree *tree)
{
	struct tree_size size = {.limit = job->remote->max_bytes};
	int code = git_repository_odb(&size.odb, repository);

	if (!code)
		code = git_tree_walk(tree, GIT_TREEWALK_PRE, add_entry, &size);
	git_odb_free(size.odb);
	job->too_large = code == GIT_EUSER;
	return code;
}

/* Finds the commit, asking the remote for it when no branch leads there. */
static int find_commit(struct job *job, git_repository *repository, git_object **commit)
{
	size_t digits = strlen(job->commit);
	git_strarray wanted = {.strings = (char *[]){(char *)job->commit}, .count = 1};
	git_fetch_options options = GIT_FETCH_OPTIONS_INIT;
	git_remote *origin = NULL;
	git_oid id;
	int code = git_oid_fromstrn(&id, job->commit, digits);

	if (!code)
		code = git_object_lookup_prefix(commit, repository, &id, digits, GIT_OBJECT_COMMIT);
	if (code != GIT_ENOTFOUND || digits != GIT_OID_HEXSZ)
		return code;
	remote_configure(job, &options.callbacks, &options.proxy_opts, &options.follow_redirects);
	job->logins = 0;
	code = git_remote_lookup(&origin, repository, "origin");
	if (!code)
		code = git_remote_fetch(origin, &wanted, &options, NULL);
	git_remote_free(origin);
	return code ? code : git_object_lookup(commit, repository, &id, GIT_OBJECT_COMMIT);
}

static int check_out(struct job *job, git_repository *repository, struct error *err)
{
	git_checkout_options options = GIT_CHECKOUT_OPTIONS_INIT;
	git_object *commit = NULL, *tree = NULL;
	int code = job->commit ? find_commit(job, repository, &commit)
			       : git_revparse_single(&commit, repository, "HEAD");

	options.checkout_strategy = GIT_CHECKOUT_FORCE;
	if (code == GIT_ENOTFOUND || code == GIT_EAMBIGUOUS) {
		error_set(err, STATUS_REFUSED, "%s has no commit%s%s%s", job->url, job->commit ? " " : "",
			job->commit ? job->commit : "",
			code == GIT_EAMBIGUOUS ? " only: give more digits" : "");
		error_hint(err, "Push the commit, and check the address and the hash.");
		return -1;
	}
	if (!code)
		code = git_object_peel(&tree, commit, GIT_OBJECT_TREE);
	if (!code && job->remote->max_bytes)
		code = check_tree_size(job, repository, (git_tree *)tree);
	if (!code)
		code = git_checkout_tree(repository, tree, &options);
	if (!code && job->commit)
		code = git_repository_set_head_detached(repository, git_object_id(commit));
	git_object_free(tree);
	git_object_free(commit);
	return code ? git_failed(code, "check out the files of", job->url, err) : 0;
}

static bool is_out_of_memory(void)
{
	const git_error *last = git_error_last();

	return last && (last->klass == GIT_ERROR_NOMEMORY || strstr(last->message, strerror(ENOMEM)));
}

static int clone_work(struct job *job, struct error *err)
{
	git_clone_options options = GIT_CLONE_OPTIONS_INIT;
	git_repository *repository = NULL;
	int result;

	remote_start(job);
	remote_configure(job, &options.fetch_opts.callbacks, &options.fetch_opts.proxy_opts,
		&options.fetch_opts.follow_redirects);
	options.checkout_opts.checkout_strategy = GIT_CHECKOUT_NONE;
	/* others' local repositories are read as remote ones are, with bounds */
	options.local = job->remote->own ? GIT_CLONE_LOCAL : GIT_CLONE_NO_LOCAL;
	result = git_clone(&repository, job->url, job->directory, &options);
	result = result ? git_failed(result, "clone", job->url, err) : check_out(job, repository, err);
	if (job->too_large)
		error_set(err, STATUS_REFUSED, "%s is larger than %llu MiB or %d files", job->url,
			(unsigned long long)job->remote->max_bytes >> 20, TREE_LIMIT);
	else if (result && job->remote->max_bytes && is_out_of_memory())
		error_set(err, STATUS_REFUSED, "%s takes more than %llu MiB of memory to read", job->url,
			(unsigned long long)job->remote->max_bytes >> 20);
	return result;
}

static bool is_commit_hash(const char *text)
{
	size_t digits = strspn(text, "0123456789abcdefABCDEF");

	return digits >= 7 && digits <= GIT_OID_HEXSZ && !text[digits];
}

/* A plain path as the clone's configuration should hold it. */
static char *absolute_source(const char *url, struct error *err)
{
	char *path;

	if (url_scheme(url) != SCHEME_PATH)
		return xstrdup(url);
	path = realpath(url, NULL);
	if (!path) {
		error_set(err, STATUS_ENVIRONMENT, "cannot clone %s: %s", url, strerror(errno));
		error_hint(err,
			"Name a folder that is there, or a URL, such as https://github.com/YOU/flash-linear-attention");
	}
	return path;
}

int fork_clone(const char *url, const char *directory, const char *commit, const struct fork_remote *remote,
	struct error *err)
{
	struct error ignored;
	struct job job = {.commit = commit, .remote = remote};
	char *source, *unfinished;
	int result;

	if (fork_url_check(url, remote->allow_local, err) < 0)
		return -1;
	if (commit && !is_commit_hash(commit))
		return error_set(err, STATUS_USAGE, "\"%s\" is not a commit hash", commit);
	if (path_exists(directory))
		return error_set(err, STATUS_ENVIRONMENT, "cannot clone to %s: it already exists", directory);
	source = absolute_source(url, err);
	if (!source)
		return -1;
	unfinished = unfinished_name(directory);
	job.url = source;
	job.directory = unfinished;
	result = directory_remove(unfinished, err);
	if (!result)
		result = remote_run(&job, clone_work, err);
	if (!result)
		result = file_publish(unfinished, directory, err);
	if (result)
		directory_remove(unfinished, &ignored);
	free(unfinished);
	free(source);
	return result;
}

/* --- asking the remote --------------------------------------------------------------------------- */

/* Whether a branch whose tip is `tip` leads to `commit`, as far as the clone has its history. */
static bool leads_to(git_repository *repository, const git_oid *tip, const git_oid *commit)
{
	return git_oid_equal(tip, commit) || git_graph_descendant_of(repository, tip, commit) == 1;
}

static int published_work(struct job *job, struct error *err)
{
	git_remote_connect_options options = GIT_REMOTE_CONNECT_OPTIONS_INIT;
	git_repository *repository = NULL;
	git_remote *remote = NULL;
	const git_remote_head **heads = NULL;
	size_t count = 0;
	git_oid commit;
	int code;

	remote_start(job);
	remote_configure(job, &options.callbacks, &options.proxy_opts, &options.follow_redirects);
	code = git_repository_open_ext(&repository, job->directory, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL);
	if (code)
		return git_failed(code, "open", job->directory, err);
	code = git_oid_fromstr(&commit, job->commit);
	if (!code)
		code = git_remote_create_anonymous(&remote, repository, job->url);
	if (!code)
		code = git_remote_connect_ext(remote, GIT_DIRECTION_FETCH, &options);
	if (!code)
		code = git_remote_ls(&heads, &count, remote);
	for (size_t i = 0; i < count && !job->answer; i++)
		job->answer = !strncmp(heads[i]->name, "refs/heads/", 11) &&
			leads_to(repository, &heads[i]->oid, &commit);
	return code ? git_failed(code, "ask", job->url, err) : 0;
}

int fork_published(const char *path, const char *url, const char *commit, const struct fork_remote *remote,
	bool *published, struct error *err)
{
	struct job job = {.url = url, .directory = path, .commit = commit, .remote = remote};

	if (fork_url_check(url, remote->allow_local, err) < 0)
		return -1;
	if (!is_commit_hash(commit) || strlen(commit) != GIT_OID_HEXSZ)
		return error_set(err, STATUS_USAGE, "\"%s\" is not a full commit hash", commit);
	if (remote_run(&job, published_work, err) < 0)
		return -1;
	*published = job.answer;
	return 0;
}
