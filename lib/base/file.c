#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ftw.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

char *path_join(const char *directory, const char *name)
{
	size_t length = strlen(directory);

	if (name[0] == '/')
		return xstrdup(name);
	return xprintf("%s%s%s", directory, length && directory[length - 1] == '/' ? "" : "/", name);
}

char *path_expand(const char *path)
{
	const char *home;
	struct passwd *user;

	if (path[0] != '~' || (path[1] != '/' && path[1] != '\0'))
		return xstrdup(path);
	home = getenv("HOME");
	if (!home || !home[0]) {
		user = getpwuid(getuid());
		home = user ? user->pw_dir : "/";
	}
	return xprintf("%s%s", home, path + 1);
}

bool path_exists(const char *path)
{
	struct stat status;

	return lstat(path, &status) == 0;
}

void path_warn_if_open(const char *path)
{
	struct stat status;
	char *word;

	if (stat(path, &status) < 0 || !(status.st_mode & (S_IRWXG | S_IRWXO)))
		return;
	word = shell_word(path);
	log_warn("%s is accessible to other users; fix with: chmod %s %s", path,
		S_ISDIR(status.st_mode) ? "700" : "600", word);
	free(word);
}

static int sync_parent(const char *path)
{
	char *parent = xstrdup(path);
	char *slash = strrchr(parent, '/');
	int fd, result;

	if (slash == parent)
		slash[1] = '\0';
	else if (slash)
		*slash = '\0';
	fd = open(slash ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(parent);
	if (fd < 0)
		return -1;
	result = fsync(fd);
	close(fd);
	return result;
}

int directory_make(const char *path, mode_t mode, struct error *err)
{
	char *copy = xstrdup(path);
	struct stat status;
	char *slash;
	int result = 0;

	for (slash = copy + 1; !result; slash++) {
		bool last;

		slash += strcspn(slash, "/");
		last = !*slash;
		*slash = '\0';
		if (mkdir(copy, mode) < 0 ? errno != EEXIST : sync_parent(copy) < 0)
			result = error_set(err, STATUS_ENVIRONMENT, "cannot create directory %s: %s", copy,
				strerror(errno));
		if (last)
			break;
		*slash = '/';
	}
	if (!result && (stat(path, &status) < 0 || !S_ISDIR(status.st_mode)))
		result = error_set(err, STATUS_ENVIRONMENT, "%s exists and is not a directory", path);
	free(copy);
	return result;
}

int file_open(const char *path, struct error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat status;

	if (fd < 0)
		return error_set(err, STATUS_ENVIRONMENT, "cannot open %s: %s", path, strerror(errno));
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
		return fd;
	close(fd);
	return error_set(err, STATUS_ENVIRONMENT, "cannot read %s: it is %s", path,
		S_ISDIR(status.st_mode) ? "a directory" : "not a regular file");
}

int file_read(const char *path, size_t limit, struct buffer *out, struct error *err)
{
	char chunk[16384];
	size_t start = out->length;
	ssize_t got;
	int fd = file_open(path, err), result = 0;

	if (fd < 0)
		return -1;
	while ((got = read(fd, chunk, sizeof(chunk))) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			result = error_set(
				err, STATUS_ENVIRONMENT, "cannot read %s: %s", path, strerror(errno));
			break;
		}
		if (out->length - start + (size_t)got > limit) {
			result = error_set(
				err, STATUS_ENVIRONMENT, "%s is larger than %zu bytes", path, limit);
			break;
		}
		buffer_append(out, chunk, (size_t)got);
	}
	close(fd);
	buffer_append(out, "", 0);
	return result;
}

static int write_all(int fd, const char *data, size_t length)
{
	while (length) {
		ssize_t written = write(fd, data, length);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return -1;
		data += written;
		length -= (size_t)written;
	}
	return 0;
}

/* What file_write() adds to a name, with six letters of chance between. */
#define HIDDEN "."
#define UNFINISHED ".unfinished"

/* Makes the file in which a new content of `path` grows. It is locked while its writer lives. -1 with errno. */
static int make_unfinished(const char *path, char **name)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	struct stat status;
	int fd, reason;

	for (;;) {
		*name = xprintf("%.*s" HIDDEN "%s.XXXXXX" UNFINISHED, (int)(base - path), path, base);
		fd = mkostemps(*name, strlen(UNFINISHED), O_CLOEXEC);
		if (fd < 0)
			break;
		flock(fd, LOCK_EX); /* where there are no locks, nothing is swept either */
		if (fstat(fd, &status) < 0 || status.st_nlink)
			return fd;
		close(fd); /* swept before it was locked */
		free(*name);
	}
	reason = errno;
	free(*name);
	errno = reason;
	return -1;
}

