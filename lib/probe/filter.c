#include "probe/filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "which architecture does seccomp call this?"
#endif

#define FOREIGN_CALLS 0x40000000 /* from here on, x86-64 has the numbers of another ABI for the same calls */

static const unsigned missing_calls[] = {
	/* keys of the user who validates */
	SYS_add_key, SYS_keyctl, SYS_request_key,
	/* memory that is no process's */
	SYS_memfd_create, SYS_memfd_secret, SYS_shmget, SYS_msgget, SYS_semget, SYS_vmsplice,
	/* doors into the kernel */
	SYS_bpf, SYS_io_uring_enter, SYS_io_uring_register, SYS_io_uring_setup, SYS_perf_event_open,
	SYS_userfaultfd};

/* Those that a network namespace, which is empty, does hold back. */
static const unsigned socket_families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};

#define COUNT(list) (sizeof(list) / sizeof(*(list)))
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define SKIP_UNLESS(relation, value) BPF_JUMP(BPF_JMP | (relation) | BPF_K, value, 0, 1)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define REFUSE(reason) RETURN(SECCOMP_RET_ERRNO | (reason))

static size_t make_filter(struct sock_filter *out)
{
	const struct sock_filter begin[] = {LOAD(arch),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0), RETURN(SECCOMP_RET_KILL_PROCESS),
		LOAD(nr), SKIP_UNLESS(BPF_JGE, FOREIGN_CALLS), REFUSE(ENOSYS)};
	const struct sock_filter socket[] = {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0),
		RETURN(SECCOMP_RET_ALLOW), LOAD(args[0])};
	size_t count = 0;

	for (size_t i = 0; i < COUNT(begin); i++)
		out[count++] = begin[i];
	for (size_t i = 0; i < COUNT(missing_calls); i++) {
		out[count++] = (struct sock_filter)SKIP_UNLESS(BPF_JEQ, missing_calls[i]);
		out[count++] = (struct sock_filter)REFUSE(ENOSYS);
	}
	for (size_t i = 0; i < COUNT(socket); i++)
		out[count++] = socket[i];
	for (size_t i = 0; i < COUNT(socket_families); i++) {
		out[count++] = (struct sock_filter)SKIP_UNLESS(BPF_JEQ, socket_families[i]);
		out[count++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
	}
	out[count++] = (struct sock_filter)REFUSE(EAFNOSUPPORT);
	return count;
}

int filter_open(struct error *err)
{
	struct sock_filter filter[16 + 2 * (COUNT(missing_calls) + COUNT(socket_families))];
	size_t bytes = make_filter(filter) * sizeof(*filter);
	int fd = memfd_create("filter", MFD_CLOEXEC);

	if (fd >= 0 && write(fd, filter, bytes) == (ssize_t)bytes && lseek(fd, 0, SEEK_SET) == 0)
		return fd;
	error_set(err, STATUS_ENVIRONMENT, "cannot make the filter of a sandbox: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}
