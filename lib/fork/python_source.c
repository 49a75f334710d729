#include "fork/python_source.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"

#define MOST_BRACKETS 200 /* open at once; Python's own limit */

/* --- tokens -------------------------------------------------------------------------------------- */

enum token {
	TOKEN_NAME, /* keywords too */
	TOKEN_LITERAL,
	TOKEN_OPEN, /* a bracket, or the { of an f-string */
	TOKEN_CLOSE,
	TOKEN_OPERATOR, /* one byte of it */
	TOKEN_NEWLINE,  /* the end of a logical line */
	TOKEN_END,      /* of the text, or where it cannot be read further */
};

/* What the reader makes of a bracket. */
enum role { ROLE_OTHER, ROLE_GROUP, ROLE_TYPE_PARAMETERS };

/* An open bracket; an f-string; or a { in an f-string, which has the string's quotes too. */
struct frame {
	char opener, closer; /* brackets, or twice the quote */
	char quote;          /* of the f-string; 0: a bracket in no f-string's text */
	bool triple, raw;
	const char *end; /* of the f-string, as of a plain string: Python before 3.12 looks for it so */
	bool expression; /* in an expression of an f-string */
	bool nested;     /* the f-string is */
	bool format;     /* behind the colon of {value:format} */
	int formats;     /* that it is in */
	enum role role;
	bool plain; /* ROLE_GROUP: nothing but one dotted name in it, so far */
	size_t line;
};

struct scanner {
	const char *at, *end;
	size_t line;
	struct frame
		frames[2 * MOST_BRACKETS + 1]; /* no f-string lies in another without a bracket between */
	int depth, brackets;
	const char *token;
	size_t token_length;
	struct python_fault fault;
};

__attribute__((format(printf, 3, 4))) static enum token refuse(
	struct scanner *scanner, size_t line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(scanner->fault.what, sizeof(scanner->fault.what), format, args);
	va_end(args);
	scanner->fault.line = line;
	scanner->at = scanner->end;
	return TOKEN_END;
}

static enum token refuse_newer(struct scanner *scanner, const char *what)
{
	return refuse(scanner, scanner->line, "%s, which Python takes from 3.12 on", what);
}

static size_t left(const struct scanner *scanner)
{
	return (size_t)(scanner->end - scanner->at);
}

/* The byte so far ahead; 0 behind the end, for no text with a zero byte is read. */
static char peek(const struct scanner *scanner, size_t ahead)
{
	return ahead < left(scanner) ? scanner->at[ahead] : '\0';
}

static bool is_line_end(char byte)
{
	return byte == '\n' || byte == '\r';
}

static void take_line_end(struct scanner *scanner)
{
	scanner->at += peek(scanner, 0) == '\r' && peek(scanner, 1) == '\n' ? 2 : 1;
	scanner->line++;
}

/* Any byte, or a whole line end. */
static void take(struct scanner *scanner)
{
	if (is_line_end(peek(scanner, 0)))
		take_line_end(scanner);
	else if (left(scanner))
		scanner->at++;
}

static bool starts_name(char byte)
{
	return isalpha((unsigned char)byte) || byte == '_' || (unsigned char)byte >= 0x80;
}

static bool continues_name(char byte)
{
	return starts_name(byte) || isdigit((unsigned char)byte);
}

static bool token_is(const struct scanner *scanner, const char *text)
{
	return scanner->token_length == strlen(text) && !memcmp(scanner->token, text, scanner->token_length);
}

static struct frame *top(struct scanner *scanner)
{
	return scanner->depth ? &scanner->frames[scanner->depth - 1] : NULL;
}

static bool in_expression(struct scanner *scanner)
{
	const struct frame *frame = top(scanner);

	return frame && frame->expression;
}

static enum token open_bracket(struct scanner *scanner, struct frame frame)
{
	if (++scanner->brackets > MOST_BRACKETS)
		return refuse(scanner, scanner->line, "too many nested parentheses");
	frame.expression |= in_expression(scanner);
	frame.line = scanner->line;
	frame.opener = *scanner->at;
	frame.closer = frame.opener == '(' ? ')' : frame.opener == '[' ? ']' : '}';
	scanner->frames[scanner->depth++] = frame;
	scanner->at++;
	return TOKEN_OPEN;
}

