#include "space/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "fork/fork.h"

char *workspace_fork_path(const char *directory, const struct settings *settings)
{
	char *expanded = path_expand(settings_get(settings, "FORK_PATH", NULL));
	char *path = path_join(directory, expanded);

	free(expanded);
	return path;
}

char *workspace_docker_image(const struct settings *settings)
{
	const char *image = settings_get(settings, "MINER_DOCKER_IMAGE", NULL);
	const char *user = settings_get(settings, "DOCKER_USERNAME", NULL);

	if (image)
		return xstrdup(image);
	return user ? xprintf("%s/quasar-miner-gpu:latest", user) : NULL;
}

bool workspace_exists(const char *directory)
{
	char *folder = path_join(directory, ".quasar"), *settings = path_join(directory, ".env");
	bool exists = store_exists(directory) || (path_exists(folder) && path_exists(settings));

	free(settings);
	free(folder);
	return exists;
}

/* --- whose it is --------------------------------------------------------------------------------- */

static int refuse(struct error *err, const char *directory)
{
	char *word = shell_word(directory);

	error_hint(err,
		"It decides which validator your hotkey signs for. If you trust it, name the workspace: "
		"quasar -C %s …",
		word);
	free(word);
	return -1;
}

/* "alice (uid 1001)". The caller frees. */
static char *user_name(uid_t uid)
{
	struct passwd *user = getpwuid(uid);

	return user ? xprintf("%s (uid %u)", user->pw_name, (unsigned)uid) : xprintf("uid %u", (unsigned)uid);
}

/* Both a link and what it leads to have to be the user's own, or root's. */
static int check_owner(const char *directory, const char *path, struct error *err)
{
	struct stat link, target;
	uid_t own = geteuid(), owner;
	char *name, *word, *path_word;

	if (lstat(path, &link) < 0 || stat(path, &target) < 0)
		return 0; /* there is none */
	owner = link.st_uid && link.st_uid != own ? link.st_uid : target.st_uid;
	if (owner && owner != own) {
		name = user_name(owner);
		error_set(err, STATUS_ENVIRONMENT, "%s belongs to %s, not to you or root", path, name);
		free(name);
		return refuse(err, directory);
	}
	if (target.st_mode & (S_IWGRP | S_IWOTH)) {
		error_set(err, STATUS_ENVIRONMENT, "%s is writable by other users", path);
		path_word = shell_word(path);
		word = shell_word(directory);
		error_hint(err,
			"Check its content, then run: chmod go-w %s. If that is not possible, name the "
			"workspace: quasar -C %s …",
			path_word, word);
		free(word);
		free(path_word);
		return -1;
	}
	return 0;
}

int workspace_check(const char *directory, struct error *err)
{
	static const char *const names[] = {".quasar", ".env"};
	int result = 0;

	for (size_t i = 0; !result && i < sizeof(names) / sizeof(*names); i++) {
		char *path = path_join(directory, names[i]);

		result = check_owner(directory, path, err);
		if (!result && path_exists(path) && fork_tracks(directory, names[i])) {
			error_set(err, STATUS_ENVIRONMENT,
				"%s is tracked by a git repository, so somebody else may have written it",
				path);
			result = refuse(err, directory);
		}
		free(path);
	}
	return result;
}

/* --- where it is --------------------------------------------------------------------------------- */

static bool is_clone(const char *directory)
{
	char *path = path_join(directory, ".git");
	bool exists = path_exists(path);

	free(path);
	return exists;
}

/* The current directory or the nearest above it that is a workspace; NULL: none. `clone` receives the outermost
 * git clone that is left on the way, or NULL. The caller frees both. */
static char *look_above(bool *above, char **clone)
{
	char *directory = getcwd(NULL, 0), *slash;

	*clone = NULL;
	*above = false;
	while (directory && !workspace_exists(directory)) {
		if (is_clone(directory)) {
			free(*clone);
			*clone = xstrdup(directory);
		}
		slash = strrchr(directory, '/');
		if (!slash || !directory[1]) {
			free(directory);
			directory = NULL;
		} else {
			slash[slash == directory] = '\0';
		}
		*above = true;
	}
	return directory;
}

