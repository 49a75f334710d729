#include "validator/validator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/block.h"
#include "base/clock.h"
#include "base/memory.h"
#include "net/fields.h"
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

/* Of 2026-04. */
static const struct field_bound few_bounds[] = {
	{"model_name", 0, 128},
	{"limit", 1, 200},
	{0},
};

#define ROUND_SECONDS (48 * 3600.0)

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

	/* Networks. Miners may be deleted, and their submissions stay. */
	"ALTER TABLE miner RENAME TO old_miner;"
	"ALTER TABLE registration RENAME TO old_registration;"
	"ALTER TABLE round RENAME TO old_round;"
	"ALTER TABLE submission RENAME TO old_submission;"
	"DROP INDEX submission_waiting; DROP INDEX submission_hidden; DROP INDEX submission_round;"
	"DROP INDEX submission_fastest; DROP INDEX submission_newest;"
	"CREATE TABLE version (name TEXT NOT NULL);" /* what the service is like; one row */
	"CREATE TABLE miner ("
	"	hotkey TEXT NOT NULL,"
	"	network TEXT NOT NULL,"
	"	uid INTEGER NOT NULL DEFAULT 0,"
	"	registered_at REAL NOT NULL,"
	/* of its person; NULL: not known */
	"	coldkey TEXT,"
	"	github_name TEXT,"
	"	address TEXT,"
	"	flag TEXT," /* why it is flagged; NULL: it is not */
	"	PRIMARY KEY (hotkey, network)"
	") WITHOUT ROWID;"
	"CREATE TABLE registration ("
	"	hotkey TEXT NOT NULL,"
	"	network TEXT NOT NULL,"
	"	model_name TEXT NOT NULL,"
	"	league TEXT NOT NULL,"
	"	score REAL NOT NULL DEFAULT 0,"
	"	PRIMARY KEY (hotkey, network, model_name, league),"
	"	FOREIGN KEY (hotkey, network) REFERENCES miner ON DELETE CASCADE"
	") WITHOUT ROWID;"
	"CREATE TABLE round ("
	"	id INTEGER PRIMARY KEY AUTOINCREMENT,"
	"	network TEXT NOT NULL,"
	"	round_number INTEGER NOT NULL,"
	"	start_time REAL NOT NULL,"
	"	end_time REAL NOT NULL,"
	"	status TEXT NOT NULL,"
	"	baseline_submission_id INTEGER REFERENCES submission," /* what has to be beaten */
	"	winner_submission_id INTEGER REFERENCES submission,"
	"	winner_hotkey TEXT,"
	"	UNIQUE (network, round_number)"
	");"
	"CREATE TABLE submission ("
	"	id INTEGER PRIMARY KEY AUTOINCREMENT,"
	"	miner_hotkey TEXT NOT NULL,"
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
	"	validated_tokens_per_sec REAL," /* measured and normalised; NULL: not told */
	"	score REAL,"
	"	logits_passed INTEGER," /* NULL: not verified yet */
	"	cosine_similarity REAL,"
	"	max_abs_diff REAL,"
	"	throughput REAL,"
	"	verification_reason TEXT"
	");"
	"INSERT INTO round SELECT id, 'finney', round_number, start_time, end_time, status, NULL, NULL,"
	" winner_hotkey FROM old_round;"
	"INSERT INTO submission SELECT id, miner_hotkey, round_id, address, created_at,"
	" target_sequence_length, signature, fork_url, commit_hash, repo_hash, docker_image, tokens_per_sec,"
	" vram_mb, benchmarks, solution_hash, revealed, commitment_hash, commitment_salt, reveal_block,"
	" validated, NULL, score, logits_passed, cosine_similarity, max_abs_diff, throughput,"
	" verification_reason FROM old_submission;"
	"UPDATE round SET (baseline_submission_id, winner_submission_id) ="
	" (SELECT baseline_submission_id, winner_submission_id FROM old_round WHERE id = round.id);"
	"INSERT INTO miner SELECT hotkey, 'finney', uid, registered_at, NULL, NULL, NULL, NULL"
	" FROM old_miner;"
	"INSERT INTO registration SELECT hotkey, 'finney', model_name, league, score FROM old_registration;"
	"UPDATE old_round SET baseline_submission_id = NULL, winner_submission_id = NULL;"
	"DROP TABLE old_registration; DROP TABLE old_submission; DROP TABLE old_round; DROP TABLE old_miner;"
	"CREATE INDEX miner_github ON miner (github_name);"
	"CREATE INDEX miner_address ON miner (address);"
	"CREATE INDEX miner_coldkey ON miner (coldkey);"
	"CREATE INDEX submission_waiting ON submission (created_at) WHERE NOT validated;"
	"CREATE INDEX submission_hidden ON submission (id) WHERE NOT revealed;"
	"CREATE INDEX submission_round ON submission (round_id);"
	"CREATE INDEX submission_miner ON submission (miner_hotkey, created_at);"
	"CREATE INDEX submission_fastest ON submission (tokens_per_sec);"
	"CREATE INDEX submission_newest ON submission (created_at)",
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