/* What it closes stays readable, one above the top. */
static enum token close_bracket(struct scanner *scanner)
{
	const struct frame *open = top(scanner);
	char byte = *scanner->at;

	if (!open)
		return refuse(scanner, scanner->line, "unmatched '%c'", byte);
	if (open->closer != byte)
		return refuse(scanner, scanner->line, "'%c' does not match what was opened on line %zu", byte,
			open->line);
	scanner->at++;
	scanner->depth--;
	scanner->brackets--;
	return TOKEN_CLOSE;
}

/* Whether a quote of the string stands here, all three of them if it has three. */
static bool at_quotes(const struct scanner *scanner, char quote, bool triple)
{
	return peek(scanner, 0) == quote &&
		(!triple || (peek(scanner, 1) == quote && peek(scanner, 2) == quote));
}

static enum token unterminated(struct scanner *scanner, size_t line)
{
	return refuse(scanner, line, "the string is not terminated");
}

/* Where the closing quotes of a string stand that began before `at`; NULL: nowhere. */
static const char *closing_quotes(const char *at, const char *end, char quote, bool triple)
{
	for (; at < end && (triple || !is_line_end(*at)); at++) {
		if (*at == quote && (!triple || (end - at > 2 && at[1] == quote && at[2] == quote)))
			return at;
		if (*at == '\\' && end - at > 1)
			at += end - at > 2 && at[1] == '\r' && at[2] == '\n' ? 2 : 1;
	}
	return NULL;
}

/* The rest of a string, behind its opening quotes. */
static enum token scan_string(struct scanner *scanner, char quote, bool triple)
{
	const char *end = closing_quotes(scanner->at, scanner->end, quote, triple);

	if (!end)
		return unterminated(scanner, scanner->line);
	if (in_expression(scanner) && memchr(scanner->at, '\\', (size_t)(end - scanner->at)))
		return refuse_newer(scanner, "a backslash in an expression of an f-string");
	while (scanner->at < end)
		take(scanner);
	scanner->at += triple ? 3 : 1;
	return TOKEN_LITERAL;
}

/* A backslash in the text of an f-string. It does not keep a brace from being one, but for \N{name}. */
static void scan_escape(struct scanner *scanner, bool raw)
{
	scanner->at++;
	if (!raw && peek(scanner, 0) == 'N' && peek(scanner, 1) == '{') {
		while (left(scanner) && *scanner->at != '}' && !is_line_end(*scanner->at))
			scanner->at++;
		if (peek(scanner, 0) == '}')
			scanner->at++;
	} else if (peek(scanner, 0) != '{' && peek(scanner, 0) != '}') {
		take(scanner);
	}
}

/* The { of an expression. */
static enum token open_expression(struct scanner *scanner, struct frame string)
{
	string.expression = true;
	string.formats += string.format;
	string.format = false;
	return string.formats > 1 ? refuse_newer(scanner, "an f-string with a format in a format in a format")
				  : open_bracket(scanner, string);
}

/* The text of an f-string or of a format in it, up to the next expression or the end. */
static enum token scan_fstring(struct scanner *scanner)
{
	const struct frame string = *top(scanner);

	for (;;) {
		char byte = peek(scanner, 0);

		if (!left(scanner) || (!string.triple && is_line_end(byte)))
			return unterminated(scanner, string.line);
		if (at_quotes(scanner, string.quote, string.triple)) {
			if (string.format)
				return refuse(scanner, scanner->line, "an f-string lacks a '}'");
			if (scanner->at != string.end)
				return refuse_newer(scanner,
					"an f-string with its own quotes or a line end in an expression");
			scanner->at += string.triple ? 3 : 1;
			scanner->depth--;
			return TOKEN_LITERAL;
		}
		if (byte == '\\' && string.nested)
			return refuse_newer(scanner, "a backslash in an expression of an f-string");
		else if (byte == '\\')
			scan_escape(scanner, string.raw);
		else if ((byte == '{' || byte == '}') && !string.format && peek(scanner, 1) == byte)
			scanner->at += 2;
		else if (byte == '{')
			return open_expression(scanner, string);
		else if (byte == '}' && string.format)
			return close_bracket(scanner);
		else if (byte == '}')
			return refuse(scanner, scanner->line, "an f-string has a '}' alone");
		else
			take(scanner);
	}
}

