#include "space/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "space/fork.h"

char *workspace_fork_path(const char *directory, const struct settings *settings)
{
	char *expanded = path_expand(settings_get(settings, "FORK_PATH", NULL));
	char *path = path_join(directory, expanded);

	free(expanded);
	return path;
}

bool workspace_exists(const char *directory)
{
	char *folder = path_join(directory, ".quasar"), *settings = path_join(directory, ".env");
	bool exists = store_exists(directory) || (path_exists(folder) && path_exists(settings));

	free(settings);
	free(folder);
	return exists;
}

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

		error_set(err, STATUS_ENVIRONMENT, "cannot lock the workspace with %s: %s", path, strerror(reason));
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

	return lock_file(directory, ".quasar/lock", lock, &holder, err);
}

int workspace_turn(const char *directory, double patience, int *lock, struct error *err)
{
	double until = clock_elapsed() + patience;
	pid_t holder;

	while (lock_file(directory, ".quasar/turn", lock, &holder, err) < 0) {
		if (!holder || clock_elapsed() >= until)
			return -1;
		if (clock_sleep(0.1, err) < 0)
			return -1;
	}
	return 0;
}
