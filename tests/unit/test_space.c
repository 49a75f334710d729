/* space: settings, the state store, the import rules, git */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "image/image.h"
#include "fork/inspect.h"
#include "fork/leak.h"
#include "fork/private.h"
#include "space/settings.h"
#include "space/store.h"
#include "space/workspace.h"
#include "directory.h"

/* --- settings ------------------------------------------------------------------------------------ */

static struct settings *load(const char *directory, const char *text)
{
	struct error err = {0};
	struct settings *settings;

	put_text(directory, ".env", text);
	settings = settings_load(directory, &err);
	assert_non_null(settings);
	return settings;
}

static void settings_survive_writing(void **state)
{
	static const char *const values[] = {"plain", "with space", "quote \" in", "back\\slash", "back\\",
		"#no comment", "a # b", "$HOME `date`", "'single'", "line\nbreak", "carriage\rreturn",
		"trailing ", " leading", "=", "é", "\\n", "https://example.org/you/fork?x=1&y=2#z", NULL};

	for (size_t i = 0; values[i]; i++) {
		struct settings *written = settings_new(), *read;
		struct buffer text = {0};

		settings_put(written, "FORK_URL", values[i]);
		settings_put(written, "GITHUB_USERNAME", "you");
		settings_write(written, &text);
		read = load(*state, text.data);
		assert_string_equal(settings_get(read, "FORK_URL", NULL), values[i]);
		assert_string_equal(settings_get(read, "GITHUB_USERNAME", NULL), "you");
		assert_string_equal(settings_get(read, "NETUID", NULL), "24");
		buffer_free(&text);
		settings_free(read);
		settings_free(written);
	}
}

static void settings_are_read_as_people_write_them(void **state)
{
	struct settings *settings = load(*state,
		"# a comment\r\nA=1\r\nexport B = two words  # comment\nC='$x \\n'\nD=\"a\\\"b\" # c\nE=a#b\nF=\nA=2");
	assert_string_equal(settings_get(settings, "A", NULL), "2");
	assert_string_equal(settings_get(settings, "B", NULL), "two words");
	assert_string_equal(settings_get(settings, "C", NULL), "$x \\n");
	assert_string_equal(settings_get(settings, "D", NULL), "a\"b");
	assert_string_equal(settings_get(settings, "E", NULL), "a#b");
	assert_null(settings_get(settings, "F", NULL));
	settings_free(settings);
}

static void what_concerns_computing_reaches_the_environment(void **state)
{
	struct settings *settings;

	setenv("TRITON_CACHE_DIR", "/mine", true);
	settings = load(*state,
		"CUDA_VISIBLE_DEVICES=1\nPYTORCH_ALLOC_CONF=expandable_segments:True\nTRITON_CACHE_DIR=/theirs\n"
		"GITHUB_USERNAME=you\nXPYTORCH_A=1\n");
	assert_null(getenv("CUDA_VISIBLE_DEVICES"));
	settings_export_compute(settings);
	assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "1");
	assert_string_equal(getenv("PYTORCH_ALLOC_CONF"), "expandable_segments:True");
	assert_string_equal(getenv("TRITON_CACHE_DIR"), "/mine"); /* the environment wins */
	assert_null(getenv("GITHUB_USERNAME"));
	assert_null(getenv("XPYTORCH_A"));
	settings_free(settings);

	settings = load(*state, "PYTORCH_ALLOC_CONF=other\nTRITON_CACHE_DIR=/theirs\n");
	settings_export_compute(settings); /* of the .env before, nothing stays */
	assert_string_equal(getenv("PYTORCH_ALLOC_CONF"), "other");
	assert_null(getenv("CUDA_VISIBLE_DEVICES"));
	assert_string_equal(getenv("TRITON_CACHE_DIR"), "/mine");
	settings_free(settings);
	settings = load(*state, "");
	settings_export_compute(settings);
	assert_null(getenv("PYTORCH_ALLOC_CONF"));
	settings_free(settings);
	unsetenv("TRITON_CACHE_DIR");
}

static void names_that_nothing_reads_are_found(void **state)
{
	struct settings *settings = load(
		*state, "CLAIM_MARGN=3\nCLAIM_MARGIN=3\nCUDA_ANYTHING=1\nNETUID=24\ndevice=cpu\n");
	const char *meant;
	size_t at = 0;

	assert_string_equal(settings_unknown(settings, &at, &meant), "CLAIM_MARGN");
	assert_string_equal(meant, "CLAIM_MARGIN");
	assert_string_equal(settings_unknown(settings, &at, &meant), "device");
	assert_null(settings_unknown(settings, &at, &meant));
	settings_free(settings);
}

static void bad_settings_are_named_by_line(void **state)
{
	static const char *const bad[] = {"A=1\nsecret text\n", "\n1A=secret", "A=1\nA=\"secret",
		"\nA='secret' more", "\n=secret", "x\n", NULL};

	for (size_t i = 0; bad[i]; i++) {
		struct error err = {0};

		put_text(*state, ".env", bad[i]);
		assert_null(settings_load(*state, &err));
		assert_int_equal(err.status, STATUS_USAGE);
		assert_null(strstr(err.message, "secret"));
		if (bad[i][0] != 'x')
			assert_non_null(strstr(err.message, "line 2"));
	}
	put(*state, ".env", "A=1\0B", 5);
	assert_null(settings_load(*state, &(struct error){0}));
}

/* The file's text after MINER_DOCKER_IMAGE was set in it. */
static void expect_saved(const char *directory, const char *before, const char *after)
{
	char *path = path_join(directory, ".env");
	struct buffer text = {0};
	struct error err = {0};

	put_text(directory, ".env", before);
	assert_int_equal(settings_save(directory, "MINER_DOCKER_IMAGE", "you/it@sha256:1", &err), 0);
	assert_int_equal(file_read(path, 4096, &text, &err), 0);
	assert_string_equal(text.data, after);
	buffer_free(&text);
	free(path);
}

#define SAVED "MINER_DOCKER_IMAGE=\"you/it@sha256:1\"\n"

static void a_setting_is_saved_where_it_stands(void **state)
{
	expect_saved(*state, "", SAVED);
	expect_saved(*state, "A=1", "A=1\n" SAVED);
	expect_saved(*state, "# x\n#MINER_DOCKER_IMAGE=\nA=1\n", "# x\n" SAVED "A=1\n");
	expect_saved(*state, "#MINER_DOCKER_IMAGE=\nMINER_DOCKER_IMAGE=old # mine\n",
		"#MINER_DOCKER_IMAGE=\n" SAVED);
	expect_saved(
		*state, " export MINER_DOCKER_IMAGE = 'old'\nA=1\nMINER_DOCKER_IMAGE=older", SAVED "A=1\n");
	expect_saved(*state, "MINER_DOCKER_IMAGES=1\nXMINER_DOCKER_IMAGE=2\n",
		"MINER_DOCKER_IMAGES=1\nXMINER_DOCKER_IMAGE=2\n" SAVED);
}

