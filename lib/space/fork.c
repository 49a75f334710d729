#include "space/fork.h"

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
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* libgit2's …_INIT macros */

#define TREE_LIMIT 500000 /* files of a commit: more than any real fork, less than a hostile one */

/* --- URLs ---------------------------------------------------------------------------------------- */

enum scheme { SCHEME_HTTPS, SCHEME_HTTP, SCHEME_SSH, SCHEME_FILE, SCHEME_PATH, SCHEME_UNKNOWN };

static enum scheme url_scheme(const char *url)
{
	static const struct {
		const char *prefix;
		enum scheme scheme;
	} known[] = {
		{"https://", SCHEME_HTTPS},
		{"http://", SCHEME_HTTP},
		{"ssh://", SCHEME_SSH},
		{"file://", SCHEME_FILE},
	};
	size_t colon = strcspn(url, ":/");

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strncmp(url, known[i].prefix, strlen(known[i].prefix)))
			return known[i].scheme;
	if (strstr(url, "://"))
		return SCHEME_UNKNOWN;
	return url[colon] == ':' ? SCHEME_SSH : SCHEME_PATH; /* git@github.com:you/fork */
}

/* Where "user:password@" begins and how long it is; 0: there is none. */
static size_t url_login(const char *url, size_t *start)
{
	const char *scheme = strstr(url, "://");
	size_t end, login = 0;

	if (!scheme)
		return 0;
	*start = (size_t)(scheme + 3 - url);
	end = *start + strcspn(url + *start, "/?#");
	for (size_t i = *start; i < end; i++)
		if (url[i] == '@')
			login = i + 1 - *start;
	return login;
}

char *fork_url_clean(const char *url)
{
	size_t start = 0, login = url_login(url, &start), keep = 0;
	enum scheme scheme = url_scheme(url);

	if (login && scheme != SCHEME_HTTPS && scheme != SCHEME_HTTP)
		keep = strcspn(url + start, ":@");
	return xprintf("%.*s%s%s", (int)(start + keep), url, keep ? "@" : "", url + start + login);
}

char *fork_file_url(const char *path)
{
	struct buffer url = {0};

	buffer_text(&url, "file://");
	for (; *path; path++) {
		if (strchr("%?# ", *path) || (unsigned char)*path < 32 || (unsigned char)*path > 126)
			buffer_printf(&url, "%%%02X", (unsigned char)*path);
		else
			buffer_append(&url, path, 1);
	}
	return url.data;
}

int fork_url_check(const char *url, bool allow_local, struct error *err)
{
	enum scheme scheme = url_scheme(url);
	size_t start;
	char *clean = fork_url_clean(url);
	int result = 0;

	if (!url[0] || url[0] == '-' || scheme == SCHEME_UNKNOWN)
		result = error_set(err, STATUS_USAGE, "\"%s\" is not an address to clone from", clean);
	else if (strpbrk(url, "\r\n\t"))
		result = error_set(err, STATUS_USAGE, "the address to clone from holds a control character");
	else if ((scheme == SCHEME_FILE || scheme == SCHEME_PATH) && !allow_local)
		result = error_set(err, STATUS_USAGE, "\"%s\" is a local path: not cloned from here", clean);
	else if ((scheme == SCHEME_HTTPS || scheme == SCHEME_HTTP) && url_login(url, &start))
		result = error_set(err, STATUS_USAGE, "the address of %s has a login in it", clean);
	if (result && scheme == SCHEME_UNKNOWN)
		error_hint(err, "Use https://…, ssh://…, git@HOST:PATH, file://… or a path.");
	else if (result && (scheme == SCHEME_HTTPS || scheme == SCHEME_HTTP))
		error_hint(err, "Give the address without it, and the token as GITHUB_TOKEN.");
	free(clean);
	return result;
}

/* --- errors -------------------------------------------------------------------------------------- */

/* A remote operation: what is asked for, and what its callbacks note on the way. */
struct job {
	const char *url, *directory, *commit;
	const struct fork_remote *remote;
	int pipe;         /* to the parent process */
	unsigned logins;  /* how often the server asked */
	bool too_large;
	double reported;  /* clock_elapsed() of the last report */
	bool published;   /* fork_published's answer */
};

/* The number in libgit2's "unexpected http status code: 404"; 0 when the message is another. */
static int http_status(const char *message)
{
	const char *digits = strstr(message, "status code: ");

	return digits ? atoi(digits + strlen("status code: ")) : 0;
}

