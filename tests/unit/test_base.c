/* base: numbers, JSON, files, settings */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "tensor/dtype.h"
#include "base/process.h"
#include "base/secret.h"
#include "base/suggest.h"
#include "base/text.h"
#include "vectors.h"

static void numbers_as_people_write_them(void **state)
{
	int64_t whole;
	double real;

	(void)state;
	assert_int_equal(number_parse_integer("1_000_000", &whole), 0);
	assert_int_equal(whole, 1000000);
	assert_int_equal(number_parse_integer("64k", &whole), 0);
	assert_int_equal(whole, 64000);
	assert_int_equal(number_parse_integer("1M", &whole), 0);
	assert_int_equal(whole, 1000000);
	assert_int_equal(number_parse_integer("-7", &whole), 0);
	assert_int_equal(whole, -7);
	for (const char *const *bad = (const char *const[]){"", "-", "x", "1x", "k", "_1", "1.5", " 1", "1 ",
		     "99999999999999999999", "9223372036854775807M", NULL};
		*bad; bad++)
		assert_int_equal(number_parse_integer(*bad, &whole), -1);
	assert_int_equal(number_parse_real("3%", &real), 0);
	assert_true(real == 0.03);
	assert_int_equal(number_parse_real("1.5M", &real), 0);
	assert_true(real == 1.5e6);
	for (const char *const *bad =
			(const char *const[]){"", "-", "nan", "inf", "0x10", "1e999", " 1", "1,5", NULL};
		*bad; bad++)
		assert_int_equal(number_parse_real(*bad, &real), -1);
}

static void numbers_as_we_write_them(void **state)
{
	static const struct {
		const char *text;
		int64_t value;
	} wholes[] = {{"1,234,567", 1234567}, {"-50,000", -50000}, {"1e6", 1000000}, {"2.3M", 2300000},
		{"0.5k", 500}, {"1,024k", 1024000}, {"9223372036854775807", INT64_MAX}, {"1.5e3", 1500}};
	int64_t whole;
	double real;

	(void)state;
	for (size_t i = 0; i < sizeof(wholes) / sizeof(*wholes); i++) {
		assert_int_equal(number_parse_integer(wholes[i].text, &whole), 0);
		assert_true(whole == wholes[i].value);
	}
	for (const char *const *bad = (const char *const[]){"12,34", "1234,567", "1,2345", "1,", ",1", "1e3k",
		     "1e-3", "2.5", "1e18", "3%", "1__0", NULL};
		*bad; bad++)
		assert_int_equal(number_parse_integer(*bad, &whole), -1);
	assert_int_equal(number_parse_real("3 %", &real), 0);
	assert_true(real == 0.03);
	assert_int_equal(number_parse_real("1,234.5", &real), 0);
	assert_true(real == 1234.5);
	assert_true(number_is_grouped("262,144") && number_is_grouped("1,048,576"));
	assert_false(number_is_grouped("4096,64k") || number_is_grouped("1024") || number_is_grouped("1,24"));
}

static void numbers_for_people(void **state)
{
	static const struct {
		double value;
		const char *text;
	} cases[] = {{0, "0"}, {-1234567, "-1,234,567"}, {0x1p53, "9,007,199,254,740,992"},
		{999999999999999872.0, "999,999,999,999,999,872"}, {1e18, "1e+18"}, {1.7e308, "1.7e+308"},
		{-1e300, "-1e+300"}, {INFINITY, "inf"}};
	char text[48];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		number_grouped(cases[i].value, text);
		assert_string_equal(text, cases[i].text);
	}
}

static void what_is_no_character_is_mended(void **state)
{
	char text[] = "\xc3\xa9 \xc3", overlong[] = "a\xc0\x80\xff\xe2\x82z";

	(void)state;
	utf8_mend(text);
	assert_string_equal(text, "\xc3\xa9 ?");
	utf8_mend(overlong);
	assert_string_equal(overlong, "a?????z");
}

static const char *meant(const char *word)
{
	struct suggestion near = {.word = word};

	for (const char *const *name = (const char *const[]){"commit", "submit", "run", "score", "seq",
		     "target", "tokens-per-sec", "status", NULL};
		*name; name++)
		suggestion_offer(&near, *name);
	return near.name ? near.name : "";
}

