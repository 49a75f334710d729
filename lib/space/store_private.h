/* store_private: what the files that keep something in the state store share. */
#pragma once

#include "base/database.h"
#include "space/store.h"

struct store {
	struct database *database;
};

/* SQL: makes the table of benchmarks.c, out of the one that the first stores have; adds to it. */
extern const char benchmarks_table[], benchmarks_noise[];
