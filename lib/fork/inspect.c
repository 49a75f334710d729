#include "fork/inspect.h"

#include <ctype.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"
#include "fork/fork.h"
#include "fork/fork_text.h"
#include "fork/tree_rule.h"

#define WALK_LIMIT 500000 /* files and directories looked at for a .cu */

const char *const inspect_target_files[] = {
	"chunk.py",
	"chunk_intra_token_parallel.py",
	"forward_substitution.py",
	"fused_recurrent.py",
	"gate.py",
	NULL,
};
#define TARGET_COUNT 5
#define CHUNK 0 /* index of chunk.py, the file with required imports */

const char *const inspect_deployed_names[INSPECT_DEPLOYED_COUNT] = {
	"autocast_custom_bwd",
	"autocast_custom_fwd",
	"autotune_cache_kwargs",
	"check_shared_mem",
	"input_guard",
};

const char *const inspect_strict_lines[INSPECT_STRICT_COUNT] = {
	"import torch",
	"import torch.nn.functional as F",
	"import triton",
	"import triton.language as tl",
	"from fla.ops.utils.index import prepare_chunk_indices",
	"from fla.ops.quasar.forward_substitution import forward_substitution_kernel",
	"from fla.utils import IS_AMD",
	"from fla.utils import autocast_custom_bwd",
	"from fla.utils import autocast_custom_fwd",
	"from fla.utils import autotune_cache_kwargs",
	"from fla.utils import check_shared_mem",
	"from fla.utils import input_guard",
};

const char *const inspect_forbidden_texts[INSPECT_FORBIDDEN_COUNT] = {
	"from fla.ops.gla",
	"from fla.ops.kda",
	"import fla.ops.gla",
	"import fla.ops.kda",
};

/* --- the rules on text --------------------------------------------------------------------------- */

/* Where `part` is in `text`, NULL when nowhere. */
static const char *find(const char *text, size_t length, const char *part)
{
	return memmem(text, length, part, strlen(part));
}

/* Takes the next line off the text, without its end. False when there is none left. */
static bool next_line(const char **text, size_t *length, const char **line, size_t *line_length)
{
	size_t used = 0;

	if (!*length)
		return false;
	while (used < *length && (*text)[used] != '\n' && (*text)[used] != '\r')
		used++;
	*line = *text;
	*line_length = used;
	if (used < *length)
		used += (*text)[used] == '\r' && used + 1 < *length && (*text)[used + 1] == '\n' ? 2 : 1;
	*text += used;
	*length -= used;
	return true;
}

static bool is_blank(char byte)
{
	return byte == ' ' || byte == '\t' || byte == '\f';
}

/* Whether the line is `wanted`, but for spaces around it and a comment behind. */
static bool line_is(const char *line, size_t length, const char *wanted)
{
	size_t size = strlen(wanted);

	while (length && is_blank(*line))
		line++, length--;
	if (length < size || memcmp(line, wanted, size))
		return false;
	line += size;
	length -= size;
	while (length && is_blank(*line))
		line++, length--;
	return !length || *line == '#';
}

/* The length of the line without its comment. Like the validators, looks at the first # only, and takes it
 * for part of a string when an odd number of either quote stands before it. */
static size_t without_comment(const char *line, size_t length)
{
	const char *comment = memchr(line, '#', length);
	unsigned single = 0, dual = 0;

	if (!comment)
		return length;
	for (const char *at = line; at < comment; at++) {
		single += *at == '\'';
		dual += *at == '"';
	}
	return single % 2 || dual % 2 ? length : (size_t)(comment - line);
}

/* The text as the deployed rule sees it: comments cut off, in lower case, lines ended by LF. */
static void normalize(const char *text, size_t length, struct buffer *out)
{
	const char *line;
	size_t size;

	while (next_line(&text, &length, &line, &size)) {
		buffer_append(out, line, without_comment(line, size));
		buffer_append(out, "\n", 1);
	}
	for (size_t i = 0; i < out->length; i++)
		out->data[i] = (char)tolower((unsigned char)out->data[i]);
}

/* A normalized text. */
struct lines {
	const char *text;
	size_t length;
};

static size_t line_number(const struct lines *lines, const char *at)
{
	size_t number = 1;

	for (const char *byte = lines->text; byte < at; byte++)
		number += *byte == '\n';
	return number;
}

