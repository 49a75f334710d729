#include "key/password.h"

#include <ctype.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/secret.h"

static char *secret_copy(const char *text)
{
	size_t size = strlen(text) + 1;

	return memcpy(secret_alloc(size), text, size);
}

/* The environment variable in which bittensor-wallet keeps the password of the file at `path`. */
static char *bittensor_variable(const char *path)
{
	char *name = xprintf("BT_PW_%s", path);

	for (char *at = name; *at; at++)
		*at = *at == '/' || *at == '.' ? '_' : (char)toupper((unsigned char)*at);
	return name;
}

/* Undoes bittensor-wallet's obfuscation: base64 over the password XOR the variable's name. */
static char *reveal_password(const char *variable, const char *value, struct error *err)
{
	size_t size = strlen(value) / 4 * 3 + 3, length;
	char *password = secret_alloc(size);

	if (sodium_base642bin((uint8_t *)password, size, value, strlen(value), " \r\n", &length, NULL,
		    sodium_base64_VARIANT_ORIGINAL) < 0) {
		sodium_free(password);
		error_set(err, STATUS_ENVIRONMENT,
			"%s is not a password in the form that bittensor-wallet stores", variable);
		return NULL;
	}
	for (size_t i = 0; i < length; i++)
		password[i] ^= variable[i % strlen(variable)];
	return password;
}

char *password_ask(
	const struct password_source *source, const char *what, enum password_use use, struct error *err)
{
	char *prompt = xprintf("%s for %s: ", use == PASSWORD_NEW ? "New password" : "Password", what);
	char *password = source->ask(prompt, err), *again = NULL;

	free(prompt);
	if (password && !password[0]) {
		error_set(err, STATUS_ENVIRONMENT, "the password is empty");
		goto failed;
	}
	if (password && use == PASSWORD_NEW) {
		again = source->ask("Repeat it: ", err);
		if (!again)
			goto failed;
		if (strcmp(password, again)) {
			error_set(err, STATUS_ENVIRONMENT, "the two passwords differ");
			goto failed;
		}
		sodium_free(again);
	}
	return password;
failed:
	sodium_free(password);
	sodium_free(again);
	return NULL;
}

char *password_find(const struct password_source *source, const char *path, enum password_use use,
	char **origin, struct error *err)
{
	char *variable = bittensor_variable(path), *password = NULL;
	const char *value = getenv(variable);

	*origin = NULL;
	if (source->setting && source->setting[0]) {
		*origin = xstrdup("WALLET_PASSWORD");
		password = secret_copy(source->setting);
	} else if (value && value[0]) {
		*origin = xstrdup(variable);
		password = reveal_password(variable, value, err);
	} else if (source->ask) {
		password = password_ask(source, path, use, err);
	} else {
		error_set(err, STATUS_ENVIRONMENT, "no password was given");
	}
	if (!password && err->status == STATUS_ENVIRONMENT) {
		error_context(err, "%s needs a password", path);
		error_hint(err,
			"Enter it on a terminal, set WALLET_PASSWORD in the environment or .env, or set "
			"%s as bittensor-wallet does.",
			variable);
	}
	free(variable);
	return password;
}
