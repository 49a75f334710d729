#include "key/wallet.h"

#include <dirent.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/secret.h"
#include "base/text.h"
#include "key/keyfile.h"
#include "key/password.h"

#define PUBLIC_SUFFIX "pub.txt"
#define NAME_MAX_LENGTH 200

/* --- where things are ------------------------------------------------------------------------- */

struct paths {
	char *directory;   /* WALLETS/WALLET/hotkeys */
	char *key;         /* in it: HOTKEY */
	char *public_half; /* and HOTKEYpub.txt */
};

static bool has_suffix(const char *text, const char *suffix)
{
	size_t length = strlen(text), suffix_length = strlen(suffix);

	return length >= suffix_length && !strcmp(text + length - suffix_length, suffix);
}

static int check_name(const char *what, const char *name, struct error *err)
{
	if (name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) <= NAME_MAX_LENGTH &&
		!has_suffix(name, PUBLIC_SUFFIX))
		return 0;
	error_set(err, STATUS_USAGE, "\"%.64s\" is not a valid name for a %s", name, what);
	return error_hint(err,
		"A name contains no slash, does not start with a dot and does not end with %s.",
		PUBLIC_SUFFIX);
}

static char *hotkeys_directory(const char *wallets, const char *wallet)
{
	char *root = path_expand(wallets);
	char *folder = path_join(root, wallet);
	char *directory = path_join(folder, "hotkeys");

	free(root);
	free(folder);
	return directory;
}

static int paths_make(
	struct paths *paths, const char *wallets, const char *wallet, const char *hotkey, struct error *err)
{
	if (check_name("wallet", wallet, err) < 0 || check_name("hotkey", hotkey, err) < 0)
		return -1;
	paths->directory = hotkeys_directory(wallets, wallet);
	paths->key = path_join(paths->directory, hotkey);
	paths->public_half = xprintf("%s" PUBLIC_SUFFIX, paths->key);
	return 0;
}

static void paths_free(struct paths *paths)
{
	free(paths->directory);
	free(paths->key);
	free(paths->public_half);
}

/* --- reading ---------------------------------------------------------------------------------- */

static char *read_file(const char *path, size_t *length, struct error *err)
{
	int fd = file_open(path, err);
	char *content = fd < 0 ? NULL : secret_read(fd, path, KEYFILE_LIMIT, length, err);

	if (fd >= 0)
		close(fd);
	return content;
}

static int refuse_missing(
	const struct paths *paths, const char *wallet, const char *hotkey, struct error *err)
{
	char *wallet_word = shell_word(wallet), *hotkey_word = shell_word(hotkey);

	error_set(err, STATUS_ENVIRONMENT, "wallet \"%s\" has no hotkey \"%s\": %s does not exist", wallet,
		hotkey, paths->key);
	error_hint(err,
		"Create it with `quasar wallet new --wallet %s --hotkey %s`, or choose another one from "
		"`quasar wallet list`.",
		wallet_word, hotkey_word);
	free(wallet_word);
	free(hotkey_word);
	return -1;
}

static char *decrypt(const char *path, const char *content, size_t *length,
	const struct password_source *source, struct error *err)
{
	char *origin = NULL, *json = NULL;
	size_t size = *length;

	for (int left = PASSWORD_ATTEMPTS - 1; !json; left--) {
		char *password = password_find(source, path, PASSWORD_KNOWN, &origin, err);

		if (!password)
			break;
		json = keyfile_decrypt(content, size, password, length, err);
		sodium_free(password);
		if (!json && origin)
			error_hint(err, "The password came from %s.", origin);
		if (!json)
			error_context(err, "cannot decrypt %s", path);
		if (origin || !left)
			break;
		if (!json)
			log_warn("%s; try again", err->message);
	}
	free(origin);
	return json;
}

static int refuse_encryption(const char *path, const char *name, struct error *err)
{
	error_set(err, STATUS_ENVIRONMENT, "%s is encrypted in an old format that is not supported: %s", path,
		name);
	return error_hint(err,
		"Convert it with Bittensor's tools, in Python: "
		"bittensor_wallet.Keyfile(path).check_and_update_encryption(). Or restore it from its "
		"phrase: `quasar wallet import --encrypt --force`.");
}

/* The JSON text of a key file, which may be its content as it stands. Takes the content over. */
static char *unlock(const char *path, char *content, size_t *length, const struct password_source *source,
	struct error *err)
{
	char *json = NULL;

