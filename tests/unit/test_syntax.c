/* syntax: what Python files import and call, by our own reader and by Python's; and the rule on it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"
#include "fork/python_ast.h"
#include "fork/python_source.h"
#include "fork/tree_rule.h"
#include "directory.h"

#define BATCH 64

static const char *python(void)
{
	const char *chosen = getenv("QUASAR_TEST_PYTHON");

	return chosen ? chosen : "/usr/bin/python3";
}

/* --- facts as text ------------------------------------------------------------------------------- */

struct facts {
	char **lines;
	size_t count;
	struct python_fault fault;
};

static void note(const struct python_fact *fact, void *context)
{
	struct facts *facts = context;
	char *line;

	if (fact->kind == PYTHON_CALL)
		line = xprintf("%zu: %s%s()", fact->line, fact->of_expression ? "(…)." : "", fact->name);
	else if (fact->kind == PYTHON_FROM)
		line = xprintf("%zu: from %d %s import %s as %s", fact->line, fact->level, fact->module,
			fact->name, fact->alias ? fact->alias : fact->name);
	else
		line = xprintf("%zu: import %s as %s", fact->line, fact->module,
			fact->alias ? fact->alias : fact->module);
	facts->lines = xrealloc(facts->lines, (facts->count + 1) * sizeof(*facts->lines));
	facts->lines[facts->count++] = line;
}

static int by_text(const void *left, const void *right)
{
	return strcmp(*(char *const *)left, *(char *const *)right);
}

/* In one order, whatever the reader's was. */
static char *as_text(struct facts *facts)
{
	struct buffer text = {0};

	if (facts->count)
		qsort(facts->lines, facts->count, sizeof(*facts->lines), by_text);
	buffer_text(&text, "");
	for (size_t i = 0; i < facts->count; i++) {
		buffer_printf(&text, "%s\n", facts->lines[i]);
		free(facts->lines[i]);
	}
	free(facts->lines);
	return text.data;
}

static char *read_source(const struct buffer *source, struct python_fault *fault)
{
	struct facts facts = {0};

	python_source_read(source->data, source->length, note, &facts, fault);
	return as_text(&facts);
}

/* "fault: …" when Python does not take it, NULL when it cannot tell. */
static char *read_tree(const cJSON *report)
{
	struct facts facts = {0};
	struct python_fault fault;
	char *text;

	if (!report)
		return NULL;
	python_ast_visit(report, note, &facts, &fault);
	text = as_text(&facts);
	if (fault.line) {
		free(text);
		text = xprintf("fault: %s", fault.what);
	}
	return text;
}

/* Whether this Python takes f-strings that the validators' does not. */
static bool takes_newer(const struct python_ast *ast)
{
	return atoi(ast->version + strlen("3.")) >= 12;
}

/* Whether our own reader tells what Python does. What Python refuses it may read or not. */
static bool agree(const char *name, const struct buffer *source, const struct python_ast *ast, size_t index)
{
	struct python_fault fault;
	char *own = read_source(source, &fault), *tree = read_tree(ast->reports[index]);
	bool same = !tree || !strncmp(tree, "fault: ", 7) || (!fault.line && !strcmp(own, tree));

	if (fault.line && strstr(fault.what, "3.12") && takes_newer(ast))
		same = true;
	if (!same)
		print_error("%s: own reader: %s\n%s\nsyntax tree:\n%s\n", name, fault.what, own, tree);
	free(own);
	free(tree);
	return same;
}

/* --- our own reader ------------------------------------------------------------------------------ */

