/* tuning: what searches among configurations found, as parts of a page. */
#pragma once

#include "tune/tuning.h"
#include "web/part.h"

/* Of each tuning the ten fastest as a table and in a picture, a heat map over two parameters (those of
 * these names where it has them; NULL: the two that have the most values), and a roofline for each device.
 * Pictures are drawn of the first few. */
void tuning_part(const struct tuning_list *list, const char *const axes[2], struct part *part);

/* All tunings that there were, the newest first, and what each gained. */
void tuning_history_part(const struct tune_result_list *results, struct part *part);
