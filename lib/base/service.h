/* service: telling systemd how a long-running process fares (sd_notify's protocol: datagrams to the socket
 * that $NOTIFY_SOCKET names). Without systemd nothing happens. */
#pragma once

/* Takes the socket and the watchdog's time from the environment, so that no child process speaks for this
 * one. To be called once, before the others. */
void service_begin(void);

/* Seconds within which systemd wants to hear SERVICE_ALIVE; 0: it does not. */
double service_watchdog(void);

#define SERVICE_READY "READY=1"
#define SERVICE_ALIVE "WATCHDOG=1"
#define SERVICE_STOPPING "STOPPING=1"

/* Sends assignments, a line each: SERVICE_READY, "STATUS=waiting for block 7". Never blocks; what cannot be
 * sent is lost. */
void service_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));
