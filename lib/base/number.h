/* number: numbers as people and Python write them. */
#pragma once

#include <stdint.h>

/* "65536", "64k" (64,000), "1M" (1,000,000), "1_000_000". 0, or -1 when it is no such whole number. */
int number_parse_integer(const char *text, int64_t *value);

/* A finite decimal number, the suffixes k and M as above, or a percentage ("3%" gives 0.03). 0 or -1. */
int number_parse_real(const char *text, double *value);

/* Python's repr(float): the shortest text that reads back as the same double, "50000.0", "1e+16". */
void number_repr(double value, char text[32]);

/* "1,234,567" for people. */
void number_grouped(double value, char text[48]);

/* Three digits where there is little room: "987", "1.23k", "45.6M", "0.00123". */
void number_short(double value, char text[16]);