static const struct {
	const char *source, *facts;
} readings[] = {
	{"", ""},
	{"import os", "1: import os as os\n"},
	{"import a.b as c, d\n", "1: import a.b as c\n1: import d as d\n"},
	{"from . import a\nfrom ..b.c import d as e, f\n",
		"1: from 1  import a as a\n2: from 2 b.c import d as e\n2: from 2 b.c import f as f\n"},
	{"from ...a import (b, # c\n\td as e,\n)\nfrom x import *",
		"1: from 3 a import b as b\n1: from 3 a import d as e\n4: from 0 x import * as *\n"},
	{"try: import a\nexcept E: from b import c; import d\nelse: pass",
		"1: import a as a\n2: from 0 b import c as c\n2: import d as d\n"},
	{"import \\\n a; x = 1; import b", "1: import a as a\n2: import b as b\n"},
	{"def f():\n\tyield from g()\n\traise A from b.c()", "2: g()\n3: b.c()\n"},
	{"\"import os\" 'eval()' # exec()\n'''\nos.system()\n''' r'\\\\' b\"\\\"eval()\"", ""},
	{"a.b.c(); f().g(); 'x'.h(); x[0].i(); (j)(); (k.l).m(); (n, o).p()",
		"1: (…).g()\n1: (…).h()\n1: (…).i()\n1: (…).p()\n1: a.b.c()\n1: f()\n1: j()\n1: k.l.m()\n"},
	{"(\na\n.\nb\n)(c())", "4: a.b()\n5: c()\n"},
	{"(await x).y(); (yield).z(); (not a).b(); (c := d).e(); (-f).g(); ().h(); ((i)).j()",
		"1: (…).b()\n1: (…).e()\n1: (…).g()\n1: (…).h()\n1: (…).y()\n1: (…).z()\n1: i.j()\n"},
	{"def a(b=c()): pass\nclass D(e()): pass\nasync def f(): pass\ndef g[T](x): pass\n",
		"1: c()\n2: e()\n"},
	{"print (a); return (b); lambda: (c); x if (d) else (e); None(); ...(f); @ g(h)",
		"1: g()\n1: print()\n"},
	{"f'{a()}{{b()}}{c()!r:{d()}>{e()}}' rf\"\\{g()}\" f'\\N{DASH}' F'''\n{h(\n)}'''",
		"1: a()\n1: c()\n1: d()\n1: e()\n1: g()\n2: h()\n"},
	{"f'{x[\"a\"]}{y!=z()}{lambda_:=^10}{{}}'", "1: z()\n"},
	{"f'''{f\"{f'{a()}'}\"}'''", "1: a()\n"},
	{"match (x):\n\tcase A(b()): c()\n\tcase d if e(): pass\n", "2: c()\n3: e()\n"},
	{"match(x); case(y); match = case = 1; match[a()] = b()\n",
		"1: a()\n1: b()\n1: case()\n1: match()\n"},
	{"1if a()else 2; 0x1for b in c(); 1.e5.d(); 1_0j.e(); .5.f()",
		"1: (…).d()\n1: (…).e()\n1: (…).f()\n1: a()\n1: c()\n"},
	{"\f\timport a\r\nimport b\rimport c", "1: import a as a\n2: import b as b\n3: import c as c\n"},
	{"x = 1\\\n+ a()\\\n\n'a\\\nb'; b()", "2: a()\n5: b()\n"},
	{"größe.λ()", "1: größe.λ()\n"},
};

static void own_reader_tells_what_is_written(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(readings) / sizeof(*readings); i++) {
		struct buffer source = {0};
		struct python_fault fault;
		char *facts;

		buffer_text(&source, readings[i].source);
		facts = read_source(&source, &fault);
		if (fault.line)
			fail_msg("%s: %s", readings[i].source, fault.what);
		assert_string_equal(facts, readings[i].facts);
		free(facts);
		buffer_free(&source);
	}
}

static void errors_in_tokens_are_found(void **state)
{
	static const struct {
		const char *source, *what;
		size_t line, length; /* 0: to the zero byte */
	} cases[] = {
		{"a\n'b\n'", "not terminated", 2, 0},
		{"'''\n\n", "not terminated", 1, 0},
		{"'a\\", "not terminated", 1, 0},
		{"f(\n[\n)", "')' does not match what was opened on line 2", 3, 0},
		{"\n)", "unmatched ')'", 2, 0},
		{"f(\n{", "'{' is never closed", 2, 0},
		{"x = $y", "does not know", 1, 0},
		{"x \\ y", "does not know", 1, 0},
		{"f'{a'", "not terminated", 1, 0},
		{"f'{a:b'", "lacks a '}'", 1, 0},
		{"f'}'", "'}' alone", 1, 0},
		{"\xef\xbb\xbfimport a", "byte order mark", 1, 0},
		{"import a\0import b", "zero byte", 1, 17},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t length = cases[i].length ? cases[i].length : strlen(cases[i].source);
		struct facts facts = {0};
		struct python_fault fault;

		python_source_read(cases[i].source, length, note, &facts, &fault);
		free(as_text(&facts));
		assert_int_equal(fault.line, cases[i].line);
		assert_non_null(strstr(fault.what, cases[i].what));
	}
}