static void words_that_were_meant(void **state)
{
	char long_word[1000] = {0};

	(void)state;
	assert_string_equal(meant("comit"), "commit");
	assert_string_equal(meant("committ"), "commit");
	assert_string_equal(meant("Commit"), "commit");
	assert_string_equal(meant("submti"), "submit");
	assert_string_equal(meant("sequence"), "seq");
	assert_string_equal(meant("tokens"), "tokens-per-sec");
	assert_string_equal(meant("stauts"), "status");
	assert_string_equal(meant("rn"), "run");
	assert_string_equal(meant("xyzzy"), "");
	assert_string_equal(meant(""), "");
	memset(long_word, 'c', sizeof(long_word) - 1);
	assert_string_equal(meant(long_word), "");
}

static void durations_are_in_the_units_that_fit(void **state)
{
	static const struct {
		double seconds;
		const char *text;
	} cases[] = {{0.000123, "0.123 ms"}, {0.04567, "45.67 ms"}, {12.345, "12.35 s"}, {725, "12 min 05 s"},
		{7500, "2 h 05 min"}};
	char text[32];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		clock_measured(cases[i].seconds, text);
		assert_string_equal(text, cases[i].text);
	}
}

static void times_in_documents_have_a_zone(void **state)
{
	cJSON *object = cJSON_CreateObject();
	char *text;

	(void)state;
	json_add_time(object, "a", 0);
	json_add_time(object, "b", NAN);
	json_add_time(object, "c", 1e300);
	json_add_naive_time(object, "d", 0);
	text = cJSON_PrintUnformatted(object);
	assert_string_equal(text,
		"{\"a\":\"1970-01-01T00:00:00.000000Z\",\"b\":null,\"c\":null,\"d\":\"1970-01-01T00:00:00.000000\"}");
	cJSON_free(text);
	cJSON_Delete(object);
}

static void times_round_trip(void **state)
{
	char text[32];
	double when;

	(void)state;
	clock_format(1700000001.25, text);
	assert_string_equal(text, "2023-11-14T22:13:21.250000");
	assert_int_equal(clock_parse(text, &when), 0);
	assert_true(when == 1700000001.25);
	assert_int_equal(clock_parse("2023-11-14T22:13:21Z", &when), 0);
	assert_true(when == 1700000001);
	assert_int_equal(clock_parse("2023-11-15T00:13:21+02:00", &when), 0);
	assert_true(when == 1700000001);
	assert_int_equal(clock_parse("yesterday", &when), -1);
	assert_int_equal(clock_parse("2023-11-14T22:13:21+0", &when), -1);
	assert_int_equal(clock_parse("2023-11-14T22:13:21+-1:-1", &when), -1);
	assert_int_equal(clock_parse("2023-11-14T22:13:21+24:00", &when), -1);
}

static void times_beyond_any_calendar(void **state)
{
	static const double wrong[] = {
		NAN, INFINITY, -INFINITY, 1e300, -1e17, 253402300800.0, -62135596800.0, -30610224001.0};
	char text[32];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		memset(text, 'x', sizeof(text));
		clock_format(wrong[i], text);
		assert_string_equal(text, "?");
		assert_string_equal(text + 11, ""); /* where the hours would be */
	}
	clock_format(-30610224000.0, text);
	assert_string_equal(text, "1000-01-01T00:00:00.000000");
	clock_format(253402300799.0, text);
	assert_string_equal(text, "9999-12-31T23:59:59.000000");
	clock_duration(1e300, text);
	assert_string_equal(text, "277777777777 h 46 min");
	clock_duration(NAN, text);
	assert_string_equal(text, "0 s");
}

