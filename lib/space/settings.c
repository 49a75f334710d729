#include "space/settings.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/secret.h"
#include "base/suggest.h"

/* Each line is compared with those before it. */
#define FILE_LIMIT ((size_t)64 << 10)

#define MISSPELT 2 /* wrong letters at most; more of them make another name */

#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* as editors on Windows begin a file */

const struct setting settings_table[] = {
	{"The validator", "VALIDATOR_API_URL", "http://localhost:8000", SETTING_PLAIN,
		"Base URL of the validator API. In production: " PRODUCTION_API},
	{NULL, "NETUID", "24", SETTING_UNUSED, "The subnet's number."},
	{NULL, "SUBTENSOR_NETWORK", NULL, SETTING_PLAIN,
		"The network to compete on: finney, or test. Versions from 2026-04 on need it. If unset: test, and "
		"only at a validator on this machine."},
	{NULL, "API_VERSION", "auto", SETTING_PLAIN,
		"Version of the validator's service: auto finds it out; 2026-04 or 2026-02."},
	{NULL, "DASHBOARD_API_KEY", NULL, SETTING_SECRET,
		"API key for the validator's dashboard, if its operator gave you one: it shows what miners are "
		"not shown."},
	{NULL, "BLOCKS_UNTIL_REVEAL", "100", SETTING_PLAIN,
		"For `quasar localnet`: blocks between a commitment and its reveal."},
	{NULL, "SUBMISSION_COOLDOWN_SECONDS", NULL, SETTING_PLAIN,
		"For `quasar localnet`: seconds between two submissions of a hotkey."},
	{NULL, "VALIDATOR_HOTKEYS", NULL, SETTING_PLAIN,
		"For `quasar localnet --like 2026-04`: hotkeys that may judge and read everything, separated by "
		"commas."},
	{NULL, "API_KEYS", NULL, SETTING_SECRET,
		"For `quasar localnet --like 2026-04`: keys that open its dashboard, separated by commas."},
	{"The wallet", "WALLET_MINER_NAME", "quasar_miner", SETTING_PLAIN,
		"Wallet name: a folder in BT_WALLET_PATH."},
	{NULL, "WALLET_HOTKEY", "default", SETTING_PLAIN,
		"Hotkey name: a file in the wallet's hotkeys/ folder."},
	{NULL, "BT_WALLET_PATH", "~/.bittensor/wallets", SETTING_PLAIN, "Folder that holds the wallets."},
	{NULL, "WALLET_PASSWORD", NULL, SETTING_SECRET,
		"Password of an encrypted hotkey, for unattended runs. If unset, you are asked for it."},
	{"The fork", "FORK_PATH", "fork", SETTING_PLAIN,
		"Your clone of the fork, relative to the workspace."},
	{NULL, "FORK_URL", NULL, SETTING_PLAIN,
		"URL that validators clone. If unset: the URL of the clone's remote \"origin\"."},
	{NULL, "GITHUB_TOKEN", NULL, SETTING_SECRET,
		"GitHub token that can read and push the fork over https. It is sent only to the host of "
		"GITHUB_API_URL."},
	{NULL, "GITHUB_USERNAME", NULL, SETTING_PLAIN, "Owner of the fork on GitHub."},
	{NULL, "GITHUB_FORK_NAME", "flash-linear-attention", SETTING_PLAIN, "Name of the fork's repository."},
	{NULL, "GITHUB_API_URL", "https://api.github.com", SETTING_PLAIN,
		"Base URL of the GitHub API. Change it only for GitHub Enterprise."},
	{"The submission", "TARGET_SEQUENCE_LENGTH", "100000", SETTING_PLAIN,
		"Sequence length to compete at, in tokens. It determines the league (1000000: x3.0)."},
	{NULL, "MINER_DOCKER_IMAGE", NULL, SETTING_PLAIN,
		"Image of your inference server, best with its digest (NAME@sha256:…). Versions from 2026-04 on "
		"rank only submissions that name one."},
	{NULL, "DOCKER_USERNAME", NULL, SETTING_PLAIN,
		"Your name on Docker Hub. If MINER_DOCKER_IMAGE is unset: the image is "
		"NAME/quasar-miner-gpu:latest."},
	{NULL, "CLAIM_MARGIN", "3%", SETTING_PLAIN, "How far below the measured median to claim."},
	{NULL, "AGENT_ITERATIONS", "100", SETTING_UNUSED, "Maximum number of tuning iterations."},
	{NULL, "OPTIMIZATION_INTERVAL", "300", SETTING_PLAIN,
		"For `quasar run`: seconds between two rounds of work."},
	{NULL, "QUASAR_PASSPHRASE", NULL, SETTING_SECRET,
		"Passphrase for export-state and import-state, for unattended runs. If unset, you are asked for it."},
	{"The machine", "DEVICE", "auto", SETTING_PLAIN, "Where to compute: auto, cpu, cuda or cuda:N."},
	{NULL, "QUASAR_PYTHON", NULL, SETTING_PLAIN,
		"Python that runs the fork: a program, or a virtual environment. If unset: the active virtual "
		"environment, .venv in the workspace or in the fork, or python3 in the PATH."},
	{NULL, "QUASAR_THREADS", NULL, SETTING_PLAIN,
		"Number of CPU threads. If unset: all available cores."},
	{NULL, "GPU_NORMALIZATION_FACTOR", NULL, SETTING_PLAIN,
		"For `quasar validate`: what speeds measured on this GPU are divided by. If unset: as validators "
		"take it, by the GPU's name."},
	{"Verification", "VERIFY_COSINE_THRESHOLD", "0.99", SETTING_PLAIN,
		"Minimum cosine similarity between two runs on the same input."},
	{NULL, "VERIFY_MAX_ABS_DIFF", "0.1", SETTING_PLAIN,
		"Maximum absolute difference between two runs on the same input."},
	{"Logit verification", "REFERENCE_MODEL", "Qwen/Qwen2.5-0.5B-Instruct", SETTING_PLAIN,
		"Reference model: what to register for, and what `quasar serve` serves. A name in the Hugging Face cache, "
		"or a folder."},
	{NULL, "MINER_INFERENCE_PORT", "8001", SETTING_PLAIN,
		"Port of the inference server, `quasar serve`."},
	{NULL, "HF_HOME", NULL, SETTING_PLAIN,
		"Folder of Hugging Face's files, with the models in hub/. If unset: ~/.cache/huggingface."},
	{NULL, "LOGIT_COSINE_THRESHOLD", "0.99", SETTING_PLAIN, "Minimum cosine similarity of logits."},
	{NULL, "LOGIT_MAX_ABS_DIFF", "0.1", SETTING_PLAIN, "Maximum absolute difference of logits."},
	{0},
};

