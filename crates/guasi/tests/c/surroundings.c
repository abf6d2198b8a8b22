/*
 * A program that forks, runs out of threads and descriptors, frees contexts that are busy, and has no io_uring.
 * Argument: flags.
 */
#include "check.h"
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

static guasi_param_t nothing(void *priv, guasi_param_t const *params)
{
	(void) priv;
	return params[0];
}

static int cleanups;
static void count(void *priv, guasi_param_t const *params)
{
	(void) priv;
	(void) params;
	__atomic_add_fetch(&cleanups, 1, __ATOMIC_SEQ_CST);
}

static guasi_param_t block(void *priv, guasi_param_t const *params)
{
	char byte;

	(void) priv;
	return read((int) params[0], &byte, 1);
}

static void forking(unsigned flags)
{
	guasi_t h = guasi_create_flags(0, 0, 1, flags);
	int status, ends[2];
	pid_t child;
	guasi_req_t active;
	char byte;

	CHECK(pipe(ends) == 0);
	active = guasi_submit(h, NULL, NULL, 0, block, NULL, 1, (guasi_param_t) ends[0]);
	CHECK(result_of(h, guasi_submit(h, NULL, NULL, 0, nothing, NULL, 1, (guasi_param_t) 5)) == 5);
	CHECK(guasi__read(h, (void *) 1, NULL, 0, ends[0], &byte, 1) != NULL);
	guasi_flush(h);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		guasi_t own;
		guasi_req_t fetched;

		/* Calls with the parent's context fail, and freeing it works; a context of this process works. */
		CHECK(guasi_submit(h, NULL, NULL, 0, nothing, NULL, 0) == NULL && errno == ECHILD);
		CHECK(guasi_fetch(h, &fetched, 1, 1, -1) == -1 && errno == ECHILD);
		CHECK(guasi_req_cancel(active) == -1 && errno == ECHILD);
		CHECK(guasi_fd(h) == -1 && errno == ECHILD);
		guasi_free(h);
		own = guasi_create_flags(0, 0, 1, flags);
		CHECK(result_of(own, guasi_submit(own, NULL, NULL, 0, nothing, NULL, 1, (guasi_param_t) 7)) == 7);
		CHECK(result_of(own, guasi__pread(own, NULL, NULL, 0, ends[0], &byte, 1, 0)) == -1 && errno == ESPIPE);
		guasi_free(own);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(write(ends[1], "ab", 2) == 2);
	for (int i = 0; i < 2; i++) {
		guasi_req_t fetched;

		CHECK(guasi_fetch(h, &fetched, 1, 1, -1) == 1);
		guasi_req_free(fetched);
	}
	guasi_free(h);
	close(ends[0]);
	close(ends[1]);
}

static void freeing_what_is_busy(unsigned flags)
{
	guasi_t h = guasi_create_flags(0, 2, 1, flags);
	int ends[2];
	static char buffers[400];

	cleanups = 0;
	CHECK(pipe(ends) == 0);
	for (int i = 0; i < 100; i++)
		CHECK(guasi_submit(h, NULL, NULL, 0, block, count, 1, (guasi_param_t) ends[0]) != NULL);
	for (int i = 0; i < 400; i++)
		CHECK(guasi__read(h, NULL, NULL, 0, ends[0], &buffers[i], 1) != NULL);
	guasi_flush(h);
	guasi_free(h);
	CHECK(cleanups == 100);
	/* Nobody reads there any more. */
	CHECK(write(ends[1], "x", 1) == 1 && read(ends[0], buffers, 1) == 1);
	close(ends[0]);
	close(ends[1]);
}

static int threads_of_this_process(void)
{
	DIR *dir = opendir("/proc/self/task");
	int n = -2;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Threads come when calls block, and go when they are idle. */
static void sizing(unsigned flags)
{
	guasi_t h = guasi_create_flags(2, 0, 1, flags);
	struct guasi_stats stats;
	guasi_req_t fetched[200];
	int ends[2], n = 0;
	static char bytes[200];

	CHECK(pipe(ends) == 0);
	for (int i = 0; i < 200; i++)
		CHECK(guasi_submit(h, NULL, NULL, 0, block, NULL, 1, (guasi_param_t) ends[0]) != NULL);
	do {
		CHECK(guasi_get_stats(h, &stats, sizeof(stats)) == 0);
		usleep(1000);
	} while (stats.queued > 0); /* every one of them has got its thread */
	CHECK(stats.threads >= 200);
	CHECK(write(ends[1], bytes, 200) == 200);
	while (n < 200)
		n += guasi_fetch(h, fetched + n, 1, 200 - n, -1);
	for (int i = 0; i < 200; i++)
		guasi_req_free(fetched[i]);
	do {
		CHECK(guasi_get_stats(h, &stats, sizeof(stats)) == 0);
		usleep(1000);
	} while (stats.threads > 2);
	/* Ten thousand calls that do not block do not need more threads than there are processors, or a few more. */
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 200; i++)
			CHECK(guasi_submit(h, NULL, NULL, 0, nothing, NULL, 1, (guasi_param_t) i) != NULL);
		for (n = 0; n < 200;)
			n += guasi_fetch(h, fetched + n, 200 - n, 200 - n, -1);
		for (int i = 0; i < 200; i++)
			guasi_req_free(fetched[i]);
	}
	guasi_free(h);
	while (threads_of_this_process() > 1)
		usleep(1000); /* what the kernel has not yet taken out of the list */
	close(ends[0]);
	close(ends[1]);
}

static void run(void (*part)(unsigned), unsigned flags)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		part(flags);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A user with no process but this one, whatever else runs this test at the time; where user ids are few, one of few. */
static void become_nobody_else(void)
{
	uid_t own = 1000000000u + (uid_t) getpid();

	if (geteuid() == 0 && setresuid(own, own, own) != 0)
		CHECK(setresuid(65532, 65532, 65532) == 0);
}