/* Whoever works in the workspace's own fork means this workspace; in another clone perhaps none. */
static int check_clone(const struct workspace_place *place, const char *clone, struct error *err)
{
	char *path = workspace_fork_path(place->directory, place->settings), *fork = realpath(path, NULL);
	int result = 0;

	if (!fork || strcmp(fork, clone)) {
		error_set(err, STATUS_ENVIRONMENT,
			"%s is a separate git clone, not the fork of the workspace %s above it", clone,
			place->directory);
		result = refuse(err, place->directory);
	}
	free(fork);
	free(path);
	return result;
}

int workspace_find(const char *named, struct workspace_place *place, struct error *err)
{
	char *clone = NULL;
	int result = 0;

	*place = (struct workspace_place){0};
	place->directory = named ? realpath(named, NULL) : look_above(&place->above, &clone);
	if (!named && place->directory)
		result = workspace_check(place->directory, err);
	if (!result)
		place->settings = settings_load(place->directory, err);
	if (!place->settings)
		result = -1;
	if (!result && place->directory && clone)
		result = check_clone(place, clone, err);
	if (result) {
		settings_free(place->settings);
		free(place->directory);
		*place = (struct workspace_place){0};
	}
	free(clone);
	return result;
}

/* --- opening and locking ------------------------------------------------------------------------- */

int workspace_open(const char *directory, const struct settings *settings, struct workspace *workspace,
	struct error *err)
{
	const char *url = settings_get(settings, "FORK_URL", NULL);
	struct store *store = store_open(directory, err);

	*workspace = (struct workspace){0};
	if (!store)
		return -1;
	workspace->store = store;
	workspace->directory = xstrdup(directory);
	workspace->fork_path = workspace_fork_path(directory, settings);
	workspace->fork_url = url ? fork_url_clean(url) : fork_origin(workspace->fork_path);
	return 0;
}

void workspace_close(struct workspace *workspace)
{
	store_close(workspace->store);
	free(workspace->directory);
	free(workspace->fork_path);
	free(workspace->fork_url);
	*workspace = (struct workspace){0};
}

/* Locks a file of the workspace's own. `holder` receives the process that has it, or 0. */
static int lock_file(const char *directory, const char *name, int *lock, pid_t *holder, struct error *err)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char *path = path_join(directory, name);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), result = 0;

	*lock = -1;
	*holder = 0;
	if (fd >= 0 && fcntl(fd, F_SETLK, &whole) == 0) {
		*lock = fd;
	} else {
		int reason = errno;

		error_set(err, STATUS_ENVIRONMENT, "cannot lock the workspace with %s: %s", path,
			strerror(reason));
		result = error_hint_system(err, reason);
		if (fd >= 0 && fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK) {
			*holder = whole.l_pid;
			error_set(err, STATUS_ENVIRONMENT, "the workspace %s is in use by process %d",
				directory, (int)whole.l_pid);
		}
		if (fd >= 0)
			close(fd);
	}
	free(path);
	return result;
}

int workspace_lock(const char *directory, int *lock, struct error *err)
{
	pid_t holder;
	int result = lock_file(directory, ".quasar/lock", lock, &holder, err);

	if (result && holder)
		error_hint(err,
			"`quasar run`, `init` and `recover` each need a workspace to themselves; `quasar "
			"status` shows the progress of `quasar run`.");
	return result;
}

int workspace_turn(const char *directory, double patience, int *lock, struct error *err)
{
	double until = clock_elapsed() + patience;
	pid_t holder;

	while (lock_file(directory, ".quasar/turn", lock, &holder, err) < 0) {
		if (!holder)
			return -1;
		if (clock_elapsed() >= until)
			return 1;
		if (clock_sleep(0.1, err) < 0)
			return -1;
	}
	return 0;
}
