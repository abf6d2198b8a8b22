/* Programs that forbid themselves all system calls but those of their own work, and are killed for any other: filter CASE HOW.
 * The library must not make a call that the program does not make. */
#include "check.h"
#include <aio.h>
#include <liburing.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define BLOCKS 64
#define END -1

static const char *how;

/* The calls that are permitted from now on. */
static const int of_files[] = {SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_fsync, SYS_close, SYS_exit_group, SYS_exit,
			       SYS_io_submit, SYS_io_getevents, SYS_futex, SYS_io_uring_enter, END};
static const int of_children[] = {SYS_clone, SYS_wait4, SYS_set_robust_list, SYS_rt_sigprocmask, SYS_gettid, END};
static const int of_a_loader[] = {SYS_execve, SYS_brk, SYS_mmap, SYS_mprotect, SYS_munmap, SYS_openat, SYS_newfstatat, SYS_fstat,
#ifdef __x86_64__
				  SYS_arch_prctl, SYS_access,
#endif
				  SYS_faccessat, SYS_set_tid_address, SYS_set_robust_list, SYS_rseq, SYS_prlimit64, SYS_getrandom, SYS_lseek, END};

static void install(const int *first, const int *second)
{
	static struct sock_filter code[256];
	unsigned short length = 0;
	code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	const int *lists[] = {first, second};
	for (int at = 0; at < 2; at++) {
		for (int next = 0; lists[at] != NULL && lists[at][next] != END; next++) {
			code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, lists[at][next], 0, 1);
			code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
		}
	}
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	struct sock_fprog program = {length, code};
	CHECK_IS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	if (strcmp(how, "prctl") == 0)
		CHECK_IS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
	else if (strcmp(how, "number") == 0)
		CHECK_IS(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), 0);
	else if (strcmp(how, "inline") == 0)
		CHECK_IS(kernel(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program, 0), 0);
	else if (strcmp(how, "tsync") == 0)
		CHECK_IS(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0);
	else
		CHECK_IS(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0);
}