	switch (keyfile_encryption(content, *length)) {
	case KEYFILE_PLAIN:
		return content;
	case KEYFILE_NACL:
		json = decrypt(path, content, length, source, err);
		break;
	case KEYFILE_ANSIBLE:
		refuse_encryption(path, "an Ansible vault", err);
		break;
	case KEYFILE_FERNET:
		refuse_encryption(path, "Fernet", err);
		break;
	}
	sodium_free(content);
	return json;
}

static void explain_damage(const char *path, struct error *err)
{
	error_context(err, "%s is not a valid key file", path);
	error_hint(err, "Restore it from a backup, or from its phrase: `quasar wallet import --force`.");
}

struct keypair *wallet_open_hotkey(const char *wallets, const char *wallet, const char *hotkey,
	const struct password_source *password, struct error *err)
{
	struct keypair *keypair = NULL;
	struct paths paths;
	char *text = NULL;
	size_t length;

	if (paths_make(&paths, wallets, wallet, hotkey, err) < 0)
		return NULL;
	if (!path_exists(paths.key))
		refuse_missing(&paths, wallet, hotkey, err);
	else
		text = read_file(paths.key, &length, err);
	if (text)
		text = unlock(paths.key, text, &length, password, err);
	if (text) {
		keypair = keyfile_parse(text, length, err);
		if (!keypair)
			explain_damage(paths.key, err);
	}
	sodium_free(text);
	paths_free(&paths);
	return keypair;
}

/* --- writing ---------------------------------------------------------------------------------- */

static int refuse_overwrite(const char *path, struct error *err)
{
	error_set(err, STATUS_ENVIRONMENT, "there is already a hotkey at %s", path);
	return error_hint(err,
		"Choose another name, or use --force to replace it. Without its phrase or a copy, the old "
		"key is then lost for good.");
}

int wallet_check_absent(const char *wallets, const char *wallet, const char *hotkey, struct error *err)
{
	struct paths paths;
	int result = 0;

	if (paths_make(&paths, wallets, wallet, hotkey, err) < 0)
		return -1;
	if (path_exists(paths.key))
		result = refuse_overwrite(paths.key, err);
	paths_free(&paths);
	return result;
}

/* What is to be written: JSON, or that encrypted. */
static int make_content(const char *path, const char *json, const struct password_source *source,
	struct buffer *content, struct error *err)
{
	char *origin, *password;
	int result;

	password = password_find(source, path, PASSWORD_NEW, &origin, err);
	free(origin);
	if (!password)
		return -1;
	result = keyfile_encrypt(json, password, content, err);
	sodium_free(password);
	return result;
}

/* The key, then its public half. The old public half goes first, so that it never stands beside a key that
 * is not its own. */
static int write_files(const struct paths *paths, const struct keypair *keypair, const char *content,
	size_t length, enum wallet_save_mode mode, struct error *err)
{
	char *public_half = keyfile_format_public(keypair);
	int result = -1;

	directory_sweep(paths->directory); /* a key that an interrupted call left half made */
	if (interrupted())
		error_set(err, STATUS_INTERRUPTED, "interrupted: nothing was written");
	else if (directory_make(paths->directory, 0700, err) < 0)
		error_hint(err, "Use --path to name a wallet folder that you can write to.");
	else if (mode == WALLET_NEW && path_exists(paths->key))
		refuse_overwrite(paths->key, err);
	else if (unlink(paths->public_half) < 0 && errno != ENOENT)
		error_set(err, STATUS_ENVIRONMENT, "cannot replace %s: %s", paths->public_half,
			strerror(errno));
	else if (file_write(paths->key, content, length, 0600, mode == WALLET_NEW ? FILE_NEW : FILE_REPLACE,
			 err) == 0)
		result = file_write(
			paths->public_half, public_half, strlen(public_half), 0600, FILE_REPLACE, err);
	sodium_free(public_half);
	return result;
}

int wallet_save_hotkey(const char *wallets, const char *wallet, const char *hotkey,
	const struct keypair *keypair, const struct password_source *password, enum wallet_save_mode mode,
	struct error *err)
{
	struct buffer encrypted = {0};
	struct paths paths;
	char *json;
	int result = 0;

