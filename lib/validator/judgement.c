/* What judges send: scores and verifications. */
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/memory.h"
#include "net/fields.h"
#include "score/score.h"
#include "validator/state.h"

/* The address that a submission came from; 0 when there is no such submission. The caller frees. */
static int find_submission(struct validator *validator, int64_t id, char **address, bool *validated,
	double *score, struct error *err)
{
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT address, validated, score FROM submission WHERE id = ?", "i", id);

	if (found > 0) {
		*address = xstrdup(database_text(query, 0));
		*validated = sqlite3_column_int(query, 1);
		*score = column_real(query, 2);
		sqlite3_reset(query);
	}
	return found;
}

/* A judgement tells on the address that sent the submission: a score of 0 may be a failure, anything else
 * makes good for earlier ones. Where a 0 counts, only the first judgement does. */
static int judge_address(struct validator *validator, const char *address, double score, struct error *err)
{
	return score == 0 && !validator->version->forgives_zero
		? validator_count_failure(validator, address, err)
		: validator_forgive(validator, address, err);
}

static int mark_validated(
	struct validator *validator, int64_t id, double score, struct server_reply *reply, struct error *err)
{
	double earlier = NAN;
	char *address = NULL;
	bool validated = false;
	int result = find_submission(validator, id, &address, &validated, &earlier, err);

	if (result == 0)
		server_refuse(reply, 404, "Submission not found");
	if (result <= 0)
		return result;
	if (isnan(score))
		score = earlier;
	result = database_run(validator->database, err,
		"UPDATE submission SET validated = 1, score = ? WHERE id = ?", "ri", score, id);
	if (!result && (!validated || validator->version->forgives_zero))
		result = judge_address(validator, address, score, err);
	free(address);
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "status", "ok");
	json_add_id(reply->body, "submission_id", id);
	json_add_real(reply->body, "score", score);
	return result;
}

/* Of /mark_validated where it takes a body as it comes. False: it is a fault. */
static bool is_usable(const struct fields *fields)
{
	const cJSON *id = fields_raw(fields, "submission_id"), *score = fields_raw(fields, "score");

	return !((cJSON_IsArray(id) || cJSON_IsObject(id)) && id->child) &&
		(!score || cJSON_IsNull(score) || cJSON_IsNumber(score) || cJSON_IsBool(score));
}

/* What stands for no id in Python. */
static bool is_empty(const cJSON *id)
{
	return !id || cJSON_IsNull(id) || cJSON_IsFalse(id) || (cJSON_IsNumber(id) && id->valuedouble == 0) ||
		(cJSON_IsString(id) && !*id->valuestring) ||
		((cJSON_IsArray(id) || cJSON_IsObject(id)) && !id->child);
}

int handle_mark_validated(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_object(request, &validator->version->fields);
	bool loose = validator->version->loose_objects;
	int64_t id;
	double score;

	if (!fields.problems && is_empty(fields_raw(&fields, "submission_id"))) {
		server_refuse(reply, 400, "submission_id required");
		return 0;
	}
	if (loose && !is_usable(&fields)) {
		server_fault(reply);
		return 0;
	}
	id = fields_integer_or(&fields, "submission_id", 0);
	score = fields_optional_real(&fields, "score");
	if (loose && cJSON_IsObject(request->body) && fields.problems) {
		/* text or a fraction is the id of no submission */
		cJSON_Delete(fields.problems);
		server_refuse(reply, 404, "Submission not found");
		return 0;
	}
	return fields_refused(&fields, reply) ? 0 : mark_validated(validator, id, score, reply, err);
}

/* What /mark_validated_with_verification tells of a submission; NAN and NULL: not told. */
struct judgement {
	int64_t id, verified; /* -1: not told */
	double score, speed, cosine, difference, throughput;
	const char *reason;
};

static struct judgement read_judgement(struct fields *fields)
{
	struct judgement judgement = {
		.id = fields_integer(fields, "submission_id"),
		.score = fmax(0, fmin(1, fields_real(fields, "score"))),
		.speed = fields_optional_real(fields, "actual_tokens_per_sec"),
		.cosine = fields_optional_real(fields, "cosine_similarity"),
		.difference = fields_optional_real(fields, "max_abs_diff"),
		.throughput = fields_optional_real(fields, "throughput"),
		.reason = fields_optional_string(fields, "reason"),
	};
	const cJSON *verified = fields_raw(fields, "verified");

	judgement.verified = verified && !cJSON_IsNull(verified) ? fields_bool(fields, "verified") : -1;
	if (judgement.speed == 0) /* nothing ran */
		judgement.speed = NAN;
	return judgement;
}