struct entry {
	char *name, *value;
};

struct settings {
	char *path; /* of the .env that was read, or NULL */
	struct entry *entries;
	size_t count;
};

static void set(struct settings *settings, char *name, char *value)
{
	for (size_t i = 0; i < settings->count; i++) {
		if (strcmp(settings->entries[i].name, name))
			continue;
		free(name);
		free(settings->entries[i].value);
		settings->entries[i].value = value;
		return;
	}
	settings->entries = xrealloc(settings->entries, (settings->count + 1) * sizeof(*settings->entries));
	settings->entries[settings->count++] = (struct entry){name, value};
}

/* Copies a value: quoted ("…" with backslash escapes, '…' as it stands) or bare up to " #". Returns NULL
 * when a quote is not closed or something follows it. */
static char *parse_value(const char *text)
{
	struct buffer value = {0};
	char quote = *text == '"' || *text == '\'' ? *text++ : '\0';

	buffer_text(&value, "");
	for (; *text; text++) {
		if (quote && *text == quote)
			break;
		if (!quote && *text == '#' && (value.length == 0 || isspace((unsigned char)text[-1])))
			break;
		if (quote == '"' && *text == '\\' && text[1]) {
			text++;
			buffer_append(&value, *text == 'n' ? "\n" : *text == 'r' ? "\r" : text, 1);
			continue;
		}
		buffer_append(&value, text, 1);
	}
	if (quote) {
		if (*text++ != quote)
			goto malformed;
		text += strspn(text, " \t");
		if (*text && *text != '#')
			goto malformed;
		return value.data;
	}
	while (value.length && isspace((unsigned char)value.data[value.length - 1]))
		value.data[--value.length] = '\0';
	return value.data;
malformed:
	buffer_free(&value);
	return NULL;
}

/* Appends NAME="value" such that parse_value, and a shell that sources the file, read the value back. */
static void write_value(struct buffer *out, const char *name, const char *value)
{
	buffer_printf(out, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\n' || *value == '\r') {
			buffer_text(out, *value == '\n' ? "\\n" : "\\r");
			continue;
		}
		if (strchr("\"\\$`", *value))
			buffer_text(out, "\\");
		buffer_append(out, value, 1);
	}
	buffer_text(out, "\"\n");
}

