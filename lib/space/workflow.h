/* workflow: the life of a submission, from the workspace to the validator.
 *
 * Every step is durable in the store before the one that needs it, so that whatever ends the process, the
 * next call goes on from there: a commitment whose answer was lost is looked for among the validator's
 * pending reveals before it is sent again, and always under the same salt; a reveal that was done but not
 * heard of is recognised by the validator's answer to the second one. A commitment is given up only when the
 * validator itself says so, in words that are known, and its list does not have it; and is taken up again when
 * the list has it after all.
 *
 * Where miners are shown no lists (api_shows_lists()), a commitment is sent again until the validator says that it
 * has it. Without its id it cannot be revealed: it is abandoned, and another one is made, with a salt of its own. A
 * direct submission is sent again only as long as the validator's pause between submissions would refuse a second
 * one; that refusal then says that the first one arrived. */
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
	bool patient; /* waits as long as the validator asks for between submissions, beyond the timeout; else that is
	               * STATUS_NETWORK, and api_last()->retry_after tells the seconds */

	int64_t in_doubt; /* the submission of which nobody can say whether it arrived; 0: none */

	/* what the validator said to the last reveal, and with REFUSAL_EARLY the blocks left (0: not told, or
	 * the block is not known) */
	enum refusal refusal;
	int64_t blocks_left;
};

/* What a miner wants to submit. */
struct plan {
	const char *fork_url, *commit_hash;
	const char *repo_hash;    /* NULL: none */
	const char *docker_image; /* what is committed to in the fork's place; NULL: none */
	int64_t target_sequence_length;
	double tokens_per_sec;   /* the claim */
	double vram_mb;          /* NAN: not claimed */
	const cJSON *benchmarks; /* {"4096": {"tokens_per_sec": …, "vram_mb": …}, …}; NULL: none */
};

/* The newest submission of the same fork, commit and length that is neither refused nor abandoned, if there
 * is one: `found` says so, and then `submission` is to be freed. */
int workflow_find(struct workflow *workflow, enum submission_kind kind, const struct plan *plan, bool *found,
	struct submission *submission, struct error *err);

/* Draws a salt, stores the submission, and commits it. `id` is the store's, of the last one if it had to
 * be made anew, also when the commitment could not be delivered (STATUS_NETWORK): then workflow_settle()
 * takes it up again. A refusal is stored with its reason. */
int workflow_commit(struct workflow *workflow, const struct plan *plan, int64_t *id, struct error *err);

/* Submits directly, without commit-reveal. Otherwise as workflow_commit. */
int workflow_submit(struct workflow *workflow, const struct plan *plan, int64_t *id, struct error *err);

/* Finds out what became of a submission that is only prepared, and sends it unless the validator has it. It may be
 * abandoned for another one afterwards. */
int workflow_settle(struct workflow *workflow, const struct submission *submission, struct error *err);

/* Reveals a committed submission. STATUS_EARLY before its block. STATUS_REFUSED does not mean that it is given up:
 * its step in the store tells. */
int workflow_reveal(struct workflow *workflow, const struct submission *submission, struct error *err);

/* Gives up the one that is in doubt, for the miner says so. */
int workflow_abandon_in_doubt(struct workflow *workflow, struct error *err);

/* Whether it is stored as refused, or lost by the validator. */
bool workflow_gave_up(struct workflow *workflow, int64_t id);

/* --- the validator's list of commitments ------------------------------------------------------------- */

/* Reads the rows about this hotkey's commitments, and follows them: ids and blocks that changed, and commitments
 * that were taken for lost or refused, go into the store. Release it, also after an error. */
int workflow_pending(struct workflow *workflow, struct api_pending_reveals *pending, struct error *err);

/* The row about this commitment, or NULL. */
const struct api_pending_reveal *workflow_listed(
	const struct api_pending_reveals *pending, const struct submission *submission);

/* The same question for one, from the list alone: -1, with STATUS_REFUSED, when the validator has lost it. */
int workflow_check_listed(struct workflow *workflow, const struct submission *submission,
	const struct api_pending_reveals *pending, struct error *err);

/* Stores which commitments the validator has lost, as what it says shows: it does not list them, and has their
 * ids given to others, or is younger than they are. `before`: what was stored before it was asked, for another
 * process may have committed since. `stats` and `round`: NULL when not known. */
void workflow_mark_forgotten(struct workflow *workflow, const struct submission_list *before,
	const struct api_pending_reveals *pending, const struct api_submission_stats *stats,
	const struct api_round *round);

/* Asks for all that and does both. -1 when the list cannot be read. */
int workflow_refresh(struct workflow *workflow, struct error *err);

/* --- the dashboard -------------------------------------------------------------------------------------- */

/* Reads what it shows of this hotkey, and stores the scores of its submissions. Release it, also after an error. */
int workflow_dashboard(struct workflow *workflow, struct api_miner *miner, struct error *err);

/* --- what the validator lists and the store does not --------------------------------------------------- */

/* Looks for a prepared submission at the validator, sends nothing; stores where it stands if it is there. -1 with
 * REFUSAL_NOT_FOR_US where a miner may look nowhere. */
int workflow_locate(struct workflow *workflow, const struct submission *submission, struct error *err);

/* True for a commitment of the hotkey that the store cannot reveal, and has not. */
bool workflow_lacks_commitment(struct workflow *workflow, const struct api_pending_reveal *reveal);
/* True when the store knows this submission of the hotkey by the validator's id. */
bool workflow_knows_submission(struct workflow *workflow, int64_t server_id);

/* Takes a submission that only the validator knows into the store, as a direct one. */
int workflow_adopt(struct workflow *workflow, const struct api_submission *listed, struct error *err);
