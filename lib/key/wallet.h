/* wallet: Bittensor's folders of keys, WALLETS/WALLET/hotkeys/HOTKEY. Coldkeys are never touched. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "key/keypair.h"

/* Where the password of an encrypted key file comes from: `setting`, else bittensor-wallet's own
 * environment variable for that file, else `ask`. */
struct password_source {
	const char *setting; /* the value of WALLET_PASSWORD, or NULL */
	/* Asks a person; the answer comes from sodium_malloc. NULL: nobody to ask. terminal_ask_secret. */
	char *(*ask)(const char *prompt, struct error *err);
};

/* Loads a hotkey, ready for signing. `wallets` may begin with "~". No such wallet or hotkey, a damaged
 * file, no password or a wrong one: STATUS_ENVIRONMENT with a hint. The caller frees. */
struct keypair *wallet_open_hotkey(const char *wallets, const char *wallet, const char *hotkey,
	const struct password_source *password, struct error *err);