/* 1: the submission may be judged so; 0: not, and the reply is made. */
static int check_judgement(struct validator *validator, const struct judgement *judgement,
	struct server_reply *reply, struct error *err)
{
	bool revealed;
	sqlite3_stmt *query;
	int found = database_row(validator->database, &query, err,
		"SELECT revealed FROM submission WHERE id = ?", "i", judgement->id);

	if (found == 0)
		server_refuse(reply, 404, "Submission not found");
	if (found <= 0)
		return found;
	revealed = sqlite3_column_int(query, 0);
	sqlite3_reset(query);
	if (!revealed)
		server_refuse(reply, 409, "Submission is not revealed yet");
	return revealed &&
		(isnan(judgement->speed) ||
			validator_check_plausible(
				validator, "actual_tokens_per_sec", judgement->speed, reply));
}

/* A miner who claimed far more than was measured is flagged. */
static int flag_bold_claim(
	struct validator *validator, const struct judgement *judgement, bool *flagged, struct error *err)
{
	char *hotkey, *reason;
	double claim;
	sqlite3_stmt *query;
	int result;

	if (database_row(validator->database, &query, err,
		    "SELECT miner_hotkey, tokens_per_sec FROM submission WHERE id = ?", "i",
		    judgement->id) < 0)
		return -1;
	claim = sqlite3_column_double(query, 1);
	*flagged = !isnan(judgement->speed) && score_overclaims(claim, judgement->speed);
	hotkey = database_copy_text(query, 0);
	sqlite3_reset(query);
	reason = xprintf("Claimed %.2f tokens/s, but %.2f were measured", claim, judgement->speed);
	result = *flagged ? validator_flag(validator, hotkey, reason, err) : 0;
	free(hotkey);
	free(reason);
	return result;
}

static int store_verification(
	struct validator *validator, const struct judgement *judgement, struct error *err)
{
	return database_run(validator->database, err,
		"UPDATE submission SET validated_tokens_per_sec = ?, logits_passed = nullif(?, -1),"
		" cosine_similarity = ?, max_abs_diff = ?, throughput = ?, verification_reason = ?"
		" WHERE id = ?",
		"rirrrsi", judgement->speed, judgement->verified, judgement->cosine, judgement->difference,
		judgement->throughput, judgement->reason, judgement->id);
}

int handle_mark_verified(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_body(request, &validator->version->fields);
	struct judgement judgement = read_judgement(&fields);
	bool flagged;
	int admitted;

	if (fields_refused(&fields, reply))
		return 0;
	admitted = check_judgement(validator, &judgement, reply, err);
	if (admitted <= 0)
		return admitted;
	if (mark_validated(validator, judgement.id, judgement.score, reply, err) < 0 ||
		store_verification(validator, &judgement, err) < 0 ||
		flag_bold_claim(validator, &judgement, &flagged, err) < 0)
		return -1;
	json_add_real(reply->body, "validated_tokens_per_sec", judgement.speed);
	cJSON_AddItemToObject(reply->body, "verified",
		judgement.verified < 0 ? cJSON_CreateNull() : cJSON_CreateBool((int)judgement.verified));
	cJSON_AddBoolToObject(reply->body, "flagged", flagged);
	return 0;
}

int handle_record_verification(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	struct validator *validator = context;
	struct fields fields = fields_query(request, &validator->version->fields);
	int64_t id = fields_integer(&fields, "submission_id");
	bool verified = fields_bool(&fields, "verified");
	double cosine = fields_optional_real(&fields, "cosine_similarity");
	double difference = fields_optional_real(&fields, "max_abs_diff");
	double throughput = fields_optional_real(&fields, "throughput");
	const char *reason = fields_optional_string(&fields, "reason");

	if (fields_refused(&fields, reply))
		return 0;
	if (database_run(validator->database, err,
		    "UPDATE submission SET logits_passed = ?, cosine_similarity = ?, max_abs_diff = ?,"
		    " throughput = ?, verification_reason = ? WHERE id = ?",
		    "irrrsi", (int64_t)verified, cosine, difference, throughput, reason, id) < 0)
		return -1;
	if (!database_changes(validator->database)) {
		server_refuse(reply, 404, "Submission not found");
		return 0;
	}
	reply->body = cJSON_CreateObject();
	cJSON_AddStringToObject(reply->body, "status", "recorded");
	cJSON_AddBoolToObject(reply->body, "verified", verified);
	return 0;
}
