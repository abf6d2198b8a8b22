/* Programs whose system calls do not pass through libc, under --raw: raw NAME. Descriptors come and go by inline calls, and
 * requests are inline calls; threads, children, signals and stacks are as they are without the library. */
#include "unseen.h"
#include <linux/sched.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <threads.h>
#include <ucontext.h>

#define BLOCKS 64

static char *blocks;

static int inline_open(const char *path, int flags)
{
	int fd = (int)kernel(SYS_openat, AT_FDCWD, (long)path, flags, 0600);
	CHECK(fd >= 0);
	return fd;
}

/* Reads blocks by inline calls, which hold a letter. */
static void reads(int fd, char letter, int count, char *block)
{
	for (int number = 0; number < count; number++) {
		memset(block, 0, BLOCK);
		CHECK_IS(kernel(SYS_pread64, fd, (long)block, BLOCK, (long)number * BLOCK), BLOCK);
		CHECK(holds(block, letter, number));
	}
}

/* Numbers that come to mean another file by inline calls, with requests by inline calls. */
static void files(void)
{
	char *block = aligned(BLOCK);
	make_file(at(0, "first"), 'f', BLOCKS);
	make_file(at(0, "second"), 's', BLOCKS);
	for (int round = 0; round < 4; round++) {
		int fd = inline_open(at(0, "first"), O_RDWR | O_DIRECT);
		errno = 4711;
		reads(fd, 'f', BLOCKS, block);
		for (int number = 0; number < BLOCKS; number++) {
			fill(block, 'f', number);
			CHECK_IS(kernel(SYS_pwrite64, fd, (long)block, BLOCK, (long)number * BLOCK), BLOCK);
		}
		CHECK_IS(kernel(SYS_fsync, fd, 0, 0, 0), 0);
		CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
		CHECK_IS(inline_open(at(0, "second"), O_RDWR | O_DIRECT), fd);
		reads(fd, 's', BLOCKS, block);
		int other = inline_open(at(0, "first"), O_RDWR | O_DIRECT);
		CHECK_IS(kernel(SYS_dup3, other, fd, O_CLOEXEC, 0), fd);
		reads(fd, 'f', BLOCKS, block);
		CHECK_IS(kernel(SYS_close_range, fd, other, 0, 0), 0);
		CHECK_IS(kernel(SYS_pread64, fd, (long)block, BLOCK, 0), -EBADF);
		CHECK_IS(errno, 4711); /* an inline call leaves it alone */
	}
	CHECK_IS(kernel(SYS_openat, AT_FDCWD, (long)"/no/such/file", O_RDONLY, 0), -ENOENT);
}

static void *in_a_thread(void *argument)
{
	char *block = aligned(BLOCK);
	int fd = inline_open(at(0, "file"), O_RDONLY | O_DIRECT);
	reads(fd, 'a', BLOCKS, block);
	CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
	if (argument != NULL)
		pthread_exit(argument);
	return block;
}

static int in_a_short_thread(void *argument)
{
	in_a_thread(NULL);
	return argument != NULL;
}

static void threads(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	for (int round = 0; round < 8; round++) {
		pthread_t all[8];
		thrd_t one;
		int result;
		for (int at = 0; at < 8; at++)
			CHECK_IS(pthread_create(&all[at], NULL, in_a_thread, at & 1 ? all : NULL), 0);
		CHECK_IS(thrd_create(&one, in_a_short_thread, &one), thrd_success);
		for (int at = 0; at < 8; at++)
			CHECK_IS(pthread_join(all[at], NULL), 0);
		CHECK_IS(thrd_join(one, &result), thrd_success);
		CHECK_IS(result, 1);
	}
}

static void ends_well(pid_t child)
{
	int status;
	CHECK(child > 0);
	CHECK_IS(kernel(SYS_wait4, child, (long)&status, __WALL, 0), child);
	CHECK_IS(status, 0);
}

