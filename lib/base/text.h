/* text: words that somebody else wrote, made fit for a terminal. */
#pragma once

/* In place: escape sequences are taken out, line breaks and tabs become spaces, every other control
 * character, byte that is not UTF-8, and character that changes the direction of writing becomes "?". The
 * result is not longer. */
void text_clean(char *text);