/* Turns libgit2's error into ours. */
static int git_failed(int code, const char *attempt, const char *on, struct error *err)
{
	const git_error *last = git_error_last();
	const char *message = last && last->message ? last->message : "no reason given";
	int klass = last ? last->klass : GIT_ERROR_NONE, http = http_status(message);
	char *clean = fork_url_clean(on);

	error_set(err, STATUS_ENVIRONMENT, "cannot %s %s: %s", attempt, clean, message);
	free(clean);
	if (code == GIT_EOWNER)
		return error_hint(err, "It belongs to another user. If you trust it: git config --global "
				       "--add safe.directory '%s'", on);
	if (code == GIT_EAUTH || http == 401 || http == 403 || http == 404) {
		err->status = STATUS_REFUSED;
		return error_hint(err, "Check the address. For a private repository set GITHUB_TOKEN (https), "
				       "or load a key that may read it into ssh-agent.");
	}
	if (code == GIT_ECERTIFICATE) {
		err->status = STATUS_NETWORK;
		return error_hint(err, "The other side could not prove who it is. For https check the clock and "
				       "the certificates (SSL_CERT_FILE), for ssh connect once with: ssh HOST");
	}
	if (!strncmp(message, "failed to connect", 17)) /* which libgit2 files under the operating system */
		klass = GIT_ERROR_NET;
	if (klass == GIT_ERROR_NET || klass == GIT_ERROR_SSL || klass == GIT_ERROR_HTTP ||
		klass == GIT_ERROR_SSH || code == GIT_EEOF) {
		err->status = STATUS_NETWORK;
		return error_hint(err, "Check the address and the connection, then try again.");
	}
	return -1;
}

/* --- a process of its own for whatever waits for a remote ---------------------------------------- */

/* What the child process writes into the pipe, each at once (it is shorter than PIPE_BUF). */
struct report {
	bool done;
	struct fork_progress progress;
	int result; /* these when done */
	bool published;
	struct error err;
};

static void send_report(const struct job *job, const struct report *report)
{
	if (write(job->pipe, report, sizeof(*report)) != sizeof(*report))
		_exit(1); /* the parent is gone */
}

typedef int remote_work(struct job *job, struct error *err);

static void child_process(struct job *job, remote_work *work, pid_t parent)
{
	struct report report = {.done = true};
	struct rlimit size = {job->remote->max_bytes, job->remote->max_bytes};

	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGXFSZ, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (job->remote->max_bytes)
		setrlimit(RLIMIT_FSIZE, &size);
	report.result = work(job, &report.err);
	report.published = job->published;
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
			job->published = report.published;
			return report.result;
		}
		if (interrupted())
			return error_set(err, STATUS_INTERRUPTED, "interrupted");
		if (got < 0)
			return error_set(err, STATUS_NETWORK, "the transfer ended without a result");
		if (got > 0 && job->remote->progress)
			job->remote->progress(&report.progress, job->remote->context);
		if (job->remote->timeout > 0 && clock_elapsed() > deadline) {
			error_set(err, STATUS_NETWORK, "no end after %g s", job->remote->timeout);
			return error_hint(err, "Check the address and the connection, then try again.");
		}
	}
}

/* libgit2 may wait for ever for a peer that keeps silent, and reads what a stranger made: so it works in a
 * process that can be ended at any time. */
static int run_apart(struct job *job, remote_work *work, struct error *err)
{
	int ends[2], result;
	pid_t parent = getpid(), child;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return error_set(err, STATUS_ENVIRONMENT, "cannot make a pipe: %s", strerror(errno));
	child = fork();
	if (child == 0) {
		job->pipe = ends[1];
		child_process(job, work, parent);
	}
	close(ends[1]);
	result = child < 0 ? error_set(err, STATUS_ENVIRONMENT, "cannot start a process: %s", strerror(errno))
			   : follow_child(job, ends[0], err);
	close(ends[0]);
	if (child > 0) {
		kill(child, SIGKILL);
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
	}
	return result;
}

/* --- callbacks of libgit2 ------------------------------------------------------------------------ */