static void writes(int fd, char letter, char *block)
{
	for (int number = 0; number < BLOCKS; number++) {
		fill(block, letter, number);
		CHECK_IS(pwrite(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
	}
}

static void reads(int fd, char letter, char *block)
{
	for (int number = 0; number < BLOCKS; number++) {
		memset(block, 0, BLOCK);
		CHECK_IS(pread(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
		CHECK(holds(block, letter, number));
	}
}

/* Requests of all kinds before the filter, of which the program hears afterwards. */
static void files(void)
{
	static struct iocb iocbs[2 * BLOCKS];
	static struct io_event events[2 * BLOCKS];
	static struct aiocb of_posix;
	struct iocb *list[2 * BLOCKS];
	char *block = aligned(BLOCK), *buffers = aligned(2 * BLOCKS * BLOCK), *more = aligned(BLOCK);
	make_file(at(0, "file"), 'a', BLOCKS);
	make_file(at(0, "cached"), 'k', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR), cached = open(at(0, "cached"), O_RDWR);
	CHECK(cached >= 0);
	writes(fd, 'b', block);
	reads(fd, 'b', block);
	io_context_t context = 0;
	CHECK_IS(io_setup(2 * BLOCKS, &context), 0);
	CHECK_IS(io_getevents(context, 0, 1, events, &(struct timespec){0}), 0);
	for (int number = 0; number < BLOCKS; number++) {
		char *buffer = buffers + (size_t)number * BLOCK, *other = buffers + (size_t)(BLOCKS + number) * BLOCK;
		fill(buffer, 'c', number);
		fill(other, 'w', number);
		io_prep_pwrite(&iocbs[number], fd, buffer, BLOCK, (off_t)number * BLOCK);
		if (number % 2 == 0)
			io_prep_pwrite(&iocbs[BLOCKS + number], cached, other, BLOCK, (off_t)number * BLOCK);
		else
			io_prep_pread(&iocbs[BLOCKS + number], cached, other, BLOCK, (off_t)number * BLOCK);
		list[2 * number] = &iocbs[number];
		list[2 * number + 1] = &iocbs[BLOCKS + number];
	}
	CHECK_IS(io_submit(context, 2 * BLOCKS, list), 2 * BLOCKS);
	of_posix = (struct aiocb){.aio_fildes = fd, .aio_buf = more, .aio_nbytes = BLOCK, .aio_offset = 0};
	int posix = strcmp(how, "tsync") != 0; /* glibc's thread for it ends by calls of its own */
	if (posix)
		CHECK_IS(aio_read(&of_posix), 0);
	while (posix && aio_error(&of_posix) == EINPROGRESS)
		usleep(1000);
	install(of_files, NULL);
	for (int got = 0, some; got < 2 * BLOCKS; got += some) {
		some = io_getevents(context, 1, 2 * BLOCKS, events, NULL);
		CHECK(some > 0);
		for (int at = 0; at < some; at++) {
			CHECK_IS((long)events[at].res, BLOCK);
			CHECK(events[at].obj >= iocbs && events[at].obj < iocbs + 2 * BLOCKS);
			CHECK(events[at].obj->data != block);
			events[at].obj->data = block; /* each comes once */
		}
	}
	if (posix) {
		CHECK_IS(aio_error(&of_posix), 0);
		CHECK_IS(aio_return(&of_posix), BLOCK);
		CHECK(holds(more, 'b', 0) || holds(more, 'c', 0));
	}
	for (int number = 1; number < BLOCKS; number += 2)
		CHECK(holds(buffers + (size_t)(BLOCKS + number) * BLOCK, 'k', number));
	reads(fd, 'c', block);
	writes(fd, 'd', block);
	CHECK_IS(fsync(fd), 0);
	reads(fd, 'd', block);
	for (int number = 0; number < BLOCKS; number++) {
		fill(buffers + (size_t)number * BLOCK, 'e', number);
		iocbs[number].data = NULL;
		list[number] = &iocbs[number];
	}
	CHECK_IS(io_submit(context, BLOCKS, list), BLOCKS);
	for (int got = 0, some; got < BLOCKS; got += some)
		CHECK((some = io_getevents(context, 1, BLOCKS, events, NULL)) > 0);
	reads(fd, 'e', block);
	CHECK_IS(pread(cached, block, BLOCK, 0), BLOCK);
	CHECK(holds(block, 'w', 0));
	CHECK_IS(read(cached, block, BLOCK), BLOCK);
	CHECK_IS(write(cached, block, BLOCK), BLOCK);
	CHECK_IS(fsync(cached), 0);
	CHECK_IS(close(cached), 0);
	CHECK_IS(close(fd), 0);
}

/* Requests of an io_uring that are in flight meanwhile, and others after it. */
static void ring(void)
{
	struct io_uring ring;
	struct io_uring_cqe *completion;
	char *block = aligned(BLOCK), *buffers = aligned(2 * BLOCKS * BLOCK);
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(io_uring_queue_init(BLOCKS, &ring, 0), 0);
	for (int round = 0; round < 2; round++) {
		for (int number = 0; number < BLOCKS; number++) {
			struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
			char *buffer = buffers + (size_t)(round * BLOCKS + number) * BLOCK;
			fill(buffer, 'd' + round, number);
			io_uring_prep_write(entry, fd, buffer, BLOCK, (off_t)number * BLOCK);
			io_uring_sqe_set_data64(entry, 1000 * round + number + 1);
		}
		CHECK_IS(io_uring_submit(&ring), BLOCKS);
		if (round == 0)
			install(of_files, NULL);
		for (int number = 0; number < BLOCKS; number++) {
			CHECK_IS(io_uring_wait_cqe(&ring, &completion), 0);
			CHECK_IS(completion->res, BLOCK);
			CHECK_IS(completion->user_data / 1000, round);
			io_uring_cqe_seen(&ring, completion);
		}
	}
	reads(fd, 'e', block);
	CHECK_IS(fsync(fd), 0);
}

/* A lock of the process stays. */
static void locked(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int ready[2], status;
	char byte, *block = aligned(BLOCK);
	make_file(at(0, "file"), 'a', BLOCKS);
	CHECK_IS(pipe(ready), 0);
	pid_t child = fork();
	if (child == 0) {
		CHECK_IS(read(ready[0], &byte, 1), 1);
		int other = open(at(0, "file"), O_RDWR);
		CHECK_IS(fcntl(other, F_SETLK, &lock), -1);
		_exit(0);
	}
	int fd = open_direct(at(0, "file"), O_RDWR);
	writes(fd, 'b', block);
	CHECK_IS(fcntl(fd, F_SETLK, &lock), 0);
	install(of_files, of_children);
	writes(fd, 'e', block);
	CHECK_IS(write(ready[1], "", 1), 1);
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
	reads(fd, 'e', block);
}

/* Strict mode: read, write and the end of the thread. */
static void strict(void)
{
	char *block = aligned(BLOCK);
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	writes(fd, 'e', block);
	if (strcmp(how, "inline") == 0)
		CHECK_IS(kernel(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0), 0);
	else if (strcmp(how, "number") == 0)
		CHECK_IS(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL), 0);
	else
		CHECK_IS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT), 0);
	CHECK_IS(read(fd, block, BLOCK), BLOCK);
	CHECK(holds(block, 'e', 0));
	CHECK_IS(write(fd, block, BLOCK), BLOCK); /* block 1 becomes a copy of block 0 */
	fill(block, 'e', 2);
	CHECK_IS(write(fd, block, BLOCK), BLOCK);
	syscall(SYS_exit, 0);
}

static void ignore(int signal)
{
	(void)signal;
}

static atomic_int rounds;

static void *works(void *argument)
{
	int fd = *(int *)argument;
	char *block = aligned(BLOCK);
	for (;;) {
		reads(fd, 'e', block);
		writes(fd, 'e', block);
		CHECK_IS(fsync(fd), 0);
		atomic_fetch_add(&rounds, 1);
	}
	return NULL;
}

/* Threads are at work meanwhile; the program handles a signal. */
static void threads(void)
{
	pthread_t thread;
	char *block = aligned(BLOCK);
	make_file(at(0, "file"), 'e', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	CHECK(signal(SIGUSR1, ignore) != SIG_ERR);
	for (int number = 0; number < 3; number++)
		CHECK_IS(pthread_create(&thread, NULL, works, &fd), 0);
	while (atomic_load(&rounds) < 6)
		sched_yield();
	install(of_files, NULL);
	int now = atomic_load(&rounds);
	while (atomic_load(&rounds) < now + 6)
		reads(fd, 'e', block);
	_exit(0);
}

/* The child has the filter of its parent. */
static void children(void)
{
	int status;
	char *block = aligned(BLOCK);
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	writes(fd, 'b', block);
	install(of_files, of_children);
	pid_t child = fork();
	if (child == 0) {
		reads(fd, 'b', block);
		writes(fd, 'e', block);
		CHECK_IS(fsync(fd), 0);
		CHECK_IS(close(fd), 0);
		_exit(0);
	}
	CHECK(child > 0);
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
	reads(fd, 'e', block);
}

/* A child has a filter, and its parent has none. */
static void only_a_child(void)
{
	int status;
	char *block = aligned(BLOCK);
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	writes(fd, 'b', block);
	pid_t child = fork();
	if (child == 0) {
		install(of_files, NULL);
		reads(fd, 'b', block);
		_exit(0);
	}
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
	for (int round = 0; round < 4; round++)
		writes(fd, 'e', block);
}

static void executes(void)
{
	extern char **environ;
	char *arguments[] = {"filter", "executed", (char *)how, NULL};
	make_file(at(0, "file"), 'a', BLOCKS);
	install(of_files, of_a_loader);
	execve("/proc/self/exe", arguments, environ);
	CHECK(!"it is executed");
}

static void executed(void)
{
	static char block[BLOCK] __attribute__((aligned(BLOCK)));
	int fd = open_direct(at(0, "file"), O_RDWR);
	reads(fd, 'a', block);
	writes(fd, 'e', block);
	CHECK_IS(fsync(fd), 0);
	CHECK_IS(close(fd), 0);
}

/* Attempts that install nothing: the program asks which kinds of filters there are, as libseccomp does. */
static void asks(void)
{
	char *block = aligned(BLOCK);
	make_file(at(0, "file"), 'a', BLOCKS);
	CHECK_IS(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL), -1);
	CHECK_IS(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL), -1);
	CHECK_IS(errno, EFAULT);
	CHECK_IS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL), -1);
	CHECK_IS(prctl(PR_GET_SECCOMP), 0);
	int fd = open_direct(at(0, "file"), O_RDWR);
	for (int round = 0; round < 4; round++)
		writes(fd, 'e', block);
}

int main(int count, char **arguments)
{
	static const struct test tests[] = {
		{"files", files}, {"strict", strict}, {"threads", threads}, {"children", children}, {"only_a_child", only_a_child},
		{"executes", executes}, {"executed", executed}, {"asks", asks}, {"ring", ring}, {"locked", locked},
	};
	CHECK_IS(count, 3);
	how = arguments[2];
	return run_named(tests, sizeof tests / sizeof *tests, arguments[1]);
}
