#include "space/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

int workspace_lock(const char *directory, int *lock, struct error *err)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char *path = path_join(directory, ".quasar/lock");
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), result = 0;

	*lock = -1;
	if (fd < 0) {
		result = error_set(err, STATUS_ENVIRONMENT, "cannot lock the workspace with %s: %s", path,
			strerror(errno));
	} else if (fcntl(fd, F_SETLK, &whole) < 0) {
		result = error_set(err, STATUS_ENVIRONMENT, "cannot lock the workspace with %s: %s", path,
			strerror(errno));
		if (fcntl(fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK)
			result = error_set(err, STATUS_ENVIRONMENT,
				"the workspace %s is in use by process %d", directory, (int)whole.l_pid);
		close(fd);
	} else {
		*lock = fd;
	}
	free(path);
	return result;
}
