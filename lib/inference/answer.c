#include "inference/answer.h"

#include <string.h>

#include "base/number.h"

/* Numbers that are written at a time. */
#define BLOCK 1024

static void begin_vector(struct answer *answer, int step)
{
	buffer_text(&answer->text, "[");
	answer->vector = answer->logits + (size_t)step * (size_t)answer->vocabulary;
	answer->vector_left = answer->vocabulary;
}

static void go_on_with_vector(struct answer *answer)
{
	char number[32];

	for (int i = 0; i < BLOCK && answer->vector_left; i++) {
		answer->vector_left--;
		buffer_append(&answer->text, number, number_float(*answer->vector++, number));
		buffer_text(&answer->text, answer->vector_left ? "," : "]");
	}
	if (!answer->vector_left)
		answer->vector = NULL;
}

static void write_head(struct answer *answer)
{
	buffer_text(&answer->text, "{\"tokens\":[");
	for (int i = 0; i < answer->request->length; i++)
		buffer_printf(&answer->text, "%s%d", i ? "," : "", answer->tokens[i]);
	buffer_text(&answer->text, "],\"captured_logits\":");
	if (answer->request->step_count)
		begin_vector(answer, 0);
	else
		buffer_text(&answer->text, "null");
}

/* One of `captured_logits_multi`. */
static void write_step(struct answer *answer, int step)
{
	buffer_printf(&answer->text, "%s\"%d\":", step ? "," : ",\"captured_logits_multi\":{",
		answer->request->steps[step]);
	begin_vector(answer, step);
}

static void write_tail(struct answer *answer)
{
	if (answer->request->several)
		buffer_text(
			&answer->text, answer->request->step_count ? "}" : ",\"captured_logits_multi\":{}");
	buffer_printf(&answer->text, ",\"elapsed_sec\":%.6f}", answer->seconds);
}

/* Makes more text; false when all of it has been made. */
static bool go_on(struct answer *answer)
{
	int steps = answer->request->several ? answer->request->step_count : 0, part;

	answer->text.length = answer->sent = 0;
	if (answer->vector) {
		go_on_with_vector(answer);
		return true;
	}
	part = answer->part++;
	if (part == 0)
		write_head(answer);
	else if (part <= steps)
		write_step(answer, part - 1);
	else if (part == steps + 1)
		write_tail(answer);
	return part <= steps + 1;
}

static size_t read_answer(struct server_content *content, char *out, size_t most)
{
	struct answer *answer = (struct answer *)content;
	size_t length;

	if (answer->sent == answer->text.length && !go_on(answer))
		return 0;
	length = answer->text.length - answer->sent;
	length = length < most ? length : most;
	memcpy(out, answer->text.data + answer->sent, length);
	answer->sent += length;
	return length;
}

void answer_begin(struct answer *answer)
{
	answer->content.type = "application/json";
	answer->content.read = read_answer;
}

void answer_end(struct answer *answer)
{
	buffer_free(&answer->text);
}
