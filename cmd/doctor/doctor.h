/* doctor: the parts of `quasar doctor`. Each adds its checks; none of them waits longer than a few seconds. */
#pragma once

#include "base/check.h"
#include "cli/command.h"

/* Versions, processor, memory, disk, GPU, libraries, the device that is used, Python and git. */
void doctor_machine(const struct invocation *invocation, struct check_list *checks);

/* Wallet, workspace and fork, by what lies on this machine. */
void doctor_workspace(const struct invocation *invocation, struct check_list *checks);

/* The validator, asked for at most `timeout` seconds, and how the workspace's submissions stand there. */
void doctor_validator(const struct invocation *invocation, double timeout, struct check_list *checks);
