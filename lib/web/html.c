#include "web/html.h"

#include <pthread.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embed.h"
#include "base/memory.h"
#include "base/text.h"

#define REFRESH_SECONDS 10 /* without JavaScript; with it, live.js says */

EMBED(chart_style, "templates/page/chart.css");
EMBED(page_style, "templates/page/page.css");
EMBED(live_script, "templates/page/live.js");

/* At most so many bytes of it; -1: all. */
static void add_escaped(struct buffer *out, const char *text, int most)
{
	char *clean = xprintf("%.*s", most, text ? text : "");

	text_clean(clean);
	for (const char *at = clean; *at;) {
		size_t plain = strcspn(at, "&<>\"'");

		buffer_append(out, at, plain);
		at += plain;
		if (*at)
			buffer_printf(out, "&#%d;", *at++);
	}
	free(clean);
}

void html_add(struct buffer *out, const char *format, ...)
{
	va_list args;
	const char *at;

	va_start(args, format);
	for (; (at = strchr(format, '%')); format = at) {
		char spec[16];
		size_t length = strcspn(at + 1, "sdufF%") + 2;

		buffer_append(out, format, (size_t)(at - format));
		snprintf(spec, sizeof(spec), "%.*s", (int)length, at);
		at += length;
		switch (at[-1]) {
		case 's':
			add_escaped(out, va_arg(args, const char *), spec[1] == '.' ? atoi(spec + 2) : -1);
			break;
		case 'd':
			if (strstr(spec, "ll"))
				buffer_printf(out, "%lld", va_arg(args, long long));
			else
				buffer_printf(out, "%d", va_arg(args, int));
			break;
		case 'u':
			buffer_printf(out, "%zu", va_arg(args, size_t));
			break;
		case 'f':
			buffer_printf(out, spec, va_arg(args, double));
			break;
		default:
			buffer_text(out, "%");
		}
	}
	buffer_text(out, format);
	va_end(args);
}

void html_prose(struct buffer *out, const char *class, const char *text)
{
	char *copy = xstrdup(text), *rest = copy, *part;
	bool code = false;

	html_add(out, "<p class=\"%s\">", class);
	for (; (part = strsep(&rest, "`")); code = !code)
		html_add(out, code ? "<code>%s</code>" : "%s", part);
	buffer_text(out, "</p>\n");
	free(copy);
}

/* What a policy calls a style or script that stands in the page itself. */
static void add_digest(struct buffer *out, const char *const *texts, size_t count)
{
	crypto_hash_sha256_state state;
	unsigned char digest[crypto_hash_sha256_BYTES];
	char base64[64];

	crypto_hash_sha256_init(&state);
	for (size_t i = 0; i < count; i++)
		crypto_hash_sha256_update(&state, (const unsigned char *)texts[i], strlen(texts[i]));
	crypto_hash_sha256_final(&state, digest);
	sodium_bin2base64(base64, sizeof(base64), digest, sizeof(digest), sodium_base64_VARIANT_ORIGINAL);
	buffer_printf(out, "'sha256-%s'", base64);
}

static char policy[512];

static void make_policy(void)
{
	struct buffer text = {0};

	buffer_text(&text, "default-src 'none'; img-src data:; style-src ");
	add_digest(&text, (const char *const[]){chart_style, page_style}, 2);
	buffer_text(&text, "; script-src ");
	add_digest(&text, (const char *const[]){live_script}, 1);
	buffer_text(&text, "; connect-src 'self'; base-uri 'none'; form-action 'none'");
	snprintf(policy, sizeof(policy), "%s", text.data);
	buffer_free(&text);
}

const char *html_policy(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_policy);
	return policy;
}

const char *html_chart_style(void)
{
	return chart_style;
}

/* What the browser's tab shows. */
#define ICON                                                                                                 \
	"data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"                \
	"%3Ccircle cx='8' cy='8' r='3' fill='%230b62c4'/%3E%3Cellipse cx='8' cy='8' rx='7.5' ry='2.5' "      \
	"fill='none' stroke='%230b62c4' transform='rotate(-25 8 8)'/%3E%3C/svg%3E"

void html_begin(struct buffer *out, const char *title, enum html_page kind)
{
	html_add(out,
		"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n"
		"<meta name=\"color-scheme\" content=\"light dark\">\n<title>%s</title>\n"
		"<link rel=\"icon\" href=\"",
		html_policy(), title);
	buffer_text(out, ICON "\">\n<style>");
	buffer_text(out, chart_style);
	buffer_text(out, page_style);
	buffer_text(out, "</style>\n");
	if (kind == HTML_LIVE) {
		html_add(out,
			"<noscript><meta http-equiv=\"refresh\" content=\"%d\"></noscript>\n"
			"<script type=\"module\">",
			REFRESH_SECONDS);
		buffer_text(out, live_script);
		buffer_text(out, "</script>\n");
	}
	buffer_text(out,
		"</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n"
		"<main id=\"main\">\n");
}

void html_end(struct buffer *out)
{
	buffer_text(out, "</main>\n</body>\n</html>\n");
}
