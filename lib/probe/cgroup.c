#include "probe/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#define MOST_BYTES 65536 /* of /proc/self/cgroup */

/* Where this process's group is that bounds processes, by a line of /proc/self/cgroup: "8:pids:/a" has version 1,
 * "0::/a" version 2. NULL for other lines; the caller frees. */
static char *directory_of(const char *line)
{
	const char *controllers = strchr(line, ':'),
		   *path = controllers ? strchr(controllers + 1, ':') : NULL;

	if (!path)
		return NULL;
	if (!strncmp(controllers, ":pids:", 6))
		return xprintf("/sys/fs/cgroup/pids%s", path + 1);
	return !strncmp(line, "0::", 3) ? xprintf("/sys/fs/cgroup%s", path + 1) : NULL;
}

static int write_number(const char *path, long number)
{
	int file = open(path, O_WRONLY | O_CLOEXEC), written;

	if (file < 0)
		return -1;
	written = dprintf(file, "%ld", number);
	return close(file) < 0 || written < 0 ? -1 : 0;
}

/* A group below that one. NULL with errno. */
static char *make_below(const char *directory, long tasks)
{
	char *group = path_join(directory, "quasar-XXXXXX"), *bound, *procs = NULL;

	if (mkdtemp(group)) {
		bound = path_join(group, "pids.max");
		if (write_number(bound, tasks) == 0)
			procs = path_join(group, "cgroup.procs");
		else
			rmdir(group);
		free(bound);
	}
	free(group);
	return procs;
}

char *cgroup_make(long tasks)
{
	struct buffer text = {0};
	struct error err;
	char *procs = NULL, *rest, *line;

	if (file_read("/proc/self/cgroup", MOST_BYTES, &text, &err) < 0)
		return NULL;
	for (rest = text.data; !procs && (line = strsep(&rest, "\n"));) {
		char *directory = directory_of(line);

		if (directory && !(procs = make_below(directory, tasks)))
			log_debug("no bound of the kernel's on processes in %s: %s", directory,
				strerror(errno));
		free(directory);
	}
	buffer_free(&text);
	return procs;
}

void cgroup_remove(const char *procs)
{
	char *group = procs ? xstrdup(procs) : NULL;

	if (group) {
		*strrchr(group, '/') = '\0';
		rmdir(group);
	}
	free(group);
}