static void files_are_replaced_whole_or_not_at_all(void **state)
{
	char directory[] = "/tmp/quasar-test-XXXXXX";
	struct error err = {0};
	struct buffer text = {0};
	char *path, *link;

	(void)state;
	assert_non_null(mkdtemp(directory));
	path = path_join(directory, "file");
	link = path_join(directory, "link");
	assert_int_equal(file_write(path, "one", 3, 0600, FILE_NEW, &err), 0);
	assert_int_equal(file_write(path, "two", 3, 0600, FILE_NEW, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_int_equal(file_read(path, 100, &text, &err), 0);
	assert_string_equal(text.data, "one");
	assert_int_equal(file_write(path, "three", 5, 0600, FILE_REPLACE, &err), 0);
	buffer_free(&text);
	assert_int_equal(file_read(path, 5, &text, &err), 0);
	assert_string_equal(text.data, "three");
	buffer_free(&text);
	assert_int_equal(file_read(path, 4, &text, &err), -1);
	buffer_free(&text);
	assert_int_equal(file_read(directory, 4, &text, &err), -1);
	buffer_free(&text);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0); /* as root's /dev/null is, and a link to it */
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(file_write(path, "four", 4, 0600, FILE_REPLACE, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_int_equal(file_write(link, "four", 4, 0600, FILE_REPLACE, &err), -1);
	assert_non_null(strstr(err.message, "not a regular file"));
	free(link);
	assert_int_equal(directory_remove(directory, &err), 0);
	assert_false(path_exists(directory));
	free(path);
}

static void json_fields_are_checked(void **state)
{
	static const char text[] = "{\"s\":\"x\",\"i\":7,\"r\":1.5,\"b\":true,\"n\":null,\"l\":[1]} \n";
	struct error err = {0};
	cJSON *document = json_parse(text, sizeof(text) - 1, &err);
	const char *string = NULL;
	int64_t whole = -1;
	bool flag = false;

	(void)state;
	assert_non_null(document);
	assert_int_equal(json_string(document, "s", JSON_REQUIRED, &string, &err), 0);
	assert_string_equal(string, "x");
	assert_int_equal(json_integer(document, "i", JSON_REQUIRED, &whole, &err), 0);
	assert_int_equal(whole, 7);
	assert_int_equal(json_integer(document, "r", JSON_REQUIRED, &whole, &err), -1);
	assert_int_equal(json_string(document, "i", JSON_REQUIRED, &string, &err), -1);
	assert_non_null(strstr(err.message, "\"i\""));
	assert_int_equal(json_bool(document, "b", JSON_REQUIRED, &flag, &err), 0);
	assert_true(flag);
	assert_int_equal(json_integer(document, "n", JSON_OPTIONAL, &whole, &err), 0);
	assert_int_equal(json_integer(document, "n", JSON_REQUIRED, &whole, &err), -1);
	assert_int_equal(json_integer(document, "absent", JSON_REQUIRED, &whole, &err), -1);
	cJSON_Delete(document);
	assert_null(json_parse("{} x", 4, &err));
	assert_null(json_parse("{", 1, &err));
	assert_null(json_parse("", 0, &err));
	assert_null(json_parse("\"\xff\"", 3, &err));
}

static void errors_are_chained_at_either_end_and_never_overrun(void **state)
{
	struct error err;
	char longest[2 * sizeof(err.message)];

	(void)state;
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(error_set(&err, STATUS_NETWORK, "no answer"), -1);
	error_hint(&err, "Try again.");
	assert_int_equal(error_context(&err, "GET %s", "/round"), -1);
	assert_int_equal(error_append(&err, " (gave up after %d attempts)", 3), -1);
	assert_string_equal(err.message, "GET /round: no answer (gave up after 3 attempts)");
	assert_string_equal(err.hint, "Try again.");
	assert_int_equal(err.status, STATUS_NETWORK);
	error_append(&err, "%s", longest);
	error_append(&err, "%s", longest);
	assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
	error_context(&err, "%s", longest);
	assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
}

static void a_problem_is_a_check_with_the_hint_as_its_remedy(void **state)
{
	struct check_list checks = {0};
	struct error err;

	(void)state;
	error_set(&err, STATUS_ENVIRONMENT, "no %s here", "100 %");
	check_problem(&checks, "gpu", CHECK_WARN, &err);
	error_hint(&err, "Use the CPU.");
	check_problem(&checks, "gpu", CHECK_FAIL, &err);
	assert_int_equal(checks.count, 2);
	assert_string_equal(checks.items[0].detail, "no 100 % here");
	assert_null(checks.items[0].remedy);
	assert_int_equal(checks.items[1].status, CHECK_FAIL);
	assert_string_equal(checks.items[1].remedy, "Use the CPU.");
	check_free(&checks);
}

static void a_word_reaches_a_command_as_it_is(void **state)
{
	static const struct {
		const char *text, *word;
	} cases[] = {
		{"/srv/miner-1.2/%n@x:y,z=+_", "/srv/miner-1.2/%n@x:y,z=+_"},
		{"", "''"},
		{"two words", "'two words'"},
		{"o'clock", "'o'\\''clock'"},
		{"~", "'~'"},
		{"$HOME \\ \"`id`\" & ; * \xc3\xa9", "'$HOME \\ \"`id`\" & ; * \xc3\xa9'"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *word = shell_word(cases[i].text), *command = xprintf("printf 'said %%s' %s", word);
		const char *argv[] = {"sh", "-c", command, NULL};
		struct error err = {0};
		char *said = process_ask(argv, NULL, 60, &err);

		assert_string_equal(word, cases[i].word);
		if (!said)
			fail_msg("%s", err.message);
		assert_string_equal(said + strlen("said "), cases[i].text);
		free(said);
		free(command);
		free(word);
	}
}

static void utf8_is_told_from_other_bytes(void **state)
{
	(void)state;
	for (const char *const *good = (const char *const[]){"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80",
		     "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", NULL};
		*good; good++)
		assert_true(utf8_valid(*good, strlen(*good)));
	for (const char *const *bad = (const char *const[]){"\x80", "\xc1\xbf", "\xc3", "\xc3(",
		     "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xff", NULL};
		*bad; bad++)
		assert_false(utf8_valid(*bad, strlen(*bad)));
}

static void text_is_cut_between_characters(void **state)
{
	(void)state;
	assert_int_equal(text_width(""), 0);
	assert_int_equal(text_width("5 ≈ π…"), 6);
	assert_int_equal(text_prefix("5 ≈ π…", 0), 0);
	assert_int_equal(text_prefix("5 ≈ π…", 2), 2);
	assert_int_equal(text_prefix("5 ≈ π…", 3), 5);
	assert_int_equal(text_prefix("5 ≈ π…", 6), 11);
	assert_int_equal(text_prefix("5 ≈ π…", 100), 11);
}

static void count_turn(void *context)
{
	++*(int *)context;
}

static void waits_have_turns(void **state)
{
	struct error err;
	int turns = 0;

	(void)state;
	clock_while_waiting(count_turn, &turns);
	assert_int_equal(clock_sleep(0.01, &err), 0);
	assert_true(turns >= 1);
	clock_while_waiting(NULL, NULL);
	turns = 0;
	assert_int_equal(clock_sleep(0.01, &err), 0);
	clock_turn();
	assert_int_equal(turns, 0);
}

static void floats_as_python_writes_them(void **state)
{
	cJSON *document = read_vectors(VECTORS "python_format.json");
	const cJSON *item;

	(void)state;
	cJSON_ArrayForEach (item, cJSON_GetObjectItem(document, "floats")) {
		uint64_t bits = strtoull(cJSON_GetObjectItem(item, "hex")->valuestring, NULL, 16);
		char text[32];
		double value;

		memcpy(&value, &bits, sizeof(value));
		number_repr(value, text);
		assert_string_equal(text, cJSON_GetObjectItem(item, "repr")->valuestring);
	}
	cJSON_Delete(document);
}

/* All floats of steps that meet each exponent, and what lies beside powers of ten. */
static void floats_are_read_back_bit_for_bit(void **state)
{
	static const char *const plain[] = {
		"0", "1", "-2.5", "100", "0.00100000005", "999999.938", "12.3456783"};
	char text[32];

	(void)state;
	for (uint64_t bits = 0; bits < 0x7f800000; bits += 4099) {
		float value = float_of_bits((uint32_t)bits);

		size_t length = number_float(-value, text);

		assert_int_equal(length, strlen(text));
		assert_true(strtof(text, NULL) == -value);
	}
	for (double power = 1e-5; power < 1e8; power *= 10)
		for (int side = -2; side <= 2; side++) {
			float value = float_of_bits(bits_of_float((float)power) + (uint32_t)side);

			number_float(value, text);
			assert_true(strtof(text, NULL) == value);
		}
	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++) {
		number_float(strtof(plain[i], NULL), text);
		assert_string_equal(text, plain[i]);
	}
}

static void documents_as_python_writes_them(void **state)
{
	struct error err = {0};
	struct buffer out = {0};
	static const char text[] =
		"{\"b\":[1.5,true,null,-1e400],\"a\":\"\\u00e9\\ud83d\\ude00\\n\\\"\",\"B\":{}}";
	cJSON *document = json_parse(text, sizeof(text) - 1, &err);

	(void)state;
	json_python(document, &out);
	assert_string_equal(out.data,
		"{\"B\": {}, \"a\": \"\\u00e9\\ud83d\\ude00\\n\\\"\", \"b\": [1.5, true, null, -Infinity]}");
	buffer_free(&out);
	cJSON_Delete(document);
}

static void a_process_with_secrets_is_guarded(void **state)
{
	(void)state;
	assert_int_equal(prctl(PR_GET_DUMPABLE), 1);
	sodium_free(secret_alloc(16));
	assert_int_equal(prctl(PR_GET_DUMPABLE), 0);
}

/* Starts `sh -c script`, and waits for its end. */
static int run_shell(const char *script, const char *input, struct process *process)
{
	const char *argv[] = {"/bin/sh", "-c", script, NULL};
	char *more[] = {"WORD=quasar", NULL};
	struct error err;
	int status = -1;

	if (process_start(process, argv, more, input, &err) < 0 ||
		process_finish(process, 600, &status, &err) < 0)
		fail_msg("%s", err.message);
	return status;
}

static void processes_are_heard_to_their_end(void **state)
{
	struct process process;
	struct error err;
	int status;

	(void)state;
	assert_int_equal(run_shell("cat; echo $WORD; exit 7", "in\n", &process), 7);
	assert_string_equal(process.text.data, "in\nquasar\n");
	buffer_free(&process.text);
	assert_int_equal(run_shell("kill -9 $$", "", &process), 128 + 9);
	assert_int_equal(run_shell("yes | head -c 3000000", "", &process), 0);
	assert_true(process.text.length <= 1 << 20);
	buffer_free(&process.text);

	assert_int_equal(
		process_start(&process, (const char *const[]){"/bin/sleep", "1000", NULL}, NULL, "", &err),
		0);
	assert_false(process_ended(&process, &status));
	process_kill(&process);
	assert_int_equal(process.pid, 0);
	process_kill(&process);
	assert_int_equal(
		process_start(&process, (const char *const[]){"/bin/sleep", "1000", NULL}, NULL, "", &err),
		0);
	assert_int_equal(process_finish(&process, 0.01, &status, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_int_equal(process.pid, 0);
	assert_int_equal(
		process_start(&process, (const char *const[]){"/no/such/program", NULL}, NULL, "", &err), 0);
	assert_int_equal(process_finish(&process, 600, &status, &err), 0);
	assert_int_equal(status, 127);
}

static void programs_are_talked_with(void **state)
{
	static const char script[] = "read a; echo \"<$a>\"; read b; echo 1; echo \"$b\" >&2; echo 2; exit 5";
	const char *argv[] = {"/bin/sh", "-c", script, NULL};
	struct process process;
	struct error err;
	char *line;
	int status;

	(void)state;
	assert_int_equal(process_talk(&process, argv, NULL, NULL, &err), 0);
	assert_null(process_hear(&process, 0.01, &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	for (const char *const *said = (const char *const[]){"one", "two", NULL}; *said; said++)
		assert_int_equal(process_say(&process, *said, &err), 0);
	for (const char *const *heard = (const char *const[]){"<one>", "1", "2", NULL}; *heard; heard++) {
		line = process_hear(&process, 600, &err);
		assert_string_equal(line, *heard);
		free(line);
	}
	assert_null(process_hear(&process, 600, &err)); /* it ended */
	assert_int_equal(err.status, STATUS_FAILED);
	assert_int_equal(process_say(&process, "three", &err), -1);
	assert_int_equal(process_finish(&process, 600, &status, &err), 0);
	assert_int_equal(status, 5);
	assert_string_equal(process.text.data, "two\n");
	buffer_free(&process.text);
}

static void programs_get_no_files_but_those_they_are_given(void **state)
{
	int given = dup(STDIN_FILENO), kept = dup(STDIN_FILENO);
	char *script = xprintf("for fd in %d %d; do [ ! -e /dev/fd/$fd ] || echo $fd; done", given, kept);
	char *expected = xprintf("%d", given), *line;
	const char *argv[] = {"/bin/sh", "-c", script, NULL};
	struct process process;
	struct error err;
	int status;

	(void)state;
	assert_int_equal(process_talk(&process, argv, NULL, (int[]){given, -1}, &err), 0);
	line = process_hear(&process, 60, &err);
	assert_non_null(line);
	assert_string_equal(line, expected);
	assert_null(process_hear(&process, 60, &err));
	assert_int_equal(process_finish(&process, 60, &status, &err), 0);
	buffer_free(&process.text);
	free(line);
	free(expected);
	free(script);
	close(given);
	close(kept);
}

static void a_hangup_ends_only_the_wait_for_it(void **state)
{
	const char *talker[] = {"/bin/sh", "-c", "echo word", NULL};
	const char *caller[] = {"/bin/sh", "-c", "kill -HUP $PPID", NULL};
	struct process process;
	struct error err;
	char *line;
	int status;

	(void)state;
	hangup_install();
	raise(SIGHUP);
	assert_int_equal(hangup_poll(NULL, 0, INFINITY, &err), 0);
	assert_int_equal(process_talk(&process, talker, NULL, NULL, &err), 0);
	line = process_hear(&process, 60, &err); /* while it is not taken yet */
	assert_true(hangup_taken());
	assert_false(hangup_taken());
	assert_non_null(line);
	assert_string_equal(line, "word");
	free(line);
	assert_int_equal(process_finish(&process, 600, &status, &err), 0);

	assert_int_equal(process_start(&process, caller, NULL, "", &err), 0);
	assert_int_equal(hangup_poll(NULL, 0, INFINITY, &err), 0);
	assert_true(hangup_taken());
	assert_int_equal(process_finish(&process, 600, &status, &err), 0);
	signal(SIGHUP, SIG_DFL);
}

static void the_last_words_of_a_talker_are_kept(void **state)
{
	const char *argv[] = {"/bin/sh", "-c", "yes | head -c 3000000 >&2; echo last >&2; echo", NULL};
	struct process process;
	struct error err;
	int status;

	(void)state;
	assert_int_equal(process_talk(&process, argv, NULL, NULL, &err), 0);
	free(process_hear(&process, 600, &err));
	assert_int_equal(process_finish(&process, 600, &status, &err), 0);
	assert_true(process.text.length <= 1 << 20);
	assert_string_equal(process.text.data + process.text.length - 5, "last\n");
	buffer_free(&process.text);

	argv[2] = "yes | tr -d '\\n' | head -c 3000000; sleep 1000"; /* a line without end */
	assert_int_equal(process_talk(&process, argv, NULL, NULL, &err), 0);
	assert_null(process_hear(&process, 600, &err));
	assert_int_equal(err.status, STATUS_FAILED);
	process_kill(&process);
}

static void programs_answer_questions(void **state)
{
	struct error err;
	char *answer = process_ask(
		(const char *[]){"sh", "-c", "echo out; echo err >&2", NULL}, NULL, 600, &err);

	(void)state;
	assert_string_equal(answer, "out\nerr\n");
	free(answer);
	answer = process_ask((const char *[]){"true", NULL}, NULL, 600, &err);
	assert_string_equal(answer, "");
	free(answer);
	assert_null(process_ask((const char *[]){"sh", "-c", "echo first; echo '\033[1mlast'; exit 3", NULL},
		NULL, 600, &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_string_equal(err.message, "sh: last");
	assert_null(process_ask((const char *[]){"no-such-program", NULL}, NULL, 600, &err));
	assert_string_equal(err.message, "no no-such-program in the PATH");
	assert_null(process_ask((const char *[]){"/no/such", NULL}, NULL, 600, &err));
	assert_string_equal(err.message, "cannot run /no/such: there is no such program");
	assert_null(process_ask((const char *[]){"sleep", "1000", NULL}, NULL, 0.01, &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
}

/* Starts a script, which tells its number in a file, and has it run out of time. */
static void run_out_of_time(const char *script, double seconds)
{
	const char *argv[] = {"/bin/sh", "-c", script, NULL};
	struct process process;
	struct error err;
	int status;
	double began = clock_elapsed();

	assert_int_equal(process_start(&process, argv, NULL, "", &err), 0);
	assert_int_equal(process_finish(&process, seconds, &status, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_int_equal(process.pid, 0);
	assert_int_equal(process.output, -1);
	assert_true(clock_elapsed() - began < 500); /* they sleep for 1000 s */
}

static void no_process_is_waited_for_longer_than_wanted(void **state)
{
	(void)state;
	run_out_of_time("exec >&-; exec sleep 1000", 0.2);                         /* silent, but there */
	run_out_of_time("trap '' TERM; exec >&-; while :; do sleep 1; done", 0.2); /* and deaf */
	run_out_of_time("kill -STOP $$", 0.2);                                     /* and dead to the world */
	run_out_of_time("sleep 1000 & exit 0", 0.2); /* gone, but for who holds its stdout */
	run_out_of_time("exec yes", 0.2);            /* never an end of what it says */
}

/* Whoever holds the other end of the pipe is alive. */
static void its_whole_group_ends_with_it(void **state)
{
	const char *argv[] = {"/bin/sh", "-c",
		"trap '' TERM; (trap '' TERM; sleep 1000) >&7 & exec 7>&-; echo >&2; wait", NULL};
	struct pollfd end = {.events = POLLIN};
	struct process process;
	struct error err;
	int ends[2];
	char byte;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(dup2(ends[1], 7), 7);
	close(ends[1]);
	assert_int_equal(process_talk(&process, argv, NULL, (int[]){7, -1}, &err), 0);
	close(7);
	assert_int_equal(clock_wait_readable(process.output, &err), 0);
	process_kill(&process);
	end.fd = ends[0];
	assert_int_equal(poll(&end, 1, 30000), 1);
	assert_int_equal(read(ends[0], &byte, 1), 0);
	close(ends[0]);
}

static void what_writes_and_goes_on_in_silence_is_heard(void **state)
{
	struct process process;

	(void)state;
	assert_int_equal(run_shell("echo word; exec >&-; sleep 0.1; exit 3", "", &process), 3);
	assert_string_equal(process.text.data, "word\n");
	buffer_free(&process.text);
}

static void programs_see_no_secret_of_the_environment(void **state)
{
	static const char *const hidden[] = {"GITHUB_TOKEN", "WALLET_PASSWORD", "BT_PW__HOME_ME",
		"OPENAI_API_KEY", "NVIDIA_API_KEY", "CONDA_TOKEN", "SSH_AUTH_SOCK", "HF_TOKEN",
		"AWS_SECRET_ACCESS_KEY", "https_proxy", "ANYTHING"};
	static const char *const seen[] = {"LC_ALL", "CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF",
		"TRITON_CACHE_DIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "OMP_NUM_THREADS",
		"TMPDIR"};
	struct process process;

	(void)state;
	for (size_t i = 0; i < sizeof(hidden) / sizeof(*hidden); i++)
		setenv(hidden[i], "hunter2", 1);
	for (size_t i = 0; i < sizeof(seen) / sizeof(*seen); i++)
		setenv(seen[i], "visible", 1);
	assert_int_equal(run_shell("exec env", "", &process), 0);
	assert_null(strstr(process.text.data, "hunter2"));
	assert_non_null(strstr(process.text.data, "PATH="));
	assert_non_null(strstr(process.text.data, "WORD=quasar\n"));
	for (size_t i = 0; i < sizeof(seen) / sizeof(*seen); i++) {
		char *line = xprintf("%s=visible\n", seen[i]);

		if (!strstr(process.text.data, line))
			fail_msg("no %s", line);
		free(line);
		unsetenv(seen[i]);
	}
	for (size_t i = 0; i < sizeof(hidden) / sizeof(*hidden); i++)
		unsetenv(hidden[i]);
	buffer_free(&process.text);
}

static void only_files_are_read_and_nothing_is_waited_for(void **state)
{
	char directory[] = "/tmp/quasar-test-XXXXXX", *path, *link_path;
	struct buffer out = {0};
	struct error err;

	(void)state;
	assert_non_null(mkdtemp(directory));
	path = path_join(directory, "pipe");
	link_path = path_join(directory, "link");
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(file_read(path, 100, &out, &err), -1);
	assert_non_null(strstr(err.message, "not a regular file"));
	assert_int_equal(symlink("pipe", link_path), 0);
	assert_int_equal(file_read(link_path, 100, &out, &err), -1);
	assert_int_equal(file_read("/dev/zero", 100, &out, &err), -1);
	assert_int_equal(file_read(directory, 100, &out, &err), -1);
	assert_non_null(strstr(err.message, "a directory"));
	unlink(path);
	assert_int_equal(file_write(path, "x", 1, 0600, FILE_NEW, &err), 0);
	assert_int_equal(file_read(link_path, 100, &out, &err), 0);
	assert_string_equal(out.data, "x");
	buffer_free(&out);
	assert_int_equal(directory_remove(directory, &err), 0);
	free(link_path);
	free(path);
}

static void what_a_killed_writer_left_is_swept(void **state)
{
	static const char *const kept[] = {"default", "default.backup", "default.unfinished",
		".default.unfinished", ".a.bcdefg.unfinishe", ".held.aB3dE6.unfinished"};
	static const char *const swept[] = {".default.aB3dE6.unfinished", ".x.y.000000.unfinished"};
	char directory[] = "/tmp/quasar-test-XXXXXX";
	struct error err;
	int held = -1;

	(void)state;
	assert_non_null(mkdtemp(directory));
	for (size_t i = 0; i < 8; i++) {
		char *path = path_join(directory, i < 6 ? kept[i] : swept[i - 6]);

		held = open(path, O_CREAT | O_WRONLY, 0600);
		assert_true(held >= 0);
		if (i == 5)
			assert_int_equal(
				flock(dup(held), LOCK_EX), 0); /* as its writer does; open to the end */
		close(held);
		free(path);
	}
	directory_sweep(directory);
	for (size_t i = 0; i < 8; i++) {
		char *path = path_join(directory, i < 6 ? kept[i] : swept[i - 6]);

		if (path_exists(path) != (i < 6))
			fail_msg("%s", path);
		free(path);
	}
	assert_int_equal(directory_remove(directory, &err), 0);
}

static void what_nobody_sees_is_shown(void **state)
{
	static const struct {
		const char *dirty, *clean;
	} cases[] = {
		{"a\u061cb", "a?b"},
		{"\u200b\u200c\u200d\u200e\u200f", "?????"},
		{"a\u2028b\u2029c", "a?b?c"},
		{"\u202e\u2066\u2069\u2060\u2064", "?????"},
		{"\ufeff\u00ad\u180e", "???"},
		{"\ufff9\ufffb", "??"},
		{"\U000e0001\U000e0041\U000e007f", "???"},
		{"\u0600\u06dd\u070f", "???"},
		{"\U0001d173", "?"},
		{"é ≈ 漢 😀 ש ع", "é ≈ 漢 😀 ש ع"},
		{"\u200a|\u2010|\u2027|\u202f|\u205f|\u2070|\ufffc|\ufffd",
			"\u200a|\u2010|\u2027|\u202f|\u205f|\u2070|\ufffc|\ufffd"},
		{"\U000f0000\U0010ffff", "\U000f0000\U0010ffff"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *text = xstrdup(cases[i].dirty);

		text_clean(text);
		assert_string_equal(text, cases[i].clean);
		free(text);
	}
}

static void the_last_line_is_what_was_said_last(void **state)
{
	static const struct {
		const char *text, *line;
	} cases[] = {{"", ""}, {"\n\n", ""}, {"one", "one"}, {"one\ntwo\n \r\n", "two"},
		{"a\n\033[1mb\tc\033[0m\n", "b c"}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *text = xstrdup(cases[i].text);

		assert_string_equal(text_last_line(text), cases[i].line);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_as_people_write_them),
		cmocka_unit_test(numbers_as_we_write_them),
		cmocka_unit_test(words_that_were_meant),
		cmocka_unit_test(durations_are_in_the_units_that_fit),
		cmocka_unit_test(times_in_documents_have_a_zone),
		cmocka_unit_test(times_round_trip),
		cmocka_unit_test(times_beyond_any_calendar),
		cmocka_unit_test(numbers_for_people),
		cmocka_unit_test(what_is_no_character_is_mended),
		cmocka_unit_test(files_are_replaced_whole_or_not_at_all),
		cmocka_unit_test(json_fields_are_checked),
		cmocka_unit_test(errors_are_chained_at_either_end_and_never_overrun),
		cmocka_unit_test(a_problem_is_a_check_with_the_hint_as_its_remedy),
		cmocka_unit_test(a_word_reaches_a_command_as_it_is),
		cmocka_unit_test(utf8_is_told_from_other_bytes),
		cmocka_unit_test(the_last_line_is_what_was_said_last),
		cmocka_unit_test(text_is_cut_between_characters),
		cmocka_unit_test(waits_have_turns),
		cmocka_unit_test(floats_as_python_writes_them),
		cmocka_unit_test(floats_are_read_back_bit_for_bit),
		cmocka_unit_test(documents_as_python_writes_them),
		cmocka_unit_test(processes_are_heard_to_their_end),
		cmocka_unit_test(programs_are_talked_with),
		cmocka_unit_test(programs_get_no_files_but_those_they_are_given),
		cmocka_unit_test(a_hangup_ends_only_the_wait_for_it),
		cmocka_unit_test(the_last_words_of_a_talker_are_kept),
		cmocka_unit_test(programs_answer_questions),
		cmocka_unit_test(no_process_is_waited_for_longer_than_wanted),
		cmocka_unit_test(its_whole_group_ends_with_it),
		cmocka_unit_test(what_writes_and_goes_on_in_silence_is_heard),
		cmocka_unit_test(programs_see_no_secret_of_the_environment),
		cmocka_unit_test(only_files_are_read_and_nothing_is_waited_for),
		cmocka_unit_test(what_a_killed_writer_left_is_swept),
		cmocka_unit_test(what_nobody_sees_is_shown),
		cmocka_unit_test(a_process_with_secrets_is_guarded),
	};

	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
