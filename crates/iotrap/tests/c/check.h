/* Shared by the test programs: checks that name their place, calls that libiotrap.so does not see, the lanes' descriptors. */
#ifndef CHECK_H
#define CHECK_H
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                        \
	do {                                                                                        \
		if (!(condition)) {                                                                     \
			dprintf(2, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno)); \
			_exit(1);                                                                           \
		}                                                                                       \
	} while (0)
#define CHECK_IS(expression, value)                                                             \
	do {                                                                                        \
		long long found_ = (long long)(expression), wanted_ = (long long)(value);               \
		if (found_ != wanted_) {                                                                \
			dprintf(2, "%s:%d: %s is %lld, not %lld (errno %d: %s)\n", __FILE__, __LINE__, #expression, found_, wanted_, errno, strerror(errno)); \
			_exit(1);                                                                           \
		}                                                                                       \
	} while (0)

#define BLOCK 4096

/* A system call past every interposer. */
static inline long inline6(long number, long a, long b, long c, long d, long e, long f)
{
	long result;
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	result = x0;
#endif
	return result;
}

static inline long kernel(long number, long a, long b, long c, long d)
{
	return inline6(number, a, b, c, d, 0, 0);
}

/* True if the kernel says that a descriptor is open. */
static inline int is_open(int fd)
{
	return kernel(SYS_fcntl, fd, F_GETFD, 0, 0) >= 0;
}

static inline const char *lane(int index)
{
	static const char *const names[] = {"LANE0", "LANE1", "LANE2", "LANE3"};
	const char *path = getenv(names[index]);
	CHECK(path != NULL);
	return path;
}

/* A path on a lane; a few of them are valid at a time. */
static inline const char *at(int index, const char *name)
{
	static _Thread_local char room[8][PATH_MAX];
	static _Thread_local int next;
	char *path = room[next++ % 8];
	snprintf(path, PATH_MAX, "%s/%s", lane(index), name);
	return path;
}

/* The library marks the files that it opens on lanes, and numbers them high. */
static inline int lanes_mark(int fd)
{
	return (int)kernel(SYS_fcntl, fd, F_GETSIG, 0, 0);
}

/* Puts a file in the place of a lane's, past the library, which takes it for the lane's. */
static inline void replace_lane(int file, int lane)
{
	CHECK_IS(kernel(SYS_fcntl, file, F_SETSIG, lanes_mark(lane), 0), 0);
	CHECK_IS(kernel(SYS_dup3, file, lane, O_CLOEXEC, 0), lane);
}

/* The descriptors that the library has open on lanes for a file beside the program's own; their number. */
static inline int lane_files(const char *name, int own, int *found, int room)
{
	int count = 0;
	char link[64], path[PATH_MAX];
	for (int fd = 0; fd < 70000; fd++) {
		if (fd == own || !is_open(fd))
			continue;
		if (fd >= 1000 && lanes_mark(fd) == 0) /* its duplicate of the program's descriptor */
			continue;
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		ssize_t length = readlink(link, path, sizeof path - 1);
		if (length < 0)
			continue;
		path[length] = 0;
		const char *last = strrchr(path, '/');
		if (last != NULL && strcmp(last + 1, name) == 0 && count < room)
			found[count++] = fd;
	}
	return count;
}

static inline void *aligned(size_t size)
{
	void *memory = NULL;
	CHECK_IS(posix_memalign(&memory, BLOCK, size), 0);
	memset(memory, 0, size);
	return memory;
}

/* Makes a file of blocks that hold their own number and a letter. */
static inline void fill(void *buffer, char letter, uint64_t number)
{
	memset(buffer, letter, BLOCK);
	memcpy(buffer, &number, sizeof number);
}

static inline int holds(const void *buffer, char letter, uint64_t number)
{
	char wanted[BLOCK];
	fill(wanted, letter, number);
	return memcmp(buffer, wanted, BLOCK) == 0;
}

/* Every block of a file holds its letter and number. */
static inline void expect_blocks(const char *path, char letter, int blocks)
{
	char block[BLOCK];
	int fd = open(path, O_RDONLY);
	CHECK(fd >= 0);
	for (int number = 0; number < blocks; number++) {
		CHECK_IS(pread(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
		CHECK(holds(block, letter, number));
	}
	CHECK_IS(close(fd), 0);
}

static inline void make_file(const char *path, char letter, int blocks)
{
	char block[BLOCK];
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
	CHECK(fd >= 0);
	for (int number = 0; number < blocks; number++) {
		fill(block, letter, number);
		CHECK_IS(write(fd, block, BLOCK), BLOCK);
	}
	CHECK_IS(fsync(fd), 0);
	CHECK_IS(close(fd), 0);
}

static inline int open_direct(const char *path, int flags)
{
	int fd = open(path, O_DIRECT | flags, 0644);
	CHECK(fd >= 0);
	return fd;
}

/* The same as lane_files, of a file that is in use: the library opens the lanes with the first request. */
static inline int lane_files_in_use(const char *name, int fd, int *found, int room)
{
	void *first = aligned(BLOCK);
	CHECK_IS(pread(fd, first, BLOCK, 0), BLOCK);
	free(first);
	return lane_files(name, fd, found, room);
}

struct test {
	const char *name;
	void (*run)(void);
};

static inline int run_named(const struct test *tests, size_t count, const char *name)
{
	for (size_t index = 0; index < count; index++) {
		if (strcmp(tests[index].name, name) == 0) {
			tests[index].run();
			return 0;
		}
	}
	dprintf(2, "no test %s\n", name);
	return 2;
}
#endif
