/* What miners send: submissions, commitments, reveals. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/message.h"
#include "base/json.h"
#include "net/fields.h"
#include "score/score.h"
#include "validator/state.h"

/* The uids of those who were made miners by what they sent. */
#define UID_SUBMITTED (-1)
#define UID_COMMITTED 0

/* What /submit_kernel and /reveal_submission have in common; strings belong to the request. */
struct claim {
	const char *fork_url, *commit_hash, *signature;
	const char *docker_image;       /* NULL: none */
	double tokens_per_sec, vram_mb; /* vram_mb NAN: not told */
	const cJSON *benchmarks;        /* NULL: none */
};

static struct claim read_claim(struct fields *fields, bool with_image)
{
	struct claim claim = {
		.fork_url = fields_string(fields, "fork_url"),
		.commit_hash = fields_string(fields, "commit_hash"),
		.signature = fields_string(fields, "signature"),
		.docker_image = with_image ? fields_optional_string(fields, "docker_image") : NULL,
		.tokens_per_sec = fields_real(fields, "tokens_per_sec"),
		.vram_mb = fields_optional_real(fields, "vram_mb"),
		.benchmarks = fields_optional_tables(fields, "benchmarks"),
	};

	return claim;
}

/* As stored; NULL for none. Free with cJSON_free. */
static char *benchmarks_text(const struct claim *claim)
{
	return claim->benchmarks ? cJSON_PrintUnformatted(claim->benchmarks) : NULL;
}

static int insert_submission(struct validator *validator, const struct server_request *request,
	const struct claim *claim, int64_t round, int64_t target, const char *repo_hash, const char *address,
	double now, struct error *err)
{
	char solution[17], *benchmarks;
	int result;

	score_solution_hash(claim->tokens_per_sec, target, claim->benchmarks, solution);
	benchmarks = benchmarks_text(claim);
	result = database_run(validator->database, err,
		"INSERT INTO submission (miner_hotkey, round_id, address, created_at, target_sequence_length,"
		" signature, fork_url, commit_hash, repo_hash, docker_image, tokens_per_sec, vram_mb,"
		" benchmarks, solution_hash, revealed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
		"sisrisssssrrss", request->identity, round, address, now, target, claim->signature,
		claim->fork_url, claim->commit_hash, repo_hash, claim->docker_image, claim->tokens_per_sec,
		claim->vram_mb, benchmarks, solution);
	cJSON_free(benchmarks);
	return result;
}

/* Whether a version that looks at claims lets this one pass; only a submission's has to be plausible. False: not,
 * and the reply is made. */
static bool check_speed(
	const struct validator *validator, double speed, bool plausible, struct server_reply *reply)
{
	if (validator->version->most_claim && !(speed > 0))
		server_refuse(reply, 400, "tokens_per_sec must be a positive number.");
	return !reply->body &&
		(!plausible || validator_check_plausible(validator, "tokens_per_sec", speed, reply));
}

/* What a version that takes anybody's submissions does before it takes one: the hotkey becomes a miner, and its
 * person may have no other. 1: go on; 0: refused, the reply is made. */
static int admit_person(struct validator *validator, const char *hotkey, const char *network, int64_t uid,
	const char *fork_url, const char *address, struct server_reply *reply, struct error *err)
{
	if (validator->version->registers_submitters &&
		validator_enroll(validator, hotkey, network, uid, err) < 0)
		return -1;
	return validator->version->flags
		? validator_check_person(validator, hotkey, network, fork_url, address, reply, err)
		: 1;
}

static void answer_submission(const struct validator *validator, const struct claim *claim,
	const char *hotkey, int64_t target, double now, struct server_reply *reply)
{
	reply->body = cJSON_CreateObject();
	json_add_id(reply->body, "submission_id", database_last_id(validator->database));
	cJSON_AddStringToObject(reply->body, "miner_hotkey", hotkey);
	cJSON_AddStringToObject(reply->body, "fork_url", claim->fork_url);
	cJSON_AddStringToObject(reply->body, "commit_hash", claim->commit_hash);
	cJSON_AddNullToObject(reply->body, "repo_hash"); /* the deployed one never tells it here */
	add_integer(reply->body, "target_sequence_length", target);
	cJSON_AddNumberToObject(reply->body, "tokens_per_sec", claim->tokens_per_sec);
	json_add_real(reply->body, "vram_mb", claim->vram_mb);
	if (claim->benchmarks)
		cJSON_AddItemReferenceToObject(reply->body, "benchmarks", (cJSON *)claim->benchmarks);
	else
		cJSON_AddNullToObject(reply->body, "benchmarks");
	if (validator->version->submits_images)
		json_add_text(reply->body, "docker_image", claim->docker_image);
	json_add_naive_time(reply->body, "created_at", now);
}

/* 1: it may be taken; 0: not, and the reply is made. */
static int admit_submission(struct validator *validator, const struct server_request *request,
	const char *hotkey, const char *network, const struct claim *claim, const char *address,
	struct server_reply *reply, struct error *err)
{
	int admitted = validator_admit(validator, request, hotkey, network, ADMIT_TO_SUBMIT, reply, err);

