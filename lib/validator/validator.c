#include "validator/validator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/block.h"
#include "base/clock.h"
#include "base/memory.h"
#include "net/python_json.h"
#include "validator/state.h"

/* What a database of one machine can be asked to keep. */
static const struct field_bound bounds[] = {
	{"hotkey", 0, 64},
	{"miner_hotkey", 0, 64},
	{"model_name", 0, 128},
	{"fork_url", 0, 2048},
	{"commit_hash", 0, 128},
	{"repo_hash", 0, 128},
	{"docker_image", 0, 512},
	{"commitment_hash", 0, 128},
	{"commitment_salt", 0, 512},
	{"signature", 0, 512},
	{"ip_address", 0, 64},
	{"reason", 0, 1024},
	{"target_sequence_length", 1, 0x1p40},
	{"tokens_per_sec", 0, 1e15},
	{"vram_mb", 0, 1e12},
	{"score", 0, 1e15},
	{"duration_hours", 1, 24 * 365},
	{0},
};

const struct validator_version validator_versions[] = {
	{
		.name = "2026-02",
		.wrapped_signatures = true,
		.registers_signer = true,
		.registers_once = true,
		.lax_reveals = true,
		.forgives_zero = true,
		.waits_for_round = true,
		.baseline_one_round = true,
		.creation_faults = true,
		.bare_results = true,
		.fields = {.any_number = true},
		.loose_objects = true,
		.all_rows = true,
		/* the deployed one has no limit, and this machine has */
		.body_limit = 4 << 20,
		.dialect = {.python_json = true, .cors = true, .redirects_slashes = true},
	},
	{
		.name = "strict",
		.rate_limit = 10,
		.fields = {.bounds = bounds},
		.body_limit = 64 << 10,
	},
	{0},
};

/* Bytes that a list of an answer may have. */
#define LIST_LIMIT ((size_t)32 << 20)

static const char *const migrations[] = {
	"CREATE TABLE miner ("
	"	hotkey TEXT PRIMARY KEY,"
	"	uid INTEGER NOT NULL DEFAULT 0,"
	"	registered_at REAL NOT NULL"
	") WITHOUT ROWID;"
	"CREATE TABLE registration ("
	"	hotkey TEXT NOT NULL REFERENCES miner,"
	"	model_name TEXT NOT NULL,"
	"	league TEXT NOT NULL,"
	"	score REAL NOT NULL DEFAULT 0,"
	"	PRIMARY KEY (hotkey, model_name, league)"
	") WITHOUT ROWID;"
	"CREATE TABLE round ("
	"	id INTEGER PRIMARY KEY AUTOINCREMENT,"
	"	round_number INTEGER NOT NULL UNIQUE,"
	"	start_time REAL NOT NULL,"
	"	end_time REAL NOT NULL,"
	"	status TEXT NOT NULL,"
	"	baseline_submission_id INTEGER REFERENCES submission," /* what has to be beaten */
	"	winner_submission_id INTEGER REFERENCES submission,"
	"	winner_hotkey TEXT"
	");"
	"CREATE TABLE submission ("
	"	id INTEGER PRIMARY KEY AUTOINCREMENT,"
	"	miner_hotkey TEXT NOT NULL REFERENCES miner,"
	"	round_id INTEGER NOT NULL REFERENCES round,"
	"	address TEXT NOT NULL,"
	"	created_at REAL NOT NULL,"
	"	target_sequence_length INTEGER NOT NULL,"
	"	signature TEXT NOT NULL,"
	/* NULL in a commitment that is not revealed */
	"	fork_url TEXT,"
	"	commit_hash TEXT,"
	"	repo_hash TEXT,"
	"	docker_image TEXT,"
	"	tokens_per_sec REAL NOT NULL DEFAULT 0,"
	"	vram_mb REAL,"
	"	benchmarks TEXT,"
	"	solution_hash TEXT,"
	"	revealed INTEGER NOT NULL,"
	"	commitment_hash TEXT UNIQUE,"
	"	commitment_salt TEXT,"
	"	reveal_block INTEGER,"
	"	validated INTEGER NOT NULL DEFAULT 0,"
	"	score REAL,"
	"	logits_passed INTEGER," /* NULL: not verified yet */
	"	cosine_similarity REAL,"
	"	max_abs_diff REAL,"
	"	throughput REAL,"
	"	verification_reason TEXT"
	");"
	"CREATE INDEX submission_waiting ON submission (created_at) WHERE NOT validated;"
	"CREATE INDEX submission_hidden ON submission (id) WHERE NOT revealed;"
	"CREATE INDEX submission_round ON submission (round_id);"
	"CREATE INDEX submission_fastest ON submission (tokens_per_sec);"
	"CREATE INDEX submission_newest ON submission (created_at);"
	"CREATE TABLE address ("
	"	address TEXT PRIMARY KEY,"
	"	failures INTEGER NOT NULL,"
	"	banned_until REAL" /* NULL: not banned */
	") WITHOUT ROWID",
	NULL,
};