/* Where everybody may read everything, and judge. */
static const struct server_route open_routes[] = {
	{"GET", "/health", false, check_health, NULL},
	{"GET", "/openapi.json", false, validator_describe, NULL},
	{"GET", VALIDATOR_PAGE, false, validator_check_page, handle_page},
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

/* Where only validators may. */
static const struct server_route guarded_routes[] = {
	{"GET", "/health", false, check_health, NULL},
	{"GET", "/openapi.json", false, validator_describe, NULL},
	{"GET", VALIDATOR_PAGE, false, validator_check_page, handle_page},
	{"POST", "/register_miner", true, validator_authenticate, handle_register_miner},
	{"POST", "/submit_kernel", true, validator_authenticate, handle_submit_kernel},
	{"POST", "/commit_submission", true, validator_authenticate, handle_commit_submission},
	{"POST", "/reveal_submission", true, validator_authenticate, handle_reveal_submission},
	{"GET", "/pending_reveals", false, validator_authorize, handle_pending_reveals},
	{"GET", "/get_submission_stats", false, validator_authorize, handle_submission_stats},
	{"GET", "/get_submission_rate", false, validator_authorize, handle_submission_rate},
	{"GET", "/get_pending_validations", false, validator_authorize, handle_pending_validations},
	{"POST", "/mark_validated", true, validator_authorize, handle_mark_validated},
	{"POST", "/mark_validated_with_verification", true, validator_authorize, handle_mark_verified},
	{"POST", "/record_verification", false, validator_authorize, handle_record_verification},
	{"GET", "/verification_stats", false, validator_authorize, handle_verification_stats},
	{"POST", "/record_failure", true, validator_authorize, handle_record_failure},
	{"POST", "/sync_uids", true, validator_authorize, handle_sync_uids},
	{"GET", "/flagged_miners", false, validator_authorize, handle_flagged_miners},
	{"POST", "/flag_miner", true, validator_authorize, handle_flag_miner},
	{"GET", "/get_current_round", false, validator_authorize, handle_current_round},
	{"GET", "/get_completed_rounds", false, validator_authorize, handle_completed_rounds},
	{"POST", "/create_round", true, validator_authorize, handle_create_round},
	{"POST", "/finalize_round/{round_id}", false, validator_authorize, handle_finalize_round},
	{"POST", "/refinalize_round/{round_id}", false, validator_authorize, handle_refinalize_round},
	{"GET", "/get_weights", false, validator_authorize, handle_weights},
	{"GET", "/dashboard/overview", false, validator_authorize_reader, handle_overview},
	{"GET", "/dashboard/leaderboard", false, validator_authorize_reader, handle_leaderboard},
	{"GET", "/dashboard/top_miners", false, validator_authorize_reader, handle_top_miners},
	{"GET", "/dashboard/miner/{hotkey}", false, validator_authorize_reader, handle_dashboard_miner},
	{0},
};

const struct validator_version validator_versions[] = {
	{
		.name = "2026-02",
		.routes = open_routes,
		.wrapped_signatures = true,
		.registers_signer = true,
		.registers_once = true,
		.lax_reveals = true,
		.forgives_zero = true,
		.block_genesis = BLOCK_GENESIS,
		.waits_for_round = true,
		.baseline_one_round = true,
		.finalizes_blindly = true,
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
		.name = "2026-04",
		.routes = guarded_routes,
		.cooldown = 300,
		.timed_requests = true,
		.wrapped_signatures = true,
		.prefixed_signatures = true,
		.registers_signer = true,
		.registers_once = true,
		.registers_submitters = true,
		.lax_reveals = true,
		.forgives_zero = true,
		.forwarded_addresses = true,
		.flags = true,
		.networks = true,
		.least_claim = 10,
		.most_claim = 50e6,
		.submits_images = true,
		.hides_forks = true,
		.block_genesis = BLOCK_GENESIS_2026_04,
		.ranks_measurements = true,
		.timed_rounds = true,
		.baseline_one_round = true,
		.tells_rounds = true,
		.fields = {.bounds = few_bounds, .any_number = true},
		.loose_objects = true,
		.all_rows = true,
		.body_limit = 4 << 20,
		.dialect = {.python_json = true, .cors = true, .redirects_slashes = true},
	},
	{
		.name = "strict",
		.routes = open_routes,
		.rate_limit = 10,
		.block_genesis = BLOCK_GENESIS,
		.fields = {.bounds = bounds},
		.body_limit = 64 << 10,
	},
	{0},
};

/* A database belongs to the version that it was made with. One from before that was noted belongs to the first
 * that opens it. */
static int check_version(struct validator *validator, struct error *err)
{
	const char *name = validator->version->name, *path = validator->options.database;
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err, "SELECT name FROM version", "");

	if (found > 0 && strcmp(database_text(query, 0), name)) {
		error_set(err, STATUS_ENVIRONMENT, "%s is the database of a local validator like %s, not %s",
			path, database_text(query, 0), name);
		error_hint(err, "Use --like %s, or another file with --db.", database_text(query, 0));
		found = -1;
	}
	if (found > 0)
		sqlite3_reset(query);
	return found ? (found < 0 ? -1 : 0)
		     : database_run(validator->database, err, "INSERT INTO version VALUES (?)", "s", name);
}

struct validator *validator_open(const struct validator_options *options, struct error *err)
{
	struct validator *validator = xcalloc(1, sizeof(*validator));

	validator->options = *options;
	validator->version = options->version;
	if (!options->now)
		validator->options.now = clock_now;
	if (!options->round_seconds)
		validator->options.round_seconds = ROUND_SECONDS;
	validator->database = database_open(options->database, &format, DATABASE_EXCLUSIVE, err);
	if (validator->database && database_script(validator->database, recent_requests, err) == 0 &&
		check_version(validator, err) == 0)
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

const char *validator_network(const struct validator *validator, struct fields *fields)
{
	const char *network = validator->version->networks ? fields_optional_string(fields, "network") : NULL;

	return network && !strcmp(network, "test") ? "test" : "finney";
}

double validator_now(const struct validator *validator)
{
	return validator->options.now();
}

int64_t validator_block(const struct validator *validator)
{
	return (int64_t)floor((validator_now(validator) - validator->version->block_genesis) /
		validator->options.block_seconds);
}

double validator_block_begins(const struct validator *validator, int64_t block)
{
	return validator->version->block_genesis + (double)block * validator->options.block_seconds;
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
