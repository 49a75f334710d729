#include "base/text.h"

#include <stdbool.h>
#include <string.h>

/* Length of the escape sequence at `text`, which begins with ESC: CSI up to its final byte, OSC and the
 * like up to BEL or ST, or ESC and one character. */
static size_t escape_length(const char *text)
{
	size_t length = 2;

	if (!text[1])
		return 1;
	if (text[1] == '[') {
		while (text[length] && (text[length] < '@' || text[length] > '~'))
			length++;
		return text[length] ? length + 1 : length;
	}
	if (!strchr("]PX^_", text[1]))
		return length;
	while (text[length] && text[length] != '\a' && text[length] != '\033')
		length++;
	if (text[length] == '\033' && text[length + 1] == '\\')
		return length + 2;
	return text[length] == '\a' ? length + 1 : length;
}

/* Length of a well-formed UTF-8 sequence of more than one byte, or 0. */
static size_t sequence_length(const unsigned char *text, unsigned *code)
{
	static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : text[0] >= 0xc0 ? 2 : 0;

	if (!length || text[0] > 0xf4)
		return 0;
	*code = text[0] & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		*code = *code << 6 | (text[i] & 0x3f);
	}
	if (*code < least[length] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
		return 0;
	return length;
}

static bool is_harmless(unsigned code)
{
	return code >= 0xa0 && code != 0x200e && code != 0x200f && (code < 0x2028 || code > 0x202e) &&
		(code < 0x2066 || code > 0x2069) && code != 0xfeff;
}

void text_clean(char *text)
{
	char *out = text;

	while (*text) {
		unsigned char byte = (unsigned char)*text;
		unsigned code = 0;
		size_t length = 1;

		if (byte == '\033') {
			text += escape_length(text);
			continue;
		}
		if (byte >= 0x80)
			length = sequence_length((const unsigned char *)text, &code);
		if (byte >= 0x20 && byte < 0x7f) {
			*out++ = *text;
		} else if (length > 1 && is_harmless(code)) {
			memmove(out, text, length);
			out += length;
		} else {
			*out++ = strchr("\t\n\r", byte) ? ' ' : '?';
		}
		text += length ? length : 1;
	}
	*out = '\0';
}
