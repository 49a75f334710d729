/* fork_private: what the files of the fork module share. */
#pragma once

#include <git2.h>
#include <sys/socket.h>

#include "fork/fork.h"

enum scheme { SCHEME_HTTPS, SCHEME_HTTP, SCHEME_SSH, SCHEME_FILE, SCHEME_PATH, SCHEME_UNKNOWN };

enum scheme url_scheme(const char *url);

/* Whether it is file:// or a path. */
bool url_is_local(const char *url);

/* Whether GitHub's token may be shown to the host of that URL: over https, and GitHub's own by its API's URL. */
bool url_takes_token(const char *url, const char *api);

/* Makes libgit2 ready, before any use of it, and once for the process: it reads all of this machine's certificates,
 * which takes longer than most of what is asked of it. */
void git_begin(void);

/* Turns libgit2's last error into ours: "cannot ATTEMPT ON: reason". Returns -1. */
int git_failed(int code, const char *attempt, const char *on, struct error *err);

/* fork_settled() of an open one. */
int git_settled(git_repository *repository, const char *path, struct error *err);

/* ".fork.unfinished" beside "fork": where a directory grows until it is whole. The caller frees. */
char *unfinished_name(const char *path);

/* The URL of "origin" as it is configured, secrets included. NULL when `path` is no clone. Caller frees. */
char *fork_origin_configured(const char *path);

/* Where "directory/name" is in the repository's work tree; NULL when it is not in there. The caller frees. */
char *fork_path_in_repository(git_repository *repository, const char *directory, const char *name);

/* Who commits here: git's user.name and user.email, else a name of ours. Returns libgit2's code. */
int fork_author(git_signature **author, git_repository *repository);

/* --- work with a remote -------------------------------------------------------------------------- */

/* A remote operation: what is asked for, and what its callbacks note on the way. */
struct job {
	const char *url, *directory, *commit;
	const struct fork_remote *remote;
	int pipe;        /* to the parent process */
	unsigned logins; /* how often the server asked */
	bool too_large;
	double reported; /* clock_elapsed() of the last report */
	bool answer;     /* to the question, if the operation is one */
};

typedef int remote_work(struct job *job, struct error *err);

/* Does the work in a process of its own, which can be ended at any time: libgit2 may wait for ever for a
 * peer that keeps silent, and reads what a stranger made. */
int remote_run(struct job *job, remote_work *work, struct error *err);

/* In that process: libgit2 with our certificates, and with the job's credentials. */
void remote_start(const struct job *job);
void remote_configure(struct job *job, git_remote_callbacks *callbacks, git_proxy_options *proxy,
	git_remote_redirect_t *redirects);

/* --- where it connects to ------------------------------------------------------------------------ */

/* The end of the sentence when it may go nowhere of where a name leads. */
#define NO_PUBLIC_ADDRESS "no public address"

bool reach_allows(enum fork_reach reach, const struct sockaddr *address);

/* From now on libgit2 connects to such addresses only. For the process of a job. */
void reach_bound(enum fork_reach reach);
