/* html: pages that stand by themselves: nothing is loaded from anywhere, and what others wrote stays text. */
#pragma once

#include "base/buffer.h"

/* Appends as printf does, with every %s escaped for text and attributes in double quotes, and cleaned of what is not
 * seen: markup is only what `format` says. Takes %s and %.Ns, %d, %zu, %lld, and %f with a
 * precision. */
void html_add(struct buffer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A paragraph of a class; what stands between backticks is code. */
void html_prose(struct buffer *out, const char *class, const char *text);

/* Begins a document, up to and with <main>. `live`: it keeps itself up to date from where it came, where there is no
 * JavaScript by being loaded anew. */
enum html_page { HTML_STILL, HTML_LIVE };
void html_begin(struct buffer *out, const char *title, enum html_page kind);
void html_end(struct buffer *out);

/* The Content-Security-Policy of the pages made here, for a header: their own style and script, and nothing else. */
const char *html_policy(void);

/* The colours and letters of charts, for one that stands by itself. */
const char *html_chart_style(void);
