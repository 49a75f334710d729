#include "space/template.h"

#include <string.h>

#include "base/buffer.h"
#include "base/embed.h"

#define FORK "templates/fork/"
#define WORKSPACE "templates/workspace/"

EMBED(fork_readme, FORK "README.md");
EMBED(fork_gitignore, FORK "gitignore");
EMBED(fork_fla, FORK "fla/__init__.py");
EMBED(fork_layers, FORK "fla/layers/__init__.py");
EMBED(fork_layer, FORK "fla/layers/quasar.py");
EMBED(fork_ops, FORK "fla/ops/__init__.py");
EMBED(fork_quasar, FORK "fla/ops/quasar/__init__.py");
EMBED(fork_chunk, FORK "fla/ops/quasar/chunk.py");
EMBED(fork_intra, FORK "fla/ops/quasar/chunk_intra_token_parallel.py");
EMBED(fork_substitution, FORK "fla/ops/quasar/forward_substitution.py");
EMBED(fork_recurrent, FORK "fla/ops/quasar/fused_recurrent.py");
EMBED(fork_gate, FORK "fla/ops/quasar/gate.py");
EMBED(fork_gate_cu, FORK "fla/ops/quasar/gate.cu");
EMBED(fork_ops_utils, FORK "fla/ops/utils/__init__.py");
EMBED(fork_index, FORK "fla/ops/utils/index.py");
EMBED(fork_utils, FORK "fla/utils.py");
EMBED(service_pm2, WORKSPACE "ecosystem.config.js");
EMBED(service_systemd, WORKSPACE "quasar-miner.service");
EMBED(service_screen, WORKSPACE "start-in-screen.sh");

const struct fork_file template_fork[] = {
	{"README.md", fork_readme},
	{".gitignore", fork_gitignore},
	{"fla/__init__.py", fork_fla},
	{"fla/layers/__init__.py", fork_layers},
	{"fla/layers/quasar.py", fork_layer},
	{"fla/ops/__init__.py", fork_ops},
	{"fla/ops/quasar/__init__.py", fork_quasar},
	{"fla/ops/quasar/chunk.py", fork_chunk},
	{"fla/ops/quasar/chunk_intra_token_parallel.py", fork_intra},
	{"fla/ops/quasar/forward_substitution.py", fork_substitution},
	{"fla/ops/quasar/fused_recurrent.py", fork_recurrent},
	{"fla/ops/quasar/gate.py", fork_gate},
	{"fla/ops/quasar/gate.cu", fork_gate_cu},
	{"fla/ops/utils/__init__.py", fork_ops_utils},
	{"fla/ops/utils/index.py", fork_index},
	{"fla/utils.py", fork_utils},
};
const size_t template_fork_count = sizeof(template_fork) / sizeof(template_fork[0]);

const struct fork_file template_cuda = {"fla/ops/quasar/gate.cu", fork_gate_cu};

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
