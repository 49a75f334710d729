#include "api/rewards.h"

/* Rounds that are looked back at: 40 days. Ids may be left out, which looks like a round without rewards. */
#define ROUNDS_MOST 20

int rewards_read(struct api *api, struct rewards *rewards, struct error *err)
{
	struct api_round round = {0};
	int result;

	*rewards = (struct rewards){0};
	if (api_weights(api, 0, &rewards->weights, err) < 0)
		return -1;
	if (rewards->weights.count)
		return 0;
	result = api_current_round(api, &round, err);
	/* the one before the current round is the latest completed one */
	for (int64_t back = 2; !result && back <= ROUNDS_MOST && back < round.id && !rewards->weights.count;
		back++) {
		api_release(&rewards->weights.memory);
		result = api_weights(api, round.id - back, &rewards->weights, err);
		rewards->rounds_since = back - 1;
	}
	if (!rewards->weights.count)
		rewards->rounds_since = 0;
	api_release(&round.memory);
	return result;
}
