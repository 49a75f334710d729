/* An inference server's answer to a challenge. */
#include "fuzz.h"

#include "logits/responder.h"

/* The first byte chooses the version of the challenge. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct challenge challenge = {.length = 4, .steps = {1, 2, 4}};
	struct challenge_answer answer = {0};
	struct error err = {0};
	char *text;

	if (!size)
		return 0;
	challenge.kind = data[0] & 1 ? CHALLENGE_2026_04 : CHALLENGE_2026_02;
	challenge.step_count = challenge.kind == CHALLENGE_2026_02 ? 1 : 3;
	text = fuzz_string(data + 1, size - 1);
	if (responder_read_answer(text, size - 1, &challenge, &answer, &err) < 0)
		REQUIRE(err.message[0] && err.status == STATUS_FAILED);
	REQUIRE(answer.token_count >= 0 && answer.token_count <= CHALLENGE_LENGTH);
	for (int i = 0; i < CHALLENGE_STEPS; i++)
		REQUIRE(answer.logits[i] || !answer.logit_count[i]);
	challenge_answer_free(&answer);
	free(text);
	return 0;
}
