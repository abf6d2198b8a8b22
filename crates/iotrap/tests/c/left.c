/* Programs that leave a call in the middle: left CALL WAY.
 *
 * A thread makes one call, and a signal comes at its first system call, in the next run at its second one, and so on
 * until the call has no more of them. The handler leaves the call by siglongjmp, by the cancellation of the thread, or
 * by pthread_exit. Afterwards another thread cuts, syncs and closes the file, and nothing of the library may be left.
 * A parent watches all this by ptrace: it sends the signal, and it counts the system calls of a thread that waits for
 * ever. */
#include "check.h"
#include <aio.h>
#include <setjmp.h>
#include <sys/ptrace.h>

#define BLOCKS 64
#define LARGE (16 * BLOCK)
/* Calls of a thread that waits for ever; a run that ends makes a few hundred. */
#define FOR_EVER 20000
/* The parent learns by these process ids, which do not exist, where the call begins and ends. */
#define BEGIN (INT_MAX - 1)
#define END (INT_MAX - 2)

static int fd, other;
static io_context_t context;
static char *buffer;
static struct aiocb request;
static sigjmp_buf before;
static enum { JUMP, CANCEL, LEAVE } way;

static void handler(int signal)
{
	(void)signal;
	switch (way) {
	case JUMP: siglongjmp(before, 1);
	case CANCEL: pthread_cancel(pthread_self()); return;
	case LEAVE: pthread_exit(NULL);
	}
}

static void by_pread(void)
{
	for (int block = 0; block < 4; block++)
		CHECK_IS(pread(fd, buffer, BLOCK, block * BLOCK), BLOCK);
}

static void by_preadv(void)
{
	struct iovec vectors[] = {{buffer, BLOCK}, {buffer + BLOCK, BLOCK}};
	for (int block = 0; block < 4; block++)
		CHECK_IS(preadv(fd, vectors, 2, block * BLOCK), 2 * BLOCK);
}

static void by_pwrite(void)
{
	for (int block = 0; block < 4; block++)
		CHECK_IS(pwrite(fd, buffer, BLOCK, block * BLOCK), BLOCK);
}

static void by_large(void)
{
	CHECK_IS(pread(fd, buffer, LARGE, 0), LARGE);
	CHECK_IS(pwrite(fd, buffer, LARGE, 0), LARGE);
}

static void by_growing(void)
{
	CHECK_IS(pwrite(fd, buffer, BLOCK, BLOCKS * BLOCK), BLOCK);
}

static void by_fsync(void)
{
	by_pwrite();
	CHECK_IS(fsync(fd), 0);
}

static void by_ftruncate(void)
{
	CHECK_IS(ftruncate(fd, BLOCK * BLOCKS / 2), 0);
}

static void by_truncate(void)
{
	CHECK_IS(truncate(at(0, "left"), BLOCK * BLOCKS / 2), 0);
}

static void by_open(void)
{
	int opened = open(at(0, "left"), O_RDWR | O_DIRECT | O_TRUNC);
	CHECK(opened >= 0);
}

static void by_close(void)
{
	CHECK_IS(close(fd), 0);
}

static void by_dup2(void)
{
	CHECK_IS(dup2(fd, other), other);
}

static void by_flock(void)
{
	CHECK_IS(flock(fd, LOCK_EX), 0);
}

static void by_buffered(void)
{
	int cached = open(at(0, "left"), O_RDWR);
	CHECK_IS(pwrite(cached, buffer, BLOCK, 0), BLOCK);
	CHECK_IS(close(cached), 0);
}

static void by_sendfile(void)
{
	CHECK_IS(copy_file_range(fd, &(off64_t){0}, other, &(off64_t){8 * BLOCK}, BLOCK, 0), BLOCK);
}

static void by_libaio(void)
{
	struct iocb iocbs[8], *list[8];
	struct io_event events[8];
	CHECK_IS(io_getevents(context, 0, 1, events, &(struct timespec){0}), 0);
	for (int index = 0; index < 8; index++) {
		list[index] = &iocbs[index];
		io_prep_pread(list[index], fd, buffer + index * BLOCK, BLOCK, index * BLOCK);
	}
	CHECK_IS(io_submit(context, 8, list), 8);
	CHECK_IS(io_getevents(context, 8, 8, events, NULL), 8);
}

static void by_posix_aio(void)
{
	request = (struct aiocb){.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = BLOCK};
	const struct aiocb *list[] = {&request};
	CHECK_IS(aio_read(&request), 0);
	while (aio_error(&request) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	CHECK_IS(aio_return(&request), BLOCK);
}

static void by_list(void)
{
	request = (struct aiocb){.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = BLOCK, .aio_lio_opcode = LIO_READ};
	struct aiocb *list[] = {&request};
	if (lio_listio(LIO_WAIT, list, 1, NULL) == 0)
		CHECK_IS(aio_return(&request), BLOCK);
}

/* Nothing is under way: the call waits until a signal comes, or its time is over. */
static void by_waiting(void)
{
	struct io_event event;
	io_getevents(context, 1, 1, &event, &(struct timespec){.tv_nsec = 1000000});
}

static const struct test calls[] = {
	{"pread", by_pread},         {"preadv", by_preadv},     {"pwrite", by_pwrite},       {"large", by_large},
	{"growing", by_growing},     {"fsync", by_fsync},       {"ftruncate", by_ftruncate}, {"truncate", by_truncate},
	{"open", by_open},           {"close", by_close},       {"dup2", by_dup2},           {"flock", by_flock},
	{"buffered", by_buffered},   {"sendfile", by_sendfile}, {"libaio", by_libaio},       {"posix_aio", by_posix_aio},
	{"list", by_list},           {"waiting", by_waiting},
};
#define CALLS (sizeof calls / sizeof *calls)

/* The descriptors that are still open of the file. */
static int open_files(void)
{
	int count = 0;
	char path[PATH_MAX];
	DIR *directory = opendir("/proc/self/fd");
	CHECK(directory != NULL);
	for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
		ssize_t length = readlinkat(dirfd(directory), entry->d_name, path, sizeof path - 1);
		path[length < 0 ? 0 : length] = 0;
		char *name = strrchr(path, '/');
		count += name != NULL && strcmp(name, "/left") == 0;
	}
	closedir(directory);
	return count;
}

