/* Programs that meet the end of the room and of their limits: room NAME prints what the kernel has told. With the
 * library and without it, the lines are the same. */
#include "check.h"
#include <aio.h>
#include <liburing.h>
#include <linux/fs.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>

enum { LIMIT = 64 * BLOCK, ALL = 16 };

static volatile sig_atomic_t signals;

static void notice(int number)
{
	(void)number;
	signals++;
}

struct way {
	const char *name;
	long (*write)(int fd, void *buffer, size_t count, off_t offset);
};

static long told(long result)
{
	return result < 0 ? -errno : result;
}

static long by_pwrite(int fd, void *buffer, size_t count, off_t offset)
{
	return told(pwrite(fd, buffer, count, offset));
}

static long by_vectors(int fd, void *buffer, size_t count, off_t offset)
{
	struct iovec parts[2] = {{buffer, BLOCK}, {(char *)buffer + BLOCK, count - BLOCK}};
	return told(pwritev(fd, parts, count > BLOCK ? 2 : 1, offset));
}

static io_context_t libaio;

static long by_libaio(int fd, void *buffer, size_t count, off_t offset)
{
	struct iocb iocb, *list = &iocb;
	struct io_event event;
	if (libaio == 0) {
		struct timespec now = {0, 0};
		CHECK_IS(io_setup(ALL, &libaio), 0);
		CHECK_IS(io_getevents(libaio, 0, 1, &event, &now), 0); /* --async begins with that */
	}
	io_prep_pwrite(&iocb, fd, buffer, count, offset);
	int submitted = io_submit(libaio, 1, &list);
	if (submitted != 1)
		return submitted;
	CHECK_IS(io_getevents(libaio, 1, 1, &event, NULL), 1);
	return (long)event.res;
}