static void settings_are_bounded(void **state)
{
	char *text = xmalloc((64 << 10) + 1);
	struct error err = {0};

	memset(text, '#', (64 << 10) + 1);
	put(*state, ".env", text, 64 << 10);
	settings_free(settings_load(*state, &err));
	assert_string_equal(err.message, "");
	put(*state, ".env", text, (64 << 10) + 1);
	assert_null(settings_load(*state, &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	free(text);
}

/* --- the import rules ---------------------------------------------------------------------------- */

static struct import_findings inspect(const char *text)
{
	struct import_findings findings;

	inspect_imports(text, strlen(text), &findings);
	return findings;
}

#define GUARD 4 /* index of input_guard in inspect_deployed_names */

static void deployed_rule(void **state)
{
	static const struct {
		const char *text;
		size_t line; /* of input_guard; 0: the rule does not find it */
	} cases[] = {
		{"", 0},
		{"x = 1\n", 0},
		{"from fla.utils import input_guard\n", 1},
		{"\n\nfrom fla.utils import input_guard", 3},
		{"\r\n\r\nfrom fla.utils import input_guard\r\n", 3},
		{"\r\rfrom fla.utils import input_guard\r", 3},
		{"FROM FLA.UTILS IMPORT INPUT_GUARD", 1},
		{"from fla.utils import IS_AMD, input_guard", 1},
		{"from fla.utils import input_guard as guard", 1},
		{"from fla.utils import IS_AMD  # input_guard", 0},
		{"# from fla.utils import input_guard", 0},
		{"from fla.utils import a  # it's\nx", 0},
		{"s = '#' ; from fla.utils import input_guard",
			1}, /* the quotes before # are odd in number */
		{"s = \"a\" # from fla.utils import input_guard", 0},
		{"s = \"a\" 'b # from fla.utils import input_guard", 1},
		{"from fla.utils import (\n  IS_AMD,\n  input_guard\n)\n", 3},
		{"from fla.utils import (\n  IS_AMD, # the comma\n  # input_guard\n)\n", 0},
		{"from fla.utils import (IS_AMD\n, input_guard\n, other\n)", 2},
		{"from fla.utils import (input_guard\n", 1},  /* the last resort */
		{"from fla.utils import (\n input_guard", 0}, /* no block ends */
		{"from fla.utils import (\n a\n)\ninput_guard\n", 0},
		{"from fla.utils import a, \\\n  input_guard\n",
			0}, /* validators do not follow a backslash */
		{"from fla.utils import a, \\\n  input_guard, \\\n b", 2},
		{"f(input_guard)", 1},
		{"f(input_guard, 1)", 1},
		{"input_guard", 0},
		{"'''\nfrom fla.utils import input_guard\n'''", 2},
		{"from fla.utils import input_guard_not", 1}, /* the validators' search does not mind */
		{"from fla.other import input_guard\n", 0},
		{"from  fla.utils import input_guard\n", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct import_findings findings = inspect(cases[i].text);

		if (findings.deployed[GUARD] != cases[i].line)
			fail_msg("case %zu: line %zu, not %zu: %s", i, findings.deployed[GUARD],
				cases[i].line, cases[i].text);
		assert_int_equal(findings.deployed[0], 0);
	}
}

static void strict_rule(void **state)
{
	static const struct {
		const char *text;
		size_t line; /* of `from fla.utils import input_guard`; 0: not there */
	} cases[] = {
		{"from fla.utils import input_guard", 1},
		{"\n  from fla.utils import input_guard\t# why\n", 2},
		{"\r\n\r\nfrom fla.utils import input_guard\r\n", 3},
		{"# from fla.utils import input_guard", 0},
		{"from fla.utils import input_guard as guard", 0},
		{"from fla.utils import input_guard_not", 0},
		{"from fla.utils import IS_AMD, input_guard", 0},
		{"from fla.utils import (input_guard)", 0},
		{"From fla.utils import input_guard", 0},
		{"from fla.utils import input_guard; x = 1", 0},
	};
	struct import_findings findings;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (inspect(cases[i].text).strict[11] != cases[i].line)
			fail_msg("case %zu: %s", i, cases[i].text);
	findings = inspect("import torch.nn.functional as F\nfrom fla.utils import a, IS_AMD\n");
	assert_int_equal(findings.strict[0], 0); /* `import torch` alone is another line */
	assert_int_equal(findings.mentioned[0], 1);
	assert_int_equal(findings.strict[1], 1);
	assert_int_equal(findings.mentioned[6], 2);
	assert_int_equal(findings.utils, 2);
}

static void strict_implies_deployed(void **state)
{
	struct buffer text = {0};
	struct import_findings findings;

	(void)state;
	for (int i = 0; i < INSPECT_STRICT_COUNT; i++)
		buffer_printf(&text, "%s\n", inspect_strict_lines[i]);
	findings = inspect(text.data);
	for (int i = 0; i < INSPECT_STRICT_COUNT; i++)
		assert_int_equal(findings.strict[i], i + 1);
	for (int i = 0; i < INSPECT_DEPLOYED_COUNT; i++)
		assert_int_equal(findings.deployed[i], i + 8);
	for (int i = 0; i < INSPECT_FORBIDDEN_COUNT; i++)
		assert_int_equal(findings.forbidden[i], 0);
	buffer_free(&text);
}

static void forbidden_texts(void **state)
{
	struct import_findings findings = inspect(
		"x\n# from fla.ops.glax import y\n\nimport fla.ops.kda.chunk\n"
		"from fla.ops.gla import z\nFROM FLA.OPS.KDA\n");

	(void)state;
	assert_int_equal(findings.forbidden[0], 2);
	assert_int_equal(findings.forbidden[1], 0);
	assert_int_equal(findings.forbidden[2], 0);
	assert_int_equal(findings.forbidden[3], 4);
}

static void any_bytes_are_inspected(void **state)
{
	struct import_findings findings;
	char bytes[4096];

	(void)state;
	for (unsigned seed = 0; seed < 200; seed++) {
		unsigned value = seed;

		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (char)((value = value * 1103515245 + 12345) >> 16);
		inspect_imports(bytes, seed * 20, &findings);
	}
	memcpy(bytes, "\0\0\nfrom fla.utils import input_guard\0,", 39);
	inspect_imports(bytes, 39, &findings);
	assert_int_equal(findings.deployed[GUARD], 2);
}

/* --- the files of a fork ------------------------------------------------------------------------- */

static void put_fork(const char *directory)
{
	struct buffer chunk = {0};

	for (int i = 0; i < INSPECT_STRICT_COUNT; i++)
		buffer_printf(&chunk, "%s\n", inspect_strict_lines[i]);
	for (int i = 0; inspect_target_files[i]; i++) {
		char *name = xprintf("fla/ops/quasar/%s", inspect_target_files[i]);

		put_text(directory, name, i ? "pass\n" : chunk.data);
		free(name);
	}
	put_text(directory, "deep/down/kernel.cu", "");
	buffer_free(&chunk);
}

static const struct inspect_options february = {.python = "/usr/bin/python3"};
static const struct inspect_options april = {.rules = INSPECT_APRIL, .python = "/usr/bin/python3"};

/* Inspects the fork and asserts what the named check says. */
static void expect_by(const struct inspect_options *options, const char *directory, const char *name,
	enum check_status status, const char *detail)
{
	struct check_list checks = {0};
	struct error err = {0};
	size_t i = 0;

	assert_int_equal(inspect_fork(directory, options, &checks, &err), 0);
	assert_int_equal(checks.count, 6);
	while (strcmp(checks.items[i].name, name))
		i++;
	if (checks.items[i].status != status || !strstr(checks.items[i].detail, detail))
		fail_msg("%s: %s: %s", name, check_status_name(checks.items[i].status),
			checks.items[i].detail);
	if (status == CHECK_FAIL || status == CHECK_WARN)
		assert_non_null(checks.items[i].remedy);
	check_free(&checks);
}

static void expect(const char *directory, const char *name, enum check_status status, const char *detail)
{
	expect_by(&february, directory, name, status, detail);
}

/* What one version of the service rejects fails for it, and warns for the other. */
static void rules_fail_where_they_hold(void **state)
{
	const char *directory = *state;

	put_fork(directory);
	put_text(directory, "fla/ops/quasar/gate.py", "# from fla.ops.gla\n");
	expect_by(&february, directory, "imports.forbidden", CHECK_FAIL, "gate.py:1");
	expect_by(&april, directory, "imports.forbidden", CHECK_WARN, "gate.py:1");
	expect_by(&april, directory, "imports.ast", CHECK_OK, "all 5");
	put_text(directory, "fla/ops/quasar/gate.py", "eval('')");
	expect_by(&february, directory, "imports.ast", CHECK_WARN, "gate.py:1 calls eval()");
	expect_by(&april, directory, "imports.ast", CHECK_FAIL, "gate.py:1 calls eval()");
	put_text(directory, "fla/ops/quasar/chunk.py", "import fla");
	expect_by(&february, directory, "imports.deployed", CHECK_FAIL, "no `from fla.utils import`");
	expect_by(&april, directory, "imports.deployed", CHECK_WARN, "no `from fla.utils import`");
}

static void forks_are_inspected(void **state)
{
	const char *directory = *state;
	char *large = xcalloc(1, 5 << 20), *gate = path_join(directory, "fla/ops/quasar/gate.py");
	const struct inspect_options strict = {.strict = true, .python = february.python};
	struct check_list checks = {0};
	struct error err = {0};

	put_fork(directory);
	assert_int_equal(inspect_fork(directory, &strict, &checks, &err), 0);
	assert_int_equal(check_count(&checks, CHECK_OK), 6);
	check_free(&checks);

	put_text(directory, "fla/ops/quasar/gate.py", "x\n\n# from fla.ops.kda\n");
	expect(directory, "imports.forbidden", CHECK_FAIL, "fla/ops/quasar/gate.py:3: `from fla.ops.kda`");
	put(directory, "fla/ops/quasar/gate.py", "\xff\xfe\0x", 4);
	expect(directory, "files", CHECK_FAIL, "gate.py is not UTF-8 text");
	memset(large, ' ', 5 << 20);
	put(directory, "fla/ops/quasar/gate.py", large, 5 << 20);
	expect(directory, "files", CHECK_FAIL, "gate.py is larger than 4 MiB");
	unlink(gate);
	assert_int_equal(symlink("/etc/passwd", gate), 0);
	expect(directory, "files", CHECK_FAIL, "gate.py is a link that leads out of the fork");
	unlink(gate);
	assert_int_equal(symlink("chunk.py", gate), 0);
	expect(directory, "files", CHECK_OK, "five");
	unlink(gate);
	assert_int_equal(symlink("gate.py", gate), 0);
	expect(directory, "files", CHECK_FAIL, "gate.py is missing");
	unlink(gate);
	assert_int_equal(mkfifo(gate, 0600), 0);
	expect(directory, "files", CHECK_FAIL, "gate.py is not a file");
	unlink(gate);
	mkdir(gate, 0700);
	expect(directory, "files", CHECK_FAIL, "gate.py is not a file");

	put_text(directory, "fla/ops/quasar/chunk.py",
		"import torch\n\nfrom fla.utils import IS_AMD, input_guard,\\\n");
	expect(directory, "imports.deployed", CHECK_FAIL, "fla/ops/quasar/chunk.py:3:");
	expect(directory, "imports.deployed", CHECK_FAIL, "check_shared_mem");
	expect(directory, "imports.strict", CHECK_WARN,
		"`from fla.utils import IS_AMD` (in another form on line 3)");
	put_text(directory, "fla/ops/quasar/chunk.py", "");
	expect(directory, "imports.deployed", CHECK_FAIL, "chunk.py:1: no `from fla.utils import`");
	free(gate);
	gate = path_join(directory, "fla/ops/quasar/chunk.py");
	unlink(gate);
	expect(directory, "imports.deployed", CHECK_SKIP, "chunk.py is missing");
	free(gate);
	gate = path_join(directory, "deep/down/kernel.cu");
	unlink(gate);
	put_text(directory, ".git/hidden.cu", "");
	expect(directory, "cuda_source", CHECK_WARN, "no .cu");
	free(gate);
	free(large);
	assert_int_equal(inspect_fork("/nonexistent", &february, &checks, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
}

/* The check `git` for a state: status, text and remedy. */
static char *judge(struct fork_state state, const char *url, bool submitting)
{
	struct check_list checks = {0};
	char *text;

	inspect_git(&state, url, submitting, &checks);
	assert_int_equal(checks.count, 1);
	text = xprintf("%s: %s -> %s", check_status_name(checks.items[0].status), checks.items[0].detail,
		checks.items[0].remedy ? checks.items[0].remedy : "");
	check_free(&checks);
	return text;
}

static void git_state_is_judged(void **state)
{
	static const char https[] = "https://github.com/you/fork";
#define CLONE                                                                                                \
	.commit = "0123456789abcdef", .branch = (char *)"main",                                              \
	.remote_url = (char *)"git@github.com:you/fork.git"
	const struct {
		struct fork_state state;
		const char *url;
		bool submitting;
		const char *expected;
	} cases[] = {
		{{CLONE, .published = true}, https, true,
			"ok: 0123456789ab on main, pushed to https://github.com/you"},
		{{CLONE, .published = true}, NULL, true,
			"fail: 0123456789ab on main: validators have no key for git@github.com:you/fork.git -> Set FORK_URL"},
		{{CLONE, .published = true}, "https://github.com/me/fork", true,
			"validators will clone https://github.com/me/fork, but origin is git@github.com:you/fork.git -> Make"},
		{{CLONE, .published = true, .changed = 2, .changed_name = (char *)"a.py"}, https, true,
			"fail: 0123456789ab on main: 2 files are not committed, including a.py"},
		{{CLONE, .published = true, .changed = 1, .changed_name = (char *)"a.py"}, https, false,
			"warn: 0123456789ab on main: 1 file is not committed"},
		{{CLONE, .ahead = 3}, https, true, "3 commits are not pushed to origin"},
		{{CLONE, .ahead = 1, .changed = 1, .changed_name = (char *)"a.py"}, https, true,
			"; 1 commit is not pushed to origin -> Validators see only what was pushed. Run: quasar push"},
		{{.commit = ""}, https, false, "fail: the fork has no commit"},
		{{.commit = "0123456789abcdef"}, NULL, true,
			"on no branch: there is no remote \"origin\" -> In the fork: git remote add"},
	};
#undef CLONE

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *text = judge(cases[i].state, cases[i].url, cases[i].submitting);

		if (!strstr(text, cases[i].expected))
			fail_msg("case %zu: %s", i, text);
		free(text);
	}
}

/* --- the state store ----------------------------------------------------------------------------- */

#define SALT "5f1d1c9a8c8b2f6e5f1d1c9a8c8b2f6e5f1d1c9a8c8b2f6e5f1d1c9a8c8b2f6e"

static struct submission new_submission(enum submission_kind kind, const char *commitment)
{
	return (struct submission){
		.kind = kind,
		.api_url = (char *)"http://localhost:8000",
		.hotkey = (char *)"5Hotkey",
		.fork_url = (char *)"https://github.com/you/fork",
		.commit_hash = (char *)"0123456789abcdef0123456789abcdef01234567",
		.target_sequence_length = 1000000,
		.tokens_per_sec = 50000.1,
		.vram_mb = NAN,
		.benchmarks = (char *)"{\"4096\": {\"tokens_per_sec\": 1.0}}",
		.salt = (char *)(kind == SUBMISSION_COMMIT ? SALT : NULL),
		.commitment_hash = (char *)commitment,
	};
}

static struct store *make_store(const char *directory)
{
	struct error err = {0};
	struct store *store;

	if (store_create(directory, &err) < 0)
		fail_msg("%s", err.message);
	store = store_open(directory, &err);
	if (!store)
		fail_msg("%s", err.message);
	return store;
}

static int64_t prepare(struct store *store, enum submission_kind kind, const char *commitment)
{
	struct submission submission = new_submission(kind, commitment);
	struct error err = {0};
	int64_t id = 0;

	if (store_submission_prepare(store, &submission, &id, &err) < 0)
		fail_msg("%s", err.message);
	return id;
}

static void a_submission_goes_through_its_steps(void **state)
{
	struct store *store = make_store(*state);
	int64_t id = prepare(store, SUBMISSION_COMMIT, "aabbcc");
	struct submission submission;
	struct journal journal;
	struct error err = {0};

	assert_int_equal(store_submission_get(store, id, &submission, &err), 0);
	assert_int_equal(submission.step, STEP_PREPARED);
	assert_string_equal(submission.salt, SALT);
	assert_true(submission.tokens_per_sec == 50000.1);
	assert_true(isnan(submission.vram_mb));
	assert_null(submission.repo_hash);
	assert_int_equal(submission.server_id, 0);
	submission_free(&submission);

	assert_int_equal(store_submission_revealed(store, id, &err), -1);
	assert_non_null(strstr(err.message, "prepared and cannot become revealed"));
	assert_int_equal(store_submission_note(store, id, "sending the commitment", &err), 0);
	assert_int_equal(store_submission_committed(store, id, 17, 1000, &err), 0);
	assert_int_equal(store_submission_committed(store, id, 17, 1000, &err), 0); /* nothing new */
	assert_int_equal(store_submission_committed(store, id, 17, 1005, &err), 0);
	assert_int_equal(store_submission_committed(store, id, 18, 1005, &err), 0);
	assert_int_equal(store_submission_submitted(store, id, 17, &err), -1);
	assert_int_equal(store_submission_refused(store, id, "403 IP address banned", &err), 0);
	assert_int_equal(store_submission_revealed(store, id, &err), 0);
	assert_int_equal(store_submission_revealed(store, id, &err), 0);
	assert_int_equal(store_submission_abandoned(store, id, "changed my mind", &err), -1);
	assert_int_equal(store_submission_get(store, id + 1, &submission, &err), -1);
	assert_int_equal(store_submission_note(store, id + 1, "nobody's", &err), -1);

	assert_int_equal(store_submission_get(store, id, &submission, &err), 0);
	assert_int_equal(submission.step, STEP_REVEALED);
	assert_int_equal(submission.server_id, 18);
	assert_int_equal(submission.reveal_block, 1005);
	assert_null(submission.reason);
	submission_free(&submission);
	assert_int_equal(store_journal(store, id, &journal, &err), 0);
	assert_int_equal(journal.count, 7);
	assert_string_equal(journal.entries[0].text, "prepared");
	assert_string_equal(journal.entries[1].text, "sending the commitment");
	assert_string_equal(
		journal.entries[2].text, "committed, the server's submission 17, reveal block 1000");
	assert_string_equal(journal.entries[5].text, "refused: 403 IP address banned");
	assert_string_equal(journal.entries[6].text, "revealed");
	journal_free(&journal);
	store_close(store);
}

static void submissions_are_listed(void **state)
{
	struct store *store = make_store(*state);
	struct submission_list list;
	struct submission twice = new_submission(SUBMISSION_COMMIT, "aabb01");
	struct error err = {0};
	int64_t first = prepare(store, SUBMISSION_COMMIT, "aabb01");
	int64_t second = prepare(store, SUBMISSION_COMMIT, "aabb02");
	int64_t direct = prepare(store, SUBMISSION_DIRECT, NULL);

	assert_int_equal(store_submission_prepare(store, &twice, &first, &err), -1);
	assert_int_equal(store_submission_committed(store, second, 9, 1, &err), 0);
	assert_int_equal(store_submission_submitted(store, direct, 10, &err), 0);
	assert_int_equal(store_submission_committed(store, direct, 10, 1, &err), -1);
	assert_int_equal(store_submissions(store, NULL, &list, &err), 0);
	assert_int_equal(list.count, 3);
	assert_int_equal(list.items[0].id, first);
	assert_null(list.items[2].salt);
	submission_list_free(&list);
	const struct {
		struct submission_filter filter;
		size_t count;
		int64_t id; /* of the first */
	} cases[] = {
		{{.steps = STEP_BIT(STEP_PREPARED) | STEP_BIT(STEP_COMMITTED)}, 2, first},
		{{.steps = STEP_BIT(STEP_SUBMITTED)}, 1, direct},
		{{.steps = STEP_BIT(STEP_REFUSED)}, 0, 0},
		{{.commitment_hash = "aabb02"}, 1, second},
		{{.commitment_hash = "aabb"}, 2, first},
		{{.commitment_hash = "%"}, 0, 0},
		{{.server_id = 9}, 1, second},
		{{.api_url = "http://localhost:8000", .hotkey = "5Hotkey"}, 3, first},
		{{.hotkey = "5Other"}, 0, 0},
		{{.api_url = "https://elsewhere"}, 0, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(store_submissions(store, &cases[i].filter, &list, &err), 0);
		assert_int_equal(list.count, cases[i].count);
		if (list.count)
			assert_int_equal(list.items[0].id, cases[i].id);
		submission_list_free(&list);
	}
	store_close(store);
}

/* A process that is killed the moment prepare has returned leaves its submission behind, whole. */
static void what_was_prepared_survives_a_kill(void **state)
{
	struct submission_list list;
	struct error err = {0};
	struct store *store;

	store_close(make_store(*state));
	for (int round = 0; round < 5; round++) {
		int ends[2], status;
		char byte, commitment[8];
		pid_t child;

		snprintf(commitment, sizeof(commitment), "%d", round);
		assert_int_equal(pipe(ends), 0);
		child = fork();
		if (child == 0) {
			store = store_open(*state, &err);
			if (store && prepare(store, SUBMISSION_COMMIT, commitment))
				write(ends[1], "x", 1);
			for (;;)
				pause();
		}
		close(ends[1]);
		assert_int_equal(read(ends[0], &byte, 1), 1);
		close(ends[0]);
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
		assert_true(WIFSIGNALED(status));
		store = store_open(*state, &err);
		assert_non_null(store);
		assert_int_equal(store_submissions(store, NULL, &list, &err), 0);
		assert_int_equal(list.count, round + 1);
		assert_string_equal(list.items[round].salt, SALT);
		assert_string_equal(list.items[round].commitment_hash, commitment);
		submission_list_free(&list);
		store_close(store);
	}
}

static void two_processes_share_a_store(void **state)
{
	struct submission_list list;
	struct error err = {0};
	struct store *store;
	int status;
	pid_t child;

	store_close(make_store(*state));
	child = fork();
	store = store_open(*state, &err);
	assert_non_null(store);
	for (int i = 0; i < 20; i++) {
		char commitment[16];

		snprintf(commitment, sizeof(commitment), "%d/%d", child == 0, i);
		prepare(store, SUBMISSION_COMMIT, commitment);
	}
	if (child == 0)
		_exit(0);
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	assert_int_equal(store_submissions(store, NULL, &list, &err), 0);
	assert_int_equal(list.count, 40);
	submission_list_free(&list);
	store_close(store);
}

static void what_became_of_a_request_is_kept(void **state)
{
	struct store *store = make_store(*state);
	int64_t id = prepare(store, SUBMISSION_DIRECT, NULL);
	struct submission submission = {.reveal_time = 0};
	struct error err = {0};
	char *version;

	assert_int_equal(store_submission_get(store, id, &submission, &err), 0);
	assert_true(isnan(submission.doubt_since) && isnan(submission.reveal_time));
	assert_true(submission_came_at(&submission) == submission.created_at);
	submission_free(&submission);
	assert_int_equal(store_submission_sending(store, id, 1795190000, "sending", &err), 0);
	assert_int_equal(store_submission_sending(store, id, 1795190060, "sending", &err), 0);
	assert_int_equal(store_submission_reveal_time(store, id, 1795198440.5, &err), 0);
	assert_int_equal(store_submission_get(store, id, &submission, &err), 0);
	assert_true(submission.doubt_since == 1795190000); /* the first attempt may have arrived */
	assert_true(submission_came_at(&submission) == 1795190060);
	assert_true(submission.reveal_time == 1795198440.5);
	submission_free(&submission);
	assert_int_equal(store_submission_sent_at(store, id, 1795190061.5, &err), 0);
	assert_int_equal(store_submission_not_sent(store, id, &err), 0);
	assert_int_equal(store_submission_get(store, id, &submission, &err), 0);
	assert_true(isnan(submission.doubt_since));
	assert_true(submission_came_at(&submission) == 1795190061.5);
	submission_free(&submission);

	assert_null(store_validator_version(store, "http://a"));
	assert_int_equal(store_set_validator_version(store, "http://a", "2026-02", &err), 0);
	assert_int_equal(store_set_validator_version(store, "http://a", "2026-04", &err), 0);
	version = store_validator_version(store, "http://a");
	assert_string_equal(version, "2026-04");
	assert_null(store_validator_version(store, "http://b"));
	free(version);
	store_close(store);
}

static void expect_score(struct store *store, int64_t id, double expected)
{
	struct submission submission;
	struct error err = {0};

	assert_int_equal(store_submission_get(store, id, &submission, &err), 0);
	if (isnan(expected))
		assert_true(isnan(submission.score));
	else
		assert_true(submission.score == expected);
	submission_free(&submission);
}

static void a_score_is_kept_and_goes_along(void **state)
{
	char *another = path_join(*state, "another");
	struct store *store = make_store(*state), *other = make_store(another);
	int64_t id = prepare(store, SUBMISSION_COMMIT, "aa");
	struct store_merge merged;
	struct journal journal;
	struct error err = {0};
	size_t length;
	void *before = store_save(store, &length, &err);

	expect_score(store, id, NAN);
	assert_int_equal(store_merge(other, before, length, &merged, &err), 0);
	sodium_free(before);
	assert_int_equal(store_submission_judged(store, id, 1, &err), 0);
	assert_int_equal(store_submission_judged(store, id, 0, &err), 0);
	expect_score(store, id, 0);
	assert_int_equal(store_journal(store, id, &journal, &err), 0);
	assert_int_equal(journal.count, 3);
	assert_string_equal(journal.entries[1].text, "judged: score 1");
	assert_string_equal(journal.entries[2].text, "judged: score 0");
	journal_free(&journal);

	expect_score(other, id, NAN);
	for (int twice = 0; twice < 2; twice++) { /* it knows the submission by now, then the score, too */
		void *after = store_save(store, &length, &err);

		assert_int_equal(store_merge(other, after, length, &merged, &err), 0);
		assert_int_equal(merged.known, 1);
		assert_int_equal(merged.added, 0);
		sodium_free(after);
		expect_score(other, id, 0);
	}
	assert_int_equal(store_journal(other, id, &journal, &err), 0);
	assert_int_equal(journal.count, 3);
	assert_string_equal(journal.entries[2].text, "judged: score 0");
	journal_free(&journal);
	store_close(other);
	store_close(store);
	free(another);
}

/* One submission in the store of an earlier program: it is imported, and goes on where it is. */
static void expect_brought_up_to_date(const char *directory, const char *changes)
{
	char *path = path_join(directory, ".quasar/state.db"), *another = path_join(directory, "another");
	struct store *store = make_store(directory), *other = make_store(another);
	int64_t id = prepare(store, SUBMISSION_COMMIT, "aa");
	struct buffer bytes = {0};
	struct store_merge merged;
	struct error err = {0};
	sqlite3 *older;

	assert_int_equal(store_submission_committed(store, id, 17, 1000, &err), 0);
	store_close(store);
	assert_int_equal(sqlite3_open(path, &older), SQLITE_OK);
	assert_int_equal(sqlite3_exec(older, changes, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(older);

	assert_int_equal(file_read(path, 1 << 20, &bytes, &err), 0);
	if (store_merge(other, bytes.data, bytes.length, &merged, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(merged.added, 1);
	expect_score(other, id, NAN);
	store_close(other);
	buffer_free(&bytes);

	store = store_open(directory, &err);
	assert_non_null(store);
	expect_score(store, id, NAN);
	assert_int_equal(store_submission_judged(store, id, 0, &err), 0);
	assert_int_equal(
		store_submission_revealed(store, id, &err), 0); /* by the server's id, which it kept */
	expect_score(store, id, 0);
	store_close(store);
	free(another);
	free(path);
}

static void an_older_store_is_opened_and_imported(void **state)
{
	static const char *const changes[] = {
		"ALTER TABLE submission DROP COLUMN sent_at; PRAGMA user_version = 5",
		"ALTER TABLE submission DROP COLUMN sent_at; ALTER TABLE submission DROP COLUMN score;"
		"PRAGMA user_version = 4",
		"ALTER TABLE submission DROP COLUMN sent_at; ALTER TABLE submission DROP COLUMN score; ALTER TABLE submission DROP COLUMN doubt_since;"
		"ALTER TABLE submission DROP COLUMN reveal_time; ALTER TABLE submission DROP COLUMN docker_image;"
		"DROP TABLE validator; PRAGMA user_version = 3",
	};

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		char *name = xprintf("%s/%zu", (const char *)*state, i);

		expect_brought_up_to_date(name, changes[i]);
		free(name);
	}
}

static void images_are_named_as_registries_take_them(void **state)
{
#define SHA "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	static const struct {
		const char *reference;
		bool good, pinned;
	} cases[] = {
		{"alice/quasar-miner-gpu:latest", true, false},
		{"ubuntu", true, false},
		{"docker.io/alice/quasar-miner-gpu" SHA, true, true},
		{"alice/quasar-miner-gpu:1.0" SHA, true, true},
		{"localhost:5000/a/b/c:v1_2", true, false},
		{"ghcr.io/alice/x__y.z--w:A", true, false},
		{"", false, false},
		{"Alice/quasar", false, false},
		{"alice/Quasar", false, false},
		{"https://hub.docker.com/alice/quasar", false, false},
		{"alice/quasar:", false, false},
		{"alice/quasar@sha256:0123", false, false},
		{"alice//quasar", false, false},
		{"alice/quasar latest", false, false},
		{"alice/quasar\nx", false, false},
		{"-alice/quasar", false, false},
		{"$(touch x)", false, false},
	};
	struct error err;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if ((image_check_syntax(cases[i].reference, &err) == 0) != cases[i].good)
			fail_msg("%s", cases[i].reference);
		if (cases[i].good)
			assert_int_equal(image_is_pinned(cases[i].reference), cases[i].pinned);
	}
}

static void a_fork_belongs_to_the_name_in_its_url(void **state)
{
	static const char *const cases[][2] = {
		{"https://github.com/alice/flash-linear-attention", "alice"},
		{"http://github.com/Alice/x", "Alice"},
		{"https://github.com/alice", NULL},
		{"https://github.com//x", NULL},
		{"https://example.org/alice/x", NULL},
		{"git@github.com:alice/x", NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *owner = fork_url_owner(cases[i][0]);

		if (cases[i][1])
			assert_string_equal(owner, cases[i][1]);
		else
			assert_null(owner);
		free(owner);
	}
}

static void the_store_is_private(void **state)
{
	char *folder = path_join(*state, ".quasar"), *path = path_join(folder, "state.db");
	struct store *store = make_store(*state);
	struct stat status;
	struct dirent *entry;
	DIR *files = opendir(folder);
	int count = 0;

	prepare(store, SUBMISSION_COMMIT, "aa");
	assert_int_equal(stat(folder, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0700);
	while ((entry = readdir(files))) {
		if (entry->d_name[0] == '.')
			continue;
		count++;
		assert_int_equal(fstatat(dirfd(files), entry->d_name, &status, 0), 0);
		assert_int_equal(status.st_mode & 0777, 0600);
	}
	assert_int_equal(count, 1); /* nothing beside it is part of it */
	closedir(files);
	store_close(store);
	free(path);
	free(folder);
}

/* Opens the store in `directory`, which must fail with `message` and change no byte of the file. */
static void expect_unusable(const char *directory, const char *message)
{
	char *path = path_join(directory, ".quasar/state.db");
	struct buffer before = {0}, after = {0};
	struct error err = {0};

	assert_int_equal(file_read(path, 1 << 20, &before, &err), 0);
	assert_null(store_open(directory, &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	if (!strstr(err.message, message))
		fail_msg("%s", err.message);
	assert_true(strlen(err.hint) > 0);
	assert_int_equal(file_read(path, 1 << 20, &after, &err), 0);
	assert_int_equal(before.length, after.length);
	assert_memory_equal(before.data, after.data, after.length);
	buffer_free(&before);
	buffer_free(&after);
	free(path);
}

static void a_damaged_or_foreign_store_is_left_alone(void **state)
{
	char *path = path_join(*state, ".quasar/state.db");
	struct buffer whole = {0};
	struct error err = {0};
	struct store *store;
	sqlite3 *foreign;

	assert_null(store_open(*state, &err));
	assert_non_null(strstr(err.message, "the state store is missing"));
	store = make_store(*state);
	for (int i = 0; i < 50; i++) {
		char commitment[16];

		snprintf(commitment, sizeof(commitment), "%d", i);
		prepare(store, SUBMISSION_COMMIT, commitment);
	}
	store_close(store);
	assert_int_equal(file_read(path, 1 << 20, &whole, &err), 0);

	put_text(*state, ".quasar/state.db", "");
	expect_unusable(*state, "is damaged: it is empty");
	put_text(*state, ".quasar/state.db",
		"my shopping list, which is rather long and no database at all\n");
	expect_unusable(*state, "file is not a database");
	put(*state, ".quasar/state.db", whole.data, whole.length / 2);
	expect_unusable(*state, "malformed");
	for (size_t i = 5000; i < 9000; i++)
		whole.data[i] ^= 0x55;
	put(*state, ".quasar/state.db", whole.data, whole.length);
	expect_unusable(*state, "");

	unlink(path);
	assert_int_equal(sqlite3_open(path, &foreign), SQLITE_OK);
	assert_int_equal(sqlite3_exec(foreign, "CREATE TABLE shopping (item)", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(foreign);
	chmod(path, 0600);
	expect_unusable(*state, "is not a workspace's state store");
	unlink(path);
	store_close(make_store(*state));
	assert_int_equal(sqlite3_open(path, &foreign), SQLITE_OK);
	assert_int_equal(sqlite3_exec(foreign, "PRAGMA user_version = 99", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(foreign);
	expect_unusable(*state, "newer version");
	buffer_free(&whole);
	free(path);
}

static void a_store_appears_whole_or_not_at_all(void **state)
{
	struct error err = {0};
	struct store *store;

	/* what a process that was killed while making the store leaves behind */
	put_text(*state, ".quasar/state.db.new", "half a databa");
	put_text(*state, ".quasar/state.db.new-wal", "and its log");
	assert_false(store_exists(*state));
	store = make_store(*state);
	assert_true(store_exists(*state));
	prepare(store, SUBMISSION_COMMIT, "aa");
	store_close(store);
	store = make_store(*state); /* creating again keeps it */
	assert_int_equal(store_submission_abandoned(store, 1, "test", &err), 0);
	store_close(store);
}

/* --- workspace and git --------------------------------------------------------------------------- */

static void a_workspace_is_held_by_one_process(void **state)
{
	struct error err = {0};
	int lock, status;
	pid_t child;

	assert_int_equal(workspace_lock(*state, &lock, &err), -1); /* no .quasar */
	store_close(make_store(*state));
	assert_int_equal(workspace_lock(*state, &lock, &err), 0);
	child = fork();
	if (child == 0) {
		char expected[32];

		snprintf(expected, sizeof(expected), "process %d", (int)getppid());
		_exit(workspace_lock(*state, &lock, &err) == -1 && strstr(err.message, expected) ? 0 : 1);
	}
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	close(lock);
	assert_int_equal(workspace_lock(*state, &lock, &err), 0);
	close(lock);
}

static void one_process_at_a_time_submits(void **state)
{
	struct error err = {0};
	int ready[2], lock, status;
	pid_t child;
	char byte;

	store_close(make_store(*state));
	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		if (workspace_turn(*state, 0, &lock, &err) < 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(workspace_turn(*state, 0, &lock, &err), 1);
	assert_non_null(strstr(err.message, "in use by process"));
	kill(child, SIGKILL); /* what it held is free at once */
	waitpid(child, &status, 0);
	assert_int_equal(workspace_turn(*state, 10, &lock, &err), 0);
	close(lock);
	close(ready[0]);
	close(ready[1]);
}

static bool noticed(int watch)
{
	struct pollfd fd = {.fd = watch, .events = POLLIN};
	bool readable = poll(&fd, 1, 0) == 1;

	close(watch);
	return readable;
}

static void a_moved_head_is_noticed(void **state)
{
	const struct fork_file files[] = {{"a", "b"}};
	char *fork = path_join(*state, "fork"), commit[41];
	struct error err = {0};

	assert_int_equal(fork_watch(*state), -1);
	assert_int_equal(fork_head(*state, commit, &err), -1);
	assert_int_equal(fork_create(fork, files, 1, &err), 0);
	assert_int_equal(fork_head(fork, commit, &err), 0);
	assert_int_equal(strlen(commit), 40);
	assert_false(noticed(fork_watch(fork)));
	for (const char *const *name = (const char *const[]){"refs/heads/main", "HEAD", NULL}; *name;
		name++) {
		int watch = fork_watch(fork);

		put_text(fork, *name, "0123456789012345678901234567890123456789\n");
		assert_true(noticed(watch));
	}
	free(fork);
}

static void urls_are_cleaned(void **state)
{
	static const char *const cases[][2] = {
		{"https://github.com/you/fork", "https://github.com/you/fork"},
		{"https://token@github.com/you/fork", "https://github.com/you/fork"},
		{"https://you:pass@word@github.com/you/fork@x", "https://github.com/you/fork@x"},
		{"http://a:b@host:80/x", "http://host:80/x"},
		{"ssh://git@host/x", "ssh://git@host/x"},
		{"ssh://git:secret@host:22/x", "ssh://git@host:22/x"},
		{"git@github.com:you/fork", "git@github.com:you/fork"},
		{"/a/b@c", "/a/b@c"},
		{"file:///a/b@c", "file:///a/b@c"},
		{"", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *clean = fork_url_clean(cases[i][0]);

		assert_string_equal(clean, cases[i][1]);
		free(clean);
	}
}

static void the_token_is_for_github_alone(void **state)
{
	static const char github[] = "https://api.github.com",
			  enterprise[] = "https://GHE.example:8443/api/v3";
	static const struct {
		const char *url, *api;
		bool taken;
	} cases[] = {
		{"https://github.com/you/fork", github, true},
		{"https://GitHub.com:443/you/fork", github, true},
		{"https://api.github.com/you/fork", github, true},
		{"https://ghe.example:8443/you/fork", enterprise, true},
		{"http://github.com/you/fork", github, false},
		{"https://github.com.evil.example/x", github, false},
		{"https://evil.example/github.com", github, false},
		{"https://evil.example#@github.com/", github, false},
		{"https://evil.example\\@github.com/", github, false},
		{"https://github.com@evil.example/", github, false},
		{"https://github.com:8443/x", github, false},
		{"https://raw.github.com/x", github, false},
		{"https://hub.com/x", github, false},
		{"https://github.com/x", enterprise, false},
		{"https://ghe.example/x", enterprise, false},
		{"https:///x", github, false},
		{"https://x/", "https://api./", false},
		{"https:///", "https://api./", false},
		{"ssh://github.com/x", github, false},
		{"https://github.com/x", "http://api.github.com", false},
		{"git@github.com:you/fork", "nonsense", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (url_takes_token(cases[i].url, cases[i].api) != cases[i].taken)
			fail_msg("%s with %s", cases[i].url, cases[i].api);
}

static bool may_reach(enum fork_reach reach, const char *text)
{
	struct sockaddr_in ipv4 = {.sin_family = AF_INET};
	struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET, text, &ipv4.sin_addr) == 1)
		return reach_allows(reach, (struct sockaddr *)&ipv4);
	assert_int_equal(inet_pton(AF_INET6, text, &ipv6.sin6_addr), 1);
	return reach_allows(reach, (struct sockaddr *)&ipv6);
}

static void a_stranger_reaches_public_addresses_only(void **state)
{
	static const char *const public[] = {"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255",
		"100.128.0.0", "126.255.255.255", "128.0.0.0", "140.82.121.4", "169.253.255.255",
		"172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255",
		"198.20.0.0", "223.255.255.255", "2606:4700::1111", "2a01:4f8::1", "64:ff9b::8.8.8.8",
		"::ffff:140.82.121.4"};
	static const char *const private[] = {"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1",
		"100.127.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8",
		"192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1",
		"203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "fc00::1", "fd12:3456::1", "fe80::1", "fec0::1", "ff02::1", "100::1", "2001::1",
		"2001:db8::1", "2002:7f00:1::", "2002:0808:0808::1", "3fff::1", "4000::1", "::ffff:10.0.0.1",
		"::ffff:169.254.169.254", "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254",
		"64:ff9b:1::8.8.8.8", "::8.8.8.8"};
	static const char *const loopback[] = {"127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1"};

	(void)state;
	for (size_t i = 0; i < sizeof(public) / sizeof(*public); i++)
		if (!may_reach(FORK_REACH_PUBLIC, public[i]) || !may_reach(FORK_REACH_LOOPBACK, public[i]))
			fail_msg("%s", public[i]);
	for (size_t i = 0; i < sizeof(private) / sizeof(*private); i++)
		if (may_reach(FORK_REACH_PUBLIC, private[i]) || may_reach(FORK_REACH_LOOPBACK, private[i]) ||
			!may_reach(FORK_REACH_ANY, private[i]))
			fail_msg("%s", private[i]);
	for (size_t i = 0; i < sizeof(loopback) / sizeof(*loopback); i++)
		if (may_reach(FORK_REACH_PUBLIC, loopback[i]) || !may_reach(FORK_REACH_LOOPBACK, loopback[i]))
			fail_msg("%s", loopback[i]);
}

static const struct fork_file files[] = {{"README.md", "read me\n"}, {"fla/ops/x.py", "pass\n"}};

static void a_fork_is_made_and_cloned(void **state)
{
	char *origin = path_join(*state, "ori gin%.git"), *url = fork_file_url(origin);
	char *clone = path_join(*state, "clone"), *file = path_join(clone, "fla/ops/x.py"), *other;
	struct fork_remote local = {.allow_local = true, .timeout = 60};
	struct fork_state fork = {0}, again = {0};
	struct buffer text = {0};
	struct error err = {0};
	bool published = false;

	if (fork_create(origin, files, 2, &err) < 0 || fork_clone(url, clone, NULL, &local, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(fork_create(origin, files, 2, &err), -1);
	assert_int_equal(fork_clone(url, clone, NULL, &local, &err), -1);
	assert_int_equal(file_read(file, 100, &text, &err), 0);
	assert_string_equal(text.data, "pass\n");
	assert_int_equal(fork_state_read(clone, &fork, &err), 0);
	assert_int_equal(strlen(fork.commit), 40);
	assert_string_equal(fork.branch, "main");
	assert_string_equal(fork.remote_url, url);
	assert_int_equal(fork.changed, 0);
	assert_true(fork.published);
	if (fork_published(clone, url, fork.commit, &local, &published, &err) < 0)
		fail_msg("%s", err.message);
	assert_true(published);
	fork_state_free(&fork);

	put_text(clone, "fla/ops/x.py", "changed\n");
	assert_int_equal(fork_state_read(clone, &fork, &err), 0);
	assert_int_equal(fork.changed, 1);
	assert_string_equal(fork.changed_name, "fla/ops/x.py");

	other = path_join(*state, "other");
	if (fork_clone(url, other, fork.commit, &local, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(fork_state_read(other, &again, &err), 0);
	assert_string_equal(again.commit, fork.commit);
	assert_null(again.branch);
	fork_state_free(&again);
	assert_int_equal(fork_state_read(*state, &again, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	fork_state_free(&fork);
	buffer_free(&text);
	free(other);
	free(file);
	free(clone);
	free(url);
	free(origin);
}

static void clones_that_must_fail(void **state)
{
	char *origin = path_join(*state, "origin.git"), *clone = path_join(*state, "clone");
	const struct {
		const char *url, *commit;
		struct fork_remote remote;
		enum status status;
		const char *message;
	} cases[] = {
		{"gopher://host/x", NULL, {.allow_local = true}, STATUS_USAGE,
			"not a URL that can be cloned"},
		{"", NULL, {.allow_local = true}, STATUS_USAGE, "not a URL that can be cloned"},
		{"--upload-pack=x", NULL, {.allow_local = true}, STATUS_USAGE,
			"not a URL that can be cloned"},
		{"https://s3cret@github.com/x", NULL, {.allow_local = true}, STATUS_USAGE,
			"contains a login"},
		{origin, NULL, {.allow_local = false}, STATUS_USAGE, "is a local path"},
		{"/nonexistent", NULL, {.allow_local = true}, STATUS_ENVIRONMENT, "No such file"},
		{*state, NULL, {.allow_local = true}, STATUS_ENVIRONMENT, "cannot clone"},
		{origin, "main", {.allow_local = true}, STATUS_USAGE, "not a commit hash"},
		{origin, "0123456", {.allow_local = true}, STATUS_REFUSED, "has no commit 0123456"},
		{origin, NULL, {.allow_local = true, .max_bytes = 1 << 20}, STATUS_REFUSED,
			"is larger than 1 MiB"},
		{"http://127.0.0.1:9/x", NULL, {.timeout = 60}, STATUS_NETWORK,
			"cannot clone http://127.0.0.1:9/x"},
	};
	char *large = xcalloc(1, (2 << 20) + 1);
	const struct fork_file bomb = {"bomb", memset(large, 'x', 2 << 20)}; /* small in transit */
	struct error err = {0};

	if (fork_create(origin, &bomb, 1, &err) < 0)
		fail_msg("%s", err.message);
	free(large);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		err = (struct error){0};
		assert_int_equal(
			fork_clone(cases[i].url, clone, cases[i].commit, &cases[i].remote, &err), -1);
		if (err.status != cases[i].status || !strstr(err.message, cases[i].message) ||
			strstr(err.message, "s3cret"))
			fail_msg("case %zu: status %d: %s", i, err.status, err.message);
		assert_false(path_exists(clone));
	}
	free(clone);
	free(origin);
}

/* A listening socket on a port of its own. */
static int listen_on(const char *host, int *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
	assert_int_equal(listen(listener, 4), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
	*port = ntohs(address.sin_port);
	return listener;
}

/* The kernel accepts connections for it; nobody ever answers. */
static void a_silent_remote_is_given_up(void **state)
{
	struct fork_remote remote = {.timeout = 0.3};
	struct error err = {0};
	int port, listener = listen_on("127.0.0.1", &port);
	char *url = xprintf("http://127.0.0.1:%d/x", port), *clone = path_join(*state, "clone");

	assert_int_equal(fork_clone(url, clone, NULL, &remote, &err), -1);
	assert_int_equal(err.status, STATUS_NETWORK);
	assert_string_equal(err.message, "not finished after 0.3 s");
	assert_false(path_exists(clone));
	free(clone);
	free(url);
	close(listener);
}

/* Answers one request with a redirect, and ends. */
static pid_t redirect_once(int listener, int target_port)
{
	pid_t child = fork();
	struct pollfd wait = {.fd = listener, .events = POLLIN};
	char request[4096], *answer;
	int client;

	if (child)
		return child;
	poll(&wait, 1, -1);
	client = accept(listener, NULL, NULL);
	answer = xprintf(
		"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2:%d/x/info/refs?service=git-upload-pack"
		"\r\nContent-Length: 0\r\n\r\n",
		target_port);
	_exit(read(client, request, sizeof(request)) > 0 &&
				write(client, answer, strlen(answer)) == (ssize_t)strlen(answer)
			? 0
			: 1);
}

static void a_redirect_to_another_host_is_not_followed(void **state)
{
	char *origin = path_join(*state, "origin.git"), *clone = path_join(*state, "clone"), *url;
	struct fork_remote remote = {
		.allow_local = true, .token = "s3cret", .token_api = "https://api.github.com", .timeout = 60};
	struct fork_state fork = {0};
	struct error err = {0};
	int port, target_port, status;
	int listener = listen_on("127.0.0.1", &port), target = listen_on("127.0.0.2", &target_port);
	pid_t server;
	bool published;

	if (fork_create(origin, files, 2, &err) < 0 || fork_clone(origin, clone, NULL, &remote, &err) < 0 ||
		fork_state_read(clone, &fork, &err) < 0)
		fail_msg("%s", err.message);
	url = xprintf("http://127.0.0.1:%d/x", port);
	server = redirect_once(listener, target_port);
	assert_int_equal(fork_published(clone, url, fork.commit, &remote, &published, &err), -1);
	if (err.status != STATUS_NETWORK || !strstr(err.message, "redirect"))
		fail_msg("status %d: %s", err.status, err.message);
	waitpid(server, &status, 0);
	assert_int_equal(status, 0);
	assert_int_equal(accept(target, NULL, NULL), -1); /* nobody came */
	fork_state_free(&fork);
	free(url);
	free(clone);
	free(origin);
	close(listener);
	close(target);
}

static void secrets_are_told_from_other_files(void **state)
{
	static const char *const secrets[] = {"my token 1", "short", NULL};
	static const char *const names[] = {
		".env", "a/.env.prod", "id_rsa", "w/hotkeys/x", "hotkeys/x", ".quasar/state.db", NULL};
	static const char *const harmless[] = {
		".env.example", "env", "fla/id_rsa.md", "key.py", "hotkeys", "quasar/x", NULL};
	static const char *const contents[] = {"x my token 1 y", "$NACL", "-----BEGIN RSA PRIVATE KEY-----",
		"ghp_0123456789abcdefghijABCDEFGHIJ012345", NULL};
	static const char *const open[] = {
		"", "short", "ghp_0123", "$NAC", "BEGIN PRIVATE KEY", "my token", NULL};

	(void)state;
	for (size_t i = 0; names[i]; i++)
		assert_non_null(leak_in_name(names[i]));
	for (size_t i = 0; harmless[i]; i++)
		assert_null(leak_in_name(harmless[i]));
	for (size_t i = 0; contents[i]; i++)
		assert_non_null(leak_in_content(contents[i], strlen(contents[i]), secrets));
	for (size_t i = 0; open[i]; i++)
		assert_null(leak_in_content(open[i], strlen(open[i]), secrets));
	assert_null(leak_in_content(NULL, 0, NULL));
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_DIRECTORY(settings_survive_writing),
		IN_DIRECTORY(settings_are_read_as_people_write_them),
		IN_DIRECTORY(what_concerns_computing_reaches_the_environment),
		IN_DIRECTORY(names_that_nothing_reads_are_found),
		IN_DIRECTORY(bad_settings_are_named_by_line),
		IN_DIRECTORY(a_setting_is_saved_where_it_stands),
		IN_DIRECTORY(settings_are_bounded),
		cmocka_unit_test(deployed_rule),
		cmocka_unit_test(strict_rule),
		cmocka_unit_test(strict_implies_deployed),
		cmocka_unit_test(forbidden_texts),
		cmocka_unit_test(any_bytes_are_inspected),
		IN_DIRECTORY(rules_fail_where_they_hold),
		IN_DIRECTORY(forks_are_inspected),
		cmocka_unit_test(git_state_is_judged),
		IN_DIRECTORY(a_submission_goes_through_its_steps),
		IN_DIRECTORY(submissions_are_listed),
		IN_DIRECTORY(what_was_prepared_survives_a_kill),
		IN_DIRECTORY(two_processes_share_a_store),
		IN_DIRECTORY(the_store_is_private),
		IN_DIRECTORY(what_became_of_a_request_is_kept),
		IN_DIRECTORY(a_score_is_kept_and_goes_along),
		IN_DIRECTORY(an_older_store_is_opened_and_imported),
		cmocka_unit_test(images_are_named_as_registries_take_them),
		cmocka_unit_test(a_fork_belongs_to_the_name_in_its_url),
		IN_DIRECTORY(a_damaged_or_foreign_store_is_left_alone),
		IN_DIRECTORY(a_store_appears_whole_or_not_at_all),
		IN_DIRECTORY(a_workspace_is_held_by_one_process),
		IN_DIRECTORY(one_process_at_a_time_submits),
		cmocka_unit_test(the_token_is_for_github_alone),
		cmocka_unit_test(a_stranger_reaches_public_addresses_only),
		IN_DIRECTORY(a_moved_head_is_noticed),
		cmocka_unit_test(urls_are_cleaned),
		cmocka_unit_test(secrets_are_told_from_other_files),
		IN_DIRECTORY(a_fork_is_made_and_cloned),
		IN_DIRECTORY(clones_that_must_fail),
		IN_DIRECTORY(a_silent_remote_is_given_up),
		IN_DIRECTORY(a_redirect_to_another_host_is_not_followed),
	};

	log_set_level(LOG_QUIET);
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests_name("space", tests, NULL, NULL);
}
