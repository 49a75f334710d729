/* roofline: how fast kernels compute, under what a device's memory and its arithmetic allow them: the memory so many
 * operations for each byte, up to the device's largest rate. */
#pragma once

#include "web/part.h"

enum { ROOFLINE_SERIES = 3 }; /* at most */

struct roofline {
	const char *title;
	double bandwidth; /* of the memory, TB/s */
	double rate;      /* TFLOP/s; NAN: not known */
	/* Points: operations for each byte of memory, TFLOP/s. Those without are not drawn. */
	struct svg_series series[ROOFLINE_SERIES];
};

/* What the device allows where there are so many operations for each byte, TFLOP/s. */
double roofline_at(const struct roofline *roofline, double intensity);

/* Adds it to a part's pictures, with the points of its series. */
void roofline_draw(const struct roofline *roofline, struct part *part);