/* Has a finished file take its place. link() refuses an existing target, which rename() silently replaces. */
static int take_place(const char *unfinished, const char *path, enum file_write_mode mode)
{
	if (mode == FILE_REPLACE)
		return rename(unfinished, path);
	if (link(unfinished, path) < 0)
		return -1;
	unlink(unfinished);
	return 0;
}

/* A file takes no directory's place; nor that of a device, a pipe or a socket, or of a link to one as /dev/stdout is, which
 * others use. */
static int require_no_other(const char *path, struct error *err)
{
	struct stat status;

	if (stat(path, &status) < 0 || S_ISREG(status.st_mode))
		return 0;
	return error_set(err, STATUS_ENVIRONMENT, "cannot write %s: %s", path,
		S_ISDIR(status.st_mode) ? strerror(EISDIR) : "it is not a regular file");
}

/* A file that is to take a path's place, and its name, which the caller frees; -1 on error. */
static int begin_write(const char *path, char **unfinished, struct error *err)
{
	int fd;

	if (require_no_other(path, err) < 0)
		return -1;
	fd = make_unfinished(path, unfinished);
	return fd < 0 ? error_set(err, STATUS_ENVIRONMENT, "cannot write %s: %s", path, strerror(errno)) : fd;
}

int file_write(const char *path, const void *data, size_t length, mode_t permissions,
	enum file_write_mode mode, struct error *err)
{
	char *unfinished;
	int fd = begin_write(path, &unfinished, err), saved;

	if (fd < 0)
		return -1;
	if (fchmod(fd, permissions) < 0 || write_all(fd, data, length) < 0 || fsync(fd) < 0 ||
		take_place(unfinished, path, mode) < 0) {
		saved = errno;
		close(fd);
		unlink(unfinished);
		free(unfinished);
		return error_set(err, STATUS_ENVIRONMENT, "cannot write %s: %s", path, strerror(saved));
	}
	close(fd); /* after fsync() it has nothing more to say */
	free(unfinished);
	if (sync_parent(path) < 0)
		return error_set(
			err, STATUS_ENVIRONMENT, "cannot flush %s to disk: %s", path, strerror(errno));
	return 0;
}

int file_try(const char *path, struct error *err)
{
	char *unfinished;
	int fd = begin_write(path, &unfinished, err);

	if (fd < 0)
		return -1;
	unlink(unfinished);
	close(fd);
	free(unfinished);
	return 0;
}

/* A name as make_unfinished() gives them. */
static bool is_unfinished(const char *name)
{
	return !fnmatch(HIDDEN
		"?*.[A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9]" UNFINISHED,
		name, 0);
}

/* Whether the file is this user's and nobody is writing it. */
static bool is_abandoned(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
		flock(fd, LOCK_EX | LOCK_NB) == 0;
}

void directory_sweep(const char *path)
{
	DIR *directory = opendir(path);
	struct dirent *entry;

	while (directory && (entry = readdir(directory))) {
		int fd = is_unfinished(entry->d_name)
			? openat(dirfd(directory), entry->d_name,
				  O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)
			: -1;

		if (fd >= 0 && is_abandoned(fd))
			unlinkat(dirfd(directory), entry->d_name, 0);
		if (fd >= 0)
			close(fd);
	}
	if (directory)
		closedir(directory);
}

int file_publish(const char *from, const char *to, struct error *err)
{
	int renamed = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);

	if (renamed < 0 && (errno == EINVAL || errno == ENOSYS)) { /* the file system cannot */
		errno = EEXIST;
		renamed = path_exists(to) ? -1 : rename(from, to);
	}
	if (renamed < 0 || sync_parent(to) < 0)
		return error_set(err, STATUS_ENVIRONMENT, "cannot create %s: %s", to, strerror(errno));
	return 0;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
	(void)status;
	(void)type;
	(void)where;
	return remove(path);
}

int directory_remove(const char *path, struct error *err)
{
	if (nftw(path, remove_entry, 32, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT)
		return error_set(err, STATUS_ENVIRONMENT, "cannot remove %s: %s", path, strerror(errno));
	return 0;
}