static const struct database_format format = {
	.what = "the database of a local validator",
	.application = 0x51564c44, /* "QVLD" */
	.migrations = migrations,
};

/* Who asked in the last minute; need not survive a restart. */
static const char recent_requests[] = "CREATE TEMP TABLE recent (hotkey TEXT NOT NULL, at REAL NOT NULL);"
				      "CREATE INDEX temp.recent_hotkey ON recent (hotkey, at);"
				      "CREATE INDEX temp.recent_at ON recent (at)";

static int begin(void *context, struct error *err)
{
	return database_begin(((struct validator *)context)->database, err);
}

static int commit(void *context, struct error *err)
{
	return database_commit(((struct validator *)context)->database, err);
}

static void rollback(void *context)
{
	database_rollback(((struct validator *)context)->database);
}

const struct server_transaction validator_transaction = {begin, commit, rollback};

/* Answers in the network thread: it says that the service runs, not that it has nothing to do. */
static bool check_health(struct server_request *request, struct server_reply *reply, void *context)
{
	(void)request;
	(void)context;
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "status", "ok");
	return true;
}

const struct server_route validator_routes[] = {
	{"GET", "/health", false, check_health, NULL},
	{"POST", "/register_miner", true, validator_authenticate, handle_register_miner},
	{"POST", "/submit_kernel", true, validator_authenticate, handle_submit_kernel},
	{"POST", "/commit_submission", true, validator_authenticate, handle_commit_submission},
	{"POST", "/reveal_submission", true, validator_authenticate, handle_reveal_submission},
	{"GET", "/pending_reveals", false, NULL, handle_pending_reveals},
	{"GET", "/get_submission_stats", false, NULL, handle_submission_stats},
	{"GET", "/get_submission_rate", false, NULL, handle_submission_rate},
	{"GET", "/get_current_round", false, NULL, handle_current_round},
	{"POST", "/create_round", true, NULL, handle_create_round},
	{"POST", "/finalize_round/{round_id}", false, NULL, handle_finalize_round},
	{"GET", "/get_weights", false, NULL, handle_weights},
	{"POST", "/record_verification", false, NULL, handle_record_verification},
	{"GET", "/verification_stats", false, NULL, handle_verification_stats},
	{"POST", "/mark_validated", true, NULL, handle_mark_validated},
	{"POST", "/record_failure", true, NULL, handle_record_failure},
	{0},
};

struct validator *validator_open(const struct validator_options *options, struct error *err)
{
	struct validator *validator = xcalloc(1, sizeof(*validator));

	validator->options = *options;
	validator->version = options->version;
	if (!options->now)
		validator->options.now = clock_now;
	validator->database = database_open(options->database, &format, DATABASE_EXCLUSIVE, err);
	if (validator->database && database_script(validator->database, recent_requests, err) == 0)
		return validator;
	validator_close(validator);
	return NULL;
}

void validator_close(struct validator *validator)
{
	if (!validator)
		return;
	database_close(validator->database);
	free(validator);
}

const struct validator_version *validator_version(const char *name)
{
	const struct validator_version *version = validator_versions;

	while (version->name && strcmp(version->name, name))
		version++;
	return version->name ? version : NULL;
}

double validator_now(const struct validator *validator)
{
	return validator->options.now();
}

int64_t validator_block(const struct validator *validator)
{
	return (int64_t)floor((validator_now(validator) - BLOCK_GENESIS) / validator->options.block_seconds);
}

double validator_block_begins(const struct validator *validator, int64_t block)
{
	return BLOCK_GENESIS + (double)block * validator->options.block_seconds;
}

double column_real(sqlite3_stmt *query, int column)
{
	bool missing = sqlite3_column_type(query, column) == SQLITE_NULL;

	return missing ? NAN : sqlite3_column_double(query, column);
}

void add_integer(cJSON *object, const char *name, int64_t value)
{
	char digits[32];

	snprintf(digits, sizeof(digits), "%lld", (long long)value);
	cJSON_AddRawToObject(object, name, digits);
}

bool rows_add(const struct validator *validator, struct rows *rows, cJSON *row)
{
	char *text = validator->version->dialect.python_json ? python_json_print(row)
							     : cJSON_PrintUnformatted(row);

	cJSON_Delete(row);
	buffer_text(&rows->text, rows->text.length ? "," : "[");
	buffer_text(&rows->text, text ? text : "null");
	rows->fault |= !text;
	cJSON_free(text);
	return rows->text.length <= LIST_LIMIT;
}

void rows_end(struct rows *rows, const char *name, struct server_reply *reply)
{
	buffer_text(&rows->text, rows->text.length ? "]" : "[]");
	if (rows->fault)
		server_fault(reply);
	else if (rows->text.length > LIST_LIMIT)
		server_refuse(reply, 500, "%s is longer than %zu MiB", name, LIST_LIMIT >> 20);
	else
		cJSON_AddRawToObject(reply->body, name, rows->text.data);
	buffer_free(&rows->text);
}
