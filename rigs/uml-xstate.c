/* ptrace(2) for a user-mode kernel on processors with AMX, to be preloaded.
 *
 * The kernel keeps 2696 bytes of the registers beyond the integer ones (arch/x86/um/user-offsets.c), as many as AVX-512 and
 * PKRU take. AMX makes them 11 KiB, and Linux takes all of them or none (EFAULT), which ends the user-mode kernel at its
 * first process. This library keeps the registers that the kernel does not know.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

long ptrace(enum __ptrace_request request, ...)
{
	static char room[1 << 16];
	va_list list;
	va_start(list, request);
	pid_t pid = va_arg(list, pid_t);
	void *address = va_arg(list, void *), *data = va_arg(list, void *);
	va_end(list);
	struct iovec *known = data, all = {room, sizeof room};
	if (request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE &&
	    syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &all) == 0 && all.iov_len > known->iov_len) {
		memcpy(room, known->iov_base, known->iov_len);
		data = &all;
	}
	/* The system call stores what it peeks; the function returns it. */
	int peeks = request >= PTRACE_PEEKTEXT && request <= PTRACE_PEEKUSER;
	long peeked = 0, result = syscall(SYS_ptrace, request, pid, address, peeks ? &peeked : data);
	return peeks && result == 0 ? peeked : result;
}