static void nothing_is_too_deep_or_long(void **state)
{
	static const struct {
		const char *part;
		bool fault;
	} cases[] = {{"(", true}, {"f'{", true}, {"-", false}, {"a.", false}, {"lambda:", false},
		{"not ", false}, {"match x", false}, {"()", false}, {"{}[]", false}, {"\\\n", false},
		{"\n", false}, {"f'' ", false}, {"a", false}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct buffer source = {0};
		struct facts facts = {0};
		struct python_fault fault;

		for (int times = 0; times < 200000; times++)
			buffer_text(&source, cases[i].part);
		python_source_read(source.data, source.length, note, &facts, &fault);
		assert_int_equal(fault.line > 0, cases[i].fault);
		free(as_text(&facts));
		buffer_free(&source);
	}
}

/* --- beside Python's ----------------------------------------------------------------------------- */

/* Whatever Python makes of them, and some it refuses. */
static const char *const nasty[] = {"# -*- coding: latin-1 -*-\nimport a", "#!python\n\n\n\timport b",
	"if 1:\n\tf()\n        g()", "x = yield", "if x:\n  a()\n b()", "a = b = c()\nimport",
	"from import x", "from . import", "def f(a, /, b, *, c: d() = e()) -> g(): ...", "f(*a(), **b())",
	"[a() for b in c() if d()]", "{a(): b(), **c()}", "x[a():b(), ...]", "a().b().c.d().e", "not f()",
	"async def f():\n async with a() as b, c(): await d()\n async for e in g(): pass",
	"with (a() as b, c()): pass", "try: pass\nexcept* a(): pass", "@a\n@b.c()\ndef f(): pass",
	"print(f'''{a(\n'b'\n)!r}\n{c()}''')", "f'{a():%H:%M}' 'b()' f\"{c()=}\"", "f'{{{a()}}}'",
	"f'{a()}' f'{b()", "rf'\\{a()}\\\\{b()}'", "fr'''\\N{a()}'''", "b'\\x00' br'\\'' Rb\"'\"",
	"u'a' U'b'", "type X = a()", "f'{a:{b():{c()}}}'", "f'{a:{{b()}}}'", "f'{a: {{1}.b()}}'",
	"match x:\n case [a(b), *_] | {'k': c(d=1)} if e(): f()\n case -1 | 'a' 'b': g()\n case _: pass",
	"match = 1\nmatch.a()\nmatch(1)\nmatch[1]()\nmatch -1\nprint(match)",
	"match x, y:\n case (1, 2): a()", "match (yield):\n case case: case()",
	"match match:\n case {}: match()", "case: int = a()", "match ...:\n case a(): b()",
	"match *a, b():\n case _: c()", "match x if y() else z:\n case _ if lambda: a(): b()",
	"lambda x=a(): b()", "lambda: (yield)", "a if b() else c()", "a = lambda: (b)(c)", "x: (a)() = 1",
	"(a)(b)(c)", "((a.b))()", "(a.b\n.c)()", "((a))[0]()", "(a)if(b)else(c)()", "[a][0]()", "{a}()",
	"''()", "0xfor x", "1_000.real()", "1.0.real()", "0b1and a()", "0o7or b()", "1e-5if a()else b()",
	"1jif a()else b()", "\xef\xbb\xbf(a())", "a()\x1a", "a();", ";a()", "a()\\", "a()\\\n",
	"a() \\\n  .b()", "del (a)", "global a", "assert (a), (b)()", "exec 'a'", "print 'a'", "raise (A)(b)",
	"while (a)(): pass", "return(a)()", "class A(metaclass=b()): c = d()", "class A: pass; a()",
	"if a(): b(); c()\nelif d(): e()", "*a, b = c()", "a @ b() @c()", "a <b()> c()", "a->b()", "a!=b()",
	"a<>b()", "`a()`", "a?b()", "$a()", "!a()", "a!b()", "x = a() # \\\nb()", "'''\\'''a()'''",
	"''''a()'''", "'''a()''''", "\"\"\"\"a()\"\"\"", "é = a()", "\u00a0a()", "a\u200b()",
	"False.a(); None.b()", "...a()", "... .a()", "a...b()", "import a.b.c as d, e; from .. import f",
	"from .a import *; from a import (b)", "from a import (b as c, d,)", "if x: from a import b",
	"x = [\n1, # a(\n2]; b()", "def f(): yield (a), (b)()", "(a for a in b()).c()", "{**a}.b()",
	"a[b](c)[d].e(f)", "(a, b)()", "(*a,)()", "(lambda: a)()", "(a if b else c).d()", "(a)\n(b)()"};

