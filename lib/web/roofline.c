#include "web/roofline.h"

#include <math.h>

double roofline_at(const struct roofline *roofline, double intensity)
{
	return fmin(intensity * roofline->bandwidth, roofline->rate); /* fmin() leaves a NAN out */
}

void roofline_draw(const struct roofline *roofline, struct part *part)
{
	double ridge = isnan(roofline->rate) ? 1 : roofline->rate / roofline->bandwidth;
	double least = ridge / 4, most = ridge * 4;
	struct svg_series series[1 + ROOFLINE_SERIES];
	struct svg_point roof[3];
	size_t count = 1;

	for (int i = 0; i < ROOFLINE_SERIES; i++) {
		const struct svg_series *given = &roofline->series[i];

		for (size_t n = 0; n < given->count; n++) {
			least = fmin(least, given->points[n].x / 2);
			most = fmax(most, given->points[n].x * 2);
		}
		if (given->count)
			series[count++] = *given;
	}
	for (int i = 0; i < 3; i++) {
		double at = i == 0 ? least : i == 1 ? ridge : most;

		roof[i] = (struct svg_point){at, roofline_at(roofline, at), NAN, NAN, NULL};
	}
	series[0] = (struct svg_series){"what the device allows", roof, 3, .line = true};
	part_plot(part,
		&(struct svg_plot){.title = roofline->title,
			.x = {.title = "operations per byte of memory", .scale = SVG_LOG},
			.y = {.title = "TFLOP/s", .scale = SVG_LOG},
			.series = series,
			.series_count = count});
}
