/* fork: the miner's git repository, by libgit2.
 *
 * Whatever talks to a remote runs in a process of its own, which is ended when the time is up, when the
 * user interrupts, or when this process dies. Errors say in plain words what git could not do. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct fork_progress {
	uint64_t objects, total_objects; /* total is 0 until the remote has told it */
	uint64_t bytes;
};

/* Which addresses a name over http or https may lead to. */
enum fork_reach {
	FORK_REACH_ANY,
	FORK_REACH_LOOPBACK, /* public ones, and this machine's own */
	FORK_REACH_PUBLIC, /* what everybody reaches: not this machine, its networks, its cloud's services */
};

/* How far to trust a remote, and how long to wait for it. */
struct fork_remote {
	const char *token; /* GitHub's, for https; NULL: none. Never stored or shown */
	const char
		*token_api; /* GITHUB_API_URL, whose host alone gets it, with or without its leading "api." */
	bool allow_local;   /* file:// and plain paths */
	bool own; /* a local one that we have written: its objects are linked to, as git does; others' are read */
	enum fork_reach reach; /* other than ANY: no proxy is used, for it would connect to anything */
	double timeout;        /* seconds for the whole of it; 0: no bound */
	uint64_t max_bytes; /* of what is transferred, of the files checked out, and, but for a local one, of
	                        * the memory that reading it takes; 0: no bound */
	void (*progress)(const struct fork_progress *progress, void *context); /* NULL: none */
	void *context;
};

/* Is this an address that fork_clone takes? STATUS_USAGE, saying why not, when it is none: no such kind of
 * URL, a login in it, or local without `allow_local`. */
int fork_url_check(const char *url, bool allow_local, struct error *err);

/* Clones a repository (https, http, ssh, file:// or a plain path) with its whole history into `directory`,
 * which must not exist, and checks out `commit` (7 to 40 hexadecimal digits), or, with NULL, the remote's
 * default branch. The directory appears whole or not at all. ssh asks the agent, then ~/.ssh/id_*.
 *
 * STATUS_NETWORK: unreachable, too slow. STATUS_REFUSED: no access, no such repository or commit, too
 * large. STATUS_USAGE: as fork_url_check. STATUS_ENVIRONMENT: cannot write here, no repository at that
 * path. STATUS_INTERRUPTED. */
int fork_clone(const char *url, const char *directory, const char *commit, const struct fork_remote *remote,
	struct error *err);

/* The absolute path of a fork's folder, a clone or not. NULL: STATUS_ENVIRONMENT. The caller frees. */
char *fork_root(const char *path, struct error *err);

/* What git ignores in a clone, and nobody gets who clones it: paths in it, with a slash behind those of folders; ends
 * with NULL. Empty where there is no repository. The caller frees each, and the list. */
char **fork_ignored(const char *path);

struct fork_state {
	char commit[41];    /* HEAD; "" before the first commit */
	char *branch;       /* NULL: HEAD is detached */
	char *remote_url;   /* of "origin", user and password removed; NULL: no such remote */
	size_t changed;     /* files that differ from HEAD, untracked ones included, ignored ones not */
	char *changed_name; /* one of them; NULL: none */
	bool published;     /* HEAD is reachable from a branch of origin, as far as the clone knows */
	size_t ahead;       /* commits of HEAD that no branch of origin has */
};

/* Looks at a clone without changing it or asking the remote. STATUS_ENVIRONMENT when `path` is none. */
int fork_state_read(const char *path, struct fork_state *state, struct error *err);
void fork_state_free(struct fork_state *state);

/* Whether HEAD is still where it was then, and as many files differ from it. */
bool fork_is_still(const char *path, const struct fork_state *then);

/* The commit of that state alone, which is quick to find. */
int fork_head(const char *path, char commit[41], struct error *err);

/* -1 with STATUS_ENVIRONMENT while a merge, rebase or similar is under way, in which HEAD only passes by. */
int fork_settled(const char *path, struct error *err);

/* A descriptor that becomes readable when HEAD may have moved: then close it, make another one, and look.
 * -1 when `path` is no clone or cannot be watched. */
int fork_watch(const char *path);

/* Whether a file or folder of the directory is part of a git repository that the directory is in: whoever
 * clones that gets it, too. */
bool fork_tracks(const char *directory, const char *name);

/* The root of the git work tree that a directory lies in, unless that ignores it, or the directory is a
 * repository of its own. The directory has to exist. NULL: none. The caller frees. */
char *fork_around(const char *directory);

/* The remote_url of that state alone, which is quick to find. NULL when `path` is no clone. Caller frees. */
char *fork_origin(const char *path);

/* Asks the remote itself: is `commit`, of the clone at `path`, reachable from one of its branches? A branch
 * that the clone does not know counts as not. Errors as with fork_clone. */
int fork_published(const char *path, const char *url, const char *commit, const struct fork_remote *remote,
	bool *published, struct error *err);

/* Commits every change in the clone at `path`, new files included, ignored ones not, to the branch it is on;
 * hooks of git are not run. `message` NULL: one that names the change. `secrets` (ends with NULL) are texts
 * that no file may hold. `made` says whether there was anything to commit.
 *
 * STATUS_FAILED, with nothing committed or staged: a file looks like a key, a password or a state store, holds
 * one of the secrets or is too large; it is named. What is looked at is what is committed, however files change
 * meanwhile. STATUS_ENVIRONMENT: HEAD is on no branch, a merge is under way, or git fails. */
int fork_commit(
	const char *path, const char *message, const char *const *secrets, bool *made, struct error *err);

/* Pushes the branch of HEAD to the branch of its name at "origin", never by force. `pushed`: the remote did
 * not have it yet. Errors as with fork_clone; STATUS_REFUSED when the remote's branch has commits that this
 * one lacks, or the remote does not take it. */
int fork_push(const char *path, const struct fork_remote *remote, bool *pushed, struct error *err);

struct fork_file {
	const char *path; /* relative to the repository */
	const char *text;
};

/* Makes a bare repository that holds the files in one commit on the branch "main", for fork_clone to clone
 * from. It appears whole or not at all; an existing `directory` is an error. */
int fork_create(const char *directory, const struct fork_file *files, size_t count, struct error *err);

/* "file:///path/to/repository" for an absolute path. Caller frees. */
char *fork_file_url(const char *path);

/* The URL without the secrets that people put into it: of https the user and password, of others the
 * password. Caller frees. */
char *fork_url_clean(const char *url);

/* NAME of http(s)://github.com/NAME/…, as validators tell who a fork belongs to; NULL for any other URL. The caller
 * frees. */
char *fork_url_owner(const char *url);
