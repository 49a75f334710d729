#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "fork/private.h"

enum scheme url_scheme(const char *url)
{
	static const struct {
		const char *prefix;
		enum scheme scheme;
	} known[] = {
		{"https://", SCHEME_HTTPS},
		{"http://", SCHEME_HTTP},
		{"ssh://", SCHEME_SSH},
		{"file://", SCHEME_FILE},
	};
	size_t colon = strcspn(url, ":/");

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strncmp(url, known[i].prefix, strlen(known[i].prefix)))
			return known[i].scheme;
	if (strstr(url, "://"))
		return SCHEME_UNKNOWN;
	return url[colon] == ':' ? SCHEME_SSH : SCHEME_PATH; /* git@github.com:you/fork */
}

bool url_is_local(const char *url)
{
	return url_scheme(url) == SCHEME_FILE || url_scheme(url) == SCHEME_PATH;
}

/* Where "user:password@" begins and how long it is; 0: there is none. */
static size_t url_login(const char *url, size_t *start)
{
	const char *scheme = strstr(url, "://");
	size_t end, login = 0;

	if (!scheme)
		return 0;
	*start = (size_t)(scheme + 3 - url);
	end = *start + strcspn(url + *start, "/?#");
	for (size_t i = *start; i < end; i++)
		if (url[i] == '@')
			login = i + 1 - *start;
	return login;
}

char *fork_url_clean(const char *url)
{
	size_t start = 0, login = url_login(url, &start), keep = 0;
	enum scheme scheme = url_scheme(url);

	if (login && scheme != SCHEME_HTTPS && scheme != SCHEME_HTTP)
		keep = strcspn(url + start, ":@");
	return xprintf("%.*s%s%s", (int)(start + keep), url, keep ? "@" : "", url + start + login);
}

/* The length of "host[:port]" in an https URL, without the scheme's own port; 0: it is none. It is taken as it
 * is written: what two readers of URLs could understand in two ways equals no host. */
static size_t https_authority(const char *url, const char **start)
{
	size_t length;

	*start = url;
	if (url_scheme(url) != SCHEME_HTTPS)
		return 0;
	*start += strlen("https://");
	length = strcspn(*start, "/?#");
	return length > 4 && !strncmp(*start + length - 4, ":443", 4) ? length - 4 : length;
}

bool url_takes_token(const char *url, const char *api)
{
	const char *host, *own;
	size_t length = https_authority(url, &host), own_length = https_authority(api, &own);

	/* the API of github.com is at api.github.com, that of an enterprise's GitHub at its own host */
	if (own_length == length + 4 && !strncasecmp(own, "api.", 4)) {
		own += 4;
		own_length -= 4;
	}
	return length && length == own_length && !strncasecmp(host, own, length);
}

char *fork_file_url(const char *path)
{
	struct buffer url = {0};

	buffer_text(&url, "file://");
	for (; *path; path++) {
		if (strchr("%?# ", *path) || (unsigned char)*path < 32 || (unsigned char)*path > 126)
			buffer_printf(&url, "%%%02X", (unsigned char)*path);
		else
			buffer_append(&url, path, 1);
	}
	return url.data;
}

int fork_url_check(const char *url, bool allow_local, struct error *err)
{
	enum scheme scheme = url_scheme(url);
	size_t start;
	char *clean = fork_url_clean(url);
	int result = 0;

	if (!url[0] || url[0] == '-' || scheme == SCHEME_UNKNOWN)
		result = error_set(err, STATUS_USAGE, "\"%s\" is not a URL that can be cloned", clean);
	else if (strpbrk(url, "\r\n\t"))
		result = error_set(err, STATUS_USAGE, "the clone URL contains a control character");
	else if (url_is_local(url) && !allow_local)
		result = error_set(
			err, STATUS_USAGE, "\"%s\" is a local path, which is not allowed here", clean);
	else if ((scheme == SCHEME_HTTPS || scheme == SCHEME_HTTP) && url_login(url, &start))
		result = error_set(err, STATUS_USAGE, "the URL of %s contains a login", clean);
	if (result && scheme == SCHEME_UNKNOWN)
		error_hint(err, "Use https://…, ssh://…, git@HOST:PATH, file://… or a path.");
	else if (result && url_login(url, &start))
		error_hint(err, "Leave it out of the URL, and set GITHUB_TOKEN instead.");
	free(clean);
	return result;
}

char *unfinished_name(const char *path)
{
	size_t end = strlen(path), start;

	while (end && path[end - 1] == '/')
		end--;
	for (start = end; start && path[start - 1] != '/'; start--)
		;
	return xprintf("%.*s.%.*s.unfinished", (int)start, path, (int)(end - start), path + start);
}

char *fork_url_owner(const char *url)
{
	static const char *const hosts[] = {"https://github.com/", "http://github.com/"};

	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		const char *name = url + strlen(hosts[i]);
		size_t length;

		if (strncmp(url, hosts[i], strlen(hosts[i])))
			continue;
		length = strcspn(name, "/");
		if (length && name[length] == '/')
			return xprintf("%.*s", (int)length, name);
	}
	return NULL;
}
