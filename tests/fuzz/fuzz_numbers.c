/* Numbers and times as people and servers write them: what is read, written and read again is the same. */
#include "fuzz.h"

#include <math.h>

#include "base/clock.h"
#include "base/number.h"

static void number(const char *text)
{
	char written[32], grouped[48];
	double value, again;
	int64_t whole;

	if (number_parse_integer(text, &whole) == 0 && number_parse_real(text, &value) == 0)
		REQUIRE(strchr(text, '_') || value == (double)whole || fabs(value) > 0x1p53);
	if (number_parse_real(text, &value) < 0)
		return;
	REQUIRE(isfinite(value));
	number_repr(value, written);
	REQUIRE(number_parse_real(written, &again) == 0 && again == value);
	number_grouped(value, grouped);
}

static void instant(const char *text)
{
	char written[32], duration[32];
	double value, again;

	if (clock_parse(text, &value) < 0)
		return;
	REQUIRE(isfinite(value));
	clock_duration(value, duration);
	clock_format(value, written);
	if (strcmp(written, "?")) /* an offset may lead out of the years that can be written */
		REQUIRE(clock_parse(written, &again) == 0 && fabs(again - value) < 1e-3);
}

static void single(const uint8_t *data)
{
	char written[32];
	size_t length;
	float value;

	memcpy(&value, data, sizeof(value));
	if (!isfinite(value))
		return;
	length = number_float(value, written);
	REQUIRE(length == strlen(written));
	REQUIRE(strtof(written, NULL) == value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_string(data, size);
	double any = 0;

	number(text);
	instant(text);
	if (size >= sizeof(any)) {
		char written[32], grouped[48];

		single(data);
		memcpy(&any, data, sizeof(any));
		number_repr(any, written);
		number_grouped(any, grouped);
		clock_format(any, written);
		clock_duration(any, written);
	}
	free(text);
	return 0;
}
