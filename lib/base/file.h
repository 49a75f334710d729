/* file: paths and whole files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/error.h"

/* "a" and "b" give "a/b"; an absolute `name` is returned alone. The caller frees. */
char *path_join(const char *directory, const char *name);

/* Replaces a leading "~" or "~/" by the home directory ($HOME, else the password file). Caller frees. */
char *path_expand(const char *path);

/* Makes a directory and its parents, each with `mode`, durably; an existing directory is fine. */
int directory_make(const char *path, mode_t mode, struct error *err);

/* Opens a regular file for reading; the caller closes. Never waits, as for whoever writes to a pipe of that
 * name: STATUS_ENVIRONMENT for whatever else it is, and when it cannot be opened. */
int file_open(const char *path, struct error *err);

/* Reads a regular file of at most `limit` bytes, appended to `out`. A larger file, something else than a
 * file or an unreadable one is an error with STATUS_ENVIRONMENT. The content is followed by a zero byte. */
int file_read(const char *path, size_t limit, struct buffer *out, struct error *err);

enum file_write_mode {
	FILE_REPLACE, /* put the new content in the place of the old one, which has to be a file's */
	FILE_NEW,     /* fail if the path exists */
};

/* Writes a file so that a reader, or a machine that lost power, sees the old content or the new and
 * nothing between: temporary file beside it, fsync, rename (or link, for FILE_NEW), fsync of the
 * directory. STATUS_ENVIRONMENT on failure, with the reason; nothing is left behind, unless the process is
 * killed: then the temporary file, hidden and named after the path, for directory_sweep(). */
int file_write(const char *path, const void *data, size_t length, mode_t permissions,
	enum file_write_mode mode, struct error *err);

/* Whether file_write() could put a file there, to be told before the work that it is to hold; its error if not. */
int file_try(const char *path, struct error *err);

/* Gives a finished file or directory its name, durably. An existing `to` is an error. */
int file_publish(const char *from, const char *to, struct error *err);

/* Whether something is there, be it a link that leads nowhere. */
bool path_exists(const char *path);

/* Warns of a file or folder with secrets that other users have access to, and says what to do. */
void path_warn_if_open(const char *path);

/* Removes a directory with all below it, never following a symbolic link. */
int directory_remove(const char *path, struct error *err);

/* Removes what file_write() had to leave behind in a directory, but not what another process is writing. */
void directory_sweep(const char *path);
