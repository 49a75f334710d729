/* quasar wallet: hotkeys in Bittensor's layout. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/layout.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/secret.h"
#include "base/text.h"
#include "cli/hotkey.h"
#include "cli/table.h"
#include "cmd/commands.h"
#include "key/keypair.h"
#include "key/ss58.h"
#include "key/wallet.h"

/* More than any phrase with path and password. */
#define SECRET_LIMIT 4096

#define OPT_CRYPTO                                                                                           \
	{                                                                                                    \
		"crypto", 0, "KIND", NULL, "sr25519", "sr25519|ed25519",                                     \
			"Kind of key. Bittensor's hotkeys are sr25519."                                      \
	}
#define OPTS_WRITE                                                                                           \
	OPT_CRYPTO,                                                                                          \
		{"encrypt", 0, NULL, NULL, NULL, NULL,                                                       \
			"Encrypt the key file with WALLET_PASSWORD, or ask for a password."},                \
	{                                                                                                    \
		"force", 0, NULL, NULL, NULL, NULL, "Replace an existing hotkey."                            \
	}

static enum crypto_type crypto_option(const struct invocation *invocation)
{
	return !strcmp(arg_string(invocation, "crypto"), "ed25519") ? CRYPTO_ED25519 : CRYPTO_SR25519;
}

static const char *required(const struct invocation *invocation, const char *name, struct error *err)
{
	const char *value = arg_string(invocation, name);

	if (!value)
		error_set(err, STATUS_USAGE, "missing option --%s", name);
	return value;
}

static const char *address_text(const struct hotkey *hotkey)
{
	return hotkey->address[0] ? hotkey->address : "unknown without the password";
}

static void print_hotkey(const struct hotkey *hotkey)
{
	printf("wallet    %s\nhotkey    %s\naddress   %s\nkind      %s\nfile      %s%s\n", hotkey->wallet,
		hotkey->name, address_text(hotkey), crypto_type_name(hotkey->type), hotkey->path,
		hotkey->encrypted ? ", encrypted" : "");
}

static cJSON *hotkey_json(const struct hotkey *hotkey)
{
	cJSON *document = cJSON_CreateObject();

	cJSON_AddStringToObject(document, "wallet", hotkey->wallet);
	cJSON_AddStringToObject(document, "hotkey", hotkey->name);
	json_add_text(document, "address", hotkey->address[0] ? hotkey->address : NULL);
	cJSON_AddStringToObject(document, "crypto", crypto_type_name(hotkey->type));
	cJSON_AddBoolToObject(document, "encrypted", hotkey->encrypted);
	cJSON_AddStringToObject(document, "file", hotkey->path);
	if (hotkey->fault)
		cJSON_AddStringToObject(document, "fault", hotkey->fault);
	return document;
}

/* What the hotkey's options name, as its files have it. */
static int inspect(const struct invocation *invocation, struct hotkey *hotkey, struct error *err)
{
	return wallet_inspect_hotkey(arg_string(invocation, "path"), arg_string(invocation, "wallet"),
		arg_string(invocation, "hotkey"), hotkey, err);
}

static int check_absent(const struct invocation *invocation, struct error *err)
{
	if (arg_flag(invocation, "force"))
		return 0;
	return wallet_check_absent(arg_string(invocation, "path"), arg_string(invocation, "wallet"),
		arg_string(invocation, "hotkey"), err);
}

static int save(const struct invocation *invocation, const struct keypair *keypair, struct error *err)
{
	struct password_source password = password_source(invocation);
	bool encrypt = arg_flag(invocation, "encrypt");

	return wallet_save_hotkey(arg_string(invocation, "path"), arg_string(invocation, "wallet"),
		arg_string(invocation, "hotkey"), keypair, encrypt ? &password : NULL,
		arg_flag(invocation, "force") ? WALLET_REPLACE : WALLET_NEW, err);
}

/* For another hotkey than the settings name, the next command has to name it, too. */
static void print_next(const struct invocation *invocation)
{
	static const char *const options[] = {"wallet", "hotkey", "path"};

	fputs(invocation->workspace ? "Next: quasar register" : "Next: quasar init DIR", stdout);
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		char *word;

		if (!arg_given(invocation, options[i]))
			continue;
		word = shell_word(arg_string(invocation, options[i]));
		printf(" --%s %s", options[i], word);
		free(word);
	}
	putchar('\n');
}

