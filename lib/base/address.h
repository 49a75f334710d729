/* address: what an address of the internet leads to. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

/* Whether it is of IPv4 or IPv6, and the whole internet knows it. */
bool address_is_public(const struct sockaddr *address);
/* Whether it is this machine's own, as 127.0.0.1. */
bool address_is_loopback(const struct sockaddr *address);

/* address_is_public() for its numeric text. */
bool address_text_is_public(const char *text);
