#include "net/validator.h"

#include <math.h>
#include <stdlib.h>

#include "api/block.h"
#include "base/clock.h"
#include "base/memory.h"
#include "net/validator_state.h"

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
static const char recent_requests[] =
	"CREATE TEMP TABLE recent (hotkey TEXT NOT NULL, at REAL NOT NULL);"
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
