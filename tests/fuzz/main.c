/* Gives each file named on the command line to a fuzz target once: the regression run over the corpora. */
#include "base/file.h"
#include "fuzz.h"

static void run(const char *path)
{
	struct buffer content = {0};
	struct error err = {0};
	uint8_t *data;

	if (file_read(path, 64 << 20, &content, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		exit(1);
	}
	fprintf(stderr, "%s\n", path); /* the last one named is the one that failed */
	data = (uint8_t *)fuzz_string(content.data, content.length);
	LLVMFuzzerTestOneInput(data, content.length);
	free(data);
	buffer_free(&content);
}

int main(int count, char **arguments)
{
	for (int i = 1; i < count; i++)
		run(arguments[i]);
	return 0;
}
