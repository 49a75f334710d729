#include "base/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

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

	for (size_t i = 0; i < sizeof(special) / sizeof(*special); i++)
		if (in_network(address, special[i].network, special[i].bits))
			return false;
	return in_network(address, unicast, 3);
}

/* The address as one of IPv4, if that is where it leads, else NULL. */
static const uint8_t *as_ipv4(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return (const uint8_t *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
	return inner_ipv4((const uint8_t *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static bool is_internet(const struct sockaddr *address)
{
	return address->sa_family == AF_INET || address->sa_family == AF_INET6;
}

bool address_is_public(const struct sockaddr *address)
{
	if (!is_internet(address))
		return false;
	return as_ipv4(address)
		? is_public_ipv4(as_ipv4(address))
		: is_public_ipv6(
			  (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

bool address_is_loopback(const struct sockaddr *address)
{
	if (!is_internet(address))
		return false;
	return as_ipv4(address)
		? as_ipv4(address)[0] == 127
		: IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

bool address_text_is_public(const char *text)
{
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	bool is_public;

	if (getaddrinfo(text, NULL, &hints, &found))
		return false;
	is_public = address_is_public(found->ai_addr);
	freeaddrinfo(found);
	return is_public;
}