/* Tells which key was written; `phrase` is shown if it is not NULL. */
static int report(const struct invocation *invocation, const char *phrase, struct error *err)
{
	struct hotkey hotkey;

	if (inspect(invocation, &hotkey, err) < 0)
		return -1;
	if (invocation->json) {
		cJSON *document = hotkey_json(&hotkey);

		if (phrase)
			cJSON_AddStringToObject(document, "mnemonic", phrase);
		output_json(document);
	} else {
		print_hotkey(&hotkey);
		if (phrase)
			printf("\nWrite this phrase down and keep it secret. It restores the key and "
			       "will not be shown again:\n\n"
			       "  %s\n\n",
				phrase);
		print_next(invocation);
	}
	hotkey_free(&hotkey);
	return 0;
}

/* --- new -------------------------------------------------------------------------------------- */

static int run_new(struct invocation *invocation, struct error *err)
{
	struct keypair *keypair = NULL;
	int64_t words;
	int result = -1;

	if (arg_integer(invocation, "words", 12, 24, &words, err) < 0 || check_absent(invocation, err) < 0)
		return -1;
	keypair = keypair_generate(crypto_option(invocation), (int)words, err);
	if (keypair && save(invocation, keypair, err) == 0)
		result = report(invocation, keypair_phrase(keypair), err);
	keypair_free(keypair);
	return result;
}