/* Behind the opening quotes. */
static enum token open_fstring(struct scanner *scanner, char quote, bool triple, bool raw)
{
	scanner->frames[scanner->depth] = (struct frame){
		.opener = quote,
		.closer = quote,
		.quote = quote,
		.triple = triple,
		.raw = raw,
		.end = closing_quotes(scanner->at, scanner->end, quote, triple),
		.nested = in_expression(scanner),
		.line = scanner->line,
	};
	scanner->depth++;
	return scan_fstring(scanner);
}

/* A name, or the prefix of a string and the string. */
static enum token scan_name(struct scanner *scanner)
{
	static const char *const prefixes[] = {"r", "u", "b", "br", "rb", "f", "fr", "rf"};
	bool raw = false, formatted = false, triple;
	char lower[3] = "", quote;

	while (continues_name(peek(scanner, 0)))
		scanner->at++;
	scanner->token_length = (size_t)(scanner->at - scanner->token);
	quote = peek(scanner, 0);
	if (scanner->token_length > 2 || (quote != '\'' && quote != '"'))
		return TOKEN_NAME;
	for (size_t i = 0; i < scanner->token_length; i++) {
		lower[i] = (char)tolower((unsigned char)scanner->token[i]);
		raw |= lower[i] == 'r';
		formatted |= lower[i] == 'f';
	}
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
		if (strcmp(lower, prefixes[i]))
			continue;
		triple = at_quotes(scanner, quote, true);
		scanner->at += triple ? 3 : 1;
		return formatted ? open_fstring(scanner, quote, triple, raw)
				 : scan_string(scanner, quote, triple);
	}
	return TOKEN_NAME;
}

static void skip_digits(struct scanner *scanner, int (*is_one)(int))
{
	while (is_one((unsigned char)peek(scanner, 0)) || peek(scanner, 0) == '_')
		scanner->at++;
}

/* A keyword may follow without a space: "1if x else 2". */
static enum token scan_number(struct scanner *scanner)
{
	char second = (char)tolower((unsigned char)peek(scanner, 1)), sign;

	if (*scanner->at == '0' && (second == 'x' || second == 'o' || second == 'b')) {
		scanner->at += 2;
		skip_digits(scanner, second == 'x' ? isxdigit : isdigit);
		return TOKEN_LITERAL;
	}
	skip_digits(scanner, isdigit);
	if (peek(scanner, 0) == '.') {
		scanner->at++;
		skip_digits(scanner, isdigit);
	}
	sign = peek(scanner, 1);
	if (tolower((unsigned char)peek(scanner, 0)) == 'e' &&
		isdigit((unsigned char)(sign == '+' || sign == '-' ? peek(scanner, 2) : sign))) {
		scanner->at += 2;
		skip_digits(scanner, isdigit);
	}
	if (tolower((unsigned char)peek(scanner, 0)) == 'j')
		scanner->at++;
	return TOKEN_LITERAL;
}

/* Skips spaces, comments, continued lines and, in brackets, line ends. */
static void skip_blank(struct scanner *scanner)
{
	for (;;) {
		char byte = peek(scanner, 0);

		if (byte == ' ' || byte == '\t' || byte == '\f')
			scanner->at++;
		else if (in_expression(scanner) && (byte == '#' || byte == '\\'))
			return;
		else if (byte == '#')
			while (left(scanner) && !is_line_end(*scanner->at))
				scanner->at++;
		else if (byte == '\\' && is_line_end(peek(scanner, 1)))
			scanner->at++, take_line_end(scanner);
		else if (is_line_end(byte) && scanner->depth)
			take_line_end(scanner);
		else
			return;
	}
}

static enum token next_token(struct scanner *scanner)
{
	struct frame *frame = top(scanner);
	char byte;

