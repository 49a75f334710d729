#include "space/template.h"

#include <string.h>

#include "base/buffer.h"
#include "base/embed.h"

#include "fork_files.h" /* FORK_FILES, made by the Makefile: fork/ and the kernels that it runs */

#define WORKSPACE "templates/workspace/"
#define TAKE_IN(symbol, path, source) EMBED(symbol, source);

FORK_FILES(TAKE_IN)
EMBED(gate, "templates/gate.cu");
EMBED(service_pm2, WORKSPACE "ecosystem.config.js");
EMBED(service_systemd, WORKSPACE "quasar-miner.service");
EMBED(service_screen, WORKSPACE "start-in-screen.sh");

#define ENTRY(symbol, path, source) {path, symbol},
const struct fork_file template_fork[] = {FORK_FILES(ENTRY)};
const size_t template_fork_count = sizeof(template_fork) / sizeof(template_fork[0]);

const struct fork_file template_cuda = {"fla/ops/quasar/gate.cu", gate};

const struct template_service template_services[] = {
	{"ecosystem.config.js", service_pm2, 0644, "%", "$", "`"},
	{"quasar-miner.service", service_systemd, 0644, "%%", "$$", "`"},
	{"start-in-screen.sh", service_screen, 0755, "%", "\\$", "\\`"},
};
const size_t template_service_count = sizeof(template_services) / sizeof(template_services[0]);

/* For a place inside double quotes. */
static void add_quoted(struct buffer *out, const char *text, const struct template_service *service)
{
	for (; *text; text++) {
		switch (*text) {
		case '%':
			buffer_text(out, service->percent);
			break;
		case '$':
			buffer_text(out, service->dollar);
			break;
		case '`':
			buffer_text(out, service->backtick);
			break;
		case '"':
		case '\\':
			buffer_text(out, "\\");
			buffer_append(out, text, 1);
			break;
		default:
			buffer_append(out, text, 1);
		}
	}
}

/* The value whose place this is, and the place's length; NULL: it is an @ like any other. */
static const char *value_at(const char *at, const struct template_values *values, size_t *length)
{
	const struct {
		const char *place, *value;
	} known[] = {
		{"@QUASAR@", values->program},
		{"@WORKSPACE@", values->workspace},
		{"@NAME@", values->name},
		{"@PATH@", values->path},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		*length = strlen(known[i].place);
		if (!strncmp(at, known[i].place, *length))
			return known[i].value;
	}
	return NULL;
}

char *template_fill(const struct template_service *service, const struct template_values *values)
{
	struct buffer out = {0};
	const char *rest = service->text, *at;

	while ((at = strchr(rest, '@'))) {
		size_t length;
		const char *value = value_at(at, values, &length);

		buffer_append(&out, rest, (size_t)(at - rest));
		if (value)
			add_quoted(&out, value, service);
		else
			buffer_text(&out, "@");
		rest = at + (value ? length : 1);
	}
	buffer_text(&out, rest);
	return out.data;
}