static const struct command cmd_new = {
	.name = "new",
	.summary = "create a hotkey and show its phrase once",
	.description =
		"Generates a new key, writes it where Bittensor's tools look for it, and shows the words "
		"that restore it. Only you can read the file; --encrypt also protects it with a password. "
		"An existing key is never overwritten without --force.",
	.opts =
		(const struct opt[]){
			OPTS_WALLET,
			{"words", 0, "N", NULL, "12", "12|15|18|21|24", "Number of words in the phrase."},
			OPTS_WRITE,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar wallet new", "the wallet and hotkey that the settings name"},
			{"quasar wallet new --wallet quasar_miner --hotkey second --words 24",
				"a second hotkey in the same wallet, with a longer phrase"},
			{"quasar wallet new --encrypt",
				"ask for a password and encrypt the key file with it"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run_new,
};

/* --- import ----------------------------------------------------------------------------------- */

static char *read_secret(struct error *err)
{
	char *text;
	size_t length;

	if (isatty(STDIN_FILENO))
		return secret_ask("Phrase, seed, private key or URI (not echoed): ", err);
	text = secret_read(STDIN_FILENO, "stdin", SECRET_LIMIT, &length, err);
	if (!text || strlen(text) == length)
		return text;
	sodium_free(text);
	error_set(err, STATUS_USAGE, "stdin is not text: it contains a zero byte");
	return NULL;
}

static int run_import(struct invocation *invocation, struct error *err)
{
	struct keypair *keypair = NULL;
	char *text;
	int result = -1;

	if (check_absent(invocation, err) < 0)
		return -1;
	text = read_secret(err);
	if (text)
		keypair = keypair_from_text(crypto_option(invocation), text, err);
	sodium_free(text);
	if (keypair && save(invocation, keypair, err) == 0)
		result = report(invocation, NULL, err);
	keypair_free(keypair);
	return result;
}

static const struct command cmd_import = {
	.name = "import",
	.summary = "restore a hotkey from its phrase, seed, private key or URI",
	.description =
		"Reads the secret from stdin, or asks for it on the terminal without echoing it. It is "
		"never taken from the command line, where others could see it. It can be\n\n"
		"a phrase of 12, 15, 18, 21 or 24 English words;\na seed of 64 hex digits;\nan sr25519 "
		"private key of 128 hex digits;\na phrase or key followed by a derivation path: "
		"PHRASE//hard/soft///password.\n\n"
		"Check that the address shown is the one you expect.",
	.opts =
		(const struct opt[]){
			OPTS_WALLET,
			OPTS_WRITE,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar wallet import --hotkey restored", "ask for the phrase"},
			{"quasar wallet import --hotkey restored < phrase.txt", "read it from a file"},
			{"gpg -d phrase.gpg | quasar wallet import --force",
				"read it from a pipe and replace the key"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run_import,
};

/* --- list ------------------------------------------------------------------------------------- */

static void print_list(const struct hotkey_list *list, const char *path)
{
	static const char *const headings[] = {"wallet", "hotkey", "address", "kind"};
	struct table table;

	if (!list->count) {
		layout_format(stdout, 0, "No hotkeys in %s. Create one with `quasar wallet new`.", path);
		return;
	}
	table_begin(&table, headings, "llll");
	for (size_t i = 0; i < list->count; i++) {
		const struct hotkey *hotkey = &list->items[i];

		path_warn_if_open(hotkey->path);
		table_cell(&table, "%s", hotkey->wallet);
		table_cell(&table, "%s", hotkey->name);
		table_cell(&table, "%s", hotkey->fault ? "damaged" : address_text(hotkey));
		if (hotkey->fault)
			table_cell(&table, "%s", hotkey->fault);
		else
			table_cell(&table, "%s%s", crypto_type_name(hotkey->type),
				hotkey->encrypted ? ", encrypted" : "");
	}
	table_print(&table, stdout);
}

static int run_list(struct invocation *invocation, struct error *err)
{
	const char *path = arg_string(invocation, "path");
	struct hotkey_list list;

	if (wallet_list(path, &list, err) < 0)
		return -1;
	if (invocation->json) {
		cJSON *document = cJSON_CreateObject();
		cJSON *hotkeys = cJSON_AddArrayToObject(document, "hotkeys");

		for (size_t i = 0; i < list.count; i++)
			cJSON_AddItemToArray(hotkeys, hotkey_json(&list.items[i]));
		output_json(document);
	} else {
		print_list(&list, path);
	}
	wallet_list_free(&list);
	return 0;
}

static const struct command cmd_list = {
	.name = "list",
	.summary = "list hotkeys and their addresses",
	.opts =
		(const struct opt[]){
			{"path", 0, "DIR", "BT_WALLET_PATH", NULL, NULL, "Folder that holds the wallets."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar wallet list", "every hotkey of every wallet"},
			{"quasar wallet list --json | jq -r '.hotkeys[].address'", "just the addresses"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run_list,
};

/* --- show ------------------------------------------------------------------------------------- */

/* Whether the secrets of a plain file belong to its address. */
static int check_secrets(const struct invocation *invocation, struct error *err)
{
	struct keypair *keypair = require_hotkey(invocation, err);

	keypair_free(keypair);
	return keypair ? 0 : -1;
}

static int run_show(struct invocation *invocation, struct error *err)
{
	struct hotkey hotkey;
	int result = 0;

	if (inspect(invocation, &hotkey, err) < 0)
		return -1;
	if (!hotkey.encrypted)
		result = check_secrets(invocation, err);
	else
		path_warn_if_open(hotkey.path);
	if (!result && hotkey.encrypted && hotkey.fault)
		result = error_set(err, STATUS_ENVIRONMENT, "%s: %s", hotkey.path, hotkey.fault);
	if (!result && invocation->json)
		output_json(hotkey_json(&hotkey));
	else if (!result)
		print_hotkey(&hotkey);
	hotkey_free(&hotkey);
	return result;
}

static const struct command cmd_show = {
	.name = "show",
	.summary = "show a hotkey's address, never its secrets",
	.description = "Shows the hotkey's address, and checks that every secret in an unencrypted key file "
		       "belongs to it. The address of an encrypted hotkey comes from its public half, "
		       "HOTKEYpub.txt.",
	.opts =
		(const struct opt[]){
			OPTS_WALLET,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar wallet show", "the hotkey that the settings name"},
			{"quasar wallet show --json | jq -r .address", "just its address"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run_show,
};

/* --- sign and verify -------------------------------------------------------------------------- */

/* The bytes of --message-hex; the caller frees. */
static uint8_t *message_option(const struct invocation *invocation, size_t *length, struct error *err)
{
	const char *hex = required(invocation, "message-hex", err);
	uint8_t *message;

	if (!hex)
		return NULL;
	*length = (strlen(hex) - (strncmp(hex, "0x", 2) ? 0 : 2)) / 2;
	message = xmalloc(*length + 1);
	if (hex_decode(hex, message, *length) == 0)
		return message;
	free(message);
	error_set(err, STATUS_USAGE, "--message-hex: not pairs of hex digits");
	return NULL;
}

static int run_sign(struct invocation *invocation, struct error *err)
{
	uint8_t signature[SIGNATURE_LENGTH], *message;
	char hex[2 * SIGNATURE_LENGTH + 1];
	struct keypair *keypair = NULL;
	size_t length;
	int result = -1;

	message = message_option(invocation, &length, err);
	if (message)
		keypair = require_hotkey(invocation, err);
	if (keypair)
		result = keypair_sign(keypair, message, length, signature, err);
	if (!result) {
		hex_encode(signature, sizeof(signature), hex);
		if (invocation->json) {
			cJSON *document = cJSON_CreateObject();

			cJSON_AddStringToObject(document, "address", keypair_address(keypair));
			cJSON_AddStringToObject(document, "crypto", crypto_type_name(keypair_type(keypair)));
			cJSON_AddStringToObject(document, "signature", hex);
			output_json(document);
		} else {
			puts(hex);
		}
	}
	keypair_free(keypair);
	free(message);
	return result;
}

static const struct command cmd_sign = {
	.name = "sign",
	.summary = "sign bytes with a hotkey",
	.description = "Prints the signature as 128 hex digits.",
	.opts =
		(const struct opt[]){
			OPTS_WALLET,
			{"message-hex", 0, "HEX", NULL, NULL, NULL, "The bytes to sign."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar wallet sign --message-hex \"$(printf hello | xxd -p)\"",
				"sign the five bytes of \"hello\""},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run_sign,
};

static int report_verdict(
	const struct invocation *invocation, const char *address, bool valid, struct error *err)
{
	if (invocation->json) {
		cJSON *document = cJSON_CreateObject();

		cJSON_AddBoolToObject(document, "valid", valid);
		cJSON_AddStringToObject(document, "address", address);
		output_json(document);
	} else {
		printf("The signature is %s.\n", valid ? "valid" : "not valid");
	}
	return valid ? 0 : error_set(err, STATUS_FAILED, "%s", "");
}

static int run_verify(struct invocation *invocation, struct error *err)
{
	const char *address = required(invocation, "address", err), *hex;
	uint8_t signature[SIGNATURE_LENGTH], public_key[PUBLIC_KEY_LENGTH], *message;
	size_t length;
	bool valid;

	if (!address || ss58_decode(address, public_key, err) < 0)
		return -1;
	hex = required(invocation, "signature", err);
	if (!hex)
		return -1;
	if (hex_decode(hex, signature, sizeof(signature)) < 0)
		return error_set(err, STATUS_USAGE, "--signature: a signature is 128 hex digits");
	message = message_option(invocation, &length, err);
	if (!message)
		return -1;
	valid = signature_verify(address, crypto_option(invocation), message, length, signature);
	free(message);
	return report_verdict(invocation, address, valid, err);
}

static const struct command cmd_verify_signature = {
	.name = "verify",
	.summary = "verify a signature",
	.description =
		"Exits with 0 if the signature was made by that address over these bytes, and with 1 if "
		"not.",
	.opts =
		(const struct opt[]){
			{"address", 0, "ADDRESS", NULL, NULL, NULL, "SS58 address of the signer."},
			{"message-hex", 0, "HEX", NULL, NULL, NULL, "The bytes that were signed."},
			{"signature", 0, "HEX", NULL, NULL, NULL, "The signature, 128 hex digits."},
			OPT_CRYPTO,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar wallet verify --address 5F3s.. --message-hex 68656c6c6f --signature 4ed2..",
				"did that address sign \"hello\"?"},
			{0},
		},
	.exits = (const enum status[]){STATUS_FAILED, 0},
	.run = run_verify,
};

const struct command cmd_wallet = {
	.group = "Set up",
	.name = "wallet",
	.summary = "create, restore and use the hotkey that signs for you",
	.subcommands =
		(const struct command *const[]){
			&cmd_new,
			&cmd_import,
			&cmd_list,
			&cmd_show,
			&cmd_sign,
			&cmd_verify_signature,
			NULL,
		},
};
