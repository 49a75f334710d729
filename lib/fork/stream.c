/* Connections of libgit2 to where they may lead, and nowhere else. The name is resolved here, and the very
 * address that was found good is connected to: another answer to a second question changes nothing. */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <git2/sys/stream.h>

#include "base/address.h"
#include "base/memory.h"
#include "fork/private.h"

/* --- which addresses ----------------------------------------------------------------------------- */

bool reach_allows(enum fork_reach reach, const struct sockaddr *address)
{
	return reach == FORK_REACH_ANY || address_is_public(address) ||
		(reach == FORK_REACH_LOOPBACK && address_is_loopback(address));
}

/* --- the stream ---------------------------------------------------------------------------------- */

struct stream {
	git_stream parent;
	char *host, *port;
	int socket;
};

/* libgit2's streams are made with no word about what for. The process has one job, so this is one, too. */
static enum fork_reach allowed;

/* A socket connected to one of the addresses; -1, with libgit2's error set. */
static int connect_to(const struct addrinfo *addresses, const char *host)
{
	bool tried = false;

	for (const struct addrinfo *at = addresses; at; at = at->ai_next) {
		int fd;

		if (!reach_allows(allowed, at->ai_addr))
			continue;
		tried = true;
		fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
		if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0)
			return fd;
		if (fd >= 0)
			close(fd);
	}
	git_error_set(GIT_ERROR_NET, tried ? "failed to connect to %s" : "%s has " NO_PUBLIC_ADDRESS, host);
	return -1;
}

static int stream_connect(git_stream *parent)
{
	struct stream *stream = (struct stream *)parent;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *addresses = NULL;
	int code = getaddrinfo(stream->host, stream->port, &hints, &addresses);

	if (code) {
		git_error_set(GIT_ERROR_NET, "failed to resolve %s: %s", stream->host, gai_strerror(code));
		return -1;
	}
	stream->socket = connect_to(addresses, stream->host);
	freeaddrinfo(addresses);
	return stream->socket < 0 ? -1 : 0;
}

static ssize_t stream_read(git_stream *parent, void *data, size_t length)
{
	ssize_t got = recv(((struct stream *)parent)->socket, data, length, 0);

	if (got < 0)
		git_error_set(GIT_ERROR_NET, "lost the connection: %s", strerror(errno));
	return got;
}

static ssize_t stream_write(git_stream *parent, const char *data, size_t length, int flags)
{
	ssize_t sent = send(((struct stream *)parent)->socket, data, length, flags | MSG_NOSIGNAL);

	if (sent < 0)
		git_error_set(GIT_ERROR_NET, "lost the connection: %s", strerror(errno));
	return sent;
}

static int stream_close(git_stream *parent)
{
	struct stream *stream = (struct stream *)parent;

	if (stream->socket >= 0)
		close(stream->socket);
	stream->socket = -1;
	return 0;
}

static void stream_free(git_stream *parent)
{
	struct stream *stream = (struct stream *)parent;

	stream_close(parent);
	free(stream->host);
	free(stream->port);
	free(stream);
}

static int stream_new(git_stream **out, const char *host, const char *port)
{
	struct stream *stream = xcalloc(1, sizeof(*stream));
	size_t length = strlen(host);
	bool bracketed = length > 1 && host[0] == '[' && host[length - 1] == ']';

	stream->parent = (git_stream){
		.version = GIT_STREAM_VERSION,
		.connect = stream_connect,
		.read = stream_read,
		.write = stream_write,
		.close = stream_close,
		.free = stream_free,
	};
	stream->host = bracketed ? xprintf("%.*s", (int)length - 2, host + 1) : xstrdup(host);
	stream->port = xstrdup(port);
	stream->socket = -1;
	*out = &stream->parent;
	return 0;
}

void reach_bound(enum fork_reach reach)
{
	git_stream_registration plain = {.version = GIT_STREAM_VERSION, .init = stream_new};

	allowed = reach;
	if (reach != FORK_REACH_ANY)
		git_stream_register(GIT_STREAM_STANDARD, &plain); /* TLS lies on top of it */
}