#define READINGS (sizeof(readings) / sizeof(*readings))
#define NASTY (sizeof(nasty) / sizeof(*nasty))

static void both_readers_agree_on_what_is_nasty(void **state)
{
	struct buffer texts[READINGS + NASTY] = {0};
	struct python_ast ast;
	struct error err;
	size_t different = 0;

	(void)state;
	for (size_t i = 0; i < READINGS + NASTY; i++)
		buffer_text(&texts[i], i < READINGS ? readings[i].source : nasty[i - READINGS]);
	assert_int_equal(python_ast_read(python(), texts, READINGS + NASTY, &ast, &err), 0);
	for (size_t i = 0; i < READINGS + NASTY; i++) {
		assert_non_null(ast.reports[i]);
		different += !agree(texts[i].data, &texts[i], &ast, i);
		buffer_free(&texts[i]);
	}
	python_ast_free(&ast);
	assert_int_equal(different, 0);
}

static void newer_fstrings_are_refused(void **state)
{
	static const char *const newer[] = {"f'{a['b']}'", "f'{f'{b()}'}'", "f'{\"\\n\"}'", "f'{f\"\\n\"}'",
		"f'{a\n}'", "f'''{a # b\n}'''", "f'{\"'\"}'", "f'''{\\\na}'''", "f'{a:{b:{c}}}'",
		"f\"{f'{a[\"b\"]}'}\"", "f'''{f\"{\"a\"}\"}'''", "f'{a #}'"};
	struct buffer texts[sizeof(newer) / sizeof(*newer)] = {0};
	const size_t count = sizeof(newer) / sizeof(*newer);
	struct python_ast ast;
	struct error err;

	(void)state;
	for (size_t i = 0; i < count; i++)
		buffer_text(&texts[i], newer[i]);
	assert_int_equal(python_ast_read(python(), texts, count, &ast, &err), 0);
	for (size_t i = 0; i < count; i++) {
		struct python_fault fault;
		char *tree = read_tree(ast.reports[i]);

		free(read_source(&texts[i], &fault));
		if (!strstr(fault.what, "from 3.12 on"))
			fail_msg("%s is not refused: %s", newer[i], fault.what);
		if (!takes_newer(&ast) && strncmp(tree, "fault: ", 7))
			fail_msg("Python takes %s", newer[i]);
		free(tree);
		buffer_free(&texts[i]);
	}
	python_ast_free(&ast);
}

struct batch {
	char *paths[BATCH];
	struct buffer texts[BATCH];
	size_t count, bytes;
};

/* How many of them differ. */
static size_t compare_batch(struct batch *batch)
{
	struct python_ast ast;
	struct error err;
	size_t different = 0;

	assert_int_equal(python_ast_read(python(), batch->texts, batch->count, &ast, &err), 0);
	for (size_t i = 0; i < batch->count; i++) {
		assert_non_null(ast.reports[i]);
		different += !agree(batch->paths[i], &batch->texts[i], &ast, i);
		free(batch->paths[i]);
		buffer_free(&batch->texts[i]);
	}
	python_ast_free(&ast);
	*batch = (struct batch){0};
	return different;
}