static int parse_line(struct settings *settings, char *line, int number, struct error *err)
{
	char *name = line + strspn(line, " \t"), *equals, *value;
	size_t length;

	if (!*name || *name == '#')
		return 0;
	if (!strncmp(name, "export", 6) && isblank((unsigned char)name[6]))
		name += 6 + strspn(name + 6, " \t");
	length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
	equals = name + length + strspn(name + length, " \t");
	if (!length || isdigit((unsigned char)*name) || *equals != '=') {
		error_set(err, STATUS_USAGE, "%s line %d is not NAME=value", settings->path, number);
		return error_hint(err, "Fix the line, or comment it out with #.");
	}
	value = parse_value(equals + 1 + strspn(equals + 1, " \t"));
	if (!value) {
		error_set(err, STATUS_USAGE, "%s line %d: missing closing quote of %.*s", settings->path,
			number, (int)length, name);
		return error_hint(err, "Write NAME=\"value\", with \\\" for a quote inside.");
	}
	name[length] = '\0';
	set(settings, xstrdup(name), value);
	return 0;
}

struct settings *settings_new(void)
{
	return xcalloc(1, sizeof(struct settings));
}

void settings_put(struct settings *settings, const char *name, const char *value)
{
	set(settings, xstrdup(name), xstrdup(value));
}

static void guard_secrets(const struct settings *settings)
{
	for (const struct setting *setting = settings_table; setting->name; setting++)
		if (setting->kind == SETTING_SECRET && settings_get(settings, setting->name, NULL))
			secret_guard_process();
}

/* Reads the .env of a directory, if there is one. */
static struct settings *load(const char *directory, struct error *err)
{
	struct settings *settings = settings_new();
	struct buffer text = {0};
	struct stat status;
	char *path, *line, *next;
	int number = 1;

	if (!directory)
		return settings;
	path = path_join(directory, ".env");
	if (stat(path, &status) < 0) {
		free(path);
		return settings;
	}
	settings->path = path;
	path_warn_if_open(path);
	if (file_read(path, FILE_LIMIT, &text, err) < 0)
		goto failed;
	if (strlen(text.data) != text.length) {
		error_set(err, STATUS_USAGE, "%s contains a zero byte: it is not a text file", path);
		goto failed;
	}
	line = text.data + (strncmp(text.data, BYTE_ORDER_MARK, 3) ? 0 : 3);
	for (; line; line = next, number++) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		line[strcspn(line, "\r")] = '\0';
		if (parse_line(settings, line, number, err) < 0)
			goto failed;
	}
	buffer_free(&text);
	return settings;
failed:
	buffer_free(&text);
	settings_free(settings);
	return NULL;
}

struct settings *settings_load(const char *directory, struct error *err)
{
	struct settings *settings = load(directory, err);

	if (settings)
		guard_secrets(settings);
	return settings;
}

void settings_free(struct settings *settings)
{
	if (!settings)
		return;
	for (size_t i = 0; i < settings->count; i++) {
		free(settings->entries[i].name);
		free(settings->entries[i].value);
	}
	free(settings->entries);
	free(settings->path);
	free(settings);
}

static const char *file_value(const struct settings *settings, const char *name)
{
	for (size_t i = 0; settings && i < settings->count; i++)
		if (!strcmp(settings->entries[i].name, name) && settings->entries[i].value[0])
			return settings->entries[i].value;
	return NULL;
}

const char *settings_get(const struct settings *settings, const char *name, const char **source)
{
	const char *value = getenv(name), *ignored;

	if (!source)
		source = &ignored;
	*source = "the environment";
	if (value && value[0])
		return value;
	value = file_value(settings, name);
	if (value) {
		*source = settings->path;
		return value;
	}
	*source = "default";
	for (const struct setting *setting = settings_table; setting->name; setting++)
		if (!strcmp(setting->name, name))
			return setting->fallback;
	return NULL;
}

/* Ends with NULL. */
static const char *const compute_prefixes[] = {
	"CUDA_", "PYTORCH_", "TRITON_", "HF_HOME", "HF_HUB_CACHE", NULL};

static bool is_for_compute(const char *name)
{
	for (const char *const *prefix = compute_prefixes; *prefix; prefix++)
		if (!strncmp(name, *prefix, strlen(*prefix)))
			return true;
	return false;
}