/* No thread is to be had at all: EAGAIN, and nothing hangs. */
static void without_threads(unsigned flags)
{
	struct rlimit none = {0, 0};
	guasi_t h = guasi_create_flags(0, 0, 1, flags);

	become_nobody_else();
	CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
	CHECK(guasi_submit(h, NULL, NULL, 0, nothing, count, 0) == NULL && errno == EAGAIN);
	CHECK(cleanups == 0);
	guasi_free(h);
}

/* One thread is to be had, more are not: everything is carried out by that one. */
static void with_few_threads(unsigned flags)
{
	struct rlimit few;
	guasi_t h = guasi_create_flags(0, 0, 1, flags);
	guasi_req_t fetched[100];
	int n = 0;

	become_nobody_else();
	few.rlim_cur = few.rlim_max = 3; /* this one, a worker, the overseer */
	CHECK(setrlimit(RLIMIT_NPROC, &few) == 0);
	for (int i = 0; i < 100; i++)
		CHECK(guasi_submit(h, NULL, NULL, 0, nothing, NULL, 1, (guasi_param_t) i) != NULL);
	while (n < 100)
		n += guasi_fetch(h, fetched + n, 1, 100 - n, -1);
	for (int i = 0; i < 100; i++)
		guasi_req_free(fetched[i]);
	guasi_free(h);
}

/* No descriptor is left for a ring: the pool takes over and the statistics say so. */
static void without_descriptors(unsigned flags)
{
	guasi_t h = guasi_create_flags(0, 0, 1, flags), other;
	int fd = open("/dev/zero", O_RDONLY);
	char buffer[8] = "xxxxxxx";
	struct guasi_stats stats;
	struct rlimit few;

	CHECK(fd >= 0);
	few.rlim_cur = few.rlim_max = (rlim_t) fd + 1;
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	/* A context has no descriptor until it needs one, and functions need none. */
	other = guasi_create_flags(0, 0, 1, flags);
	CHECK(result_of(other, guasi_submit(other, NULL, NULL, 0, nothing, NULL, 1, (guasi_param_t) 3)) == 3);
	guasi_free(other);
	CHECK(result_of(h, guasi__pread(h, NULL, NULL, 0, fd, buffer, 8, 0)) == 8 && buffer[0] == 0);
	CHECK(guasi_get_stats(h, &stats, sizeof(stats)) == 0);
	CHECK(stats.backend == GUASI_BACKEND_POOL && stats.pool_requests == 1);
	CHECK(stats.ring_error == (flags & GUASI_NO_RING ? EOPNOTSUPP : EMFILE) || getenv("GUASI_BACKEND"));
	guasi_free(h);
}

/* A container's filter forbids io_uring: the pool takes over and the statistics say so. */
static void without_permission(unsigned flags)
{
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {4, steps};
	guasi_t h;
	int fd = open("/dev/zero", O_RDONLY);
	char buffer[8] = "xxxxxxx";
	struct guasi_stats stats;

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	h = guasi_create_flags(0, 0, 1, flags);
	CHECK(result_of(h, guasi__pread(h, NULL, NULL, 0, fd, buffer, 8, 0)) == 8 && buffer[0] == 0);
	CHECK(guasi_get_stats(h, &stats, sizeof(stats)) == 0);
	CHECK(stats.backend == GUASI_BACKEND_POOL && stats.pool_requests == 1);
	CHECK(stats.ring_error == (flags & GUASI_NO_RING ? EOPNOTSUPP : EPERM) || getenv("GUASI_BACKEND"));
	guasi_free(h);
}

static void ignores(int signal)
{
	(void) signal;
}

/* The program handles every real-time signal: what is busy is broken off all the same. */
static void without_real_time_signals(unsigned flags)
{
	for (int signal_ = SIGRTMIN; signal_ <= SIGRTMAX; signal_++)
		CHECK(signal(signal_, ignores) != SIG_ERR);
	freeing_what_is_busy(flags);
}

/* More than read(2) transfers at once: cut in the same place. */
static void two_gibibytes(unsigned flags)
{
	size_t size = (size_t) 1 << 31;
	guasi_t h = guasi_create_flags(0, 0, 1, flags);
	char *buffer = (char *) mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int zero = open("/dev/null", O_WRONLY), sparse;
	char path[] = "/tmp/guasi-sparse-XXXXXX";

	CHECK(buffer != MAP_FAILED && zero >= 0);
	sparse = mkstemp(path);
	unlink(path);
	CHECK(ftruncate(sparse, 5LL << 30) == 0);
	CHECK(pwrite(sparse, "far", 3, (4LL << 30) + 7) == 3);
	CHECK(result_of(h, guasi__pwrite(h, NULL, NULL, 0, zero, buffer, size, 0)) == 0x7ffff000);
	CHECK(result_of(h, guasi__pread(h, NULL, NULL, 0, sparse, buffer, 16, (4LL << 30) + 7)) == 16);
	CHECK(memcmp(buffer, "far", 3) == 0);
	munmap(buffer, size);
	close(zero);
	close(sparse);
	guasi_free(h);
}

int main(int argc, char **argv)
{
	unsigned flags = FLAGS_FROM_ARGUMENTS(argc, argv);

	run(forking, flags);
	run(freeing_what_is_busy, flags);
	run(without_real_time_signals, flags);
	run(sizing, flags);
	run(without_threads, flags);
	run(with_few_threads, flags);
	run(without_descriptors, flags);
	run(without_permission, flags);
	run(two_gibibytes, flags);
	printf("fine\n");
	return 0;
}
