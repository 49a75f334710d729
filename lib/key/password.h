/* password: finding the password of an encrypted key file. */
#pragma once

#include "base/error.h"

/* Where passwords come from: `setting`, else bittensor-wallet's own environment variable for the file,
 * else `ask`. */
struct password_source {
	const char *setting; /* the value of WALLET_PASSWORD, or NULL */
	/* Asks a person; the answer comes from sodium_malloc. NULL: nobody to ask. secret_ask does it. */
	char *(*ask)(const char *prompt, struct error *err);
};

enum password_use {
	PASSWORD_KNOWN, /* opens a file that is there */
	PASSWORD_NEW,   /* will protect one: a person is asked twice */
};

/* Asks for the password of `what`. Free with sodium_free. STATUS_ENVIRONMENT when there is none, or when
 * the two answers differ. */
char *password_ask(
	const struct password_source *source, const char *what, enum password_use use, struct error *err);

#define PASSWORD_ATTEMPTS 3 /* that a person has */

/* The password for the key file at `path`; free with sodium_free. `origin` receives words for where it came
 * from, which the caller frees also when there is none; NULL: somebody typed it. STATUS_ENVIRONMENT with a hint, or
 * STATUS_INTERRUPTED. */
char *password_find(const struct password_source *source, const char *path, enum password_use use,
	char **origin, struct error *err);
