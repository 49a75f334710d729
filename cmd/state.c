/* quasar export-state, quasar import-state: the journal of submissions on its way to another machine. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/secret.h"
#include "cmd/commands.h"
#include "key/password.h"
#include "key/sealed.h"
#include "space/store.h"

/* Thousands of times what a miner's journal comes to. */
#define FILE_LIMIT ((size_t)1 << 30)

/* The passphrase of the setting, else of the terminal; free with sodium_free. */
static char *find_passphrase(
	const struct invocation *invocation, const char *path, enum password_use use, struct error *err)
{
	const char *setting = settings_get(invocation->settings, "QUASAR_PASSPHRASE", NULL);
	struct password_source source = {.ask = secret_ask};
	char *passphrase;

	if (setting) {
		size_t size = strlen(setting) + 1;

		return memcpy(secret_alloc(size), setting, size);
	}
	passphrase = password_ask(&source, path, use, err);
	if (!passphrase && err->status == STATUS_ENVIRONMENT)
		error_hint(err,
			"Enter the passphrase on a terminal, or set QUASAR_PASSPHRASE in the environment.");
	return passphrase;
}

static struct store *open_store(const struct invocation *invocation, struct error *err)
{
	const char *directory = require_workspace(invocation, err);

	return directory ? store_open(directory, err) : NULL;
}

/* --- export ----------------------------------------------------------------------------------- */

static int write_sealed(struct store *store, const char *path, const char *passphrase,
	enum file_write_mode mode, struct error *err)
{
	struct buffer sealed = {0};
	size_t length;
	void *bytes = store_save(store, &length, err);
	int result = bytes ? sealed_make(bytes, length, passphrase, &sealed, err) : -1;

	sodium_free(bytes);
	if (!result)
		result = file_write(path, sealed.data, sealed.length, 0600, mode, err);
	buffer_free(&sealed);
	return result;
}

/* How many submissions the store holds; -1 on error. */
static int64_t count_submissions(struct store *store, struct error *err)
{
	struct submission_list list;
	int64_t count;

	if (store_submissions(store, NULL, &list, err) < 0)
		return -1;
	count = (int64_t)list.count;
	submission_list_free(&list);
	return count;
}

static void report_export(const struct invocation *invocation, const char *path, int64_t count)
{
	if (invocation->json) {
		cJSON *document = cJSON_CreateObject();

		cJSON_AddStringToObject(document, "file", path);
		cJSON_AddNumberToObject(document, "submissions", (double)count);
		output_json(document);
	} else {
		printf("%lld submission%s written to %s, encrypted.\nKeep the passphrase: without it, "
		       "nobody can read the file.\n",
			(long long)count, count == 1 ? "" : "s", path);
	}
}

static int run_export(struct invocation *invocation, struct error *err)
{
	const char *path = invocation->positionals[0];
	enum file_write_mode mode = arg_flag(invocation, "force") ? FILE_REPLACE : FILE_NEW;
	struct store *store = open_store(invocation, err);
	char *passphrase = NULL;
	int64_t count = -1;

	if (store && mode == FILE_NEW && path_exists(path)) {
		error_set(err, STATUS_ENVIRONMENT, "%s exists", path);
		error_hint(err, "Choose another file, or replace this one with --force.");
	} else if (store && file_try(path, err) == 0) {
		passphrase = find_passphrase(invocation, path, PASSWORD_NEW, err);
	}
	if (passphrase)
		count = count_submissions(store, err);
	if (count >= 0 && write_sealed(store, path, passphrase, mode, err) < 0)
		count = -1;
	if (count >= 0)
		report_export(invocation, path, count);
	sodium_free(passphrase);
	store_close(store);
	return count < 0 ? -1 : 0;
}