static int login_https(struct job *job, git_credential **out)
{
	if (job->logins == 1 && job->remote->token && url_scheme(job->url) == SCHEME_HTTPS)
		return git_credential_userpass_plaintext_new(out, "x-access-token", job->remote->token);
	git_error_set_str(GIT_ERROR_HTTP,
		job->logins > 1 ? "the server does not accept the token"
				: "the server asks for a login: there is no such repository, or it is private");
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
	git_error_set_str(GIT_ERROR_SSH, "no key in ssh-agent or ~/.ssh is accepted");
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
	git_error_set_str(GIT_ERROR_NET, "the server asks for a kind of login that is not supported");
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

static void set_callbacks(git_remote_callbacks *callbacks, struct job *job)
{
	callbacks->credentials = login;
	callbacks->transfer_progress = on_transfer;
	callbacks->payload = job;
}

/* Debian's place for certificates is compiled in; other distributions have others. */
static void find_certificates(void)
{
	static const char *const places[] = {"/etc/ssl/certs/ca-certificates.crt",
		"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
	const char *file = getenv("SSL_CERT_FILE");

	for (size_t i = 0; !file && i < sizeof(places) / sizeof(places[0]); i++)
		if (path_exists(places[i]))
			file = places[i];
	if (file)
		git_libgit2_opts(GIT_OPT_SET_SSL_CERT_LOCATIONS, file, NULL);
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
	return size->limit && size->bytes > size->limit ? GIT_EUSER : 0;
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
	set_callbacks(&options.callbacks, job);
	options.follow_redirects = GIT_REMOTE_REDIRECT_NONE;
	options.proxy_opts.type = GIT_PROXY_AUTO;
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
			job->commit ? job->commit : "", code == GIT_EAMBIGUOUS ? " alone: give more digits" : "");
		error_hint(err, "Push the commit, and check the address and the hash.");
		return -1;
	}
	if (!code)
		code = git_object_peel(&tree, commit, GIT_OBJECT_TREE);
	if (!code)
		code = check_tree_size(job, repository, (git_tree *)tree);
	if (!code)
		code = git_checkout_tree(repository, tree, &options);
	if (!code && job->commit)
		code = git_repository_set_head_detached(repository, git_object_id(commit));
	git_object_free(tree);
	git_object_free(commit);
	return code ? git_failed(code, "check out the files of", job->url, err) : 0;
}

static int clone_work(struct job *job, struct error *err)
{
	git_clone_options options = GIT_CLONE_OPTIONS_INIT;
	git_repository *repository = NULL;
	int result;

	git_libgit2_init();
	find_certificates();
	set_callbacks(&options.fetch_opts.callbacks, job);
	options.fetch_opts.follow_redirects = GIT_REMOTE_REDIRECT_NONE; /* to another host */
	options.fetch_opts.proxy_opts.type = GIT_PROXY_AUTO;
	options.checkout_opts.checkout_strategy = GIT_CHECKOUT_NONE;
	options.local = GIT_CLONE_NO_LOCAL; /* reads local repositories as it does remote ones, with bounds */
	result = git_clone(&repository, job->url, job->directory, &options);
	result = result ? git_failed(result, "clone", job->url, err) : check_out(job, repository, err);
	if (job->too_large) {
		error_set(err, STATUS_REFUSED, "%s is larger than %llu MiB or %d files", job->url,
			(unsigned long long)job->remote->max_bytes >> 20, TREE_LIMIT);
	}
	return result;
}

static bool is_commit_hash(const char *text)
{
	size_t digits = strspn(text, "0123456789abcdefABCDEF");

	return digits >= 7 && digits <= GIT_OID_HEXSZ && !text[digits];
}

/* ".fork.unfinished" beside "fork". */
static char *unfinished_name(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	return xprintf("%.*s.%s.unfinished", (int)(name - path), path, name);
}

