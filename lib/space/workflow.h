/* workflow: the life of a submission, from the workspace to the validator.
 *
 * Every step is durable in the store before the one that needs it, so that whatever ends the process, the
 * next call goes on from there: a commitment whose answer was lost is looked for among the validator's
 * pending reveals before it is sent again, and always under the same salt; a reveal that was done but not
 * heard of is recognised by the validator's answer to the second one. */
#pragma once

#include <stdbool.h>

#include "api/client.h"
#include "base/error.h"
#include "space/store.h"

struct workflow {
	struct store *store;
	struct api *api;
	const char *api_url, *hotkey; /* whose submissions, and where */
	double timeout;               /* seconds that one step may take, retries included */
};

/* What a miner wants to submit. */
struct plan {
	const char *fork_url, *commit_hash;
	const char *repo_hash; /* NULL: none */
	int64_t target_sequence_length;
	double tokens_per_sec; /* the claim */
	double vram_mb;        /* NAN: not claimed */
	const cJSON *benchmarks; /* {"4096": {"tokens_per_sec": …, "vram_mb": …}, …}; NULL: none */
};

/* The newest submission of the same fork, commit and length that is neither refused nor abandoned, if there
 * is one: `found` says so, and then `submission` is to be freed. */
int workflow_find(struct workflow *workflow, enum submission_kind kind, const struct plan *plan, bool *found,
	struct submission *submission, struct error *err);

/* Draws a salt, stores the submission, and commits it. `id` is the store's, also when the commitment could
 * not be delivered (STATUS_NETWORK): then workflow_settle() takes it up again. A refusal is stored with its
 * reason. */
int workflow_commit(struct workflow *workflow, const struct plan *plan, int64_t *id, struct error *err);

/* Submits directly, without commit-reveal. Otherwise as workflow_commit. */
int workflow_submit(struct workflow *workflow, const struct plan *plan, int64_t *id, struct error *err);

/* Finds out what became of a submission that is only prepared, and sends it unless the validator has it. */
int workflow_settle(struct workflow *workflow, const struct submission *submission, struct error *err);

/* Reveals a committed submission. STATUS_EARLY before its block. */
int workflow_reveal(struct workflow *workflow, const struct submission *submission, struct error *err);

/* Stores that the validator has lost this submission: its id there is another one's. Returns -1, with
 * STATUS_REFUSED. */
int workflow_forgotten(struct workflow *workflow, const struct submission *submission, struct error *err);

/* --- what the validator lists and the store does not --------------------------------------------------- */

/* Looks for a prepared submission at the validator, sends nothing; stores where it stands if it is there. */
int workflow_locate(struct workflow *workflow, const struct submission *submission, struct error *err);

/* True for a commitment of the hotkey that the store cannot reveal, and has not. */
bool workflow_lacks_commitment(struct workflow *workflow, const struct api_pending_reveal *reveal);
/* True when the store knows this submission of the hotkey by the validator's id. */
bool workflow_knows_submission(struct workflow *workflow, int64_t server_id);

/* Takes a submission that only the validator knows into the store, as a direct one. */
int workflow_adopt(struct workflow *workflow, const struct api_submission *listed, struct error *err);
