#include "base/suggest.h"

#include <ctype.h>
#include <string.h>

#define LONGEST 40 /* letters of a word that is looked at */
#define LEAST_PREFIX 3

static size_t min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static char letter(const char *text, size_t i)
{
	return (char)tolower((unsigned char)text[i]);
}

/* Letters that are wrong, missing, too many, or swapped with their neighbour (the optimal string alignment). Both words
 * are at most LONGEST. */
static size_t count_errors(const char *one, const char *other)
{
	size_t rows = strlen(one), columns = strlen(other);
	size_t errors[LONGEST + 1][LONGEST + 1];

	for (size_t i = 0; i <= rows; i++) {
		for (size_t j = 0; j <= columns; j++) {
			size_t wrong = i && j && letter(one, i - 1) != letter(other, j - 1);

			if (!i || !j) {
				errors[i][j] = i + j;
				continue;
			}
			errors[i][j] = min(
				errors[i - 1][j - 1] + wrong, min(errors[i - 1][j], errors[i][j - 1]) + 1);
			if (i > 1 && j > 1 && letter(one, i - 1) == letter(other, j - 2) &&
				letter(one, i - 2) == letter(other, j - 1))
				errors[i][j] = min(errors[i][j], errors[i - 2][j - 2] + 1);
		}
	}
	return errors[rows][columns];
}

void suggestion_offer(struct suggestion *suggestion, const char *name)
{
	size_t word_length = strlen(suggestion->word), length = strlen(name),
	       shorter = min(word_length, length);
	size_t distance;

	if (word_length > LONGEST || length > LONGEST)
		return;
	distance = count_errors(suggestion->word, name);
	if (distance > 1 + shorter / 4) {
		if (shorter < LEAST_PREFIX || strncasecmp(suggestion->word, name, shorter) != 0)
			return;
	}
	if (suggestion->name && distance >= suggestion->distance)
		return;
	suggestion->name = name;
	suggestion->distance = distance;
}