static bool add_to_batch(struct batch *batch, const FTSENT *entry)
{
	struct buffer *text = &batch->texts[batch->count];
	size_t length = entry->fts_namelen;
	struct error err;

	if (entry->fts_info != FTS_F || length < 3 || strcmp(entry->fts_name + length - 3, ".py") ||
		file_read(entry->fts_path, PYTHON_AST_BYTES, text, &err) < 0)
		return false;
	if (!utf8_valid(text->data, text->length)) {
		buffer_free(text);
		return false;
	}
	batch->paths[batch->count++] = xstrdup(entry->fts_path);
	batch->bytes += text->length;
	return true;
}

static void both_readers_agree_on_the_standard_library(void **state)
{
	const char *argv[] = {python(), "-c", "import os; print(os.path.dirname(os.__file__), end='')", NULL};
	struct error err;
	char *library = process_ask(argv, NULL, 30, &err), *const roots[] = {library, NULL};
	struct batch batch = {0};
	size_t read = 0, different = 0;
	FTSENT *entry;
	FTS *walk;

	(void)state;
	assert_non_null(library);
	walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	assert_non_null(walk);
	while ((entry = fts_read(walk))) {
		if (entry->fts_info == FTS_D &&
			(!strcmp(entry->fts_name, "site-packages") || !strcmp(entry->fts_name, "test")))
			fts_set(walk, entry, FTS_SKIP);
		read += add_to_batch(&batch, entry);
		if (batch.count == BATCH || batch.bytes >= PYTHON_AST_BYTES)
			different += compare_batch(&batch);
	}
	different += compare_batch(&batch);
	fts_close(walk);
	free(library);
	assert_int_equal(different, 0);
	assert_in_range(read, 300, 100000);
}

/* --- the rule of April --------------------------------------------------------------------------- */

/* What the rule says of the fork: "fail: detail -> remedy". The caller frees. */
static char *judge(const char *root, const char *reader)
{
	struct check_list checks = {0};
	struct error err;
	char *text;

	assert_int_equal(tree_rule_check(root, reader, CHECK_FAIL, &checks, &err), 0);
	assert_int_equal(checks.count, 1);
	assert_string_equal(checks.items[0].name, "imports.ast");
	text = xprintf("%s: %s -> %s", check_status_name(checks.items[0].status), checks.items[0].detail,
		checks.items[0].remedy ? checks.items[0].remedy : "");
	check_free(&checks);
	return text;
}

static void assert_says(const char *root, const char *reader, const char *begin, const char *part)
{
	char *said = judge(root, reader);

	if (strncmp(said, begin, strlen(begin)) || !strstr(said, part))
		fail_msg("said: %s\nwanted: %s … %s", said, begin, part);
	free(said);
}

/* Both readers say the same of it, but for what only Python can settle. */
static void assert_both_say(const char *root, const char *begin, const char *part)
{
	bool passes = !strncmp(begin, "ok", 2);

	assert_says(root, python(), begin, part);
	assert_says(root, NULL, passes ? "warn: nothing forbidden" : begin, passes ? "not checked" : part);
}

/* A file of a fork, and what the rule says of it. */
struct rule_case {
	const char *source, *begin, *part;
};

static void assert_cases(const char *root, const char *path, const struct rule_case *cases, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		put_text(root, path, cases[i].source);
		assert_both_say(root, cases[i].begin, cases[i].part);
	}
}

