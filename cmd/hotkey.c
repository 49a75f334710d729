#include "hotkey.h"

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
	struct password_source password = password_source(invocation);

	return wallet_open_hotkey(arg_string(invocation, "path"), arg_string(invocation, "wallet"),
		arg_string(invocation, "hotkey"), &password, err);
}