	if (frame && (frame->format || frame->closer == frame->quote))
		return scan_fstring(scanner);
	skip_blank(scanner);
	if (in_expression(scanner) && strchr("#\\", peek(scanner, 0)) && left(scanner))
		return refuse_newer(scanner, "a comment or a backslash in an expression of an f-string");
	if (!left(scanner))
		return frame ? refuse(scanner, frame->line, "'%c' is never closed", frame->opener)
			     : TOKEN_END;
	scanner->token = scanner->at;
	scanner->token_length = 1;
	byte = *scanner->at;
	if (starts_name(byte))
		return scan_name(scanner);
	if (isdigit((unsigned char)byte) || (byte == '.' && isdigit((unsigned char)peek(scanner, 1))))
		return scan_number(scanner);
	if (byte == '"' || byte == '\'') {
		bool triple = at_quotes(scanner, byte, true);

		scanner->at += triple ? 3 : 1;
		return scan_string(scanner, byte, triple);
	}
	if (strchr("([{", byte))
		return open_bracket(scanner, (struct frame){0});
	if (strchr(")]}", byte))
		return close_bracket(scanner);
	if (is_line_end(byte)) {
		take_line_end(scanner);
		return TOKEN_NEWLINE;
	}
	if (!strchr("+-*/%@&|^~<>=!,:;.", byte))
		return refuse(scanner, scanner->line, "a character that Python does not know");
	if (frame && frame->quote && byte == ':')
		frame->format = true;
	scanner->at++;
	return TOKEN_OPERATOR;
}

/* --- facts --------------------------------------------------------------------------------------- */

/* What stands before the next token and can be called. */
enum operand {
	OPERAND_NONE,    /* an expression begins with the next token */
	OPERAND_DOTTED,  /* the name in `dotted` */
	OPERAND_OTHER,   /* an expression without a name */
	OPERAND_DEFINED, /* the name in "def name" and "class name" */
};

enum place { PLACE_INSIDE, PLACE_STATEMENT, PLACE_LINE };

struct reader {
	struct scanner scanner;
	enum token token;
	enum place place; /* whether the token begins a statement, or even a line */
	enum operand operand;
	struct buffer dotted;
	size_t dotted_line;
	bool of_expression; /* `dotted` is what follows an expression that has no name */
	bool attribute;     /* a dot was the last token */
	bool defining;      /* "def" or "class" was */
	bool pattern;       /* in the pattern of a "case", where nothing is called */
	struct buffer module, name, alias;
	python_visit *visit;
	void *context;
};

static void advance(struct reader *reader)
{
	reader->token = next_token(&reader->scanner);
}

static bool is_operator(const struct reader *reader, char byte)
{
	return reader->token == TOKEN_OPERATOR && *reader->scanner.token == byte;
}

static bool is_name(const struct reader *reader, const char *name)
{
	return reader->token == TOKEN_NAME && token_is(&reader->scanner, name);
}

static bool is_constant(const struct reader *reader)
{
	return is_name(reader, "None") || is_name(reader, "True") || is_name(reader, "False");
}

/* Whether the token is a word that is never a name, nor a value. */
static bool is_keyword(const struct reader *reader)
{
	static const char *const keywords[] = {"and", "as", "assert", "async", "await", "break", "class",
		"continue", "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if",
		"import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try",
		"while", "with", "yield"};

	for (size_t i = 0; i < sizeof(keywords) / sizeof(*keywords); i++)
		if (is_name(reader, keywords[i]))
			return true;
	return false;
}

static void put_token(const struct reader *reader, struct buffer *out)
{
	buffer_append(out, reader->scanner.token, reader->scanner.token_length);
}

/* Tells of none that lacks a module, as no import does that Python takes. */
static void tell_import(struct reader *reader, struct python_fact fact, bool aliased)
{
	if (!reader->module.length && !fact.level)
		return;
	fact.module = reader->module.data;
	fact.alias = aliased ? reader->alias.data : NULL;
	reader->visit(&fact, reader->context);
}