const char *settings_unknown(const struct settings *settings, size_t *at, const char **meant)
{
	while (*at < settings->count) {
		const char *name = settings->entries[(*at)++].name;
		struct suggestion near = {.word = name};
		const struct setting *setting = settings_table;

		for (; setting->name && strcmp(setting->name, name); setting++)
			suggestion_offer(&near, setting->name);
		if (setting->name || is_for_compute(name))
			continue;
		*meant = near.name && near.distance <= MISSPELT ? near.name : NULL;
		return name;
	}
	return NULL;
}

void settings_write(const struct settings *values, struct buffer *out)
{
	buffer_text(out,
		"# Settings of a quasar workspace. Command-line options override environment variables,\n"
		"# which override this file. Keep it private: chmod 600 .env\n");
	for (const struct setting *setting = settings_table; setting->name; setting++) {
		const char *value = file_value(values, setting->name);

		if (setting->group)
			buffer_printf(out, "\n# --- %s ---\n", setting->group);
		buffer_printf(out, "# %s%s\n", setting->help,
			setting->kind == SETTING_UNUSED ? " " SETTING_UNUSED_NOTE : "");
		if (!value)
			buffer_text(out, "#");
		if (value || setting->fallback)
			write_value(out, setting->name, value ? value : setting->fallback);
		else
			buffer_printf(out, "%s=\n", setting->name);
	}
}

/* Whether a line of an .env sets `name`; `commented`: whether it would, if it were no comment. */
static bool line_sets(const char *line, const char *name, bool commented)
{
	line += strspn(line, " \t");
	if (commented && *line++ != '#')
		return false;
	if (!strncmp(line, "export", 6) && isblank((unsigned char)line[6]))
		line += 6 + strspn(line + 6, " \t");
	if (strncmp(line, name, strlen(name)))
		return false;
	line += strlen(name);
	return line[strspn(line, " \t")] == '=';
}

/* Copies the lines; the first that sets `name` becomes the new one, others that do are left out. */
static bool replace_line(
	const char *text, const char *name, const char *value, bool commented, struct buffer *out)
{
	bool replaced = false;

	for (const char *line = text, *next; *line; line = next) {
		next = line + strcspn(line, "\n");
		next += *next == '\n';
		if (!line_sets(line, name, commented)) {
			buffer_append(out, line, (size_t)(next - line));
			continue;
		}
		if (!replaced)
			write_value(out, name, value);
		replaced = true;
	}
	return replaced;
}

int settings_save(const char *directory, const char *name, const char *value, struct error *err)
{
	char *path = path_join(directory, ".env");
	struct buffer text = {0}, out = {0};
	int result = 0;

	buffer_text(&text, "");
	if (path_exists(path))
		result = file_read(path, FILE_LIMIT, &text, err);
	if (!result && !replace_line(text.data, name, value, false, &out)) {
		buffer_free(&out);
		if (!replace_line(text.data, name, value, true, &out)) {
			if (out.length && out.data[out.length - 1] != '\n')
				buffer_text(&out, "\n");
			write_value(&out, name, value);
		}
	}
	if (!result)
		result = file_write(path, out.data, out.length, 0600, FILE_REPLACE, err);
	buffer_free(&text);
	buffer_free(&out);
	free(path);
	return result;
}

/* Whether it sets something of the table that is not secret. */
static bool is_open_setting(const char *assignment)
{
	size_t length = strcspn(assignment, "=");

	for (const struct setting *setting = settings_table; setting->name; setting++)
		if (strlen(setting->name) == length && !strncmp(setting->name, assignment, length))
			return setting->kind != SETTING_SECRET;
	return false;
}

char **settings_environment(void)
{
	size_t count = 0, kept = 0;
	char **list;

	while (environ[count])
		count++;
	list = xcalloc(count + 1, sizeof(*list));
	for (size_t i = 0; i < count; i++)
		if (is_open_setting(environ[i]))
			list[kept++] = environ[i];
	return list;
}

void settings_export_compute(const struct settings *settings)
{
	static struct settings *exported; /* by an earlier call */

	for (size_t i = 0; exported && i < exported->count; i++)
		unsetenv(exported->entries[i].name);
	settings_free(exported);
	exported = settings_new();
	for (size_t i = 0; i < settings->count; i++) {
		const struct entry *entry = &settings->entries[i];

		if (!is_for_compute(entry->name) || getenv(entry->name))
			continue;
		setenv(entry->name, entry->value, true);
		settings_put(exported, entry->name, entry->value);
	}
}
