/* hotkey: the key that signs for a command with the options OPTS_WALLET. */
#pragma once

#include "cli/command.h"
#include "key/keypair.h"
#include "key/ss58.h"
#include "key/wallet.h"

/* Opens the hotkey that --wallet, --hotkey and --path name, with the password from WALLET_PASSWORD,
 * bittensor-wallet's variable or the terminal. STATUS_ENVIRONMENT with a hint when it cannot. */
struct keypair *require_hotkey(const struct invocation *invocation, struct error *err);

/* Where a command's passwords come from. Holds as long as the invocation. */
struct password_source password_source(const struct invocation *invocation);

/* The address of that hotkey, without opening it; "" when its wallet is not here or does not tell. */
void hotkey_own_address(const struct invocation *invocation, char own[SS58_SIZE]);