	if (admitted > 0 && !check_speed(validator, claim->tokens_per_sec, true, reply))
		return 0;
	if (admitted > 0)
		admitted = admit_person(
			validator, hotkey, network, UID_SUBMITTED, claim->fork_url, address, reply, err);
	return admitted;
}

int handle_submit_kernel(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_body(request, &validator->version->fields);
	const char *hotkey = fields_string(&fields, "miner_hotkey");
	int64_t target = fields_integer(&fields, "target_sequence_length"), round;
	const char *repo_hash = fields_optional_string(&fields, "repo_hash");
	const char *network = validator_network(validator, &fields);
	struct claim claim = read_claim(&fields, validator->version->submits_images);
	double now = validator_now(validator);
	char *address;
	int result;

	if (fields_refused(&fields, reply))
		return 0;
	address = validator_address(validator, request);
	result = admit_submission(validator, request, hotkey, network, &claim, address, reply, err);
	if (result > 0)
		result = validator_submission_round(validator, network, &round, reply, err);
	if (result > 0 &&
		insert_submission(validator, request, &claim, round, target, repo_hash, address, now, err) <
			0)
		result = -1;
	if (result > 0) {
		answer_submission(validator, &claim, hotkey, target, now, reply);
		result = validator_forgive(validator, address, err);
	}
	free(address);
	return result;
}

/* 1: there is no such commitment yet; 0: there is, and the reply is made. */
static int check_new(
	struct validator *validator, const char *hash, struct server_reply *reply, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT 1 FROM submission WHERE commitment_hash = ?", "s", hash);

	if (found <= 0)
		return found < 0 ? -1 : 1;
	sqlite3_reset(query);
	server_refuse(reply, 409, "Commitment hash already exists. Use a different salt.");
	return 0;
}

static int insert_commitment(struct validator *validator, const struct server_request *request, int64_t round,
	const char *hash, int64_t target, const char *signature, int64_t reveal_block, struct error *err)
{
	char *address = validator_address(validator, request);
	int result = database_run(validator->database, err,
		"INSERT INTO submission (miner_hotkey, round_id, address, created_at, target_sequence_length,"
		" signature, revealed, commitment_hash, reveal_block) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?)",
		"sisrissi", request->identity, round, address, validator_now(validator), target, signature,
		hash, reveal_block);

	free(address);
	return result;
}

/* "~20 minutes" for a number of blocks, as the API says it. */
static long long block_minutes(const struct validator *validator, int64_t blocks)
{
	return (long long)((double)blocks * validator->options.block_seconds / 60);
}

static void answer_commitment(
	const struct validator *validator, const char *hash, int64_t reveal_block, struct server_reply *reply)
{
	char message[128];

	snprintf(message, sizeof(message), "Commitment accepted. Reveal from block %lld on (~%lld minutes)",
		(long long)reveal_block, block_minutes(validator, validator->options.blocks_until_reveal));
	reply->body = cJSON_CreateObject();
	json_add_id(reply->body, "submission_id", database_last_id(validator->database));
	cJSON_AddStringToObject(reply->body, "commitment_hash", hash);
	cJSON_AddNumberToObject(reply->body, "reveal_block", (double)reveal_block);
	json_add_naive_time(
		reply->body, "estimated_reveal_time", validator_block_begins(validator, reveal_block));
	cJSON_AddStringToObject(reply->body, "message", message);
}

int handle_commit_submission(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_body(request, &validator->version->fields);
	const char *hotkey = fields_string(&fields, "miner_hotkey");
	const char *hash = fields_string(&fields, "commitment_hash");
	int64_t target = fields_integer(&fields, "target_sequence_length");
	const char *signature = fields_string(&fields, "signature");
	const char *network = validator_network(validator, &fields);
	int64_t reveal_block = validator_block(validator) + validator->options.blocks_until_reveal, round;
	int admitted;

	if (fields_refused(&fields, reply))
		return 0;
	admitted = validator_admit(validator, request, hotkey, network, ADMIT_TO_SUBMIT, reply, err);
	if (admitted > 0)
		admitted = admit_person(validator, hotkey, network, UID_COMMITTED, NULL, NULL, reply, err);
	if (admitted > 0)
		admitted = check_new(validator, hash, reply, err);
	if (admitted > 0)
		admitted = validator_submission_round(validator, network, &round, reply, err);
	if (admitted <= 0)
		return admitted;
	if (insert_commitment(validator, request, round, hash, target, signature, reveal_block, err) < 0)
		return -1;
	answer_commitment(validator, hash, reveal_block, reply);
	return 0;
}

/* What is known of a commitment before its reveal. */
struct commitment {
	int64_t id, target_sequence_length, reveal_block;
	bool revealed;
	char hash[65]; /* a longer one is no SHA-256, and matches nothing */
	char network[8];
};

