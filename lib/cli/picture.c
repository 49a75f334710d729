#include "cli/picture.h"

#include "base/file.h"
#include "base/log.h"

int command_picture(const struct invocation *invocation, const struct part *part, struct error *err)
{
	const char *path = arg_string(invocation, "svg");
	struct buffer out = {0};
	int result;

	if (!path)
		return 0;
	part_svg(part, &out);
	result = file_write(path, out.data, out.length, 0644, FILE_REPLACE, err);
	if (!result)
		log_note("wrote %s", path);
	buffer_free(&out);
	return result;
}
