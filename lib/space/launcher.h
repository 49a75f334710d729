/* launcher: what starts a miner, and its inference server, under pm2, systemd or screen. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* A file of the workspace; its path is relative to it. */
struct launcher {
	const char *path, *text;
	mode_t permissions;
	const char *percent, *dollar, *backtick; /* how the file writes these inside double quotes */
};
enum launcher_kind {
	LAUNCHER_PM2,
	LAUNCHER_SYSTEMD,
	LAUNCHER_SCREEN,
	LAUNCHER_INFERENCE_PM2,
	LAUNCHER_INFERENCE_SYSTEMD,
	LAUNCHER_KINDS
};
extern const struct launcher launchers[LAUNCHER_KINDS];

struct launcher_values {
	const char *program, *workspace;
	const char *name; /* what the process manager calls the miner: letters that need no quotes anywhere */
	const char *path; /* $PATH */
};

/* The text with its places for the values filled in. The caller frees. */
char *launcher_fill(const struct launcher *launcher, const struct launcher_values *values);

/* The absolute path of the program that such a file starts, also where somebody has edited it; NULL: it starts none, or
 * one that only the process manager can tell. The caller frees. */
char *launcher_program(const struct launcher *launcher, const char *text);