static long by_posix_aio(int fd, void *buffer, size_t count, off_t offset)
{
	struct aiocb control = {.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = count, .aio_offset = offset};
	const struct aiocb *list[] = {&control};
	CHECK_IS(aio_write(&control), 0);
	while (aio_error(&control) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	int error = aio_error(&control);
	long result = aio_return(&control);
	return error != 0 ? -error : result;
}

static long by_ring(int fd, void *buffer, size_t count, off_t offset)
{
	static struct io_uring ring;
	static int made;
	struct io_uring_cqe *completion;
	if (!made++)
		CHECK_IS(io_uring_queue_init(8, &ring, 0), 0);
	io_uring_prep_write(io_uring_get_sqe(&ring), fd, buffer, count, offset);
	CHECK_IS(io_uring_submit(&ring), 1);
	CHECK_IS(io_uring_wait_cqe(&ring, &completion), 0);
	long result = completion->res;
	io_uring_cqe_seen(&ring, completion);
	return result;
}

static const struct way WAYS[] = {
	{"pwrite", by_pwrite}, {"pwritev", by_vectors}, {"libaio", by_libaio}, {"aio", by_posix_aio}, {"ring", by_ring},
};
enum { WAY_COUNT = sizeof WAYS / sizeof *WAYS };

static int opened(const char *name, int direct, int flags)
{
	int fd = open(at(0, name), O_CREAT | O_RDWR | flags | (direct ? O_DIRECT : 0), 0644);
	if (fd < 0 && direct && errno == EINVAL)
		fd = open(at(0, name), O_CREAT | O_RDWR | flags, 0644); /* tmpfs before Linux 6.6 */
	CHECK(fd >= 0);
	return fd;
}

/* RLIMIT_FSIZE: writes that reach beyond it are cut; those that begin beyond it are refused, with SIGXFSZ. */
static void sizes_are_limited(void)
{
	struct rlimit limit = {LIMIT, RLIM_INFINITY};
	struct sigaction action = {.sa_handler = notice};
	char *buffer = aligned(4 * BLOCK);
	CHECK_IS(sigaction(SIGXFSZ, &action, NULL), 0);
	for (int direct = 0; direct < 2; direct++) {
		for (int way = 0; way < WAY_COUNT; way++) {
			int fd = opened("limited", direct, O_TRUNC);
			CHECK_IS(ftruncate(fd, 2 * LIMIT), 0); /* within the size: these writes may leave the opened lane */
			WAYS[way].write(fd, buffer, BLOCK, 0);
			CHECK_IS(setrlimit(RLIMIT_FSIZE, &limit), 0);
			static const off_t OFFSETS[] = {LIMIT - 2 * BLOCK, LIMIT - BLOCK, LIMIT, LIMIT + BLOCK};
			for (int at = 0; at < 4; at++) {
				signals = 0;
				long result = WAYS[way].write(fd, buffer, 2 * BLOCK, OFFSETS[at]);
				printf("%s direct=%d at %lld: %ld, signals %d\n", WAYS[way].name, direct, (long long)OFFSETS[at], result, (int)signals);
			}
			limit.rlim_cur = RLIM_INFINITY;
			CHECK_IS(setrlimit(RLIMIT_FSIZE, &limit), 0);
			limit.rlim_cur = LIMIT;
			CHECK_IS(close(fd), 0);
			/* Without a handler, the signal ends the program. (A forked child has neither glibc's threads nor a ring.) */
			if (way >= 3)
				continue;
			fflush(stdout);
			pid_t child = fork();
			if (child == 0) {
				signal(SIGXFSZ, SIG_DFL);
				libaio = 0;
				fd = opened("limited", direct, 0);
				WAYS[way].write(fd, buffer, BLOCK, 0);
				CHECK_IS(setrlimit(RLIMIT_FSIZE, &limit), 0);
				WAYS[way].write(fd, buffer, BLOCK, LIMIT);
				_exit(0);
			}
			int status;
			CHECK_IS(waitpid(child, &status, 0), child);
			printf("%s direct=%d ends by %d\n", WAYS[way].name, direct, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
		}
	}
}

/* A write takes the bits S_ISUID and S_ISGID from a file, unless the thread that submits it has the right to keep them. */
static void rights_are_the_threads(void)
{
	char *buffer = aligned(BLOCK);
	for (int direct = 0; direct < 2; direct++) {
		for (int way = 0; way < WAY_COUNT; way++) {
			if (WAYS[way].write == by_posix_aio)
				continue; /* whose threads have the rights of who made them */
			for (int without = 0; without < 2; without++) {
				struct stat stat;
				int fd = opened("rights", direct, O_TRUNC);
				WAYS[way].write(fd, buffer, BLOCK, 0); /* with all rights */
				CHECK_IS(fchmod(fd, 06755), 0);
				if (without)
					setfsuid(65534);
				long result = WAYS[way].write(fd, buffer, BLOCK, 0);
				long beyond = WAYS[way].write(fd, buffer, BLOCK, BLOCK);
				setfsuid(0);
				CHECK_IS(fstat(fd, &stat), 0);
				printf("%s direct=%d without=%d: %ld %ld, mode %o\n", WAYS[way].name, direct, without, result, beyond, stat.st_mode);
				CHECK_IS(close(fd), 0);
			}
		}
	}
}

/* Takes the room of the file system, but for some blocks. */
static void take_room(const char *name, int but)
{
	char block[BLOCK] = {0};
	int fd = open(at(0, name), O_CREAT | O_WRONLY | O_TRUNC, 0644);
	long blocks = 0;
	CHECK(fd >= 0);
	while (write(fd, block, BLOCK) == BLOCK)
		blocks++;
	CHECK_IS(errno, ENOSPC);
	CHECK_IS(ftruncate(fd, (blocks - but) * BLOCK), 0);
	CHECK_IS(fsync(fd), 0);
	CHECK_IS(close(fd), 0);
}

/* Acknowledged bytes are there. */
static void has(int fd, long result, off_t offset, char letter)
{
	char *found = aligned(4 * BLOCK);
	CHECK_IS(pread(fd, found, 4 * BLOCK, offset), 4 * BLOCK);
	for (long at = 0; at < result; at++)
		CHECK_IS(found[at], letter);
	free(found);
}

/* The file system is full midway: one request at a time. Each result is the kernel's. */
static void the_room_ends(void)
{
	char *buffer = aligned(4 * BLOCK);
	memset(buffer, 'x', 4 * BLOCK);
	for (int direct = 0; direct < 2; direct++) {
		for (int way = 0; way < WAY_COUNT; way++) {
			int fd = opened("full", direct, O_TRUNC);
			CHECK_IS(ftruncate(fd, 64 * BLOCK), 0);
			WAYS[way].write(fd, buffer, BLOCK, 63 * BLOCK);
			take_room("rest", 10);
			printf("%s direct=%d:", WAYS[way].name, direct);
			for (int at = 0; at < 6; at++) {
				long result = WAYS[way].write(fd, buffer, 4 * BLOCK, (off_t)at * 4 * BLOCK);
				printf(" %ld", result);
				has(fd, result, (off_t)at * 4 * BLOCK, 'x');
			}
			printf(", fsync %d", fsync(fd));
			CHECK_IS(unlink(at(0, "rest")), 0);
			printf(", then %ld\n", WAYS[way].write(fd, buffer, 4 * BLOCK, 20 * BLOCK));
			has(fd, 4 * BLOCK, 20 * BLOCK, 'x');
			CHECK_IS(close(fd), 0);
			CHECK_IS(unlink(at(0, "full")), 0);
		}
	}
}

/* The file system is full midway, with many requests in flight: as many blocks as there is room for. */
static void the_room_ends_in_a_batch(void)
{
	for (int direct = 0; direct < 2; direct++) {
		io_context_t aio = 0;
		struct iocb iocbs[ALL], *list[ALL];
		struct io_event events[ALL];
		struct timespec now = {0, 0};
		int fd = opened("full", direct, O_TRUNC), written = 0, refused = 0, other = 0;
		CHECK_IS(ftruncate(fd, 64 * BLOCK), 0);
		CHECK_IS(io_setup(ALL, &aio), 0);
		CHECK_IS(io_getevents(aio, 0, 1, events, &now), 0);
		take_room("rest", ALL / 2);
		for (int at = 0; at < ALL; at++) {
			char *buffer = aligned(BLOCK);
			memset(buffer, 'a' + at, BLOCK);
			io_prep_pwrite(list[at] = &iocbs[at], fd, buffer, BLOCK, (off_t)at * 4 * BLOCK);
		}
		CHECK_IS(io_submit(aio, ALL, list), ALL);
		CHECK_IS(io_getevents(aio, ALL, ALL, events, NULL), ALL);
		for (int at = 0; at < ALL; at++) {
			int number = (int)(events[at].obj - iocbs);
			if ((long)events[at].res == BLOCK) {
				written++;
				has(fd, BLOCK, (off_t)number * 4 * BLOCK, 'a' + number);
			} else if ((long)events[at].res == -ENOSPC) {
				refused++;
			} else {
				other++;
			}
		}
		struct iocb sync, *one = &sync;
		io_prep_fsync(&sync, fd);
		CHECK_IS(io_submit(aio, 1, &one), 1);
		CHECK_IS(io_getevents(aio, 1, 1, events, NULL), 1);
		printf("direct=%d: %d written, %d refused, %d other, fsync %ld\n", direct, written, refused, other, (long)events[0].res);
		CHECK_IS(close(fd), 0);
		CHECK_IS(unlink(at(0, "rest")), 0);
	}
}

static void print_file(const char *what, long result, int fd)
{
	unsigned long sum = 5381;
	char *block = aligned(BLOCK);
	struct stat stat;
	int error = errno;
	CHECK_IS(fstat(fd, &stat), 0);
	for (off_t offset = 0; offset < stat.st_size; offset += BLOCK) {
		ssize_t got = pread(fd, block, BLOCK, offset);
		CHECK(got > 0);
		for (ssize_t at = 0; at < got; at++)
			sum = sum * 33 + (unsigned char)block[at];
	}
	free(block);
	printf("%s: %ld (%s), %lld bytes, %lx\n", what, result, result < 0 ? strerror(error) : "", (long long)stat.st_size, sum);
}

/* Changes of a file that pass its contents by, between direct writes. */
static void parts_are_moved(void)
{
	static const struct {
		const char *name;
		int mode;
	} MODES[] = {
		{"allocated", 0},
		{"allocated behind", FALLOC_FL_KEEP_SIZE},
		{"punched", FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE},
		{"zeroed", FALLOC_FL_ZERO_RANGE},
		{"collapsed", FALLOC_FL_COLLAPSE_RANGE},
		{"inserted", FALLOC_FL_INSERT_RANGE},
		{"unshared", FALLOC_FL_UNSHARE_RANGE},
	};
	char *buffer = aligned(BLOCK);
	io_context_t aio = 0;
	struct iocb iocbs[32], *list[32];
	struct io_event events[32];
	struct timespec now = {0, 0};
	CHECK_IS(io_setup(64, &aio), 0);
	CHECK_IS(io_getevents(aio, 0, 1, events, &now), 0);
	for (int direct = 0; direct < 2; direct++) {
		make_file(at(0, "moved"), 'm', 64);
		make_file(at(0, "source"), 's', 64);
		int fd = opened("moved", direct, 0), source = opened("source", direct, 0), pipes[2];
		CHECK_IS(pipe(pipes), 0);
		for (int turn = 0; turn < 14; turn++) {
			for (int number = 0; number < 32; number++) {
				char *data = aligned(BLOCK);
				fill(data, 'A' + turn, number);
				io_prep_pwrite(list[number] = &iocbs[number], number % 2 ? fd : source, data, BLOCK, (off_t)number * BLOCK);
			}
			CHECK_IS(io_submit(aio, 32, list), 32);
			CHECK_IS(io_getevents(aio, 32, 32, events, NULL), 32);
			for (int number = 0; number < 32; number++) {
				CHECK_IS(events[number].res, BLOCK);
				free((void *)events[number].obj->u.c.buf);
			}
			long result = 0;
			loff_t from = 8 * BLOCK, to = 24 * BLOCK;
			off_t offset = 4 * BLOCK;
			char name[64];
			snprintf(name, sizeof name, "direct=%d turn %d", direct, turn);
			if (turn < 7) {
				snprintf(name, sizeof name, "direct=%d %s", direct, MODES[turn].name);
				result = fallocate(fd, MODES[turn].mode, 8 * BLOCK, 8 * BLOCK);
			} else if (turn == 7) {
				result = copy_file_range(source, &from, fd, &to, 8 * BLOCK, 0);
			} else if (turn == 8) {
				CHECK_IS(lseek(fd, 16 * BLOCK, SEEK_SET), 16 * BLOCK);
				result = sendfile(fd, source, &offset, 4 * BLOCK);
			} else if (turn == 9) {
				result = splice(source, &from, pipes[1], NULL, 4 * BLOCK, 0);
				if (result > 0)
					result = splice(pipes[0], NULL, fd, &to, 4 * BLOCK, 0);
			} else if (turn == 10) {
				result = ioctl(fd, FICLONE, source);
			} else if (turn == 11) {
				struct file_clone_range range = {.src_fd = source, .src_offset = 8 * BLOCK, .src_length = 8 * BLOCK, .dest_offset = 48 * BLOCK};
				result = ioctl(fd, FICLONERANGE, &range);
			} else if (turn == 12) {
				result = ftruncate(fd, 40 * BLOCK);
			} else {
				result = posix_fallocate(fd, 0, 72 * BLOCK);
			}
			print_file(name, result, fd);
			memset(buffer, 0, BLOCK);
		}
		CHECK_IS(close(fd), 0);
		CHECK_IS(close(source), 0);
	}
}

enum { RECORDS = 200, WRITERS = 4 };

static void *appends(void *argument)
{
	int number = (int)(intptr_t)argument;
	int fd = open(at(0, "log"), O_WRONLY | O_APPEND | (number % 2 ? O_DIRECT : 0));
	if (fd < 0 && errno == EINVAL)
		fd = open(at(0, "log"), O_WRONLY | O_APPEND);
	char *record = aligned(BLOCK);
	CHECK(fd >= 0);
	memset(record, 'a' + number, BLOCK);
	for (int at = 0; at < RECORDS; at++) {
		long result = number % 4 < 2 ? write(fd, record, BLOCK) : by_pwrite(fd, record, BLOCK, 0);
		CHECK_IS(result, BLOCK);
	}
	CHECK_IS(close(fd), 0);
	return NULL;
}

/* Appends of threads and processes beside direct requests within the file: each record is there once, and whole. */
static void records_are_appended(void)
{
	pthread_t threads[WRITERS];
	make_file(at(0, "log"), '.', 16);
	int fd = opened("log", 1, 0);
	for (int number = 0; number < WRITERS; number++)
		CHECK_IS(pthread_create(&threads[number], NULL, appends, (void *)(intptr_t)number), 0);
	pid_t child = fork();
	if (child == 0) {
		for (int number = 0; number < WRITERS; number++)
			appends((void *)(intptr_t)(WRITERS + number));
		_exit(0);
	}
	char *block = aligned(BLOCK);
	for (int turn = 0; turn < 400; turn++) {
		memset(block, '0' + turn % 10, BLOCK);
		CHECK_IS(pwrite(fd, block, BLOCK, turn % 16 * BLOCK), BLOCK);
		CHECK_IS(pread(fd, block, BLOCK, (turn + 1) % 16 * BLOCK), BLOCK);
	}
	for (int number = 0; number < WRITERS; number++)
		CHECK_IS(pthread_join(threads[number], NULL), 0);
	int status, found[256] = {0};
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
	struct stat stat;
	CHECK_IS(fstat(fd, &stat), 0);
	for (off_t offset = 0; offset < stat.st_size; offset += BLOCK) {
		CHECK_IS(pread(fd, block, BLOCK, offset), BLOCK);
		for (int at = 1; at < BLOCK && offset >= 16 * BLOCK; at++)
			CHECK_IS(block[at], block[0]);
		if (offset >= 16 * BLOCK)
			found[(unsigned char)block[0]]++;
	}
	for (int number = 0; number < 2 * WRITERS; number++)
		printf("%c: %d\n", 'a' + number, found['a' + number]);
	printf("%lld bytes\n", (long long)stat.st_size);
}

int main(int count, char **arguments)
{
	static const struct test tests[] = {
		{"sizes_are_limited", sizes_are_limited},
		{"rights_are_the_threads", rights_are_the_threads},
		{"the_room_ends", the_room_ends},
		{"the_room_ends_in_a_batch", the_room_ends_in_a_batch},
		{"parts_are_moved", parts_are_moved},
		{"records_are_appended", records_are_appended},
	};
	CHECK(count == 2);
	return run_named(tests, sizeof tests / sizeof *tests, arguments[1]);
}
