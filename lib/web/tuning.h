/* tuning: what a search among configurations found, as a part of a page. */
#pragma once

#include <cjson/cJSON.h>

#include "web/part.h"

/* From the document that `quasar tune --json` prints: {"device", "predicted", "kernels": [{"kernel", "parameters": {NAME:
 * value}, "ms", "error", "occupancy", "limited_by", "registers", "shared_bytes", "spills", "bound"}]}. A heat map for
 * each kernel over the two parameters that vary the most, and the ten fastest. Where rows have "intensity" (operations
 * per byte) and "tflops", and the document "bandwidth_gbs" and "peak_tflops" of the device, also the roofline. Rows that
 * make no sense are left out; NULL gives an empty part. */
void tuning_part(const cJSON *document, struct part *part);