/* Children by every means; each uses files by inline calls, and ends. */
static void children(void)
{
	char *block = aligned(BLOCK);
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = inline_open(at(0, "file"), O_RDWR | O_DIRECT);
	for (int way = 0; way < 7; way++) {
		struct clone_args arguments = {.exit_signal = SIGCHLD};
		reads(fd, 'a', 8, block);
		long child;
		switch (way) {
		case 0: child = fork(); break;
		case 1: child = vfork(); break;
		case 2: child = kernel(SYS_fork, 0, 0, 0, 0); break;
		case 3: child = kernel(SYS_vfork, 0, 0, 0, 0); break;
		case 4: child = kernel(SYS_clone, SIGCHLD, 0, 0, 0); break;
		case 5: child = inline6(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0, 0); break;
		default: child = kernel(SYS_clone3, (long)&arguments, sizeof arguments, 0, 0);
		}
		if (child == 0) {
			if (way != 1) {
				reads(fd, 'a', 8, block);
				int again = inline_open(at(0, "file"), O_RDONLY | O_DIRECT);
				reads(again, 'a', BLOCKS, block);
			}
			kernel(SYS_exit_group, 0, 0, 0, 0);
		}
		ends_well((pid_t)child);
		reads(fd, 'a', 8, block);
	}
	/* A program is executed by an inline call, and inherits what it should. */
	pid_t child = fork();
	if (child == 0) {
		char *arguments[] = {"raw", "files", NULL};
		kernel(SYS_execve, (long)"/proc/self/exe", (long)arguments, (long)environ, 0);
		_exit(3);
	}
	ends_well(child);
}

/* A thread by an inline clone, on its own stack: it begins behind the call, with all registers. */
static void inline_threads(void)
{
#if defined(__x86_64__)
	for (int round = 0; round < 20; round++) {
		size_t size = 65536;
		char *stack = aligned(size);
		static _Atomic int said;
		said = 0;
		static int alive;
		alive = 1;
		long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID, result;
		register long r10 __asm__("r10") = (long)&alive;
		register long r8 __asm__("r8") = 0;
		register long r12 __asm__("r12") = (long)&said;
		register long r13 __asm__("r13") = 42;
		__asm__ volatile(
			"syscall\n"
			"test %%rax, %%rax\n"
			"jnz 1f\n"
			"mov %%r13d, (%%r12)\n" /* the child: registers and memory */
			"push %%r13\n"          /* its stack */
			"pop %%r13\n"
			"mov $60, %%eax\n" /* exit */
			"xor %%edi, %%edi\n"
			"syscall\n"
			"1:\n"
			: "=a"(result)
			: "0"(SYS_clone), "D"(flags), "S"(stack + size), "d"(0), "r"(r10), "r"(r8), "r"(r12), "r"(r13)
			: "rcx", "r11", "memory");
		CHECK(result > 0);
		while (__atomic_load_n(&alive, __ATOMIC_ACQUIRE))
			sched_yield();
		CHECK_IS(said, 42);
		free(stack);
	}
#endif
}

static volatile sig_atomic_t signals;
static char *of_handler;
static int of_handlers_file;

static void handler(int number)
{
	(void)number;
	/* Inline calls, and calls of libc, with all signals blocked. */
	CHECK_IS(kernel(SYS_pread64, of_handlers_file, (long)of_handler, BLOCK, BLOCK), BLOCK);
	CHECK(holds(of_handler, 'a', 1));
	int fd = inline_open(at(0, "file"), O_RDONLY | O_DIRECT);
	CHECK_IS(pread(fd, of_handler, BLOCK, 0), BLOCK);
	CHECK_IS(close(fd), 0);
	signals++;
}

static void with_context(int number, siginfo_t *info, void *context)
{
	CHECK_IS(info->si_signo, number);
	CHECK(!sigismember(&((ucontext_t *)context)->uc_sigmask, SIGUSR2));
	handler(number);
}

static void installs(int number, int flags)
{
	struct sigaction action = {.sa_flags = flags};
	if (flags & SA_SIGINFO)
		action.sa_sigaction = with_context;
	else
		action.sa_handler = handler;
	sigfillset(&action.sa_mask);
	CHECK_IS(sigaction(number, &action, NULL), 0);
}