/* A plain path as the clone's configuration should hold it. */
static char *absolute_source(const char *url, struct error *err)
{
	char *path;

	if (url_scheme(url) != SCHEME_PATH)
		return xstrdup(url);
	path = realpath(url, NULL);
	if (!path)
		error_set(err, STATUS_ENVIRONMENT, "cannot clone %s: %s", url, strerror(errno));
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
		return error_set(err, STATUS_ENVIRONMENT, "cannot clone to %s: it exists", directory);
	source = absolute_source(url, err);
	if (!source)
		return -1;
	unfinished = unfinished_name(directory);
	job.url = source;
	job.directory = unfinished;
	result = directory_remove(unfinished, err);
	if (!result)
		result = run_apart(&job, clone_work, err);
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
	git_remote_callbacks callbacks = GIT_REMOTE_CALLBACKS_INIT;
	git_proxy_options proxy = GIT_PROXY_OPTIONS_INIT;
	git_repository *repository = NULL;
	git_remote *remote = NULL;
	const git_remote_head **heads = NULL;
	size_t count = 0;
	git_oid commit;
	int code;

	git_libgit2_init();
	find_certificates();
	set_callbacks(&callbacks, job);
	proxy.type = GIT_PROXY_AUTO;
	code = git_repository_open_ext(&repository, job->directory, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL);
	if (code)
		return git_failed(code, "open", job->directory, err);
	code = git_oid_fromstr(&commit, job->commit);
	if (!code)
		code = git_remote_create_anonymous(&remote, repository, job->url);
	if (!code)
		code = git_remote_connect(remote, GIT_DIRECTION_FETCH, &callbacks, &proxy, NULL);
	if (!code)
		code = git_remote_ls(&heads, &count, remote);
	for (size_t i = 0; i < count && !job->published; i++)
		job->published = !strncmp(heads[i]->name, "refs/heads/", 11) &&
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
		return error_set(err, STATUS_USAGE, "\"%s\" is not a whole commit hash", commit);
	if (run_apart(&job, published_work, err) < 0)
		return -1;
	*published = job.published;
	return 0;
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
		const git_diff_delta *delta =
			entry->index_to_workdir ? entry->index_to_workdir : entry->head_to_index;

		state->changed_name = xstrdup(delta->new_file.path);
	}
	git_status_list_free(list);
	return 0;
}

/* The configured URL of "origin", cleaned; NULL when there is none. Read from the configuration itself:
 * git_remote_lookup leaks memory with every configuration line (libgit2 1.5 with PCRE2). */
static char *origin_url(git_repository *repository)
{
	git_config *config = NULL;
	git_buf value = {0};
	char *url = NULL;

	if (git_repository_config(&config, repository) == 0 &&
		git_config_get_string_buf(&value, config, "remote.origin.url") == 0)
		url = fork_url_clean(value.ptr);
	git_buf_dispose(&value);
	git_config_free(config);
	return url;
}

static int read_origin(git_repository *repository, struct fork_state *state)
{
	git_revwalk *walk = NULL;
	git_oid id;
	int code;

	state->remote_url = origin_url(repository);
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

int fork_state_read(const char *path, struct fork_state *state, struct error *err)
{
	git_repository *repository = NULL;
	int code, result;

	*state = (struct fork_state){0};
	git_libgit2_init();
	code = git_repository_open_ext(&repository, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL);
	if (!code)
		code = read_head(repository, state);
	if (!code)
		code = read_changes(repository, state);
	if (!code)
		code = read_origin(repository, state);
	result = code ? git_failed(code, "read the repository", path, err) : 0;
	git_repository_free(repository);
	git_libgit2_shutdown();
	if (result)
		fork_state_free(state);
	return result;
}

char *fork_origin(const char *path)
{
	git_repository *repository = NULL;
	char *url = NULL;

	git_libgit2_init();
	if (git_repository_open_ext(&repository, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL) == 0)
		url = origin_url(repository);
	git_repository_free(repository);
	git_libgit2_shutdown();
	return url;
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
	if (!code && git_signature_default(&author, repository) < 0) /* nobody told git who works here */
		code = git_signature_now(&author, "quasar", "quasar@localhost");
	if (!code)
		code = git_commit_create(&id, repository, "HEAD", author, author, NULL, "Start", tree, 0, NULL);
	git_signature_free(author);
	git_tree_free(tree);
	git_index_free(index);
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
		git_libgit2_init();
		git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
		options.flags = GIT_REPOSITORY_INIT_BARE | GIT_REPOSITORY_INIT_MKDIR;
		options.initial_head = "main";
		code = git_repository_init_ext(&repository, unfinished, &options);
		if (!code)
			code = commit_files(repository, files, count);
		result = code ? git_failed(code, "make the repository", directory, err) : 0;
		git_repository_free(repository);
		git_libgit2_shutdown();
	}
	if (!result)
		result = file_publish(unfinished, directory, err);
	if (result)
		directory_remove(unfinished, &ignored);
	free(unfinished);
	return result;
}
