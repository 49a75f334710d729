/* wallet: Bittensor's folders of keys, WALLETS/WALLET/hotkeys/HOTKEY, with the key's public half in
 * HOTKEYpub.txt beside it. Coldkeys are never touched.
 *
 * `wallets` may begin with "~". Names of wallets and hotkeys are those of a folder and a file: STATUS_USAGE
 * when one could not be. All other errors are STATUS_ENVIRONMENT with a hint, unless something else is
 * said. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "key/keypair.h"
#include "key/password.h"
#include "key/ss58.h"

/* Loads a hotkey, ready for signing. The caller frees. */
struct keypair *wallet_open_hotkey(const char *wallets, const char *wallet, const char *hotkey,
	const struct password_source *password, struct error *err);

/* 0 when a hotkey of that name could be made, an error with a hint at --force when there is one. */
int wallet_check_absent(const char *wallets, const char *wallet, const char *hotkey, struct error *err);

enum wallet_save_mode {
	WALLET_NEW,     /* fail if the hotkey exists */
	WALLET_REPLACE, /* put it in the place of one that exists */
};

/* Writes the hotkey durably, files 0600 and new folders 0700. `password` encrypts it; NULL leaves it
 * plain. A person is asked for the password twice. STATUS_INTERRUPTED, with nothing written, when the user
 * asked to stop. */
int wallet_save_hotkey(const char *wallets, const char *wallet, const char *hotkey,
	const struct keypair *keypair, const struct password_source *password, enum wallet_save_mode mode,
	struct error *err);

/* What a hotkey's files tell without a password. */
struct hotkey {
	char *wallet, *name, *path;
	bool encrypted;
	bool exposed;            /* others than the owner may read or write it */
	char address[SS58_SIZE]; /* empty when nothing tells it: an encrypted key without its pub.txt */
	enum crypto_type type;
	char *fault; /* what is wrong with the file; NULL: nothing that shows */
};

/* Fills `out`, also with what is wrong with the files; to be freed. -1 when there is no such hotkey, or cannot be. */
int wallet_inspect_hotkey(
	const char *wallets, const char *wallet, const char *hotkey, struct hotkey *out, struct error *err);
void hotkey_free(struct hotkey *hotkey);

struct hotkey_list {
	struct hotkey *items; /* by wallet, then by name */
	size_t count;
};

/* Every hotkey under `wallets`, damaged ones too; none when the folder does not exist. */
int wallet_list(const char *wallets, struct hotkey_list *list, struct error *err);
void wallet_list_free(struct hotkey_list *list);
