/* Connections of libgit2 to where they may lead, and nowhere else. The name is resolved here, and the very
 * address that was found good is connected to: another answer to a second question changes nothing. */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <git2/sys/stream.h>

#include "base/memory.h"
#include "fork/private.h"

/* --- which addresses ----------------------------------------------------------------------------- */

static bool in_network(const uint8_t *address, const uint8_t *network, unsigned bits)
{
	unsigned rest = bits % 8;

	return !memcmp(address, network, bits / 8) &&
		(!rest || !((address[bits / 8] ^ network[bits / 8]) >> (8 - rest)));
}

/* By IANA's registry of special-purpose addresses; multicast and what is reserved come on top. */
static bool is_public_ipv4(const uint8_t *address)
{
	static const struct {
		uint8_t network[4];
		unsigned bits;
	} special[] = {
		{{0}, 8},             /* this network */
		{{10}, 8},            /* private */
		{{100, 64}, 10},      /* carriers' own */
		{{127}, 8},           /* this machine */
		{{169, 254}, 16},     /* this link; where clouds keep their secrets */
		{{172, 16}, 12},      /* private */
		{{192, 0, 0}, 24},    /* protocols */
		{{192, 0, 2}, 24},    /* documentation */
		{{192, 88, 99}, 24},  /* relays of 6to4 */
		{{192, 168}, 16},     /* private */
		{{198, 18}, 15},      /* benchmarks */
		{{198, 51, 100}, 24}, /* documentation */
		{{203, 0, 113}, 24},  /* documentation */
		{{224}, 3},           /* multicast and reserved */
	};

	for (size_t i = 0; i < sizeof(special) / sizeof(*special); i++)
		if (in_network(address, special[i].network, special[i].bits))
			return false;
	return true;
}

/* The IPv4 address in one of IPv6 that leads there: ::ffff:0:0/96 or, by NAT64, 64:ff9b::/96. NULL: none. */
static const uint8_t *inner_ipv4(const uint8_t *address)
{
	static const uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff}, nat64[16] = {0, 0x64, 0xff, 0x9b};

	return in_network(address, mapped, 96) || in_network(address, nat64, 96) ? address + 12 : NULL;
}

/* Of IPv6 only 2000::/3 is given to networks, and parts of that are special, too. */
static bool is_public_ipv6(const uint8_t *address)
{
	static const struct {
		uint8_t network[16];
		unsigned bits;
	} special[] = {
		{{0x20, 0x01, 0x00}, 23},       /* protocols, Teredo among them */
		{{0x20, 0x01, 0x0d, 0xb8}, 32}, /* documentation */
		{{0x20, 0x02}, 16},             /* 6to4: leads to any IPv4 address */
		{{0x3f, 0xff}, 20},             /* documentation */
	};
	static const uint8_t unicast[16] = {0x20};

	if (inner_ipv4(address))
		return is_public_ipv4(inner_ipv4(address));
	for (size_t i = 0; i < sizeof(special) / sizeof(*special); i++)
		if (in_network(address, special[i].network, special[i].bits))
			return false;
	return in_network(address, unicast, 3);
}

bool reach_allows(enum fork_reach reach, const struct sockaddr *address)
{
	const uint8_t *ipv6 = (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)address)
				      ->sin6_addr;
	const uint8_t *ipv4 = (const uint8_t *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
	bool loopback;

	if (reach == FORK_REACH_ANY)
		return true;
	if (address->sa_family == AF_INET6 && inner_ipv4(ipv6))
		ipv4 = inner_ipv4(ipv6);
	else if (address->sa_family == AF_INET6)
		ipv4 = NULL;
	else if (address->sa_family != AF_INET)
		return false;
	loopback = ipv4 ? ipv4[0] == 127 : IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)(const void *)ipv6);
	return (loopback && reach == FORK_REACH_LOOPBACK) ||
		(ipv4 ? is_public_ipv4(ipv4) : is_public_ipv6(ipv6));
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
