/* rewards: who was paid last. */
#pragma once

#include "api/client.h"

struct rewards {
	struct api_weights weights; /* empty: no round with rewards is known */
	int64_t rounds_since;       /* rounds that ended after it without rewards; 0: none */
};

/* The latest completed round that had rewards. The validator tells by itself only of the latest, which has
 * none when nobody ranked; the ones before are asked for by their ids. Free with api_release. */
int rewards_read(struct api *api, struct rewards *rewards, struct error *err);