/* Signals in the middle of inline calls, with full masks, on another stack; masks that are set by every means. */
static void handlers(void)
{
	char *block = aligned(BLOCK);
	sigset_t all, before, after;
	stack_t stack = {.ss_sp = aligned(256 << 10), .ss_size = 256 << 10}, old;
	make_file(at(0, "file"), 'a', BLOCKS);
	of_handler = aligned(BLOCK);
	of_handlers_file = inline_open(at(0, "file"), O_RDONLY | O_DIRECT);
	int fd = inline_open(at(0, "file"), O_RDWR | O_DIRECT);
	installs(SIGUSR1, 0);
	installs(SIGUSR2, SA_SIGINFO | SA_ONSTACK);
	installs(SIGALRM, SA_RESTART | SA_ONSTACK);
	CHECK_IS(kernel(SYS_sigaltstack, (long)&stack, 0, 0, 0), 0); /* inline, and it stays */
	CHECK_IS(sigaltstack(NULL, &old), 0);
	CHECK(old.ss_sp == stack.ss_sp && old.ss_size == stack.ss_size);
	for (int round = 0; round < 50; round++) {
		CHECK_IS(raise(round & 1 ? SIGUSR1 : SIGUSR2), 0);
		CHECK_IS(kernel(SYS_kill, getpid(), round & 1 ? SIGUSR2 : SIGUSR1, 0, 0), 0);
		reads(fd, 'a', 2, block);
	}
	CHECK_IS(signals, 100);
	/* All signals blocked: by libc, and by an inline call. */
	sigfillset(&all);
	for (int way = 0; way < 3; way++) {
		uint64_t full = ~0ULL, kernels = 0;
		switch (way) {
		case 0: CHECK_IS(sigprocmask(SIG_BLOCK, &all, &before), 0); break;
		case 1: CHECK_IS(pthread_sigmask(SIG_SETMASK, &all, &before), 0); break;
		default:
			CHECK_IS(sigprocmask(SIG_BLOCK, NULL, &before), 0);
			CHECK_IS(kernel(SYS_rt_sigprocmask, SIG_SETMASK, (long)&full, (long)&kernels, 8), 0);
		}
		reads(fd, 'a', 8, block);
		CHECK_IS(sigprocmask(SIG_BLOCK, NULL, &after), 0);
		CHECK(sigismember(&after, SIGUSR1) && sigismember(&after, SIGTERM)); /* and it stays */
		signals = 0;
		CHECK_IS(raise(SIGUSR1), 0);
		CHECK_IS(signals, 0);
		if (way == 2) {
			kernels = 0;
			CHECK_IS(kernel(SYS_rt_sigprocmask, SIG_SETMASK, (long)&kernels, 0, 8), 0);
		} else
			CHECK_IS(sigprocmask(SIG_SETMASK, &before, NULL), 0);
		CHECK_IS(signals, 1);
	}
	/* Waiting with a mask; an interrupted call says so, a restarted one goes on. */
	sigprocmask(SIG_BLOCK, &all, &before);
	sigset_t but = all;
	sigdelset(&but, SIGUSR1);
	int epoll = epoll_create1(0);
	struct epoll_event event;
	struct timespec second = {5, 0};
	for (int way = 0; way < 5; way++) {
		signals = 0;
		uint64_t kernels = ~(1ULL << (SIGUSR1 - 1));
		CHECK_IS(raise(SIGUSR1), 0);
		switch (way) {
		case 0: CHECK_IS(sigsuspend(&but), -1); break;
		case 1: CHECK_IS(ppoll(NULL, 0, &second, &but), -1); break;
		case 2: CHECK_IS(pselect(0, NULL, NULL, NULL, &second, &but), -1); break;
		case 3: CHECK_IS(epoll_pwait(epoll, &event, 1, 5000, &but), -1); break;
		default: CHECK_IS(kernel(SYS_rt_sigsuspend, (long)&kernels, 8, 0, 0), -EINTR);
		}
		CHECK_IS(signals, 1);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
}

/* libc's and the kernel's ways to block SIGSYS, which an inline call needs. */
extern int sigblock(int), sigsetmask(int), __sigpause(int, int), __sigsuspend(const sigset_t *);
extern int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);

