/* page: text that is kept on the terminal, in place, until the program ends.
 *
 * It has the alternate screen to itself, which gives way to what was there before on every way out: signals
 * that end the process and Ctrl-Z included. What is typed meanwhile is neither shown nor kept. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether stdout is a terminal that can do it; if not, print lines instead. */
bool page_possible(void);

/* There is one page a process. SIGWINCH ends waits from then on, so that the page can be drawn anew. */
void page_open(void);
/* Also when none is open. */
void page_close(void);

/* The window's size as it is now. */
struct page_size {
	size_t rows, columns;
};
struct page_size page_size(void);

/* Shows the text, which it keeps: lines that are too wide are cut, of lines that are too many it says how
 * many there are. Nothing is written while the terminal shows the same already, or another job of it is in
 * the foreground. When the terminal is gone, the process is asked to stop as by SIGTERM. */
void page_show(const char *text);
