#include "fork/leak.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <string.h>

#define SECRET_LENGTH 8

const char *leak_in_name(const char *path)
{
	/* matched against the whole path and against the file's own name */
	static const char *const harmless[] = {".env.example", ".env.sample", ".env.template"};
	static const struct {
		const char *pattern, *what;
	} rules[] = {
		{".env", "settings with secrets"},
		{".env.*", "settings with secrets"},
		{".quasar/*", "a workspace's state"},
		{"*/.quasar/*", "a workspace's state"},
		{"hotkeys/*", "a wallet's key"},
		{"*/hotkeys/*", "a wallet's key"},
		{"coldkey", "a wallet's key"},
		{"id_rsa", "a private key"},
		{"id_dsa", "a private key"},
		{"id_ecdsa", "a private key"},
		{"id_ed25519", "a private key"},
		{".netrc", "a login"},
		{".git-credentials", "a login"},
		{".pypirc", "a login"},
	};
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (!strcmp(name, harmless[i]))
			return NULL;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (!fnmatch(rules[i].pattern, path, 0) || !fnmatch(rules[i].pattern, name, 0))
			return rules[i].what;
	return NULL;
}

/* Whether `prefix` stands in the content with at least `tail` letters or digits behind it. */
static bool has_token(const char *content, size_t length, const char *prefix, size_t tail)
{
	const char *end = content + length, *at = content;

	while ((at = memmem(at, (size_t)(end - at), prefix, strlen(prefix)))) {
		size_t letters = 0;

		at += strlen(prefix);
		while (at + letters < end && (isalnum((unsigned char)at[letters]) || at[letters] == '_'))
			letters++;
		if (letters >= tail)
			return true;
	}
	return false;
}

static bool has(const char *content, size_t length, const char *text)
{
	return memmem(content, length, text, strlen(text)) != NULL;
}

const char *leak_in_content(const char *content, size_t length, const char *const *secrets)
{
	if (!length)
		return NULL;
	for (; secrets && *secrets; secrets++)
		if (strlen(*secrets) >= SECRET_LENGTH && has(content, length, *secrets))
			return "a file with one of your secret settings in it";
	if (length >= 5 && !memcmp(content, "$NACL", 5))
		return "an encrypted key file";
	if (has(content, length, "\"secretPhrase\"") || has(content, length, "\"secretSeed\""))
		return "a wallet key";
	if (has(content, length, "-----BEGIN ") && has(content, length, " PRIVATE KEY-----"))
		return "a private key";
	if (has_token(content, length, "ghp_", 36) || has_token(content, length, "github_pat_", 40))
		return "a file with a GitHub token in it";
	return NULL;
}
