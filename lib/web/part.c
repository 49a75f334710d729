#include "web/part.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "web/html.h"

struct part_picture *part_picture(struct part *part, const char *title)
{
	part->pictures = xrealloc(part->pictures, (part->picture_count + 1) * sizeof(*part->pictures));
	part->pictures[part->picture_count] = (struct part_picture){.title = xstrdup(title)};
	return &part->pictures[part->picture_count++];
}

void part_plot(struct part *part, const struct svg_plot *plot)
{
	struct part_picture *picture = part_picture(part, plot->title);

	svg_plot(plot, PART_WIDE, &picture->wide);
	svg_plot(plot, PART_NARROW, &picture->narrow);
}

void part_bars(struct part *part, const char *title, const struct svg_bar *bars, size_t count)
{
	struct part_picture *picture = part_picture(part, title);

	svg_bars(title, bars, count, PART_WIDE, &picture->wide);
	svg_bars(title, bars, count, PART_NARROW, &picture->narrow);
}

void part_free(struct part *part)
{
	for (size_t i = 0; i < part->picture_count; i++) {
		free(part->pictures[i].title);
		buffer_free(&part->pictures[i].wide);
		buffer_free(&part->pictures[i].narrow);
	}
	free(part->pictures);
	free(part->summary);
	free(part->empty);
	sheet_free(&part->sheet);
	*part = (struct part){0};
}

void part_html(const struct part *part, struct buffer *out)
{
	size_t rows = sheet_rows(&part->sheet);

	html_add(out, "<section id=\"%s\" aria-labelledby=\"%s-title\">\n<h2 id=\"%s-title\">%s</h2>\n",
		part->name, part->name, part->name, part->title);
	if (part->summary)
		html_prose(out, "", part->summary);
	buffer_text(out, part->picture_count > 1 ? "<div class=\"figures\">\n" : "");
	for (size_t i = 0; i < part->picture_count; i++) {
		html_add(out, "<figure>\n<figcaption>%s</figcaption>\n<div class=\"wide\">",
			part->pictures[i].title);
		buffer_text(out, part->pictures[i].wide.data);
		buffer_text(out, "</div>\n<div class=\"narrow\">");
		buffer_text(out, part->pictures[i].narrow.data);
		buffer_text(out, "</div>\n</figure>\n");
	}
	buffer_text(out, part->picture_count > 1 ? "</div>\n" : "");
	if (rows && part->picture_count)
		html_add(out, "<details id=\"%s-table\">\n<summary>%s as a table</summary>\n", part->name,
			part->title);
	if (rows)
		sheet_html(&part->sheet, part->title, part->most, out);
	else if (part->empty)
		html_prose(out, "quiet", part->empty);
	if (rows && part->picture_count)
		buffer_text(out, "</details>\n");
	buffer_text(out, "</section>\n");
}

#define TITLE_HEIGHT 30.0
#define MARGIN 12.0

/* Those of a page are as wide as it allows; in a picture they have a place. */
static void place_picture(const struct part_picture *picture, double top, struct buffer *out)
{
	const char *svg = picture->wide.data;

	html_add(out, "<text x=\"0\" y=\"%.0f\">%s</text>\n<svg y=\"%.0f\" width=\"%.0f\" height=\"%.0f\"",
		top + TITLE_HEIGHT / 2, picture->title, top + TITLE_HEIGHT, PART_WIDE, svg_height(svg));
	buffer_text(out, svg + strlen("<svg"));
}

bool part_svg(const struct part *part, struct buffer *out)
{
	double height = 0;

	if (!part->picture_count)
		return false;
	for (size_t i = 0; i < part->picture_count; i++)
		height += TITLE_HEIGHT + svg_height(part->pictures[i].wide.data);
	html_add(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" viewBox=\"%.0f 0 %.0f %.0f\" "
		"aria-label=\"%s\">\n<style>",
		-MARGIN, PART_WIDE + 2 * MARGIN, height + MARGIN, part->title);
	buffer_text(out, html_chart_style());
	buffer_text(out, "</style>\n");
	height = 0;
	for (size_t i = 0; i < part->picture_count; i++) {
		place_picture(&part->pictures[i], height, out);
		height += TITLE_HEIGHT + svg_height(part->pictures[i].wide.data);
	}
	buffer_text(out, "</svg>\n");
	return true;
}

void part_markdown(const struct part *part, struct buffer *out)
{
	buffer_printf(out, "## %s\n\n", part->title);
	if (part->summary) {
		sheet_markdown_text(part->summary, true, out);
		buffer_text(out, "\n\n");
	}
	if (sheet_rows(&part->sheet)) {
		sheet_markdown(&part->sheet, out);
	} else if (part->empty) {
		sheet_markdown_text(part->empty, true, out);
		buffer_text(out, "\n");
	}
}

cJSON *part_json(const struct part *part)
{
	cJSON *object = cJSON_CreateObject();

	json_add_text(object, "summary", part->summary ? part->summary : part->empty);
	cJSON_AddItemToObject(object, "rows", sheet_json(&part->sheet));
	return object;
}
