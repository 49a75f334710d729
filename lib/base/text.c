#include "base/text.h"

#include <stdbool.h>
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"

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

static bool is_continuation(char byte)
{
	return ((unsigned char)byte & 0xc0) == 0x80;
}

/* How many bytes the UTF-8 sequence at `text` takes, and what it stands for; 0 when it is none (also
 * overlong, a surrogate, or beyond U+10FFFF). */
static size_t utf8_sequence(const unsigned char *text, size_t left, unsigned *code)
{
	static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t size = *text < 0x80 ? 1
		: *text < 0xc2     ? 0
		: *text < 0xe0     ? 2
		: *text < 0xf0     ? 3
		: *text < 0xf5     ? 4
				   : 0;

	*code = size > 1 ? *text & (0x7f >> size) : *text;
	if (size > left)
		return 0;
	for (size_t i = 1; i < size; i++) {
		if (!is_continuation((char)text[i]))
			return 0;
		*code = *code << 6 | (text[i] & 0x3f);
	}
	return size && *code >= least[size] && *code <= 0x10ffff && (*code < 0xd800 || *code > 0xdfff) ? size
												       : 0;
}

bool utf8_valid(const char *text, size_t length)
{
	unsigned code;
	size_t size;

	for (; length; text += size, length -= size) {
		size = utf8_sequence((const unsigned char *)text, length, &code);
		if (!size)
			return false;
	}
	return true;
}

void utf8_mend(char *text)
{
	unsigned code;
	size_t size;

	for (; *text; text += size ? size : 1) {
		size = utf8_sequence((const unsigned char *)text, 4, &code);
		if (!size)
			*text = '?';
	}
}

size_t text_width(const char *text)
{
	size_t width = 0;

	for (; *text; text++)
		width += !is_continuation(*text);
	return width;
}

size_t text_prefix(const char *text, size_t width)
{
	size_t length = 0;

	for (; text[length]; length++)
		if (!is_continuation(text[length]) && !width--)
			break;
	return length;
}

/* Characters that nobody sees, that turn the direction of writing or that break the line: Unicode's general
 * categories Cf, Zl and Zp, and its property Default_Ignorable_Code_Point. In order. */
static const struct {
	unsigned first, last;
} unseen[] = {
	{0xad, 0xad},
	{0x34f, 0x34f},
	{0x600, 0x605},
	{0x61c, 0x61c},
	{0x6dd, 0x6dd},
	{0x70f, 0x70f},
	{0x890, 0x891},
	{0x8e2, 0x8e2},
	{0x115f, 0x1160},
	{0x17b4, 0x17b5},
	{0x180b, 0x180f},
	{0x200b, 0x200f},
	{0x2028, 0x202e},
	{0x2060, 0x206f},
	{0x3164, 0x3164},
	{0xfe00, 0xfe0f},
	{0xfeff, 0xfeff},
	{0xffa0, 0xffa0},
	{0xfff0, 0xfffb},
	{0x110bd, 0x110bd},
	{0x110cd, 0x110cd},
	{0x13430, 0x1343f},
	{0x1bca0, 0x1bca3},
	{0x1d173, 0x1d17a},
	{0xe0000, 0xe0fff},
};

/* Shown as it is. */
static bool is_printable(unsigned code)
{
	size_t i = 0;

	while (i < sizeof(unseen) / sizeof(*unseen) - 1 && code > unseen[i].last)
		i++;
	return code >= 0x20 && (code < 0x7f || code >= 0xa0) &&
		(code < unseen[i].first || code > unseen[i].last);
}

void text_clean(char *text)
{
	char *out = text;

	while (*text) {
		unsigned code;
		size_t size = utf8_sequence((const unsigned char *)text, 4, &code);

		if (*text == '\033') {
			text += escape_length(text);
		} else if (size && is_printable(code)) {
			memmove(out, text, size);
			out += size;
			text += size;
		} else {
			*out++ = strchr("\t\n\r", *text) ? ' ' : '?';
			text += size ? size : 1;
		}
	}
	*out = '\0';
}

char *text_last_line(char *text)
{
	size_t length = strlen(text);
	char *line;

	while (length && strchr(" \r\n", text[length - 1]))
		text[--length] = '\0';
	line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	text_clean(line);
	return line;
}

char *shell_word(const char *text)
{
	static const char harmless[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./@%+=:,";
	struct buffer word = {0};

	if (*text && !text[strspn(text, harmless)])
		return xstrdup(text);
	buffer_text(&word, "'");
	for (; *text; text++)
		if (*text == '\'')
			buffer_text(&word, "'\\''");
		else
			buffer_append(&word, text, 1);
	buffer_text(&word, "'");
	return word.data;
}
