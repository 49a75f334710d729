/* text: UTF-8, and what becomes of it on a terminal or in a shell. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether the bytes are well-formed UTF-8. */
bool utf8_valid(const char *text, size_t length);

/* In place: every byte that belongs to no character becomes "?". */
void utf8_mend(char *text);

/* The characters of UTF-8 text, each of which takes a column on a terminal. */
size_t text_width(const char *text);

/* How many bytes its first `width` characters take. */
size_t text_prefix(const char *text, size_t width);

/* In place, for words that somebody else wrote: escape sequences are taken out, line breaks and tabs become
 * spaces; every other control character, byte that is not UTF-8, and character that is not seen, breaks the
 * line or changes the direction of writing becomes "?". The result is not longer. */
void text_clean(char *text);

/* The last line that says anything, cleaned; cuts the text behind it. "" when there is none. */
char *text_last_line(char *text);

/* The text as one word of a shell's command line, in quotes where it needs them: for commands that people are told to
 * run. The caller frees. */
char *shell_word(const char *text);