static ucontext_t first, second, back;
static _Atomic int contexts;

static void of_context(void)
{
	reads(of_handlers_file, 'a', 1, of_handler);
	contexts++;
}

static void *of_masked_thread(void *unused)
{
	(void)unused;
	reads(of_handlers_file, 'a', 1, of_handler);
	return NULL;
}

/* Goes to a context whose set, or that of its successor, is full; comes back by the successor. */
static void goes(int by_set, int successor)
{
	volatile int came = 0;
	CHECK_IS(getcontext(&back), 0);
	if (came++)
		return;
	CHECK_IS(getcontext(&second), 0);
	second.uc_stack.ss_sp = aligned(256 << 10);
	second.uc_stack.ss_size = 256 << 10;
	second.uc_link = &back;
	sigfillset(successor ? &back.uc_sigmask : &second.uc_sigmask);
	makecontext(&second, of_context, 0);
	CHECK_IS(by_set ? setcontext(&second) : swapcontext(&first, &second), 0);
	CHECK(0);
}

static void of_coroutine(void)
{
	reads(of_handlers_file, 'a', 1, of_handler);
	contexts++;
	setcontext(&first);
	CHECK(0);
}

/* A coroutine that never returns, and whose successor has never been filled before (QEMU). */
static void goes_to_a_coroutine(void)
{
	memset(&first, 0x5a, sizeof first);
	CHECK_IS(getcontext(&second), 0);
	second.uc_stack.ss_sp = aligned(256 << 10);
	second.uc_stack.ss_size = 256 << 10;
	second.uc_link = &first;
	makecontext(&second, of_coroutine, 0);
	CHECK_IS(swapcontext(&first, &second), 0);
}

