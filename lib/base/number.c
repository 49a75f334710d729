#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdbool.h>
#include <string.h>

int number_parse_integer(const char *text, int64_t *value)
{
	int64_t sum = 0, scale = 1;
	bool negative = *text == '-', any = false;

	for (text += negative; isdigit((unsigned char)*text) || (*text == '_' && any); text++) {
		if (*text == '_')
			continue;
		if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, *text - '0', &sum))
			return -1;
		any = true;
	}
	if (*text == 'k' || *text == 'K')
		scale = 1000;
	else if (*text == 'm' || *text == 'M')
		scale = 1000000;
	if (scale > 1)
		text++;
	if (!any || *text || __builtin_mul_overflow(sum, negative ? -scale : scale, value))
		return -1;
	return 0;
}

int number_parse_real(const char *text, double *value)
{
	char *end;

	/* strtod would also take spaces, hexadecimal, "inf" and "nan" */
	if (!isdigit((unsigned char)text[text[0] == '-' || text[0] == '.']) || strpbrk(text, "xXnN"))
		return -1;
	*value = strtod(text, &end);
	if (*end == 'k' || *end == 'K') {
		*value *= 1e3;
		end++;
	} else if (*end == 'm' || *end == 'M') {
		*value *= 1e6;
		end++;
	} else if (*end == '%') {
		*value /= 100;
		end++;
	}
	return *end || !isfinite(*value) ? -1 : 0;
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
