#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST 63        /* characters of a number */
#define MOST_GROUPED 1e18 /* from here on nobody reads the digits, and most mean nothing */
#define EXACT 0x1p53      /* up to which a double holds every whole number */

static bool is_digit(char letter)
{
	return isdigit((unsigned char)letter);
}

/* Up to three digits, then three behind each comma. Returns the length; 0: it is something else. */
static size_t grouped_length(const char *text)
{
	size_t length = strspn(text, "0123456789");

	if (length < 1 || length > 3 || text[length] != ',')
		return 0;
	while (text[length] == ',') {
		if (strspn(text + length + 1, "0123456789") != 3)
			return 0;
		length += 4;
	}
	return length;
}

bool number_is_grouped(const char *text)
{
	size_t length = grouped_length(text);

	return length && !text[length];
}

/* Without what groups digits: commas, and underscores behind one. -1 when it is too long. */
static int without_groups(const char *text, char plain[LONGEST + 1])
{
	bool negative = *text == '-';
	size_t commas = grouped_length(text + negative), used = 0;

	for (size_t i = 0; text[i]; i++) {
		if ((text[i] == ',' && i < commas + negative) ||
			(text[i] == '_' && i && is_digit(text[i - 1])))
			continue;
		if (used == LONGEST)
			return -1;
		plain[used++] = text[i];
	}
	plain[used] = '\0';
	return 0;
}

/* The power of ten that a suffix stands for; NULL: it is none. */
static const char *exponent_of(const char *suffix)
{
	static const char *const suffixes[][2] = {{"", ""}, {"k", "e3"}, {"K", "e3"}, {"m", "e6"},
		{"M", "e6"}, {"G", "e9"}, {"%", "e-2"}, {" %", "e-2"}};

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++)
		if (!strcmp(suffix, suffixes[i][0]))
			return suffixes[i][1];
	return NULL;
}

int number_parse_real(const char *text, double *value)
{
	char plain[LONGEST + 1], scaled[LONGEST + 4], *end;
	const char *exponent;

	if (without_groups(text, plain) < 0)
		return -1;
	/* strtod would also take spaces, hexadecimal, "inf" and "nan" */
	if (!is_digit(plain[plain[0] == '-' || plain[0] == '.']) || strpbrk(plain, "xXnN"))
		return -1;
	strtod(plain, &end);
	exponent = exponent_of(end);
	if (!exponent)
		return -1;
	/* one conversion: 2.3 times 1e6 is not the nearest to 2.3e6 */
	snprintf(scaled, sizeof(scaled), "%.*s%s", (int)(end - plain), plain, exponent);
	*value = strtod(scaled, &end);
	return !*end && isfinite(*value) ? 0 : -1;
}

int number_parse_percent(const char *text, double *value)
{
	return number_parse_real(text, value) == 0 && (*value == 0 || strchr(text, '%')) ? 0 : -1;
}

/* Digits alone, however many. */
static int parse_digits(const char *text, int64_t *value)
{
	bool negative = *text == '-';
	int64_t sum = 0;

	for (text += negative; *text; text++)
		if (!is_digit(*text) || __builtin_mul_overflow(sum, 10, &sum) ||
			__builtin_add_overflow(sum, *text - '0', &sum))
			return -1;
	*value = negative ? -sum : sum;
	return 0;
}

int number_parse_integer(const char *text, int64_t *value)
{
	char plain[LONGEST + 1];
	double real;

	if (number_parse_real(text, &real) < 0 || strchr(text, '%') || without_groups(text, plain) < 0)
		return -1;
	if (parse_digits(plain, value) == 0)
		return 0;
	if (fabs(real) > EXACT || real != floor(real))
		return -1;
	*value = (int64_t)real;
	return 0;
}

void number_repr(double value, char text[32])
{
	char digits[32], mantissa[24];
	int precision, exponent, length = 0;
	const char *sign = signbit(value) ? "-" : "";

	if (!isfinite(value)) {
		snprintf(text, 32, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
		return;
	}
	/* the fewest significant digits that read back as the same double */
	for (precision = 0; precision < 17; precision++) {
		snprintf(digits, sizeof(digits), "%.*e", precision, fabs(value));
		if (strtod(digits, NULL) == fabs(value))
			break;
	}
	exponent = atoi(strchr(digits, 'e') + 1);
	for (const char *digit = digits; *digit != 'e'; digit++)
		if (*digit != '.')
			mantissa[length++] = *digit;
	mantissa[length] = '\0';
	if (exponent < -4 || exponent >= 16)
		snprintf(text, 32, "%s%c%s%se%+03d", sign, mantissa[0], length > 1 ? "." : "", mantissa + 1,
			exponent);
	else if (exponent < 0)
		snprintf(text, 32, "%s0.%.*s%s", sign, -exponent - 1, "0000", mantissa);
	else if (exponent >= length - 1)
		snprintf(text, 32, "%s%s%.*s.0", sign, mantissa, exponent - length + 1, "0000000000000000");
	else
		snprintf(text, 32, "%s%.*s.%s", sign, exponent + 1, mantissa, mantissa + exponent + 1);
}

void number_grouped(double value, char text[48])
{
	char plain[40];
	size_t digits, out = 0;
	const char *from = plain;

	if (!(fabs(value) < MOST_GROUPED)) {
		snprintf(text, 48, "%.4g", value);
		return;
	}
	snprintf(plain, sizeof(plain), "%.0f", value);
	if (*from == '-')
		text[out++] = *from++;
	digits = strlen(from);
	for (size_t i = 0; i < digits && out < 46; i++) {
		if (i && (digits - i) % 3 == 0)
			text[out++] = ',';
		text[out++] = from[i];
	}
	text[out] = '\0';
}

void number_short(double value, char text[16])
{
	static const char *const suffixes[] = {"", "k", "M", "G", "T"};
	size_t i = 0;

	for (; fabs(value) >= 999.5 && i < sizeof(suffixes) / sizeof(*suffixes) - 1; i++)
		value /= 1000;
	snprintf(text, 16, "%.3g%s", value, suffixes[i]);
}

/* A whole number with a point before its last digits. Returns the length. */
static size_t write_scaled(uint64_t number, int decimals, bool negative, char *text)
{
	char backwards[32];
	size_t length = 0;

	for (; decimals && number % 10 == 0; decimals--)
		number /= 10;
	for (int i = 0; i < decimals; i++, number /= 10)
		backwards[length++] = (char)('0' + number % 10);
	if (decimals)
		backwards[length++] = '.';
	do {
		backwards[length++] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	if (negative)
		backwards[length++] = '-';
	for (size_t i = 0; i < length; i++)
		text[i] = backwards[length - 1 - i];
	text[length] = '\0';
	return length;
}

size_t number_float(float value, char text[32])
{
	/* powers of ten that doubles hold exactly, for eleven decimals and fewer */
	static const double scales[] = {1e11, 1e10, 1e9, 1e8, 1e7, 1e6, 1e5, 1e4, 1e3};
	double magnitude = fabs((double)value);
	int dropped = 0;

	if (!(magnitude >= 1e-3 && magnitude < 1e6))
		return (size_t)snprintf(text, 32, "%.9g", (double)value);
	while (magnitude * scales[dropped] >= 1e9)
		dropped++;
	return write_scaled((uint64_t)(magnitude * scales[dropped] + 0.5), 11 - dropped, value < 0, text);
}
