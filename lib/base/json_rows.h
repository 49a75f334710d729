/* json_rows: the lists of a JSON document that may be too long to keep, a row at a time.
 *
 * The document is an object. The items of each list that is one of its fields are handed over as text, each
 * once it is complete; what remains is the frame, the same object with empty lists. What is kept is bounded,
 * what is read is not. */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"

#define JSON_ROW_BYTES (16 << 10) /* a longer row is not kept, */
#define JSON_ROW_VALUES 1024      /* nor is one with more values in it */
#define JSON_FRAME_BYTES (1 << 20)

struct json_rows {
	/* A row of the list `name`: `text`, which ends with a zero byte, may be no JSON at all; NULL: the row was
	 * too large. Both are valid during the call only. */
	void (*take)(void *context, const char *name, const char *text, size_t length);
	void *context;

	/* the rest is the module's own; zero-initialised */
	struct buffer frame, row;
	size_t values;                          /* of the row */
	unsigned long depth;                    /* of open brackets */
	bool in_string, escaped, in_list, more; /* `more`: a comma was read, so another row follows */
	size_t name, name_end;                  /* the latest string of the frame's own level: from, up to */
	char list[64];                          /* the name of the list that is being read */
};

/* Reads the next part of the document. -1 when the frame is larger than JSON_FRAME_BYTES. */
int json_rows_feed(struct json_rows *rows, const char *data, size_t length);

/* Begins another document. */
void json_rows_reset(struct json_rows *rows);
void json_rows_free(struct json_rows *rows);
