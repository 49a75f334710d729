/* What a page is made of: words of others, and results of tuning that somebody handed over. */
#include "fuzz.h"

#include <ctype.h>

#include "base/json.h"
#include "base/text.h"
#include "web/html.h"
#include "web/tuning.h"

/* Every tag is one of ours: nothing but a name follows "<", and no name brings code. */
static void check_markup(const struct buffer *html)
{
	REQUIRE(utf8_valid(html->data, html->length));
	for (const char *at = html->data; (at = strchr(at, '<')); at++) {
		REQUIRE(islower((unsigned char)at[1]) || at[1] == '/');
		REQUIRE(strncmp(at, "<script", 7) && strncmp(at, "<img", 4));
	}
}

static void words(const char *text)
{
	struct buffer html = {0};

	html_add(&html, "<b title=\"%s\">%s</b>", text, text);
	html_prose(&html, "quiet", text);
	check_markup(&html);
	buffer_free(&html);
}

static void tuning(const char *text, size_t size)
{
	struct buffer out = {0};
	struct error err = {0};
	struct tuning_list list = {0};
	struct part part;
	cJSON *document = json_parse(text, size, &err);

	if (tuning_read(document, &list, &err) < 0)
		REQUIRE(err.message[0] && !list.count);
	tuning_part(&list, (const char *const[2]){"A", "B"}, &part);
	tuning_list_free(&list);
	part_html(&part, &out);
	check_markup(&out);
	buffer_free(&out);
	part_markdown(&part, &out);
	buffer_free(&out);
	sheet_csv(&part.sheet, &out);
	buffer_free(&out);
	cJSON_Delete(part_json(&part));
	part_free(&part);
	cJSON_Delete(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_string(data, size);

	words(text);
	tuning(text, size);
	free(text);
	return 0;
}
