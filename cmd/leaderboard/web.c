/* leaderboard --web: the same as a page, for a browser on this machine. The validator is asked here, once for all who
 * look; while it does not answer, the page keeps what it told last. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/board.h"
#include "cli/browser.h"
#include "cmd/leaderboard/leaderboard.h"
#include "net/fields.h"
#include "net/server.h"
#include "web/html.h"

#define LOOK_SECONDS 5.0 /* that a look at the validator may take at the least */

struct web {
	pthread_mutex_t mutex;
	struct board board; /* guarded by it */
};

static bool check_local(struct server_request *request, struct server_reply *reply, void *context)
{
	(void)context;
	if (server_is_local(request))
		return true;
	server_refuse(reply, 403, "This page is for the user of this machine");
	return false;
}

static int handle_page(
	const struct server_request *request, struct server_reply *reply, void *context, struct error *err)
{
	static const struct field_rules any;
	struct web *web = context;
	struct fields fields = fields_query(request, &any);
	int64_t page = fields_integer_or(&fields, "page", 1);
	struct buffer html = {0};

	(void)err;
	if (fields_refused(&fields, reply))
		return 0;
	pthread_mutex_lock(&web->mutex);
	board_html(&web->board, page > 1 ? (size_t)page : 1, "", &html);
	pthread_mutex_unlock(&web->mutex);
	reply->page = html.data;
	reply->policy = html_policy();
	return 0;
}

static const struct server_route routes[] = {
	{"GET", "/", false, check_local, handle_page},
	{0},
};

/* Takes what came, or that nothing did. */
static void update(struct web *web, struct board *fresh, const struct error *problem, double begun)
{
	pthread_mutex_lock(&web->mutex);
	if (problem) {
		free(web->board.problem);
		web->board.problem = xstrdup(problem->message);
		web->board.since = web->board.now > 0 ? web->board.now : begun;
		board_free(fresh);
	} else {
		board_free(&web->board);
		web->board = *fresh;
	}
	pthread_mutex_unlock(&web->mutex);
}

/* Ends with an interruption, or at once when the validator shows nothing to whoever asks here. */
static int watch(struct web *web, struct api *api, const char *own, double interval, struct error *err)
{
	double begun = clock_now();
	bool told = false;

	do {
		struct board fresh;
		int result = board_ask(api, own, &fresh, err);

		update(web, &fresh, result < 0 ? err : NULL, begun);
		if (result < 0 &&
			(err->status == STATUS_INTERRUPTED || (err->status == STATUS_REFUSED && !told)))
			return -1;
		told |= !result;
	} while (clock_sleep(interval, err) == 0);
	return -1;
}

static void announce(const struct invocation *invocation, const struct server *server)
{
	if (invocation->json)
		printf("{\"url\":\"%s/\",\"port\":%u}\n", server_url(server), server_port(server));
	else
		printf("The leaderboard is at %s/. Press Ctrl-C to stop.\n", server_url(server));
	fflush(stdout);
}

int leaderboard_serve(
	const struct invocation *invocation, struct api *api, const char *own, struct error *err)
{
	struct web web = {.mutex = PTHREAD_MUTEX_INITIALIZER, .board.to_beat = NAN};
	struct server_options options = {.routes = routes, .context = &web};
	struct server *server;
	double interval = 0;
	int64_t port = 0;
	char *url;

	if (arg_integer(invocation, "port", 0, 65535, &port, err) < 0 ||
		arg_real(invocation, "interval", 1, 86400, &interval, err) < 0)
		return -1;
	options.port = (unsigned)port;
	server = server_start(&options, err);
	if (!server)
		return -1;
	announce(invocation, server);
	web.board.name = xstrdup(api_url(api));
	api_set_timeout(api, fmax(interval, LOOK_SECONDS));
	url = xprintf("%s/", server_url(server));
	if (arg_flag(invocation, "open") && browser_open(url, err) < 0)
		log_warn("%s", err->message);
	watch(&web, api, own, interval, err);
	server_stop(server);
	board_free(&web.board);
	free(url);
	return -1;
}
