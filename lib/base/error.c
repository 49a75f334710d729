#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Words of others may be cut within a character, here or on their way. */
static int mended(struct error *err)
{
	utf8_mend(err->message);
	return -1;
}

int error_set(struct error *err, enum status status, const char *format, ...)
{
	va_list args;

	err->status = status;
	err->hint[0] = '\0';
	va_start(args, format);
	vsnprintf(err->message, sizeof(err->message), format, args);
	va_end(args);
	return mended(err);
}

int error_hint(struct error *err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(err->hint, sizeof(err->hint), format, args);
	va_end(args);
	return -1;
}

int error_context(struct error *err, const char *format, ...)
{
	char text[sizeof(err->message)];
	size_t used;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	used = strlen(text);
	snprintf(text + used, sizeof(text) - used, ": %s", err->message);
	memcpy(err->message, text, sizeof(text));
	return mended(err);
}

int error_append(struct error *err, const char *format, ...)
{
	size_t used = strlen(err->message);
	va_list args;

	va_start(args, format);
	vsnprintf(err->message + used, sizeof(err->message) - used, format, args);
	va_end(args);
	return mended(err);
}

const char *status_name(enum status status)
{
	switch (status) {
	case STATUS_OK:
		return "ok";
	case STATUS_FAILED:
		return "failed";
	case STATUS_USAGE:
		return "usage";
	case STATUS_ENVIRONMENT:
		return "environment";
	case STATUS_NETWORK:
		return "network";
	case STATUS_REFUSED:
		return "refused";
	case STATUS_EARLY:
		return "early";
	case STATUS_INTERRUPTED:
		return "interrupted";
	}
	return "unknown";
}

int error_hint_system(struct error *err, int reason)
{
	switch (reason) {
	case ENOSPC:
	case EDQUOT:
		return error_hint(err, "Free some disk space, then run this again.");
	case EROFS:
	case EACCES:
	case EPERM:
		return error_hint(err,
			"Make the file, its directory and the file system writable, then run this again.");
	case EMFILE:
	case ENFILE:
		return error_hint(err,
			"Allow more open files, for example with `ulimit -n 1024`, then run this again.");
	case EIO:
		return error_hint(
			err, "The disk may be failing: see `dmesg`. Copy the directory to another disk.");
	default:
		return -1;
	}
}