/* Notes every name that stands in text[0 … length) and is not found yet. */
static void find_names(
	const struct lines *lines, const char *text, size_t length, struct import_findings *findings)
{
	for (int i = 0; i < INSPECT_DEPLOYED_COUNT; i++) {
		const char *at = findings->deployed[i] ? NULL : find(text, length, inspect_deployed_names[i]);

		if (at)
			findings->deployed[i] = line_number(lines, at);
	}
}

/* Names in a "from fla.utils import" line, or in the parenthesised block that it opens. */
static void find_in_blocks(const struct lines *lines, struct import_findings *findings)
{
	const char *rest = lines->text, *line, *block = NULL;
	size_t left = lines->length, size;

	while (next_line(&rest, &left, &line, &size)) {
		if (find(line, size, "from fla.utils import")) {
			block = memchr(line, '(', size) ? line : NULL;
			if (!block)
				find_names(lines, line, size, findings);
			if (!findings->utils)
				findings->utils = line_number(lines, line);
		}
		if (block && memchr(line, ')', size)) {
			find_names(lines, block, (size_t)(line + size - block), findings);
			block = NULL;
		}
	}
}

/* The last resort: the name where an import might end with it, anywhere. */
static void find_anywhere(const struct lines *lines, struct import_findings *findings)
{
	static const char *const forms[] = {
		"from fla.utils import %s", "from fla.utils import (%s", "%s,", "%s)"};

	for (int i = 0; i < INSPECT_DEPLOYED_COUNT; i++) {
		for (size_t form = 0; form < 4 && !findings->deployed[i]; form++) {
			char part[80];
			const char *at;

			snprintf(part, sizeof(part), forms[form], inspect_deployed_names[i]);
			at = find(lines->text, lines->length, part);
			if (at)
				findings->deployed[i] = line_number(lines, at);
		}
	}
}

static void apply_strict(const char *text, size_t length, struct import_findings *findings)
{
	const char *line;
	size_t size, number = 0;

	while (next_line(&text, &length, &line, &size)) {
		number++;
		for (int i = 0; i < INSPECT_STRICT_COUNT; i++) {
			const char *wanted = inspect_strict_lines[i];

			if (!findings->strict[i] && line_is(line, size, wanted))
				findings->strict[i] = number;
			if (!findings->mentioned[i] && find(line, size, strrchr(wanted, ' ') + 1))
				findings->mentioned[i] = number;
		}
		for (int i = 0; i < INSPECT_FORBIDDEN_COUNT; i++)
			if (!findings->forbidden[i] && find(line, size, inspect_forbidden_texts[i]))
				findings->forbidden[i] = number;
	}
}

void inspect_imports(const char *text, size_t length, struct import_findings *findings)
{
	struct buffer normal = {0};
	struct lines lines;

	*findings = (struct import_findings){0};
	apply_strict(text, length, findings);
	normalize(text, length, &normal);
	lines = (struct lines){normal.data, normal.length};
	if (lines.length) {
		find_in_blocks(&lines, findings);
		find_anywhere(&lines, findings);
	}
	buffer_free(&normal);
}

/* --- the files of a fork ------------------------------------------------------------------------- */

static void check_files(const struct fork_text targets[TARGET_COUNT], struct check_list *checks)
{
	struct buffer faults = {0};

	for (int i = 0; i < TARGET_COUNT; i++)
		if (targets[i].fault)
			buffer_printf(&faults, "%s" INSPECT_FOLDER "%s %s", faults.length ? "; " : "",
				inspect_target_files[i], targets[i].fault);
	if (faults.length)
		check_add(checks, "files", CHECK_FAIL,
			"A fork without these five files scores zero. Restore them, for instance with: "
			"git checkout HEAD -- " INSPECT_FOLDER,
			"%s", faults.data);
	else
		check_add(checks, "files", CHECK_OK, NULL, "all five are in " INSPECT_FOLDER);
	buffer_free(&faults);
}

static void check_deployed(
	const struct import_findings *findings, enum check_status bad, struct check_list *checks)
{
	struct buffer missing = {0};

	for (int i = 0; i < INSPECT_DEPLOYED_COUNT; i++)
		if (!findings->deployed[i])
			buffer_printf(
				&missing, "%s%s", missing.length ? ", " : "", inspect_deployed_names[i]);
	if (missing.length)
		check_add(checks, "imports.deployed", bad,
			"By the rule of February 2026 a fork without them scores zero. Add to chunk.py, for each of them: from "
			"fla.utils import NAME",
			INSPECT_FOLDER "chunk.py:%zu: %s %s", findings->utils ? findings->utils : 1,
			findings->utils ? "`from fla.utils import` does not bring in"
					: "no `from fla.utils import`, so not",
			missing.data);
	else
		check_add(checks, "imports.deployed", CHECK_OK, NULL,
			"chunk.py imports the five names that validators look for");
	buffer_free(&missing);
}

