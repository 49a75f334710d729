/* report: checks, as they are made, a line each. */
#pragma once

#include "base/check.h"

/* For check_list.report: on stdout; or, for commands whose output is something else, on stderr and only
 * those that do not pass. */
check_report report_check, report_problem;
