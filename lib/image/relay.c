#include "image/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

struct relay {
	int namespace, listener, stop; /* `stop`: an eventfd */
	struct sockaddr_in there;      /* in the namespace */
	int reason; /* why its thread could not enter the namespace: an errno; 0: it is there */
	pthread_barrier_t entered;
	pthread_t thread;
	bool runs;
};

/* What goes from one end of a connection to the other. */
struct way {
	int from, to;
	bool ended;
	size_t start, length; /* of what was read and not yet written */
	char data[1 << 16];
};

static struct sockaddr_in loopback(int port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static struct pollfd way_wait(const struct way *way)
{
	if (way->length)
		return (struct pollfd){.fd = way->to, .events = POLLOUT};
	return (struct pollfd){.fd = way->ended ? -1 : way->from, .events = POLLIN};
}

/* Takes the next step, which will not wait. -1: the connection has failed. */
static int way_go(struct way *way)
{
	ssize_t count;

	if (way->length) {
		count = send(way->to, way->data + way->start, way->length, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (count < 0)
			return errno == EAGAIN ? 0 : -1;
		way->start += (size_t)count;
		way->length -= (size_t)count;
		return 0;
	}
	count = recv(way->from, way->data, sizeof(way->data), MSG_DONTWAIT);
	if (count < 0)
		return errno == EAGAIN ? 0 : -1;
	way->start = 0;
	way->length = (size_t)count;
	if (!count) {
		way->ended = true;
		shutdown(way->to, SHUT_WR);
	}
	return 0;
}

/* Until both ends have ended, one has failed, or the relay is to stop: then false. */
static bool carry(const struct relay *relay, int here, int there)
{
	struct way *ways = xcalloc(2, sizeof(*ways));
	bool fine = true, stopped = false;

	ways[0].from = ways[1].to = here;
	ways[0].to = ways[1].from = there;
	while (fine && !stopped && !(ways[0].ended && ways[1].ended)) {
		struct pollfd waits[] = {
			{.fd = relay->stop, .events = POLLIN}, way_wait(&ways[0]), way_wait(&ways[1])};

		if (poll(waits, 3, -1) < 0)
			continue;
		stopped = waits[0].revents;
		for (int i = 0; i < 2 && fine; i++)
			fine = !waits[i + 1].revents || way_go(&ways[i]) == 0;
	}
	free(ways);
	return !stopped;
}

/* A connection that nobody takes there is closed at once. */
static bool lead(const struct relay *relay, int here)
{
	int there = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool goes_on = true;

	if (there >= 0 && connect(there, (const struct sockaddr *)&relay->there, sizeof(relay->there)) == 0)
		goes_on = carry(relay, here, there);
	if (there >= 0)
		close(there);
	close(here);
	return goes_on;
}

static void *work(void *context)
{
	struct relay *relay = context;
	struct pollfd waits[] = {
		{.fd = relay->stop, .events = POLLIN}, {.fd = relay->listener, .events = POLLIN}};
	bool goes_on = setns(relay->namespace, CLONE_NEWNET) == 0; /* this thread alone */

	relay->reason = goes_on ? 0 : errno;
	pthread_barrier_wait(&relay->entered);
	while (goes_on) {
		int here = -1;

		if (poll(waits, 2, -1) > 0 && !waits[0].revents)
			here = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC);
		goes_on = !waits[0].revents && (here < 0 || lead(relay, here));
	}
	return NULL;
}

static int listen_here(struct relay *relay)
{
	const struct sockaddr_in address = loopback(0);

	relay->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (relay->listener < 0 ||
		bind(relay->listener, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -1;
	return listen(relay->listener, 8);
}

static int start(struct relay *relay)
{
	int reason = pthread_create(&relay->thread, NULL, work, relay);

	if (!reason) {
		relay->runs = true;
		pthread_barrier_wait(&relay->entered);
		reason = relay->reason;
	}
	errno = reason;
	return reason ? -1 : 0;
}

/* A process that has ended may have lent its number to one on the outside. */
static bool is_ours(int namespace)
{
	struct stat theirs, ours;

	return fstat(namespace, &theirs) < 0 || stat("/proc/self/ns/net", &ours) < 0 ||
		theirs.st_ino == ours.st_ino;
}

struct relay *relay_open(pid_t pid, int port, struct error *err)
{
	struct relay *relay = xcalloc(1, sizeof(*relay));
	char *path = xprintf("/proc/%d/ns/net", (int)pid);
	bool gone;

	*relay = (struct relay){.listener = -1, .there = loopback(port)};
	pthread_barrier_init(&relay->entered, NULL, 2);
	relay->namespace = open(path, O_RDONLY | O_CLOEXEC);
	gone = relay->namespace < 0 && errno == ENOENT;
	relay->stop = eventfd(0, EFD_CLOEXEC);
	if (gone || (relay->namespace >= 0 && is_ours(relay->namespace))) {
		error_set(err, STATUS_FAILED, "it is not apart from this machine's network, or has ended");
		relay_close(relay);
		relay = NULL;
	} else if (relay->namespace < 0 || relay->stop < 0 || listen_here(relay) < 0 || start(relay) < 0) {
		int reason = errno;

		error_set(err, STATUS_ENVIRONMENT, "cannot enter the network of the container (%s): %s", path,
			strerror(reason));
		if (reason == EPERM || reason == EACCES)
			error_hint(err, "Only root may: run this as root.");
		relay_close(relay);
		relay = NULL;
	}
	free(path);
	return relay;
}

int relay_port(const struct relay *relay)
{
	struct sockaddr_in address = {0};
	socklen_t size = sizeof(address);

	getsockname(relay->listener, (struct sockaddr *)&address, &size);
	return ntohs(address.sin_port);
}

static void close_if_open(int file)
{
	if (file >= 0)
		close(file);
}

void relay_close(struct relay *relay)
{
	if (!relay)
		return;
	if (relay->runs) {
		eventfd_write(relay->stop, 1);
		pthread_join(relay->thread, NULL);
	}
	close_if_open(relay->listener);
	close_if_open(relay->namespace);
	close_if_open(relay->stop);
	pthread_barrier_destroy(&relay->entered);
	free(relay);
}
