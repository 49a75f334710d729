#include "cli/report.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

static void print_check(FILE *out, const struct check *check)
{
	static const struct {
		const char *word;
		enum color color;
	} looks[] = {
		[CHECK_OK] = {"ok", COLOR_GREEN},
		[CHECK_WARN] = {"warn", COLOR_YELLOW},
		[CHECK_FAIL] = {"FAIL", COLOR_RED},
		[CHECK_SKIP] = {"skip", COLOR_DIM},
	};
	char *detail = xstrdup(check->detail);

	text_clean(detail);
	fprintf(out, "%s%-4s%s  %-18s %s\n", color(out, looks[check->status].color),
		looks[check->status].word, color(out, COLOR_NONE), check->name, detail);
	if (check->remedy)
		fprintf(out, "%25s%s\n", "", check->remedy);
	free(detail);
}

void report_check(const struct check *check, void *context)
{
	(void)context;
	print_check(stdout, check);
}

void report_problem(const struct check *check, void *context)
{
	(void)context;
	if (check->status == CHECK_WARN || check->status == CHECK_FAIL)
		print_check(stderr, check);
}