static void masks(void)
{
	enum { SMALL_ALL = -1 };
	sigset_t all, empty, but;
	struct sigaction action = {.sa_handler = handler};
	struct timespec second_ = {5, 0};
	struct io_event done;
	io_context_t context = 0;
	struct io_uring ring;
	make_file(at(0, "file"), 'a', BLOCKS);
	of_handler = aligned(BLOCK);
	char *block = aligned(BLOCK);
	of_handlers_file = inline_open(at(0, "file"), O_RDONLY | O_DIRECT);
	sigfillset(&all);
	sigemptyset(&empty);
	but = all;
	sigdelset(&but, SIGUSR1);
	uint64_t kernels = ~(1ULL << (SIGUSR1 - 1));
	CHECK_IS(sigaction(SIGUSR1, &action, NULL), 0);
	CHECK_IS(io_setup(4, &context), 0);
	int has_uring = io_uring_queue_init(4, &ring, 0) == 0;
	/* Blocked from here on. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	for (int way = 0; way < 6; way++) {
		switch (way) {
		case 0: sigblock(SMALL_ALL); break;
		case 1: sigsetmask(SMALL_ALL); break;
		case 2:
			for (int number = 1; number < 32; number++)
				sighold(number);
			break;
		case 3: sigset(SIGSYS, SIG_HOLD); break;
		case 4: goes(0, 0); goes(1, 0); break;
		case 5: goes(0, 1); goes(1, 1); break;
		}
		reads(of_handlers_file, 'a', 2, block);
		CHECK_IS(sigprocmask(SIG_SETMASK, &empty, NULL), 0);
	}
	goes_to_a_coroutine();
	CHECK_IS(contexts, 5);
	sigignore(SIGUSR2);
	/* A handler runs inside a wait with a full set. */
	sigset_t one;
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	for (int way = 0; way < 12; way++) {
		struct {
			uint64_t *set;
			size_t bytes;
		} sized = {&kernels, 8};
		struct io_uring_cqe *entry;
		struct {
			uint64_t set;
			uint32_t bytes, pad;
			struct __kernel_timespec *time;
		} waiting = {(uint64_t)(uintptr_t)&kernels, 8, 0, NULL};
		struct __kernel_timespec time = {5, 0};
		signals = 0;
		CHECK_IS(sigprocmask(SIG_BLOCK, &one, NULL), 0);
		CHECK_IS(raise(SIGUSR1), 0);
		if (way >= 8 && !has_uring)
			CHECK_IS(sigprocmask(SIG_UNBLOCK, &one, NULL), 0);
		else
			switch (way) {
			case 0: CHECK_IS(__sigpause(~(1 << (SIGUSR1 - 1)), 0), -1); break;
			case 1: CHECK_IS(sigpause(SIGUSR1), -1); break;
			case 2: CHECK_IS(__sigsuspend(&but), -1); break;
			case 3: CHECK_IS(__ppoll_chk(NULL, 0, &second_, &but, 0), -1); break;
			case 4: CHECK_IS(inline6(SYS_ppoll, 0, 0, (long)&second_, (long)&kernels, 8, 0), -EINTR); break;
			case 5: CHECK_IS(inline6(SYS_pselect6, 0, 0, 0, 0, (long)&second_, (long)&sized), -EINTR); break;
			case 6: CHECK_IS(io_pgetevents(context, 1, 1, &done, &second_, &but), -EINTR); break;
			case 7: CHECK_IS(inline6(SYS_io_pgetevents, (long)context, 1, 1, (long)&done, (long)&second_, (long)&sized), -EINTR); break;
			case 8: CHECK_IS(inline6(SYS_io_uring_enter, ring.ring_fd, 0, 1, IORING_ENTER_GETEVENTS, (long)&kernels, 8), -EINTR); break;
			case 9: CHECK_IS(inline6(SYS_io_uring_enter, ring.ring_fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, (long)&waiting, sizeof waiting), -EINTR); break;
			case 10: CHECK_IS(io_uring_wait_cqes(&ring, &entry, 1, &time, &but), -EINTR); break;
			default: CHECK_IS(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &second_, &sized), -1); break;
			}
		CHECK_IS(signals, 1);
		CHECK_IS(sigprocmask(SIG_SETMASK, &empty, NULL), 0);
	}
	/* A thread begins with a full set. */
	pthread_attr_t attributes;
	pthread_t thread;
	CHECK_IS(pthread_attr_init(&attributes), 0);
	CHECK_IS(pthread_attr_setsigmask_np(&attributes, &all), 0);
	CHECK_IS(pthread_create(&thread, &attributes, of_masked_thread, NULL), 0);
	CHECK_IS(pthread_join(thread, NULL), 0);
	CHECK_IS(io_destroy(context), 0);
}

/* Last, because nothing is caught any more: the program ignores SIGSYS. */
static void ignores(void)
{
	char *block = aligned(BLOCK);
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = inline_open(at(0, "file"), O_RDONLY | O_DIRECT);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	CHECK_IS(sigignore(SIGSYS), 0);
	reads(fd, 'a', BLOCKS, block);
}

/* A program looks at the actions of all signals, and sets the default ones, as git does for its children. The action
 * of SIGSYS then looks like the default action, and the library catches the calls of that program. */