const struct command cmd_export_state = {
	.group = "Keep safe",
	.name = "export-state",
	.summary = "export all submissions, with their salts, to an encrypted file",
	.positionals = "FILE",
	.min_positionals = 1,
	.max_positionals = 1,
	.description =
		"Writes a consistent snapshot of the workspace's submissions to FILE, even while other "
		"commands are running. It includes the salts, without which commitments cannot be "
		"revealed. Use it as a backup, or to move to another machine.\n\n"
		"FILE is encrypted and authenticated with a passphrase (Argon2id, XChaCha20-Poly1305), "
		"which is taken from QUASAR_PASSPHRASE or asked for. It does not include settings, "
		"wallets or the fork.",
	.opts =
		(const struct opt[]){
			{"force", 0, NULL, NULL, NULL, NULL, "Replace FILE if it exists."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar export-state state.sealed", "ask for a passphrase, twice"},
			{"QUASAR_PASSPHRASE=$(pass quasar) quasar export-state --force ~/backup/state.sealed",
				"from cron, replacing yesterday's file"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run_export,
};

/* --- import ----------------------------------------------------------------------------------- */

/* What the file holds; free with sodium_free. */
static void *read_sealed(
	const struct invocation *invocation, const char *path, size_t *length, struct error *err)
{
	struct buffer sealed = {0};
	char *passphrase = NULL;
	void *bytes = NULL;

	if (file_read(path, FILE_LIMIT, &sealed, err) == 0)
		passphrase = find_passphrase(invocation, path, PASSWORD_KNOWN, err);
	if (passphrase) {
		bytes = sealed_open(sealed.data, sealed.length, passphrase, length, err);
		if (!bytes) {
			error_context(err, "cannot import %s", path);
			error_hint(err, "Nothing was changed.");
		}
	}
	sodium_free(passphrase);
	buffer_free(&sealed);
	return bytes;
}

static void report_import(
	const struct invocation *invocation, const char *path, const struct store_merge *merged)
{
	if (invocation->json) {
		cJSON *document = cJSON_CreateObject();

		cJSON_AddStringToObject(document, "file", path);
		cJSON_AddNumberToObject(document, "added", (double)merged->added);
		cJSON_AddNumberToObject(document, "known", (double)merged->known);
		cJSON_AddNumberToObject(document, "salts", (double)merged->salts);
		cJSON_AddNumberToObject(document, "unrevealed", (double)merged->unrevealed);
		output_json(document);
		return;
	}
	printf("%zu submission%s added, %zu already known.\n", merged->added, merged->added == 1 ? "" : "s",
		merged->known);
	if (merged->salts)
		printf("%zu of those lacked their salt, and got it from the file.\n", merged->salts);
	if (merged->unrevealed)
		printf("%zu of those added wait%s to be revealed: quasar reveal --wait\n", merged->unrevealed,
			merged->unrevealed == 1 ? "s" : "");
}

static int run_import(struct invocation *invocation, struct error *err)
{
	const char *path = invocation->positionals[0];
	struct store *store = open_store(invocation, err);
	struct store_merge merged;
	size_t length;
	void *bytes = store ? read_sealed(invocation, path, &length, err) : NULL;
	int result = bytes ? store_merge(store, bytes, length, &merged, err) : -1;

	sodium_free(bytes);
	if (!result)
		report_import(invocation, path, &merged);
	store_close(store);
	return result;
}

const struct command cmd_import_state = {
	.name = "import-state",
	.summary = "import submissions that export-state wrote",
	.positionals = "FILE",
	.min_positionals = 1,
	.max_positionals = 1,
	.description =
		"Adds the submissions in FILE to this workspace, with their salts and history. "
		"Submissions that are already here are unchanged, except that a missing salt is filled "
		"in; importing again changes nothing. If the passphrase is wrong or the file is damaged, "
		"nothing is changed.\n\n"
		"Reveal from one machine only: stop the miner on the old one first.",
	.examples =
		(const struct example[]){
			{"quasar init && quasar import-state state.sealed", "continue on a new machine"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run_import,
};