static int find_commitment(struct validator *validator, int64_t id, const char *hotkey,
	struct commitment *commitment, struct error *err)
{
	const char *hash;
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT target_sequence_length, reveal_block, revealed, commitment_hash, network"
		" FROM submission JOIN round ON round.id = round_id"
		" WHERE submission.id = ? AND miner_hotkey = ?",
		"is", id, hotkey);

	if (found <= 0)
		return found;
	hash = database_text(query, 3);
	*commitment = (struct commitment){
		.id = id,
		.target_sequence_length = sqlite3_column_int64(query, 0),
		.reveal_block = sqlite3_column_int64(query, 1),
		.revealed = sqlite3_column_int(query, 2),
	};
	if (hash && strlen(hash) < sizeof(commitment->hash))
		strcpy(commitment->hash, hash);
	snprintf(commitment->network, sizeof(commitment->network), "%s", database_text(query, 4));
	sqlite3_reset(query);
	return 1;
}

/* What a commitment is made over. */
static const char *committed(const struct claim *claim)
{
	return claim->docker_image && *claim->docker_image ? claim->docker_image : claim->fork_url;
}

static int count_mismatch(
	struct validator *validator, const struct server_request *request, struct error *err)
{
	char *address = validator_address(validator, request);
	int result = validator_count_failure(validator, address, err);

	free(address);
	return result;
}

/* 1: it may be revealed with what was sent; 0: not, and the reply is made. */
static int check_reveal(struct validator *validator, const struct server_request *request,
	const struct commitment *commitment, const char *salt, const struct claim *claim,
	struct server_reply *reply, struct error *err)
{
	int64_t blocks = commitment->reveal_block - validator_block(validator);
	int result = 1;

	if (commitment->revealed) {
		server_refuse(reply, 409, "Submission already revealed");
		return 0;
	}
	if (blocks > 0) {
		server_refuse(reply, 425, "Cannot reveal yet. Wait %lld blocks (~%lld minutes)",
			(long long)blocks, block_minutes(validator, blocks));
		return 0;
	}
	if (!message_salt_fits(salt, committed(claim), commitment->hash)) {
		server_refuse(reply, 400, "Hash mismatch: salt and %s do not give the commitment's hash",
			committed(claim) == claim->fork_url ? "URL" : "image");
		return count_mismatch(validator, request, err);
	}
	if (validator->version->flags)
		result = validator_check_owner(
			validator, request->identity, commitment->network, claim->fork_url, reply, err);
	return result > 0 ? check_speed(validator, claim->tokens_per_sec, false, reply) : result;
}

static int store_reveal(struct validator *validator, const struct commitment *commitment,
	const struct claim *claim, const char *salt, struct error *err)
{
	char solution[17], *benchmarks;
	int result;

	score_solution_hash(
		claim->tokens_per_sec, commitment->target_sequence_length, claim->benchmarks, solution);
	benchmarks = benchmarks_text(claim);
	result = database_run(validator->database, err,
		"UPDATE submission SET revealed = 1, commitment_salt = ?, fork_url = ?, commit_hash = ?,"
		" docker_image = ?, tokens_per_sec = ?, vram_mb = ?, benchmarks = ?, solution_hash = ?,"
		" signature = ? WHERE id = ?",
		"ssssrrsssi", salt, claim->fork_url, claim->commit_hash, claim->docker_image,
		claim->tokens_per_sec, claim->vram_mb, benchmarks, solution, claim->signature,
		commitment->id);
	cJSON_free(benchmarks);
	return result;
}

int handle_reveal_submission(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_body(request, &validator->version->fields);
	int64_t id = fields_integer(&fields, "submission_id");
	const char *hotkey = fields_string(&fields, "miner_hotkey");
	const char *salt = fields_string(&fields, "commitment_salt");
	const char *network = validator_network(validator, &fields);
	struct claim claim = read_claim(&fields, true);
	struct commitment commitment;
	int result;

	if (fields_refused(&fields, reply))
		return 0;
	result = validator_admit(validator, request, hotkey, network, ADMIT_TO_REVEAL, reply, err);
	if (result <= 0)
		return result;
	result = find_commitment(validator, id, hotkey, &commitment, err);
	if (result == 0)
		server_refuse(reply, 404, "Submission not found");
	if (result > 0)
		result = check_reveal(validator, request, &commitment, salt, &claim, reply, err);
	if (result <= 0)
		return result;
	if (store_reveal(validator, &commitment, &claim, salt, err) < 0)
		return -1;
	reply->body = cJSON_CreateObject();
	json_add_id(reply->body, "submission_id", id);
	cJSON_AddStringToObject(reply->body, "miner_hotkey", hotkey);
	cJSON_AddStringToObject(reply->body, "fork_url", claim.fork_url);
	cJSON_AddStringToObject(reply->body, "commit_hash", claim.commit_hash);
	cJSON_AddBoolToObject(reply->body, "is_revealed", true);
	cJSON_AddStringToObject(reply->body, "message", "Revealed. A validator will look at it.");
	return 0;
}
