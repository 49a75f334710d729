/* number: numbers as people and Python write them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* "65536", "64k" (64,000), "1M" (1,000,000), "1_000_000". 0, or -1 when it is no such whole number. */
int number_parse_integer(const char *text, int64_t *value);

/* A finite decimal number, the suffixes k and M as above, or a percentage ("3%" gives 0.03). 0 or -1. */
int number_parse_real(const char *text, double *value);

/* Python's repr(float): the shortest text that reads back as the same double, "50000.0", "1e+16". */
void number_repr(double value, char text[32]);

/* A number of JSON with the nine digits that a float needs to be read back as it was; it has to be finite. Returns the
 * length. For millions of them: many times as fast as printf. */
size_t number_float(float value, char text[32]);

/* "1,234,567" for people. */
void number_grouped(double value, char text[48]);
