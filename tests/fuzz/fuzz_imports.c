/* The validators' rules on the text of a Python file, and addresses to clone it from. */
#include "fuzz.h"

#include "fork/fork.h"
#include "fork/inspect.h"

static void imports(const char *text, size_t size)
{
	struct import_findings findings;
	size_t lines = 1;

	for (size_t i = 0; i < size; i++)
		lines += text[i] == '\n' || text[i] == '\r';
	inspect_imports(text, size, &findings);
	for (int i = 0; i < INSPECT_DEPLOYED_COUNT; i++)
		REQUIRE(findings.deployed[i] <= lines);
	for (int i = 0; i < INSPECT_STRICT_COUNT; i++) {
		REQUIRE(findings.strict[i] <= lines && findings.mentioned[i] <= lines);
		REQUIRE(!findings.strict[i] || findings.mentioned[i]);
	}
	for (int i = 0; i < INSPECT_FORBIDDEN_COUNT; i++)
		REQUIRE(findings.forbidden[i] <= lines);
	REQUIRE(findings.utils <= lines);
}

static void address(const char *text)
{
	struct error err = {0};
	char *clean = fork_url_clean(text), *again = fork_url_clean(clean), *url = fork_file_url(text);

	REQUIRE(!strcmp(clean, again)); /* nothing is left to take out */
	REQUIRE(fork_url_check(text, true, &err) == 0 || err.message[0]);
	REQUIRE(fork_url_check(text, false, &err) == 0 || err.message[0]);
	free(clean);
	free(again);
	free(url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_string(data, size);

	imports(text, size);
	address(text);
	free(text);
	return 0;
}