/* "a.b.c", or nothing. */
static void read_module(struct reader *reader)
{
	reader->module.length = 0;
	buffer_text(&reader->module, "");
	while (reader->token == TOKEN_NAME && !is_keyword(reader)) {
		put_token(reader, &reader->module);
		advance(reader);
		if (!is_operator(reader, '.'))
			return;
		buffer_text(&reader->module, ".");
		advance(reader);
	}
}

/* "as name"; whether it is there. */
static bool read_alias(struct reader *reader)
{
	if (!is_name(reader, "as"))
		return false;
	advance(reader);
	if (reader->token != TOKEN_NAME)
		return false;
	reader->alias.length = 0;
	put_token(reader, &reader->alias);
	advance(reader);
	return true;
}

static void read_import(struct reader *reader)
{
	const struct python_fact fact = {.kind = PYTHON_IMPORT, .line = reader->scanner.line};

	do {
		advance(reader);
		read_module(reader);
		tell_import(reader, fact, read_alias(reader));
	} while (is_operator(reader, ','));
}

static void read_from(struct reader *reader)
{
	struct python_fact fact = {.kind = PYTHON_FROM, .line = reader->scanner.line};

	for (advance(reader); is_operator(reader, '.'); advance(reader))
		fact.level++;
	read_module(reader);
	if (!is_name(reader, "import"))
		return;
	advance(reader);
	if (reader->token == TOKEN_OPEN)
		advance(reader);
	while (reader->token == TOKEN_NAME || is_operator(reader, '*')) {
		bool aliased;

		reader->name.length = 0;
		put_token(reader, &reader->name);
		fact.name = reader->name.data;
		advance(reader);
		aliased = read_alias(reader);
		fact.name = reader->name.data;
		tell_import(reader, fact, aliased);
		if (is_operator(reader, ','))
			advance(reader);
	}
	if (reader->token == TOKEN_CLOSE)
		advance(reader);
}

/* Whether the logical line has a colon outside of brackets that is no lambda's, and neither colon nor dot
 * next: then its first word, "match" or "case", is no name. */
static bool opens_block(struct scanner ahead)
{
	size_t lambdas = 0, tokens = 0;

	for (;;) {
		enum token token = next_token(&ahead);
		char sign = token == TOKEN_OPERATOR ? *ahead.token : '\0';
		bool colon = sign == ':' && !ahead.depth;

		if (token == TOKEN_END || token == TOKEN_NEWLINE)
			return false;
		if (!tokens++ && (sign == ':' || sign == '.'))
			return false;
		if (token == TOKEN_NAME && !ahead.depth && token_is(&ahead, "lambda"))
			lambdas++;
		else if (colon && !lambdas)
			return true;
		else if (colon)
			lambdas--;
	}
}

/* The brackets around the token hold more than a dotted name. */
static void note_more(struct reader *reader)
{
	struct frame *frame = top(&reader->scanner);

	if (frame)
		frame->plain = false;
	reader->operand = OPERAND_NONE;
}

static void put_name(struct reader *reader)
{
	if (reader->attribute && reader->operand == OPERAND_DOTTED) {
		buffer_text(&reader->dotted, ".");
	} else {
		reader->dotted.length = 0;
		reader->of_expression = reader->attribute;
	}
	put_token(reader, &reader->dotted);
	reader->dotted_line = reader->scanner.line;
	reader->operand = OPERAND_DOTTED;
}

static void see_name(struct reader *reader)
{
	bool soft = is_name(reader, "match") || is_name(reader, "case");

	if (reader->attribute) {
		put_name(reader);
	} else if (is_constant(reader)) {
		reader->operand = OPERAND_OTHER;
	} else if (is_keyword(reader)) {
		note_more(reader);
		reader->defining = is_name(reader, "def") || is_name(reader, "class");
		if (is_name(reader, "if") && !reader->scanner.depth)
			reader->pattern = false;
	} else if (soft && reader->place == PLACE_LINE && opens_block(reader->scanner)) {
		reader->operand = OPERAND_NONE;
		reader->pattern = is_name(reader, "case");
	} else if (reader->defining) {
		reader->operand = OPERAND_DEFINED;
		reader->defining = false;
	} else {
		put_name(reader);
	}
}