static void check_strict(const struct import_findings *findings, bool strict, struct check_list *checks)
{
	struct buffer missing = {0};
	int count = 0;

	for (int i = 0; i < INSPECT_STRICT_COUNT; i++) {
		if (findings->strict[i])
			continue;
		buffer_printf(&missing, "%s`%s`", count++ ? ", " : "", inspect_strict_lines[i]);
		if (findings->mentioned[i])
			buffer_printf(&missing, " (in another form on line %zu)", findings->mentioned[i]);
	}
	if (count)
		check_add(checks, "imports.strict", strict ? CHECK_FAIL : CHECK_WARN,
			"Put each of these imports into chunk.py exactly as shown, on its own line, to "
			"pass every version of the rule.",
			INSPECT_FOLDER "chunk.py lacks %d of the %d lines of the miner guide: %s", count,
			INSPECT_STRICT_COUNT, missing.data);
	else
		check_add(checks, "imports.strict", CHECK_OK, NULL,
			"chunk.py has the twelve import lines of the miner guide");
	buffer_free(&missing);
}

static void check_forbidden(const struct fork_text targets[TARGET_COUNT],
	const struct import_findings findings[TARGET_COUNT], enum check_status bad, struct check_list *checks)
{
	struct buffer found = {0};
	int unread = 0;

	for (int i = 0; i < TARGET_COUNT; i++) {
		unread += targets[i].fault != NULL;
		for (int j = 0; j < INSPECT_FORBIDDEN_COUNT; j++)
			if (findings[i].forbidden[j])
				buffer_printf(&found, "%s" INSPECT_FOLDER "%s:%zu: `%s`",
					found.length ? ", " : "", inspect_target_files[i],
					findings[i].forbidden[j], inspect_forbidden_texts[j]);
	}
	if (found.length)
		check_add(checks, "imports.forbidden", bad,
			"Remove the text: by the rule of February 2026 it scores zero, even in comments.",
			"%s", found.data);
	else if (unread == TARGET_COUNT)
		check_add(checks, "imports.forbidden", CHECK_SKIP, NULL, "there is no file to search");
	else
		check_add(checks, "imports.forbidden", CHECK_OK, NULL,
			"no import of fla.ops.gla or fla.ops.kda, not even in a comment");
	buffer_free(&found);
}

/* A .cu file below the directory, its path relative to it; NULL when there is none. The caller frees. */
static char *find_cuda_source(const char *root)
{
	char *const roots[] = {(char *)root, NULL};
	FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	char *found = NULL;
	FTSENT *entry;

	for (int seen = 0; walk && !found && seen < WALK_LIMIT && (entry = fts_read(walk)); seen++) {
		if (entry->fts_info == FTS_D && !strcmp(entry->fts_name, ".git"))
			fts_set(walk, entry, FTS_SKIP);
		else if (entry->fts_info == FTS_F && entry->fts_namelen > 3 &&
			!strcmp(entry->fts_name + entry->fts_namelen - 3, ".cu"))
			found = xstrdup(entry->fts_path + strlen(root) + 1);
	}
	if (walk)
		fts_close(walk);
	return found;
}

static void check_cuda_source(const char *root, struct check_list *checks)
{
	char *found = find_cuda_source(root);

	if (found)
		check_add(checks, "cuda_source", CHECK_OK, NULL, "%s", found);
	else
		check_add(checks, "cuda_source", CHECK_WARN,
			"Validators warn about it. `quasar export` puts in quasar's kernels.",
			"there is no .cu file in the fork");
	free(found);
}

/* The rules on text: February's, and the miner guide's. */
static void check_text(const char *root, const struct inspect_options *options, struct check_list *checks)
{
	struct fork_text targets[TARGET_COUNT];
	struct import_findings findings[TARGET_COUNT] = {0};
	enum check_status bad = options->rules == INSPECT_FEBRUARY ? CHECK_FAIL : CHECK_WARN;

	for (int i = 0; i < TARGET_COUNT; i++) {
		char *path = xprintf(INSPECT_FOLDER "%s", inspect_target_files[i]);

		fork_text_read(root, path, &targets[i]);
		if (targets[i].text.length)
			inspect_imports(targets[i].text.data, targets[i].text.length, &findings[i]);
		free(path);
	}
	check_files(targets, checks);
	if (targets[CHUNK].fault) {
		check_add(checks, "imports.deployed", CHECK_SKIP, NULL, "chunk.py %s", targets[CHUNK].fault);
		check_add(checks, "imports.strict", CHECK_SKIP, NULL, "chunk.py %s", targets[CHUNK].fault);
	} else {
		check_deployed(&findings[CHUNK], bad, checks);
		check_strict(&findings[CHUNK], options->strict, checks);
	}
	check_forbidden(targets, findings, bad, checks);
	for (int i = 0; i < TARGET_COUNT; i++)
		buffer_free(&targets[i].text);
}