static void watched(void)
{
	CHECK_IS(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
	CHECK_IS(kernel(SYS_tgkill, getpid(), kernel(SYS_gettid, 0, 0, 0, 0), SIGSTOP, 0), 0);
}

static void mark(int place)
{
	CHECK_IS(kernel(SYS_getpgid, place, 0, 0, 0), -ESRCH);
}

static void *leaver(void *name)
{
	watched();
	if (sigsetjmp(before, 1) == 0) {
		mark(BEGIN);
		run_named(calls, CALLS, name);
	}
	mark(END);
	return NULL;
}

static void run(char *name)
{
	pthread_t thread;
	make_file(at(0, "left"), 'a', BLOCKS);
	fd = open_direct(at(0, "left"), O_RDWR);
	other = open_direct(at(0, "left"), O_RDWR);
	/* Every lane has been written. */
	for (int block = 0; block < 8; block++) {
		fill(buffer, 'a', block);
		CHECK_IS(pwrite(fd, buffer, BLOCK, block * BLOCK), BLOCK);
	}
	CHECK_IS(io_setup(16, &context), 0);
	CHECK(signal(SIGUSR1, handler) != SIG_ERR);
	watched();
	CHECK_IS(pthread_create(&thread, NULL, leaver, name), 0);
	CHECK_IS(pthread_join(thread, NULL), 0);
	mark(END);
	CHECK_IS(io_destroy(context), 0);
	while (aio_error(&request) == EINPROGRESS)
		;
	aio_return(&request);
	CHECK_IS(ftruncate(other, BLOCKS * BLOCK), 0);
	CHECK_IS(fsync(other), 0);
	CHECK_IS(pwrite(other, buffer, BLOCK, 0), BLOCK);
	/* The program does not know all its numbers any more. */
	for (int number = 3; number < 64; number++)
		close(number);
	CHECK_IS(open_files(), 0);
	_exit(0);
}

struct seen {
	pid_t id;
	long count;
	int begun;
};

/* Runs the call, with a signal at the system call of that number. Returns 1 if the call has that many. */
static int once(char *name, long number)
{
	struct seen threads[16] = {{0}};
	int status, sent = 0, ended = 0;
	pid_t child = fork(), id;
	CHECK(child >= 0);
	if (child == 0)
		run(name);
	while ((id = waitpid(-1, &status, __WALL)) > 0) {
		struct seen *thread = threads;
		while (thread->id != 0 && thread->id != id)
			CHECK(++thread < threads + 16);
		if (!WIFSTOPPED(status)) {
			if (id == child) {
				CHECK(WIFEXITED(status));
				CHECK_IS(WEXITSTATUS(status), 0);
				return sent;
			}
			continue;
		}
		long pass = 0;
		if (thread->id == 0) {
			thread->id = id;
			CHECK_IS(ptrace(PTRACE_SETOPTIONS, id, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
		} else if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			struct __ptrace_syscall_info info;
			CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, id, sizeof info, &info) > 0);
			if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
				int marks = info.entry.nr == SYS_getpgid;
				if (marks && info.entry.args[0] == BEGIN) {
					thread->begun = 1;
					thread->count = -1;
				}
				if (info.entry.nr == SYS_rt_sigaction) {
					CHECK_IS(ptrace(PTRACE_SYSCALL, id, NULL, 0), 0);
					continue; /* the library looks at all signals: one like the other */
				}
				ended |= marks && info.entry.args[0] == END;
				if (thread->begun && !ended && thread->count == number && !sent) {
					CHECK_IS(kernel(SYS_tgkill, child, id, SIGUSR1, 0), 0);
					sent = 1;
				}
				if (++thread->count > FOR_EVER) {
					dprintf(2, "%s, signal at system call %ld: a thread waits for ever\n", name, number);
					_exit(1);
				}
			}
		} else {
			pass = WSTOPSIG(status);
		}
		CHECK_IS(ptrace(PTRACE_SYSCALL, id, NULL, pass), 0);
	}
	CHECK(!"the child has ended");
	return 0;
}

int main(int count, char **arguments)
{
	CHECK_IS(count, 3);
	way = strcmp(arguments[2], "jump") == 0 ? JUMP : strcmp(arguments[2], "cancel") == 0 ? CANCEL : LEAVE;
	buffer = aligned(LARGE);
	long number = 0;
	while (once(arguments[1], number))
		number++;
	printf("%s %s: %ld system calls\n", arguments[1], arguments[2], number);
	return 0;
}
