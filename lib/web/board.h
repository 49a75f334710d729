/* board: a validator's rounds and standings, as a page shows them. Who fills it, from a database or over an API, need
 * not know how it looks. All strings belong to it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "web/part.h"

struct board_entry {
	size_t rank; /* from 1; 0: it does not rank */
	int64_t id;
	char *hotkey;
	int64_t tokens; /* target length */
	double speed; /* tokens/s that count: claimed or, where measurements rank, measured; NAN: none yet */
	double created_at; /* Unix time; NAN: not told */
	const char *state; /* "waiting", "validated" … */
	bool excluded;     /* whatever its speed, it does not rank */
	bool own;
};

struct board_round {
	int64_t number, submissions;
	char *status;
	char *winner; /* NULL: none */
	double start, end;
};

struct board_share {
	char *hotkey;
	double weight;
	bool own;
};

struct board {
	char *name;    /* "http://127.0.0.1:8000, like 2026-02" */
	double now;    /* when it was read, Unix time; 0: nothing has been yet */
	double since;  /* the validator has not been reached since then; 0: it has */
	char *problem; /* why not, or what could not be read; NULL: nothing */

	bool has_round; /* the first of `rounds` is the current one */
	double to_beat; /* weighted score; NAN: nothing, or not told */
	int64_t unrevealed;
	bool measured; /* what validators measured ranks, and not the claims */

	struct board_entry *entries; /* after board_rank(): those that rank first, best first */
	size_t entry_count;
	struct board_round *rounds; /* newest first */
	size_t round_count;
	struct board_share *shares; /* of the latest rewards */
	size_t share_count;
	const char *const
		*notes; /* what the validator does not show; ends with NULL. NULL: nothing to say. Static */
};

/* Room for one more, zeroed. */
struct board_entry *board_entry(struct board *board);
struct board_round *board_round(struct board *board);
struct board_share *board_share(struct board *board);
void board_free(struct board *board);

/* Ranks the entries as validators do: those that are not excluded, have a speed, and exceed the score to beat. */
void board_rank(struct board *board);

/* By what part of its own weighted score the place above is ahead of an entry: NAN for the first, and
 * without a rank. */
double board_gap(const struct board *board, size_t entry);

/* The standings, each with its gap to the place above; from entry `first` on, `most` of them (0: all). */
void board_standings(const struct board *board, size_t first, size_t most, struct part *part);

/* The whole page, the entries in pages of BOARD_PAGE, of which it shows the one numbered so from 1.
 * `query`: what of the page's address has to stay in links to its other pages, "network=test&"; "":
 * nothing. */
#define BOARD_PAGE 100
void board_html(const struct board *board, size_t page, const char *query, struct buffer *out);