static void defaults_of_all_signals(void)
{
	char *block = aligned(BLOCK);
	struct {
		uintptr_t handler;
		unsigned long words[3];
	} none = {0}, kept;
	struct sigaction before, action = {.sa_handler = SIG_DFL};
	make_file(at(0, "file"), 'a', BLOCKS);
	for (int way = 0; way < 6; way++) {
		memset(&before, 0x55, sizeof before);
		memset(&kept, 0x55, sizeof kept);
		for (int number = 1; number < 32; number++) {
			if (number == SIGKILL || number == SIGSTOP)
				continue;
			switch (way) {
			case 0: CHECK_IS(sigaction(number, NULL, &before), 0); break;
			case 1: CHECK_IS(sigaction(number, &action, &before), 0); break;
			case 2: before.sa_handler = signal(number, SIG_DFL); break;
			case 3: CHECK_IS(syscall(SYS_rt_sigaction, number, NULL, &kept, 8), 0); break;
			case 4: CHECK_IS(kernel(SYS_rt_sigaction, number, (long)&none, (long)&kept, 8), 0); break;
			case 5: before.sa_handler = sigset(number, SIG_DFL); break;
			}
			if (number == SIGSYS)
				CHECK(way == 3 || way == 4 ? kept.handler == 0 : before.sa_handler == SIG_DFL);
		}
		int fd = inline_open(at(0, "file"), O_RDONLY | O_DIRECT);
		reads(fd, 'a', BLOCKS, block);
		CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
	}
	pid_t child = fork();
	int status;
	if (child == 0) {
		raise(SIGSYS);
		_exit(0);
	}
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

/* The end by an inline call waits for what was submitted (with asynchronous libaio). */
static void ends_inline(void)
{
	pid_t child = fork();
	if (child == 0) {
		io_context_t context = 0;
		struct iocb iocbs[BLOCKS], *list[BLOCKS];
		int fd = open(at(0, "file"), O_CREAT | O_TRUNC | O_WRONLY, 0644);
		CHECK_IS(io_setup(BLOCKS, &context), 0);
		CHECK(io_getevents(context, 0, 1, &(struct io_event){0}, &(struct timespec){0, 0}) == 0);
		for (int number = 0; number < BLOCKS; number++) {
			char *block = aligned(BLOCK);
			fill(block, 'e', number);
			io_prep_pwrite(list[number] = &iocbs[number], fd, block, BLOCK, (long long)number * BLOCK);
		}
		CHECK_IS(io_submit(context, BLOCKS, list), BLOCKS);
		kernel(SYS_exit_group, 0, 0, 0, 0);
	}
	ends_well(child);
	expect_blocks(at(1, "file"), 'e', BLOCKS);
}

/* A program with a handler of SIGSYS: it gets its signal, and nothing is caught any more. */
static void says(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	signals += info->si_code <= 0;
}

static void handles_it_itself(void)
{
	struct sigaction action = {.sa_sigaction = says, .sa_flags = SA_SIGINFO};
	CHECK(kernel(SYS_getpid, 0, 0, 0, 0) == getpid());
	CHECK_IS(sigaction(SIGSYS, &action, NULL), 0);
	CHECK_IS(raise(SIGSYS), 0);
	CHECK_IS(signals, 1);
	CHECK(kernel(SYS_getpid, 0, 0, 0, 0) == getpid());
	files();
}

/* Registers of a call that are not its result: those of vectors too. */
static void registers(void)
{
#if defined(__x86_64__)
	for (int round = 0; round < 1000; round++) {
		uint64_t given[2] = {0x1122334455667788ULL + (unsigned)round, ~0ULL - (unsigned)round}, found[2], flags = 0, kept = 0;
		__asm__ volatile(
			"movdqu %3, %%xmm7\n"
			"mov $0x1234567890, %%r15\n"
			"stc\n"
			"mov $39, %%eax\n"
			"syscall\n"
			"setc %b1\n"
			"mov %%r15, %2\n"
			"movdqu %%xmm7, %0\n"
			: "=m"(found), "+r"(flags), "=r"(kept)
			: "m"(given)
			: "rax", "rcx", "r11", "r15", "xmm7", "memory", "cc");
		CHECK(memcmp(given, found, sizeof given) == 0);
		CHECK(flags == 1 && kept == 0x1234567890);
	}
#endif
}

int main(int count, char **arguments)
{
	static const struct test tests[] = {
		{"files", files},
		{"threads", threads},
		{"children", children},
		{"inline_threads", inline_threads},
		{"masks", masks},
		{"ignores", ignores},
		{"handlers", handlers},
		{"defaults_of_all_signals", defaults_of_all_signals},
		{"ends_inline", ends_inline},
		{"handles_it_itself", handles_it_itself},
		{"registers", registers},
	};
	CHECK(count == 2);
	blocks = aligned(BLOCK);
	return run_named(tests, sizeof tests / sizeof *tests, arguments[1]);
}