static void see_open(struct reader *reader)
{
	struct frame *frame = top(&reader->scanner);
	char byte = frame->closer;

	if (byte == ')' && reader->operand == OPERAND_DOTTED && !reader->pattern) {
		const struct python_fact fact = {.kind = PYTHON_CALL,
			.line = reader->dotted_line,
			.module = "",
			.name = reader->dotted.data,
			.of_expression = reader->of_expression};

		reader->visit(&fact, reader->context);
	} else if (byte == ')' && reader->operand == OPERAND_NONE) {
		frame->role = ROLE_GROUP;
		frame->plain = true;
	} else if (byte == ']' && reader->operand == OPERAND_DEFINED) {
		frame->role = ROLE_TYPE_PARAMETERS;
	}
	reader->operand = OPERAND_NONE;
}

static void see_close(struct reader *reader)
{
	const struct frame *closed = &reader->scanner.frames[reader->scanner.depth];

	if (closed->role == ROLE_TYPE_PARAMETERS)
		reader->operand = OPERAND_DEFINED;
	else if (closed->role != ROLE_GROUP || !closed->plain || reader->operand != OPERAND_DOTTED)
		reader->operand = OPERAND_OTHER;
}

/* Three dots are a value where no name can follow. */
static bool take_ellipsis(struct reader *reader)
{
	struct scanner *scanner = &reader->scanner;

	if (!is_operator(reader, '.') || peek(scanner, 0) != '.' || peek(scanner, 1) != '.')
		return false;
	scanner->at += 2;
	reader->token = TOKEN_LITERAL;
	reader->operand = OPERAND_OTHER;
	return true;
}

static void see_operator(struct reader *reader)
{
	if (take_ellipsis(reader) || is_operator(reader, '.'))
		return;
	note_more(reader);
	if (is_operator(reader, ':') && !reader->scanner.depth)
		reader->pattern = false;
}

/* What the token leaves behind for the one that follows. */
static enum place next_place(const struct reader *reader)
{
	if (reader->token == TOKEN_NEWLINE)
		return PLACE_LINE;
	if (!reader->scanner.depth && (is_operator(reader, ';') || is_operator(reader, ':')))
		return PLACE_STATEMENT;
	return PLACE_INSIDE;
}

static void see(struct reader *reader)
{
	switch (reader->token) {
	case TOKEN_NAME:
		see_name(reader);
		break;
	case TOKEN_LITERAL:
		reader->operand = OPERAND_OTHER;
		break;
	case TOKEN_OPEN:
		see_open(reader);
		break;
	case TOKEN_CLOSE:
		see_close(reader);
		break;
	case TOKEN_OPERATOR:
		see_operator(reader);
		break;
	case TOKEN_NEWLINE:
		reader->operand = OPERAND_NONE;
		reader->defining = reader->pattern = false;
		break;
	case TOKEN_END:
		break;
	}
	reader->attribute = reader->operand != OPERAND_NONE && is_operator(reader, '.');
	reader->place = next_place(reader);
}

void python_source_read(
	const char *text, size_t length, python_visit *visit, void *context, struct python_fault *fault)
{
	struct reader reader = {
		.scanner = {.at = text, .end = text + length, .line = 1},
		.place = PLACE_LINE,
		.visit = visit,
		.context = context,
	};

	if (memchr(text, '\0', length))
		refuse(&reader.scanner, 1, "a zero byte is in the file");
	else if (length >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		refuse(&reader.scanner, 1, "the file begins with a byte order mark (U+FEFF)");
	advance(&reader);
	while (reader.token != TOKEN_END) {
		if (reader.place != PLACE_INSIDE && is_name(&reader, "import")) {
			read_import(&reader);
			reader.place = PLACE_INSIDE;
		} else if (reader.place != PLACE_INSIDE && is_name(&reader, "from")) {
			read_from(&reader);
			reader.place = PLACE_INSIDE;
		} else {
			see(&reader);
			advance(&reader);
		}
	}
	*fault = reader.scanner.fault;
	buffer_free(&reader.dotted);
	buffer_free(&reader.module);
	buffer_free(&reader.name);
	buffer_free(&reader.alias);
}
