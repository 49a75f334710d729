#include "fork/fork_text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

#define SIZE_LIMIT ((size_t)4 << 20)

void fork_text_read(const char *root, const char *path, struct fork_text *out)
{
	char *whole = path_join(root, path), *real = realpath(whole, NULL);
	struct stat status;
	struct error err;

	*out = (struct fork_text){0};
	if (!real || stat(real, &status) < 0)
		out->fault = "is missing";
	else if (strncmp(real, root, strlen(root)) || real[strlen(root)] != '/')
		out->fault = "is a link that leads out of the fork";
	else if (!S_ISREG(status.st_mode))
		out->fault = "is not a file";
	else if ((size_t)status.st_size > SIZE_LIMIT)
		out->fault = "is larger than 4 MiB";
	else if (file_read(real, SIZE_LIMIT, &out->text, &err) < 0)
		out->fault = "cannot be read";
	else if ((out->not_utf8 = !utf8_valid(out->text.data, out->text.length)))
		out->fault = "is not UTF-8 text";
	if (out->fault)
		buffer_free(&out->text);
	free(real);
	free(whole);
}
