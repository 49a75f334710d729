/* worker: a process that tries candidates may hang, crash, answer with nonsense or give up: the candidate is named, and the
 * next one gets a new process. A shell plays the process. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tune/worker.h"

/* What it does is the number behind "MODE=" of the parameters; each process counts its requests. */
static const char script[] =
	"opened=0\n"
	"while read -r line; do\n"
	"	case $line in\n"
	"	*'\"do\":\"open\"'*)\n"
	"		case $line in *'\"device\":7'*) opened=1; echo '{}' ;;\n"
	"		*'\"device\":8'*) echo '{\"error\":\"no GPU 8\",\"status\":3,\"hint\":\"See gpus.\"}' ;;\n"
	"		*) exit 9 ;; esac ;;\n"
	"	*MODE=1*verify*|*verify*MODE=1*) echo '{}' ;;\n"
	"	*verify*) echo '{\"error\":\"it computes something else\",\"status\":1}' ;;\n"
	"	*MODE=1\\\"*'\"runs\":3'*) echo '{\"seconds\":[0.1,0.2,0.3]}' ;;\n"
	"	*'\"do\":\"count\"'*) echo '{\"count\":3}' ;;\n"
	"	*MODE=2*) sleep 1000 ;;\n"
	"	*MODE=3*) echo 'an illegal memory access' >&2; kill -SEGV $$ ;;\n"
	"	*MODE=4*) echo '{\"seconds\":[0.1,-1,0.3]}' ;;\n"
	"	*MODE=5*) echo 'what?' ;;\n"
	"	*MODE=6*) echo '{\"error\":\"the driver is gone\",\"status\":3,\"hint\":\"Restart.\"}' ;;\n"
	"	*MODE=8*) echo '{\"seconds\":[0.1,0.2,0.3],\"mhz\":1755}' ;;\n"
	"	*MODE=9\\\"*'\"runs\":3'*) echo '{\"seconds\":[0.1,0.2,0.3],\"mhz\":\"fast\"}' ;;\n"
	"	*MODE=7*) echo '{\"seconds\":[0.1,0.2]}' ;;\n"
	"	esac\n"
	"done\n";

static const char *const shell[] = {"/bin/sh", "-c", script, NULL};

static struct tune_worker *make(int device, cJSON **opening)
{
	*opening = cJSON_CreateObject();
	cJSON_AddNumberToObject(*opening, "device", device);
	return tune_worker_make(&(struct tune_worker_options){
		.argv = shell, .opening = *opening, .opening_seconds = 10, .trial_seconds = 0.5});
}

static void assert_works(struct tune_worker *worker)
{
	double seconds[3] = {0}, mhz = 0;
	struct error err = {0};

	if (tune_worker_time(worker, "MODE=1", 3, seconds, &mhz, &err) < 0)
		fail_msg("%s", err.message);
	assert_true(seconds[0] == 0.1 && seconds[2] == 0.3 && isnan(mhz));
	assert_int_equal(tune_worker_time(worker, "MODE=8", 3, seconds, &mhz, &err), 0);
	assert_true(mhz == 1755);
	assert_int_equal(tune_worker_verify(worker, "MODE=1", &err), 0);
}

static void candidates_that_fail_are_named(void **state)
{
	static const struct {
		const char *parameters, *message;
		enum status status;
	} cases[] = {
		{"MODE=2", "hangs: no answer within", STATUS_FAILED},
		{"MODE=3", "crashes: an illegal memory access", STATUS_FAILED},
		{"MODE=4", "answers with nonsense", STATUS_FAILED},
		{"MODE=5", "answers with nonsense", STATUS_FAILED},
		{"MODE=6", "the driver is gone", STATUS_ENVIRONMENT},
		{"MODE=7", "answers with nonsense", STATUS_FAILED},
		{"MODE=9", "answers with nonsense", STATUS_FAILED},
	};
	cJSON *opening;
	struct tune_worker *worker = make(7, &opening);
	double seconds[3], mhz, started = clock_elapsed();
	struct error err;

	(void)state;
	assert_works(worker);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(tune_worker_time(worker, cases[i].parameters, 3, seconds, &mhz, &err), -1);
		assert_int_equal(err.status, cases[i].status);
		assert_non_null(strstr(err.message, cases[i].message));
		assert_works(worker);
	}
	assert_int_equal(tune_worker_verify(worker, "MODE=9", &err), -1);
	assert_int_equal(err.status, STATUS_FAILED);
	assert_string_equal(err.message, "it computes something else");
	assert_works(worker);
	assert_true(clock_elapsed() - started < 300);
	tune_worker_free(worker);
	cJSON_Delete(opening);
}

/* Several open at a time, while nobody waits; then they are asked whatever they know. */
static void workers_can_be_started_ahead(void **state)
{
	struct tune_worker *workers[3];
	cJSON *openings[3];
	struct error err;

	(void)state;
	for (int i = 0; i < 3; i++) {
		workers[i] = make(i == 2 ? 8 : 7, &openings[i]);
		assert_int_equal(tune_worker_start(workers[i], &err), 0);
		assert_int_equal(tune_worker_start(workers[i], &err), 0); /* it is already */
	}
	for (int i = 0; i < 3; i++) {
		cJSON *request = cJSON_CreateObject(), *answer;

		cJSON_AddStringToObject(request, "do", "count");
		answer = tune_worker_ask(workers[i], request, &err);
		assert_int_equal(!answer, i == 2); /* there is no GPU 8 */
		assert_true(answer ? cJSON_GetObjectItem(answer, "count")->valueint == 3
				   : err.status == STATUS_ENVIRONMENT);
		cJSON_Delete(answer);
	}
	assert_works(workers[0]);
	for (int i = 0; i < 3; i++) {
		tune_worker_free(workers[i]);
		cJSON_Delete(openings[i]);
	}
}

/* What keeps all candidates from running is none's fault. */
static void a_worker_that_cannot_open_says_why(void **state)
{
	cJSON *opening;
	struct tune_worker *worker = make(8, &opening);
	double seconds[3], mhz;
	struct error err;

	(void)state;
	assert_int_equal(tune_worker_time(worker, "MODE=1", 3, seconds, &mhz, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "no GPU 8"));
	assert_string_equal(err.hint, "See gpus.");
	tune_worker_free(worker);
	cJSON_Delete(opening);
	worker = make(9, &opening);
	assert_int_equal(tune_worker_time(worker, "MODE=1", 3, seconds, &mhz, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "crashes"));
	tune_worker_free(worker);
	cJSON_Delete(opening);
	tune_worker_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(candidates_that_fail_are_named),
		cmocka_unit_test(workers_can_be_started_ahead),
		cmocka_unit_test(a_worker_that_cannot_open_says_why),
	};

	return cmocka_run_group_tests_name("worker", tests, NULL, NULL);
}
