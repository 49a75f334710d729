/* part: what a page says of one subject: a sentence, pictures, and a table that holds what they show. The same part
 * is a document by itself as SVG, CSV, Markdown or JSON. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "web/sheet.h"
#include "web/svg.h"

#define PART_WIDE 600.0 /* widths that pictures are drawn for, px */
#define PART_NARROW 340.0

struct part_picture {
	char *title;
	struct buffer wide, narrow; /* SVG */
};

struct part {
	const char *name;  /* "claim": what it is asked for by, and its place in the page */
	const char *title; /* "What may be claimed" */
	char *summary;     /* sentences; NULL: none */
	char *empty;       /* what is said in the place of an empty table; NULL: nothing */
	struct part_picture *pictures;
	size_t picture_count;
	struct sheet sheet;
	size_t most; /* rows that a page shows; 0: all */
};

/* Makes room for another picture, in which both widths are to be drawn. */
struct part_picture *part_picture(struct part *part, const char *title);
/* Adds a picture, drawn in both. */
void part_plot(struct part *part, const struct svg_plot *plot);
void part_bars(struct part *part, const char *title, const struct svg_bar *bars, size_t count);
void part_free(struct part *part);

/* A <section>. Where there are pictures, their table is folded away under them. */
void part_html(const struct part *part, struct buffer *out);
/* The pictures, to stand by themselves, one below the other. False: there is none. */
bool part_svg(const struct part *part, struct buffer *out);
void part_markdown(const struct part *part, struct buffer *out);
/* {"summary", "rows"} */
cJSON *part_json(const struct part *part);
