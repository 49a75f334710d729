#include "base/service.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address; /* sun_path empty: nobody listens */
static socklen_t address_length;
static double watchdog_seconds;

void service_begin(void)
{
	const char *path = getenv("NOTIFY_SOCKET"), *micro = getenv("WATCHDOG_USEC");
	const char *process = getenv("WATCHDOG_PID");

	if (path && (path[0] == '/' || path[0] == '@') && strlen(path) < sizeof(address.sun_path)) {
		address.sun_family = AF_UNIX;
		memcpy(address.sun_path, path, strlen(path));
		address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
		if (path[0] == '@') /* a name in the abstract namespace */
			address.sun_path[0] = '\0';
	}
	if (address_length && micro && (!process || atol(process) == getpid()))
		watchdog_seconds = strtod(micro, NULL) * 1e-6;
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

double service_watchdog(void)
{
	return watchdog_seconds;
}

void service_notify(const char *format, ...)
{
	char text[1024];
	va_list args;
	int fd;

	if (!address_length)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	sendto(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address,
		address_length);
	close(fd);
}
