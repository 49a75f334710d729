/* text: words that somebody else wrote: are they UTF-8, and are they fit for a terminal? */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether the bytes are well-formed UTF-8. */
bool utf8_valid(const char *text, size_t length);

/* In place: escape sequences are taken out, line breaks and tabs become spaces, every other control
 * character, byte that is not UTF-8, and character that changes the direction of writing becomes "?". The
 * result is not longer. */
void text_clean(char *text);