	if (paths_make(&paths, wallets, wallet, hotkey, err) < 0)
		return -1;
	json = keyfile_format(keypair);
	if (password)
		result = make_content(paths.key, json, password, &encrypted, err);
	if (!result && password)
		result = write_files(&paths, keypair, encrypted.data, encrypted.length, mode, err);
	else if (!result)
		result = write_files(&paths, keypair, json, strlen(json), mode, err);
	buffer_free(&encrypted);
	sodium_free(json);
	paths_free(&paths);
	return result;
}

/* --- looking ---------------------------------------------------------------------------------- */

static int inspect(const struct paths *paths, struct hotkey *out, struct error *err)
{
	size_t length;
	char *content = read_file(paths->key, &length, err);
	int result = 0;

	if (!content)
		return -1;
	out->encrypted = keyfile_encryption(content, length) != KEYFILE_PLAIN;
	if (out->encrypted && path_exists(paths->public_half)) {
		sodium_free(content);
		content = read_file(paths->public_half, &length, err);
		result = content ? keyfile_parse_public(content, length, &out->type, out->address, err) : -1;
	} else if (!out->encrypted) {
		result = keyfile_parse_public(content, length, &out->type, out->address, err);
	}
	sodium_free(content);
	return result;
}

int wallet_inspect_hotkey(
	const char *wallets, const char *wallet, const char *hotkey, struct hotkey *out, struct error *err)
{
	struct error fault = {0};
	struct stat status;
	struct paths paths;
	int result = 0;

	if (paths_make(&paths, wallets, wallet, hotkey, err) < 0)
		return -1;
	if (path_exists(paths.key)) {
		*out = (struct hotkey){.wallet = xstrdup(wallet),
			.name = xstrdup(hotkey),
			.path = xstrdup(paths.key),
			.type = CRYPTO_SR25519};
		out->exposed = stat(paths.key, &status) == 0 && (status.st_mode & 077);
		if (inspect(&paths, out, &fault) < 0)
			out->fault = xstrdup(fault.message);
	} else {
		result = refuse_missing(&paths, wallet, hotkey, err);
	}
	paths_free(&paths);
	return result;
}

void hotkey_free(struct hotkey *hotkey)
{
	free(hotkey->wallet);
	free(hotkey->name);
	free(hotkey->path);
	free(hotkey->fault);
	*hotkey = (struct hotkey){0};
}

static void list_hotkey(const char *wallets, const char *wallet, const char *name, struct hotkey_list *list)
{
	struct hotkey found;
	struct error ignored;

	if (wallet_inspect_hotkey(wallets, wallet, name, &found, &ignored) < 0)
		return; /* gone in the meantime, or in a folder whose name no wallet can have */
	list->items = xrealloc(list->items, (list->count + 1) * sizeof(*list->items));
	list->items[list->count++] = found;
}

static bool is_hotkey_name(const char *name)
{
	struct error ignored;

	return check_name("hotkey", name, &ignored) == 0;
}

static void list_wallet(const char *wallets, const char *wallet, struct hotkey_list *list)
{
	char *path = hotkeys_directory(wallets, wallet);
	DIR *directory = opendir(path);
	struct dirent *entry;

	free(path);
	if (!directory)
		return;
	while ((entry = readdir(directory)))
		if (is_hotkey_name(entry->d_name))
			list_hotkey(wallets, wallet, entry->d_name, list);
	closedir(directory);
}

static int compare(const void *left, const void *right)
{
	const struct hotkey *a = left, *b = right;
	int order = strcmp(a->wallet, b->wallet);

	return order ? order : strcmp(a->name, b->name);
}

int wallet_list(const char *wallets, struct hotkey_list *list, struct error *err)
{
	char *root = path_expand(wallets);
	DIR *directory = opendir(root);
	struct dirent *entry;
	int result = 0;

	*list = (struct hotkey_list){0};
	if (!directory && errno != ENOENT)
		result = error_set(err, STATUS_ENVIRONMENT, "cannot read %s: %s", root, strerror(errno));
	while (directory && (entry = readdir(directory)))
		if (entry->d_name[0] != '.')
			list_wallet(wallets, entry->d_name, list);
	if (directory)
		closedir(directory);
	if (list->count)
		qsort(list->items, list->count, sizeof(*list->items), compare);
	free(root);
	return result;
}

void wallet_list_free(struct hotkey_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		hotkey_free(&list->items[i]);
	free(list->items);
	*list = (struct hotkey_list){0};
}
