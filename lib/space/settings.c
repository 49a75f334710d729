#include "space/settings.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/secret.h"

/* Each line is compared with those before it. */
#define FILE_LIMIT ((size_t)64 << 10)

#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* as editors on Windows begin a file */

const struct setting settings_table[] = {
	{"The validator", "VALIDATOR_API_URL", "http://localhost:8000", false,
		"Base URL of the validator API. Production: https://quasar-subnet.onrender.com"},
	{NULL, "NETUID", "24", false, "The subnet's number: 24 on test, 439 on finney."},
	{NULL, "SUBTENSOR_NETWORK", "test", false, "The network of that subnet: test or finney."},
	{NULL, "BLOCKS_UNTIL_REVEAL", "100", false,
		"Blocks of 12 s between a commitment and its reveal, as the local validator hands them out."},
	{"The wallet", "WALLET_MINER_NAME", "quasar_miner", false, "Wallet: a folder of BT_WALLET_PATH."},
	{NULL, "WALLET_HOTKEY", "default", false, "Hotkey: a file of the wallet's folder hotkeys/."},
	{NULL, "BT_WALLET_PATH", "~/.bittensor/wallets", false, "Where the wallets are."},
	{NULL, "WALLET_PASSWORD", NULL, true,
		"Password of an encrypted hotkey, for runs without a terminal. Leave it out to be asked."},
	{"The fork", "FORK_PATH", "fork", false, "Your clone, relative to the workspace."},
	{NULL, "FORK_URL", NULL, false,
		"Address that validators clone. Left out: the clone's remote \"origin\"."},
	{NULL, "GITHUB_TOKEN", NULL, true, "Token that may read and push the fork over https. Only the host of GITHUB_API_URL is shown it."},
	{NULL, "GITHUB_USERNAME", NULL, false, "Owner of the fork."},
	{NULL, "GITHUB_FORK_NAME", "flash-linear-attention", false, "Name of the fork's repository."},
	{NULL, "GITHUB_API_URL", "https://api.github.com", false, "Base URL of GitHub's API; github.com's serves github.com."},
	{"The submission", "TARGET_SEQUENCE_LENGTH", "100000", false,
		"Tokens that you compete at; it decides the league (1000000: x3.0)."},
	{NULL, "CLAIM_MARGIN", "3%", false, "What a claim stays below the measured median."},
	{NULL, "AGENT_ITERATIONS", "100", false, "How many rounds of tuning a search may take."},
	{NULL, "OPTIMIZATION_INTERVAL", "300", false, "Seconds between two rounds of a running miner."},
	{NULL, "QUASAR_PASSPHRASE", NULL, true,
		"Passphrase of exported state, for runs without a terminal. Leave it out to be asked."},
	{"The machine", "DEVICE", "auto", false, "Where attention runs: auto, cpu, cuda or cuda:N."},
	{NULL, "QUASAR_THREADS", NULL, false, "CPU threads. Left out: every core the process may use."},
	{"Verification", "VERIFY_COSINE_THRESHOLD", "0.99", false,
		"Least cosine similarity of two runs with the same input."},
	{NULL, "VERIFY_MAX_ABS_DIFF", "0.1", false, "Largest absolute difference of two such runs."},
	{"Logit verification", "REFERENCE_MODEL", "Qwen/Qwen2.5-0.5B-Instruct", false,
		"Model that validators compare with."},
	{NULL, "MINER_INFERENCE_PORT", "8001", false, "Port of the inference server."},
	{NULL, "LOGIT_COSINE_THRESHOLD", "0.99", false, "Least cosine similarity that passes."},
	{NULL, "LOGIT_MAX_ABS_DIFF", "0.1", false, "Largest absolute difference that passes."},
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
	settings->entries =
		xrealloc(settings->entries, (settings->count + 1) * sizeof(*settings->entries));
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
		return error_hint(err, "Comment the line out with # or mend it.");
	}
	value = parse_value(equals + 1 + strspn(equals + 1, " \t"));
	if (!value) {
		error_set(err, STATUS_USAGE, "%s line %d: the quotes of %.*s are not closed",
			settings->path, number, (int)length, name);
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
		if (setting->secret && settings_get(settings, setting->name, NULL))
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
	if (status.st_mode & (S_IRWXG | S_IRWXO))
		log_warn("%s can be read by others; mend it with: chmod 600 %s", path, path);
	if (file_read(path, FILE_LIMIT, &text, err) < 0)
		goto failed;
	if (strlen(text.data) != text.length) {
		error_set(err, STATUS_USAGE, "%s holds a zero byte: it is not a text file", path);
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

void settings_write(const struct settings *values, struct buffer *out)
{
	buffer_text(out, "# Settings of a quasar workspace. Options of a command win over the environment,\n"
			 "# the environment wins over this file. Keep it private: chmod 600 .env\n");
	for (const struct setting *setting = settings_table; setting->name; setting++) {
		const char *value = file_value(values, setting->name);

		if (setting->group)
			buffer_printf(out, "\n# --- %s ---\n", setting->group);
		buffer_printf(out, "# %s\n", setting->help);
		if (!value)
			buffer_text(out, "#");
		if (value || setting->fallback)
			write_value(out, setting->name, value ? value : setting->fallback);
		else
			buffer_printf(out, "%s=\n", setting->name);
	}
}

/* Whether it sets something of the table that is not secret. */
static bool is_open_setting(const char *assignment)
{
	size_t length = strcspn(assignment, "=");

	for (const struct setting *setting = settings_table; setting->name; setting++)
		if (strlen(setting->name) == length && !strncmp(setting->name, assignment, length))
			return !setting->secret;
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