static void the_rule_judges_imports_and_calls(void **state)
{
	static const struct rule_case cases[] = {
		{"import ctypes", "fail: fla/a.py:1 imports ctypes", "Remove the import"},
		{"\nfrom importlib.util import find_spec", "fail: fla/a.py:2 imports importlib", ""},
		{"import torch, http.client as c", "fail", "imports http"},
		{"def f():\n import urllib.request", "fail: fla/a.py:2", "urllib"},
		{"import requests; import socket", "fail", "imports requests; fla/a.py:1 imports socket"},
		{"import paramiko, fabric", "fail", "paramiko; fla/a.py:1 imports fabric"},
		{"exec('')", "fail: fla/a.py:1 calls exec()", "Remove the call"},
		{"eval ('')\n", "fail", "calls eval()"},
		{"x = compile('', '', 'exec')", "fail", "calls compile()"},
		{"f'{__import__(\"os\")}'", "fail", "calls __import__()"},
		{"f().eval()", "fail: fla/a.py:1 calls (…).eval()", "m = f()"},
		{"os.system('')\nos.popen('')", "fail", "calls os.system(); fla/a.py:2 calls os.popen()"},
		{"os.execvp('', [])", "fail", "calls os.execvp()"},
		{"os.spawnl(0)", "fail", "calls os.spawnl()"},
		{"(subprocess\n.check_output)([])", "fail: fla/a.py:2 calls subprocess.check_output()", ""},
		{"subprocess.run(); subprocess.call(); subprocess.Popen()", "fail", "subprocess.Popen()"},
		{"f(", "fail: fla/a.py:1 is not valid Python", "Fix the syntax"},
		{"import os as o\ndef f(): o.system()",
			"warn: not sure: fla/a.py:2 calls os.system() as o.system()", "leaves it open"},
		{"def f(): r()\nfrom subprocess import run as r", "warn", "calls subprocess.run() as r()"},
		{"import builtins\nbuiltins.exec('')", "warn", "calls exec() as builtins.exec()"},
		{"from builtins import eval as e\ne('')", "warn", "calls eval() as e()"},
		{"import torch\ntorch.os.system('')", "warn", "os.system() as torch.os.system()"},
		{"from os import *", "warn", "imports all of os"},
		{"from .http import a", "warn", "a module of the fork that is named http"},
		{"from . import socket", "warn", "named socket"},
		{"from fla.ops.gla import x", "ok", ""}, /* no target file */
		{"", "ok: all 1 Python files under fla/ pass", ""},
		{"m.eval(); torch.compile(f); self.exec(); os.path.join('a'); os.getpid()", "ok", ""},
		{"def compile(): pass\nimport os, subprocess, httpx, sockets", "ok", ""},
		{"import os as o\no.getpid()\nimport subprocess\nsubprocess.getoutput", "ok", ""},
		{"# import ctypes\n'exec()'\n\"\"\"\nimport socket\n\"\"\"", "ok", ""},
		{"class A(compile): pass\n@eval\ndef exec(): pass", "ok", ""},
	};

	assert_cases(*state, "fla/a.py", cases, sizeof(cases) / sizeof(*cases));
}

static void the_rule_judges_the_five_files(void **state)
{
	static const struct rule_case cases[] = {
		{"import fla.ops.kda.chunk as c", "fail: fla/ops/quasar/gate.py:1 imports fla.ops.kda.chunk",
			"Move what you need"},
		{"from fla.ops.gla import f", "fail", "imports fla.ops.gla"},
		{"from fla.ops import gla", "warn", "not sure: fla/ops/quasar/gate.py:1 imports fla.ops.gla"},
		{"from ..kda import f", "warn", "imports fla.ops.kda.f by a relative import"},
		{"import fla.ops.glad", "warn", "imports fla.ops.glad"},
		{"# from fla.ops.gla import f\nfrom ..utils import kda", "ok", ""},
	};

	assert_cases(*state, "fla/ops/quasar/gate.py", cases, sizeof(cases) / sizeof(*cases));
}

static void the_rule_wants_five_names(void **state)
{
	static const char all[] =
		"from fla.utils import (autocast_custom_bwd, autocast_custom_fwd as f,\n"
		" autotune_cache_kwargs)\ndef f():\n from fla.utils import check_shared_mem\n";
	const char *root = *state;
	char *text = xprintf("%s from fla.utils import input_guard", all);

	put_text(root, "fla/ops/quasar/chunk.py", text);
	assert_both_say(root, "ok", "");
	free(text);
	put_text(root, "fla/ops/quasar/chunk.py", all);
	assert_both_say(root, "fail: fla/ops/quasar/chunk.py does not import input_guard from fla.utils",
		"from fla.utils import NAME");
	text = xprintf("%s# from fla.utils import input_guard,\nimport fla.utils", all);
	put_text(root, "fla/ops/quasar/chunk.py", text);
	assert_both_say(root, "fail", "does not import input_guard");
	free(text);
	text = xprintf("%sfrom ...utils import input_guard", all);
	put_text(root, "fla/ops/quasar/chunk.py", text);
	assert_both_say(root, "warn", "imports input_guard from fla.utils by * or by a relative import");
	free(text);
	put_text(root, "fla/ops/quasar/chunk.py", "from fla.utils import *");
	assert_both_say(root, "warn", "autocast_custom_bwd, autocast_custom_fwd, autotune");
}

