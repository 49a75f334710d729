/* row: what is known of a kernel in one configuration, measured or predicted. */
#pragma once

#include <stdbool.h>

struct tune_row {
	char kernel[64];      /* "quasar_chunk" */
	char parameters[256]; /* "CHUNK=64 NUM_STAGES=2", as config_format() writes it */
	bool predicted;
	double ms;        /* of a call; NAN: not known */
	double error;     /* how far that may be off, as a part of it; NAN: not known */
	double occupancy; /* warps on a multiprocessor, as a part of the most there can be; NAN: not known */
	const char *limited_by; /* what keeps more of them off it: "registers"; NULL: not known */
	int registers;          /* of a thread; -1: not known, as the two below */
	int shared_bytes;       /* of a block */
	int spills;             /* bytes of local memory, of a thread */
	const char *bound;      /* what its time goes to: "memory"; NULL: not known */
};
