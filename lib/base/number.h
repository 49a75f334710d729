/* number: numbers as people and Python write them. */
#pragma once

#include <stdbool.h>

#include <stddef.h>
#include <stdint.h>

/* A finite decimal number, as people and our own output write it: "1234.5", "1e6", "1,234,567" and "1_234_567", "64k"
 * (64,000), "1.5M" (1,500,000), "2G", "3%" or "3 %" (0.03). 0 or -1. */
int number_parse_real(const char *text, double *value);

/* The same of a percentage, as a part of one. Without its sign only 0 is one: 0.5 might be half or half a percent. */
int number_parse_percent(const char *text, double *value);

/* The same, but for a percentage, if its value is whole. 0 or -1. */
int number_parse_integer(const char *text, int64_t *value);

/* Whether commas group the digits of one number: "1,234,567". */
bool number_is_grouped(const char *text);

/* Python's repr(float): the shortest text that reads back as the same double, "50000.0", "1e+16". */
void number_repr(double value, char text[32]);

/* A number of JSON with the nine digits that a float needs to be read back as it was; it has to be finite. Returns the
 * length. For millions of them: many times as fast as printf. */
size_t number_float(float value, char text[32]);

/* "1,234,567" for people; "1.7e+308" where that would be too long. */
void number_grouped(double value, char text[48]);

/* Three digits where there is little room: "987", "1.23k", "45.6M", "0.00123". */
void number_short(double value, char text[16]);
