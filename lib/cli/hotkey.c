#include "cli/hotkey.h"

#include <string.h>

#include "base/file.h"
#include "base/secret.h"

struct password_source password_source(const struct invocation *invocation)
{
	return (struct password_source){
		.setting = settings_get(invocation->settings, "WALLET_PASSWORD", NULL),
		.ask = secret_ask,
	};
}

struct keypair *require_hotkey(const struct invocation *invocation, struct error *err)
{
	const char *path = arg_string(invocation, "path"), *wallet = arg_string(invocation, "wallet");
	const char *name = arg_string(invocation, "hotkey");
	struct password_source password = password_source(invocation);
	struct hotkey hotkey;

	if (wallet_inspect_hotkey(path, wallet, name, &hotkey, err) == 0) {
		path_warn_if_open(hotkey.path);
		hotkey_free(&hotkey);
	}
	return wallet_open_hotkey(path, wallet, name, &password, err);
}

void hotkey_own_address(const struct invocation *invocation, char own[SS58_SIZE])
{
	struct hotkey hotkey;
	struct error ignored;

	own[0] = '\0';
	if (wallet_inspect_hotkey(arg_string(invocation, "path"), arg_string(invocation, "wallet"),
		    arg_string(invocation, "hotkey"), &hotkey, &ignored) < 0)
		return;
	memcpy(own, hotkey.address, SS58_SIZE);
	hotkey_free(&hotkey);
}