enum inspect_rules inspect_rules_of(const struct api_version *version)
{
	return version->reads_trees ? INSPECT_APRIL : INSPECT_FEBRUARY;
}

int inspect_fork(
	const char *path, const struct inspect_options *options, struct check_list *checks, struct error *err)
{
	char *root = fork_root(path, err);
	int result;

	if (!root)
		return -1;
	check_text(root, options, checks);
	result = tree_rule_check(root, options->python,
		options->rules == INSPECT_APRIL ? CHECK_FAIL : CHECK_WARN, checks, err);
	if (!result)
		check_cuda_source(root, checks);
	free(root);
	return result;
}

/* --- what is committed and pushed ---------------------------------------------------------------- */

/* The part of a URL that names the repository: "github.com/you/fork" for https://github.com/you/fork.git
 * and git@github.com:you/fork alike. The caller frees. */
static char *repository_name(const char *url)
{
	const char *scheme = strstr(url, "://"), *at;
	char *name, *colon;
	size_t length;

	if (scheme)
		url = scheme + 3;
	at = strchr(url, '@');
	if (at && at < url + strcspn(url, "/"))
		url = at + 1;
	name = xstrdup(url);
	colon = scheme ? NULL : strchr(name, ':');
	if (colon)
		*colon = '/';
	length = strlen(name);
	while (length && name[length - 1] == '/')
		name[--length] = '\0';
	if (length > 4 && !strcmp(name + length - 4, ".git"))
		name[length - 4] = '\0';
	return name;
}

static bool same_repository(const char *one, const char *other)
{
	char *a = repository_name(one), *b = repository_name(other);
	bool same = !strcasecmp(a, b);

	free(a);
	free(b);
	return same;
}

static bool needs_ssh(const char *url)
{
	return !strncmp(url, "ssh://", 6) || (!strstr(url, "://") && strchr(url, '@') && strchr(url, ':'));
}

/* What mends the first of the problems that inspect_git() names. */
static const char *git_remedy(const struct fork_state *state, const char *url)
{
	if (!state->remote_url)
		return "In the fork: git remote add origin URL, then: quasar push";
	if (state->changed || !state->published)
		return "Validators see only what was pushed. Run: quasar push";
	if (needs_ssh(url))
		return "Set FORK_URL in .env to its https address.";
	return "Make FORK_URL in .env and the fork's remote \"origin\" point to the same repository.";
}

void inspect_git(
	const struct fork_state *state, const char *fork_url, bool submitting, struct check_list *checks)
{
	struct buffer problems = {0};
	const char *url = fork_url ? fork_url : state->remote_url;
	enum check_status bad = submitting ? CHECK_FAIL : CHECK_WARN;

	if (!state->commit[0]) {
		check_add(checks, "git", CHECK_FAIL, "Commit and push your work with: quasar push",
			"the fork has no commit");
		return;
	}
	if (state->changed)
		buffer_printf(&problems, "; %zu file%s not committed, including %s", state->changed,
			state->changed == 1 ? " is" : "s are", state->changed_name);
	if (!state->remote_url)
		buffer_text(&problems, "; there is no remote \"origin\"");
	else if (!state->published)
		buffer_printf(&problems, "; %zu commit%s not pushed to origin", state->ahead,
			state->ahead == 1 ? " is" : "s are");
	if (url && state->remote_url && !same_repository(url, state->remote_url))
		buffer_printf(
			&problems, "; validators will clone %s, but origin is %s", url, state->remote_url);
	else if (url && needs_ssh(url))
		buffer_printf(&problems, "; validators have no key for %s", url);
	if (problems.length)
		check_add(checks, "git", bad, git_remedy(state, url), "%.12s on %s: %s", state->commit,
			state->branch ? state->branch : "no branch", problems.data + 2);
	else
		check_add(checks, "git", CHECK_OK, NULL, "%.12s on %s, pushed to %s", state->commit,
			state->branch ? state->branch : "no branch", url);
	buffer_free(&problems);
}
