/* cgroup: a bound on how many processes a program runs, which the kernel keeps. Only who may write to cgroups can have
 * one, which is root; everybody else has RLIMIT_NPROC, which root is exempt from. */
#pragma once

/* Makes a group that runs so many processes and threads at most. The path of its cgroup.procs: who writes a process's
 * number there puts it in, with all that it will start. NULL where none can be made; the caller frees, after
 * cgroup_remove(). */
char *cgroup_make(long tasks);

/* Its processes must have ended. NULL is fine. */
void cgroup_remove(const char *procs);
