/* Runs a target and kills it, as kill -9 does, before a system call of a save.
 *
 * die_at N THREAD PROGRAM ARGUMENT...: counts the system calls of the threads of that name (up to 15 characters, as the
 * kernel keeps it) from their first openat(2) on, and kills the program before call N. The exit status is 9 if it did
 * so, and else that of the program. */

#include <errno.h>
#include <fcntl.h>
#include <linux/ptrace.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define ptrace(request, pid, at, data) syscall(SYS_ptrace, (long)(request), (long)(pid), (void *)(at), (void *)(data))

static int has_name(pid_t program, pid_t thread, const char *wanted)
{
	char path[64], name[32] = "";
	snprintf(path, sizeof path, "/proc/%d/task/%d/comm", program, thread);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return 0;
	ssize_t bytes = read(file, name, sizeof name - 1);
	close(file);
	name[strcspn(name, "\n")] = 0;
	return bytes > 0 && strcmp(name, wanted) == 0;
}

int main(int count, char **words)
{
	if (count < 4)
		return 2;
	long deadly = atol(words[1]), calls = 0;
	pid_t program = fork();
	if (program == 0) {
		raise(SIGSTOP);
		execv(words[3], words + 3);
		_exit(127);
	}
	int status;
	if (program < 0 || waitpid(program, &status, WUNTRACED) != program)
		return 2;
	long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
	if (ptrace(PTRACE_SEIZE, program, 0, options) != 0) {
		perror("ptrace");
		return 2;
	}
	kill(program, SIGCONT);
	for (;;) {
		pid_t thread = waitpid(-1, &status, __WALL);
		if (thread < 0)
			return errno == EINTR ? 1 : 2;
		if (!WIFSTOPPED(status)) {
			if (thread != program)
				continue;
			return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
		}
		long deliver = 0;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			struct ptrace_syscall_info info = {0};
			ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
			int begins = info.op == PTRACE_SYSCALL_INFO_ENTRY && has_name(program, thread, words[2]);
			if (begins && (calls > 0 || info.entry.nr == SYS_openat) && ++calls == deadly)
				kill(program, SIGKILL);
		} else if (status >> 16 == 0) {
			deliver = WSTOPSIG(status);
		}
		ptrace(PTRACE_SYSCALL, thread, 0, deliver);
	}
}
