/* hotkey: the key that signs for a command with the options OPTS_WALLET. */
#pragma once

#include "command.h"
#include "key/keypair.h"

/* Opens the hotkey that --wallet, --hotkey and --path name, with the password from WALLET_PASSWORD,
 * bittensor-wallet's variable or the terminal. STATUS_ENVIRONMENT with a hint when it cannot. */
struct keypair *require_hotkey(const struct invocation *invocation, struct error *err);