static void all_of_a_fork_is_read(void **state)
{
	const char *root = *state;
	char *link = path_join(root, "fla/link.py"), *folder = path_join(root, "fla/folder");
	struct buffer large = {0};
	struct check_list checks = {0};
	struct error err;

	assert_int_equal(tree_rule_check(root, NULL, CHECK_FAIL, &checks, &err), 0);
	assert_int_equal(checks.items[0].status, CHECK_SKIP);
	check_free(&checks);

	put_text(root, "fla/deep/er/a.py", "import ctypes");
	put_text(root, "fla/b.pyi", "import ctypes");
	put_text(root, "c.py", "import ctypes");
	assert_both_say(root, "fail: fla/deep/er/a.py:1 imports ctypes", "such a fork scores zero");
	for (int i = 0; i < 10; i++) {
		char name[] = "fla/0.py";

		name[4] = (char)('0' + i);
		put_text(root, name, "exec()");
	}
	assert_both_say(
		root, "fail: fla/0.py:1 calls exec(); fla/1.py", "fla/3.py:1 calls exec() and 7 more");
	for (int i = 0; i < 10; i++) {
		char name[] = "fla/0.py";

		name[4] = (char)('0' + i);
		put_text(root, name, "pass");
	}
	put_text(root, "fla/deep/er/a.py", "\xff");
	assert_both_say(root, "fail: fla/deep/er/a.py is not UTF-8 text", "stays pending");
	put_text(root, "fla/deep/er/a.py", "'\\xff'");

	assert_int_equal(symlink("/etc/passwd", link), 0);
	assert_both_say(root, "warn: not sure: fla/link.py is a link that leads out", "");
	unlink(link);
	assert_int_equal(symlink("deep", folder), 0);
	assert_both_say(root, "warn: not sure: fla/folder is a link to a folder", "");
	unlink(folder);
	assert_both_say(root, "ok", "11 Python files");

	/* too large for Python, and for either */
	while (large.length <= PYTHON_AST_BYTES)
		buffer_text(&large, "a = 1\n");
	put_text(root, "fla/deep/er/a.py", large.data);
	assert_says(root, python(), "warn: nothing forbidden", "the syntax of 1 of 11 files was not checked");
	while (large.length <= 4 << 20)
		buffer_text(&large, "eval()\n");
	put_text(root, "fla/deep/er/a.py", large.data);
	assert_both_say(root, "warn: not sure: fla/deep/er/a.py is larger than 4 MiB", "");
	buffer_free(&large);
	free(link);
	free(folder);
}

static void a_python_that_does_not_work_is_done_without(void **state)
{
	const char *root = *state;

	struct buffer deep = {0};

	put_text(root, "fla/a.py", "x = 1");
	assert_says(root, "/nonexistent/python3", "warn: nothing forbidden", "Python 3.8 or later");
	assert_says(root, "/bin/false", "warn: nothing forbidden", "Python 3.8 or later");
	assert_says(root, "/bin/echo", "warn: nothing forbidden", "Python 3.8 or later");
	/* Python gives up on this one, and so our own reader has it; the next one is Python's again */
	for (int i = 0; i < 100000; i++)
		buffer_text(&deep, "-");
	buffer_text(&deep, "eval()");
	put_text(root, "fla/b.py", deep.data);
	put_text(root, "fla/c.py", "x = 2");
	buffer_free(&deep);
	assert_says(root, python(), "fail: fla/b.py:1 calls eval()",
		"the syntax of 1 of 3 files was not checked");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_reader_tells_what_is_written),
		cmocka_unit_test(errors_in_tokens_are_found),
		cmocka_unit_test(nothing_is_too_deep_or_long),
		cmocka_unit_test(both_readers_agree_on_what_is_nasty),
		cmocka_unit_test(newer_fstrings_are_refused),
		cmocka_unit_test(both_readers_agree_on_the_standard_library),
		cmocka_unit_test_setup_teardown(
			the_rule_judges_imports_and_calls, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			the_rule_judges_the_five_files, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(the_rule_wants_five_names, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(all_of_a_fork_is_read, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			a_python_that_does_not_work_is_done_without, make_directory, remove_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
