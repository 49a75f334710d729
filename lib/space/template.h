/* template: the files that `quasar init` writes. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "space/fork.h"

/* A self-contained fork: the five target files, a layer that runs in PyTorch, a .cu, a README. */
extern const struct fork_file template_fork[];
extern const size_t template_fork_count;

/* The .cu of that fork, for a fork that has none. */
extern const struct fork_file template_cuda;

/* What starts a miner under pm2, systemd or screen; the paths are relative to the workspace. */
struct template_service {
	const char *path, *text;
	mode_t permissions;
	const char *percent, *dollar, *backtick; /* how the file writes these inside double quotes */
};
extern const struct template_service template_services[];
extern const size_t template_service_count;

struct template_values {
	const char *program, *workspace;
	const char *name; /* what the process manager calls the miner: letters that need no quotes anywhere */
	const char *path; /* $PATH */
};

/* The text with its places for the values filled in. The caller frees. */
char *template_fill(const struct template_service *service, const struct template_values *values);
