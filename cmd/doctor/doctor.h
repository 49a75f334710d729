/* doctor: the parts of `quasar doctor`. Each adds its checks. */
#pragma once

#include "base/check.h"
#include "cli/command.h"

/* Versions, processor, memory, disk, GPU, libraries, the device that is used, git. */
void doctor_machine(const struct invocation *invocation, struct check_list *checks);

/* The Python that runs the fork, its PyTorch, and whether it imports the fork's layer, which takes as long as importing
 * PyTorch does; whether strangers' forks can be run. */
void doctor_python(const struct invocation *invocation, struct check_list *checks);

/* Wallet, workspace and fork, by what lies on this machine. */
void doctor_workspace(const struct invocation *invocation, struct check_list *checks);

/* Files that start a miner, of the workspace and of this user's and the system's process managers. */
void doctor_services(const struct invocation *invocation, struct check_list *checks);

/* The validator, asked for at most `timeout` seconds, and how the workspace's submissions stand there. */
void doctor_validator(const struct invocation *invocation, double timeout, struct check_list *checks);
