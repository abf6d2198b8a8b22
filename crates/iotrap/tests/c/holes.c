/* Ways to change a file that no hook sees: holes NAME. Each test expects only contents that hold without the library,
 * too. Where data differs, the test names the block. */
#include "interfaces.h"
#include "unseen.h"
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

enum { BLOCKS = 32 };

static char *block;

/* ---- requests of every interface ---- */

enum way { PREAD, PREADV2, LIBAIO, AIO, LIBURING, WAYS };

static ssize_t transfer(enum way way, int fd, int write, off_t offset)
{
	struct iovec vector = {block, BLOCK};
	switch (way) {
	case PREAD: return write ? pwrite(fd, block, BLOCK, offset) : pread(fd, block, BLOCK, offset);
	case PREADV2: return write ? pwritev2(fd, &vector, 1, offset, 0) : preadv2(fd, &vector, 1, offset, 0);
	case LIBAIO: return by_libaio(fd, write, block, BLOCK, offset);
	case AIO: return by_aio(fd, write, block, BLOCK, offset);
	default: return by_liburing(fd, write, block, BLOCK, offset);
	}
}

static void prepare(void)
{
	block = aligned(BLOCK);
	make_interfaces(8);
}

static int has_way(enum way way)
{
	return way != LIBURING || liburing.ring_fd >= 0;
}

/* Every block, as the file has it, read by nobody's cache. */
static void expect(const char *name, char letter)
{
	int fd = unseen_open(at(0, name), O_RDONLY | O_DIRECT);
	int wrong = 0;
	for (int number = 0; number < BLOCKS; number++) {
		CHECK_IS(kernel(SYS_pread64, fd, (long)block, BLOCK, (long)number * BLOCK), BLOCK);
		wrong += !holds(block, letter, number);
	}
	kernel(SYS_close, fd, 0, 0, 0);
	if (wrong != 0) {
		dprintf(2, "%s: %d of %d blocks are not what was written last (%c)\n", name, wrong, BLOCKS, letter);
		_exit(1);
	}
}

static void writes(int fd, char letter)
{
	for (int number = 0; number < BLOCKS; number++) {
		fill(block, letter, number);
		CHECK_IS(pwrite(fd, block, BLOCK, number * BLOCK), BLOCK);
	}
}

/* ---- 1. numbers that come to mean another file ---- */

/* The ways to close `old`, and to have `new` (open, or a path) under its number, that no hook sees. */
enum trick { CLOSE_OPEN, CLOSE_RANGE, DUP3, RING_CLOSE, RING_BOTH, RECEIVED, TRICKS };

static int becomes(enum trick trick, int fd, const char *path, int flags)
{
	int pair[2], high = -1, now = -1;
	if (trick == DUP3 || trick == RECEIVED)
		high = unseen_open(path, flags);
	if (trick == RECEIVED) {
		CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		send_file(pair[0], high);
	}
	switch (trick) {
	case CLOSE_OPEN:
	case RECEIVED: CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0); break;
	case CLOSE_RANGE: CHECK_IS(kernel(SYS_close_range, fd, fd, 0, 0), 0); break;
	case DUP3: CHECK_IS(kernel(SYS_dup3, high, fd, 0, 0), fd); break;
	default: CHECK_IS(by_ring(&(struct io_uring_sqe){.opcode = IORING_OP_CLOSE, .fd = fd}), 0); break;
	}
	switch (trick) {
	case DUP3: now = fd; break;
	case RECEIVED: now = receive_file(pair[1]); break;
	case RING_BOTH:
		now = by_ring(&(struct io_uring_sqe){.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = (uintptr_t)path, .open_flags = flags});
		break;
	default: now = unseen_open(path, flags); break;
	}
	CHECK_IS(now, fd);
	if (high >= 0)
		CHECK_IS(close(high), 0);
	if (trick == RECEIVED)
		CHECK((close(pair[0]), close(pair[1])) == 0);
	return now;
}

static int has_trick(enum trick trick)
{
	return (trick != RING_CLOSE && trick != RING_BOTH) || has_ring();
}

/* A descriptor of "old", over whose lanes something has gone, under a number that now means "new". */
static int stale(enum trick trick, int flags)
{
	make_file(at(0, "old"), 'o', BLOCKS);
	make_file(at(0, "new"), 'n', BLOCKS);
	int fd = open_direct(at(0, "old"), O_RDWR);
	writes(fd, 'O');
	CHECK_IS(fsync(fd), 0);
	return becomes(trick, fd, at(0, "new"), flags);
}

static void stale_transfers(void)
{
	for (int trick = 0; trick < TRICKS; trick++) {
		for (int way = 0; way < WAYS; way++) {
			if (!has_trick(trick) || !has_way(way))
				continue;
			int fd = stale(trick, O_RDWR | O_DIRECT);
			for (int number = 0; number < BLOCKS; number++) {
				CHECK_IS(transfer(way, fd, 0, number * BLOCK), BLOCK);
				CHECK(holds(block, 'n', number));
				fill(block, 'w', number);
				CHECK_IS(transfer(way, fd, 1, number * BLOCK), BLOCK);
			}
			CHECK_IS(fsync(fd), 0);
			CHECK_IS(close(fd), 0);
			expect("old", 'O');
			expect("new", 'w');
		}
	}
}

/* One request for all blocks, which may go over several lanes at a time. */
static void stale_large(void)
{
	char *all = aligned(BLOCKS * BLOCK);
	for (int trick = 0; trick < TRICKS; trick++) {
		if (!has_trick(trick))
			continue;
		int fd = stale(trick, O_RDWR | O_DIRECT);
		for (int number = 0; number < BLOCKS; number++)
			fill(all + number * BLOCK, 'w', number);
		CHECK_IS(pwrite(fd, all, BLOCKS * BLOCK, 0), BLOCKS * BLOCK);
		memset(all, 0, BLOCKS * BLOCK);
		CHECK_IS(pread(fd, all, BLOCKS * BLOCK, 0), BLOCKS * BLOCK);
		for (int number = 0; number < BLOCKS; number++)
			CHECK(holds(all + number * BLOCK, 'w', number));
		CHECK_IS(close(fd), 0);
		expect("old", 'O');
		expect("new", 'w');
	}
}

/* A batch over files of which one is not what it was. */
static void stale_in_a_batch(void)
{
	make_file(at(0, "third"), 't', BLOCKS);
	int fd = stale(CLOSE_OPEN, O_RDWR | O_DIRECT), third = open_direct(at(0, "third"), O_RDWR);
	static struct iocb iocbs[2 * BLOCKS];
	struct iocb *list[2 * BLOCKS];
	static struct io_event events[2 * BLOCKS];
	char *buffers = aligned(2 * BLOCKS * BLOCK);
	io_context_t wide = 0;
	CHECK_IS(io_setup(2 * BLOCKS, &wide), 0);
	for (int at = 0; at < 2 * BLOCKS; at++) {
		int number = at / 2;
		fill(buffers + at * BLOCK, at % 2 ? 'w' : 'T', number);
		io_prep_pwrite(&iocbs[at], at % 2 ? fd : third, buffers + at * BLOCK, BLOCK, number * BLOCK);
		list[at] = &iocbs[at];
	}
	CHECK_IS(io_submit(wide, 2 * BLOCKS, list), 2 * BLOCKS);
	CHECK_IS(io_getevents(wide, 2 * BLOCKS, 2 * BLOCKS, events, NULL), 2 * BLOCKS);
	for (int at = 0; at < 2 * BLOCKS; at++)
		CHECK_IS((long)events[at].res, BLOCK);
	CHECK_IS(close(third), 0);
	CHECK_IS(close(fd), 0);
	expect("old", 'O');
	expect("new", 'w');
	expect("third", 'T');
}

/* A number that meant a file of a pool now means something else. */
static void stale_for_others(void)
{
	make_file(at(0, "old"), 'o', BLOCKS);
	int fd = open_direct(at(0, "old"), O_RDWR), ends[2];
	fill(block, 'x', 0);
	CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
	CHECK_IS(kernel(SYS_pipe2, (long)ends, 0, 0, 0), 0);
	CHECK_IS(ends[0], fd);
	CHECK_IS(pwrite(fd, block, BLOCK, 0), -1);
	CHECK_IS(errno, ESPIPE);
	CHECK_IS(fsync(fd), -1);
	CHECK_IS(errno, EINVAL);
	CHECK_IS(close(ends[0]), 0);
	CHECK_IS(close(ends[1]), 0);

	fd = open_direct(at(0, "old"), O_RDWR);
	CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
	CHECK_IS(pwrite(fd, block, BLOCK, 0), -1);
	CHECK_IS(errno, EBADF);
	CHECK_IS(close(fd), -1);
	CHECK_IS(errno, EBADF);

	/* Made by libc inside itself. */
	char name[PATH_MAX];
	snprintf(name, sizeof name, "%s/made.XXXXXX", lane(0));
	fd = open_direct(at(0, "old"), O_RDWR);
	CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
	CHECK_IS(mkstemp(name), fd);
	CHECK_IS(pwrite(fd, block, BLOCK, 0), BLOCK);
	CHECK_IS(pread(fd, block, BLOCK, 0), BLOCK);
	CHECK(holds(block, 'x', 0));
	CHECK_IS(close(fd), 0);
	CHECK_IS(unlink(name), 0);
	expect("old", 'o');
}

/* The library does not record operations on the new file for the old one. */
static void stale_bookkeeping(void)
{
	struct stat status;
	for (int trick = 0; trick < TRICKS; trick++) {
		if (!has_trick(trick))
			continue;
		make_file(at(0, "old"), 'o', BLOCKS);
		make_file(at(0, "new"), 'n', BLOCKS);
		int keep = open_direct(at(0, "old"), O_RDWR);
		int fd = open_direct(at(0, "old"), O_RDWR);
		writes(keep, 'O');
		fd = becomes(trick, fd, at(0, "new"), O_RDWR | O_DIRECT);
		CHECK_IS(ftruncate(fd, 4 * BLOCKS * BLOCK), 0);
		CHECK_IS(fallocate(fd, 0, 0, 8 * BLOCKS * BLOCK) == 0 || errno == EOPNOTSUPP, 1);
		fill(block, 'w', 6 * BLOCKS);
		CHECK_IS(pwrite(fd, block, BLOCK, 6 * BLOCKS * BLOCK), BLOCK);
		/* Beyond the end of the old one: it grows, and says so. */
		for (int number = 2 * BLOCKS; number < 2 * BLOCKS + 8; number++) {
			fill(block, 'e', number);
			CHECK_IS(pwrite(keep, block, BLOCK, number * BLOCK), BLOCK);
			CHECK_IS(fstat(keep, &status), 0);
			CHECK_IS(status.st_size, (number + 1) * BLOCK);
		}
		int copy = dup(fd);
		CHECK(copy >= 0);
		CHECK_IS(pread(copy, block, BLOCK, 0), BLOCK);
		CHECK(holds(block, 'n', 0));
		CHECK_IS(flock(fd, LOCK_EX | LOCK_NB), 0);
		CHECK_IS(close(fd), 0);
		CHECK_IS(close(copy), 0);
		CHECK_IS(fsync(keep), 0);
		writes(keep, 'P');
		CHECK_IS(close(keep), 0);
		CHECK_IS(truncate(at(0, "old"), BLOCKS * BLOCK), 0);
		expect("old", 'P');
	}
}

/* The kernel's work at the last close happens. */
static void locks_end_with_the_file(void)
{
	make_file(at(0, "old"), 'o', BLOCKS);
	int fd = open_direct(at(0, "old"), O_RDWR), other = open_direct(at(0, "old"), O_RDWR);
	writes(fd, 'O');
	CHECK_IS(flock(fd, LOCK_EX | LOCK_NB), 0);
	CHECK_IS(flock(other, LOCK_EX | LOCK_NB), -1);
	CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
	CHECK_IS(flock(other, LOCK_EX | LOCK_NB), 0);
	CHECK_IS(close(other), 0);

	/* Locks of a process, by two descriptors: neither takes the other's. */
	fd = open_direct(at(0, "old"), O_RDWR);
	other = open_direct(at(0, "old"), O_RDWR);
	struct flock first = {.l_type = F_WRLCK, .l_start = 0, .l_len = 10}, second = {.l_type = F_WRLCK, .l_start = 100, .l_len = 10};
	CHECK_IS(fcntl(fd, F_SETLK, &first), 0);
	CHECK_IS(fcntl(other, F_SETLK, &second), 0);
	pid_t child = fork();
	if (child == 0) {
		int mine = open(at(0, "old"), O_RDWR);
		CHECK_IS(fcntl(mine, F_GETLK, &first), 0);
		CHECK_IS(fcntl(mine, F_GETLK, &second), 0);
		CHECK_IS(first.l_type, F_WRLCK);
		CHECK_IS(second.l_type, F_WRLCK);
		_exit(0);
	}
	int status;
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
	CHECK_IS(close(fd), 0);
	CHECK_IS(close(other), 0);
}

/* All descriptors are closed at once, the library's among them, and the numbers are used again. */
static void everything_closed_unseen(void)
{
	struct rlimit limit;
	CHECK_IS(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK_IS(setrlimit(RLIMIT_NOFILE, &limit), 0);
	make_file(at(0, "old"), 'o', BLOCKS);
	make_file(at(0, "new"), 'n', BLOCKS);
	int fd = open_direct(at(0, "old"), O_RDWR);
	writes(fd, 'O');
	CHECK_IS(kernel(SYS_close_range, 3, ~0U, 0, 0), 0);
	/* The program's own, wherever the lanes were (from three quarters of the limit on, or 8192). */
	int quarters = (int)(limit.rlim_max - limit.rlim_max / 4), from = quarters < 8192 ? quarters : 8192;
	for (int number = 3; number < 20; number++)
		CHECK_IS(unseen_open(at(0, "new"), O_RDWR | O_DIRECT), number);
	for (int number = from; number < from + 100; number++)
		CHECK_IS(kernel(SYS_fcntl, 3, F_DUPFD, number, 0), number);
	for (int number = 3; number < 20; number++)
		writes(number, 'w');
	/* Each of them can be closed, once, by whoever has opened it. */
	for (int number = from; number < from + 100; number++) {
		CHECK_IS(close(number), 0);
		CHECK(!is_open(number));
	}
	for (int number = 3; number < 20; number++)
		CHECK_IS(close(number), 0);
	expect("old", 'O');
	expect("new", 'w');
}

/* Flags that were changed past the library: Linux appends what pwrite(2) writes with O_APPEND. */
static void flags_changed_unseen(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	struct stat status;
	writes(fd, 'b');
	long set = kernel(SYS_fcntl, fd, F_SETFL, kernel(SYS_fcntl, fd, F_GETFL, 0, 0) | O_APPEND, 0);
	if (set == -EINVAL)
		return; /* NFS has no appends by O_DIRECT */
	CHECK_IS(set, 0);
	writes(fd, 'c');
	CHECK_IS(fstat(fd, &status), 0);
	CHECK_IS(status.st_size, 2 * BLOCKS * BLOCK);
	CHECK_IS(close(fd), 0);
	expect("file", 'b');
}

/* ---- 3. memory that outlives its descriptor ---- */

/* The program maps the file, closes it, and opens it again to write past the page cache. */
static void direct_beside(char *memory)
{
	int fd = open_direct(at(0, "file"), O_RDWR);
	for (int number = 0; number < BLOCKS; number++) {
		fill(block, 'd', number);
		CHECK_IS(pwrite(fd, block, BLOCK, number * BLOCK), BLOCK);
		CHECK(holds(memory + number * BLOCK, 'd', number));
		memory[number * BLOCK + BLOCK - 1] = 'm';
	}
	CHECK_IS(msync(memory, BLOCKS * BLOCK, MS_SYNC), 0);
	CHECK_IS(close(fd), 0);
	fd = unseen_open(at(0, "file"), O_RDONLY | O_DIRECT);
	for (int number = 0; number < BLOCKS; number++) {
		CHECK_IS(kernel(SYS_pread64, fd, (long)block, BLOCK, (long)number * BLOCK), BLOCK);
		CHECK_IS(block[BLOCK - 1], 'm');
		block[BLOCK - 1] = 'd';
		CHECK(holds(block, 'd', number));
	}
	CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
}

static char *mapped(int unseen)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open(at(0, "file"), O_RDWR);
	size_t bytes = BLOCKS * BLOCK;
	char *memory = unseen ? (char *)inline6(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
	                      : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(memory != MAP_FAILED);
	CHECK_IS(close(fd), 0);
	for (int number = 0; number < BLOCKS; number++)
		CHECK(holds(memory + number * BLOCK, 'a', number));
	return memory;
}

static void mapping_outlives_its_descriptor(void)
{
	direct_beside(mapped(0));
}

static void mapping_that_nobody_saw(void)
{
	direct_beside(mapped(1));
}

static void mapping_that_moved(void)
{
	char *memory = mapped(0);
	char *away = mmap(NULL, 4 * BLOCKS * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memory = mremap(memory, BLOCKS * BLOCK, BLOCKS * BLOCK, MREMAP_MAYMOVE | MREMAP_FIXED, away + BLOCKS * BLOCK);
	CHECK(memory == away + BLOCKS * BLOCK);
	direct_beside(memory);
}

static void mapping_of_a_child(void)
{
	char *memory = mapped(0);
	pid_t child = fork();
	int status;
	if (child == 0) {
		direct_beside(memory);
		_exit(0);
	}
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
}

/* Mapped through a descriptor that the library does not know, while the file is spread. */
static void mapping_beside_a_spread_file(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR), buffered = unseen_open(at(0, "file"), O_RDWR);
	writes(fd, 'b');
	char *memory = mmap(NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, buffered, 0);
	CHECK(memory != MAP_FAILED);
	CHECK_IS(close(buffered), 0);
	for (int number = 0; number < BLOCKS; number++)
		CHECK(holds(memory + number * BLOCK, 'b', number));
	direct_beside(memory);
	CHECK_IS(close(fd), 0);
}

/* Once nothing is mapped any more, the file may be spread again: the test that starts this looks at that. */
static void mapping_that_ended(void)
{
	char *memory = mapped(0);
	CHECK(mmap(memory, BLOCKS * BLOCK, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
	int fd = open_direct(at(0, "file"), O_RDWR);
	writes(fd, 'd');
	CHECK_IS(close(fd), 0);
	expect("file", 'd');
}

/* ---- 4. descriptors that nobody saw come ---- */

enum source { OPENED, INHERITED, EXECUTED, SENT, RING, STREAM, STREAM_READS, REGISTERED, TEMPORARY, BOUND, ROOTED, TAKEN, SOURCES };
static const char *const SOURCE_NAMES[SOURCES] = {"opened", "inherited", "executed", "sent", "ring", "stream", "stream_reads", "registered", "temporary", "bound", "rooted", "taken"};

/* Buffered and direct I/O of one file in one process. */
static void beside(int buffered, int direct, int writes_buffered)
{
	char *cached = aligned(BLOCK);
	int lost = 0, old = 0, unseen = 0;
	for (int number = 0; number < BLOCKS; number++) {
		off_t offset = number * BLOCK;
		CHECK_IS(pread(buffered, cached, BLOCK, offset), BLOCK); /* the page is in the cache */
		fill(block, 'd', number);
		CHECK_IS(pwrite(direct, block, BLOCK, offset), BLOCK);
		CHECK_IS(pread(buffered, cached, BLOCK, offset), BLOCK);
		old += !holds(cached, 'd', number);
		if (!writes_buffered)
			continue;
		CHECK_IS(pwrite(buffered, "m", 1, offset + BLOCK - 1), 1);
		CHECK_IS(pread(direct, block, BLOCK, offset), BLOCK);
		unseen += block[BLOCK - 1] != 'm';
	}
	if (writes_buffered)
		CHECK_IS(fsync(buffered), 0);
	int fd = unseen_open(at(0, "file"), O_RDONLY | O_DIRECT);
	for (int number = 0; number < BLOCKS; number++) {
		CHECK_IS(kernel(SYS_pread64, fd, (long)block, BLOCK, (long)number * BLOCK), BLOCK);
		if (writes_buffered)
			lost += block[BLOCK - 1] != 'm';
		block[BLOCK - 1] = 'd';
		lost += !holds(block, 'd', number);
	}
	kernel(SYS_close, fd, 0, 0, 0);
	if (lost + old + unseen != 0) {
		dprintf(2, "of %d blocks: %d lost, %d read as they were, %d buffered writes not seen\n", BLOCKS, lost, old, unseen);
		_exit(1);
	}
	free(cached);
}

/* The file by a path that does not lie on a lane: a bind mount of the lane elsewhere. */
static int open_bound(int flags)
{
	char other[PATH_MAX], path[PATH_MAX];
	snprintf(other, sizeof other, "%.4000s.off.XXXXXX", lane(0)); /* beside the lane: a directory that can be written */
	CHECK(mkdtemp(other) != NULL);
	CHECK_IS(unshare(CLONE_NEWNS), 0);
	CHECK_IS(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	CHECK_IS(mount(lane(0), other, NULL, MS_BIND, NULL), 0);
	snprintf(path, sizeof path, "%.4000s/file", other);
	int fd = open(path, flags);
	CHECK(fd >= 0);
	CHECK_IS(umount2(other, MNT_DETACH), 0);
	CHECK_IS(rmdir(other), 0);
	return fd;
}

/* The file by a path that does not lie on a lane: the lane is the root directory for a moment. */
static int open_rooted(int flags)
{
	int root = open("/", O_PATH | O_DIRECTORY);
	CHECK_IS(chroot(lane(0)), 0);
	int fd = open("/file", flags);
	CHECK(root >= 0 && fd >= 0);
	CHECK_IS(fchdir(root), 0);
	CHECK_IS(chroot("."), 0);
	CHECK_IS(close(root), 0);
	return fd;
}

/* The file as another process has opened it: pidfd_getfd(2), which glibc has as a function. */
static int taken_from_a_child(void)
{
	int ready[2], number = 500, status;
	char byte;
	CHECK_IS(pipe(ready), 0);
	pid_t child = fork();
	if (child == 0) {
		kernel(SYS_dup3, unseen_open(at(0, "file"), O_RDWR), number, 0, 0);
		CHECK_IS(write(ready[1], "x", 1), 1);
		pause();
	}
	CHECK_IS(read(ready[0], &byte, 1), 1);
	int pidfd = (int)kernel(SYS_pidfd_open, child, 0, 0, 0);
	int (*by_libc)(int, int, unsigned) = dlsym(RTLD_DEFAULT, "pidfd_getfd");
	int fd = by_libc != NULL ? by_libc(pidfd, number, 0) : (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
	CHECK(fd >= 0);
	CHECK_IS(kill(child, SIGKILL), 0);
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK((close(pidfd), close(ready[0]), close(ready[1])) == 0);
	return fd;
}

/* A descriptor of the file with its page cache, from this source. `later`: the file is being spread already. */
static int from(enum source source, int later)
{
	int pair[2], fd;
	switch (source) {
	case SENT:
		CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		fd = unseen_open(at(0, "file"), O_RDWR);
		send_file(pair[0], fd);
		kernel(SYS_close, fd, 0, 0, 0);
		return receive_file(pair[1]);
	case RING: return liburing_open(at(0, "file"), O_RDWR);
	case TAKEN: return taken_from_a_child();
	case BOUND: return open_bound(O_RDWR);
	case ROOTED: return open_rooted(O_RDWR);
	case STREAM: return fileno(fopen(at(0, "file"), "r+"));
	case STREAM_READS: return fileno(fopen(at(0, "file"), "r"));
	default:
		CHECK(!later);
		return unseen_open(at(0, "file"), O_RDWR);
	}
}

static int needs_a_ring(enum source source)
{
	return (source == RING || source == REGISTERED) && liburing.ring_fd < 0;
}

static void unknown_then_direct(const char *name)
{
	for (int source = 0; source < SOURCES; source++) {
		if (strcmp(SOURCE_NAMES[source], name) != 0 || needs_a_ring(source))
			continue;
		make_file(at(0, "file"), 'a', BLOCKS);
		if (source == TEMPORARY) {
			char path[PATH_MAX];
			snprintf(path, sizeof path, "%s/made.XXXXXX", lane(0));
			int fd = mkstemp(path);
			CHECK(fd >= 0);
			for (int number = 0; number < BLOCKS; number++) {
				fill(block, 'a', number);
				CHECK_IS(pwrite(fd, block, BLOCK, number * BLOCK), BLOCK);
			}
			CHECK_IS(rename(path, at(0, "file")), 0);
			beside(fd, open_direct(at(0, "file"), O_RDWR), 1);
			continue;
		}
		int fd = from(source, 0), status;
		if (source == INHERITED) {
			pid_t child = fork();
			if (child == 0) {
				beside(fd, open_direct(at(0, "file"), O_RDWR), 1);
				_exit(0);
			}
			CHECK_IS(waitpid(child, &status, 0), child);
			CHECK_IS(status, 0);
		} else if (source == EXECUTED) {
			char number[16];
			snprintf(number, sizeof number, "%d", fd);
			CHECK_IS(execl("/proc/self/exe", "holes", "beside", number, (char *)NULL), 0);
		} else {
			beside(fd, open_direct(at(0, "file"), O_RDWR), source != STREAM_READS);
		}
	}
}

/* The same, while the file is spread already. */
static void direct_then_unknown(const char *name)
{
	for (int source = 0; source < SOURCES; source++) {
		if (strcmp(SOURCE_NAMES[source], name) != 0 || needs_a_ring(source))
			continue;
		make_file(at(0, "file"), 'a', BLOCKS);
		int direct = open_direct(at(0, "file"), O_RDWR);
		writes(direct, 'b');
		beside(from(source, 1), direct, source != STREAM_READS);
	}
}

enum registering { BY_FUNCTION, BY_REQUEST, BY_CALL };

/* A descriptor that a ring keeps when it is closed: registered by a function, by a request of the ring, or by liburing's
 * name of the system call. */
static void keeps_files(enum registering way)
{
	if (liburing.ring_fd < 0)
		return;
	make_file(at(0, "file"), 'a', BLOCKS);
	int buffered = unseen_open(at(0, "file"), O_RDWR), none = -1;
	if (way == BY_CALL)
		CHECK_IS(io_uring_register((unsigned)liburing.ring_fd, IORING_REGISTER_FILES, &buffered, 1), 0);
	else
		CHECK_IS(io_uring_register_files(&liburing, way == BY_REQUEST ? &none : &buffered, 1), 0);
	if (way == BY_REQUEST) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&liburing);
		struct io_uring_cqe *cqe;
		io_uring_prep_files_update(sqe, &buffered, 1, 0);
		CHECK_IS(io_uring_submit(&liburing), 1);
		CHECK_IS(io_uring_wait_cqe(&liburing, &cqe), 0);
		CHECK_IS(cqe->res, 1);
		io_uring_cqe_seen(&liburing, cqe);
	}
	CHECK_IS(kernel(SYS_close, buffered, 0, 0, 0), 0);
	int direct = open_direct(at(0, "file"), O_RDWR);
	char *cached = aligned(BLOCK);
	for (int number = 0; number < BLOCKS; number++) {
		for (int turn = 0; turn < 2; turn++) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&liburing);
			struct io_uring_cqe *cqe;
			io_uring_prep_read(sqe, 0, cached, BLOCK, number * BLOCK);
			sqe->flags |= IOSQE_FIXED_FILE;
			CHECK_IS(io_uring_submit(&liburing), 1);
			CHECK_IS(io_uring_wait_cqe(&liburing, &cqe), 0);
			CHECK_IS(cqe->res, BLOCK);
			io_uring_cqe_seen(&liburing, cqe);
			if (turn == 1)
				break;
			fill(block, 'd', number);
			CHECK_IS(pwrite(direct, block, BLOCK, number * BLOCK), BLOCK);
		}
		CHECK(holds(cached, 'd', number));
	}
}

static void registered_files(void)
{
	keeps_files(BY_FUNCTION);
}

static void registered_by_a_request(void)
{
	keeps_files(BY_REQUEST);
}

static void registered_by_a_call(void)
{
	keeps_files(BY_CALL);
}

/* Data that a ring moves between a pipe and a file that is spread. */
static void spliced_by_a_ring(void)
{
	int pair[2];
	if (liburing.ring_fd < 0)
		return;
	make_file(at(0, "file"), 'a', BLOCKS);
	int direct = open_direct(at(0, "file"), O_RDWR);
	writes(direct, 'b');
	CHECK_IS(pipe(pair), 0);
	for (int number = 0; number < BLOCKS; number++) {
		for (int turn = 0; turn < 2; turn++) { /* into the file, and out of it */
			struct io_uring_sqe *sqe = io_uring_get_sqe(&liburing);
			struct io_uring_cqe *cqe;
			fill(block, 'c', number);
			if (turn == 0)
				CHECK_IS(write(pair[1], block, BLOCK), BLOCK);
			if (turn == 0)
				io_uring_prep_splice(sqe, pair[0], -1, direct, number * BLOCK, BLOCK, 0);
			else
				io_uring_prep_splice(sqe, direct, number * BLOCK, pair[1], -1, BLOCK, 0);
			CHECK_IS(io_uring_submit(&liburing), 1);
			CHECK_IS(io_uring_wait_cqe(&liburing, &cqe), 0);
			CHECK_IS(cqe->res, BLOCK);
			io_uring_cqe_seen(&liburing, cqe);
			CHECK_IS(turn == 0 ? pread(direct, block, BLOCK, number * BLOCK) : read(pair[0], block, BLOCK), BLOCK);
			CHECK(holds(block, 'c', number));
		}
	}
	CHECK_IS(close(direct), 0);
	expect("file", 'c');
}

/* ---- 7. the same, where buffered reads are spread ---- */

static void sees(int fd, char letter)
{
	for (int number = 0; number < BLOCKS; number++) {
		CHECK_IS(pread(fd, block, BLOCK, number * BLOCK), BLOCK);
		CHECK(holds(block, letter, number));
	}
}

static void buffered_reads_beside(const char *name)
{
	for (int source = 0; source < SOURCES; source++) {
		if (strcmp(SOURCE_NAMES[source], name) != 0 || needs_a_ring(source))
			continue;
		make_file(at(0, "file"), 'a', BLOCKS);
		int early = from(source, source != OPENED);
		int reads = open(at(0, "file"), O_RDONLY);
		sees(reads, 'a');
		writes(early, 'b'); /* dirty pages of one lane */
		sees(reads, 'b');
		CHECK_IS(fsync(early), 0);
		CHECK_IS(close(early), 0);
		if (source != OPENED) {
			CHECK_IS(close(reads), 0);
			reads = open(at(0, "file"), O_RDONLY);
			sees(reads, 'b');
			int late = from(source, 1);
			writes(late, 'c');
			sees(reads, 'c');
			CHECK_IS(close(late), 0);
		}
		CHECK_IS(close(reads), 0);
	}
}

static void buffered_reads_beside_memory(void)
{
	char *memory = mapped(0);
	int reads = open(at(0, "file"), O_RDONLY);
	for (int number = 0; number < BLOCKS; number++)
		fill(memory + number * BLOCK, 'm', number);
	sees(reads, 'm');
	CHECK_IS(close(reads), 0);
}

static void buffered_reads_of_a_stale_number(void)
{
	for (int trick = 0; trick < TRICKS; trick++) {
		if (!has_trick(trick))
			continue;
		make_file(at(0, "old"), 'o', BLOCKS);
		make_file(at(0, "new"), 'n', BLOCKS);
		int fd = open(at(0, "old"), O_RDONLY);
		sees(fd, 'o');
		sees(becomes(trick, fd, at(0, "new"), O_RDONLY), 'n');
		CHECK_IS(close(fd), 0);
	}
}

/* A kernel, or a container, in which descriptors cannot be compared: "query" refuses fcntl(F_DUPFD_QUERY), "kcmp" both. */
static void refuse(const char *what)
{
	int kcmp = strcmp(what, "kcmp") == 0 ? SYS_kcmp : -1;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)kcmp, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1027, 1, 2),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	CHECK_IS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	/* Past the library, which gives up before a filter that it sees. */
	CHECK_IS(kernel(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0), 0);
	/* The filter itself is right. */
	CHECK_IS(kernel(SYS_fcntl, 0, 1027, 0, 0), -EINVAL);
	if (kcmp >= 0)
		CHECK_IS(kernel(SYS_kcmp, getpid(), getpid(), 0, 0), -EPERM);
}

/* ---- 8. numbers that the program needs itself ---- */

/* Where the soft limit is the hard one, lanes share the program's numbers: the program gets all of them. */
static void all_numbers_are_the_programs(void)
{
	enum { LIMIT = 400 };
	struct rlimit limit = {LIMIT, LIMIT};
	CHECK_IS(setrlimit(RLIMIT_NOFILE, &limit), 0);
	make_file(at(0, "file"), 'a', BLOCKS);
	int base = dup(0), fds[LIMIT], files = 0, pair[2];
	CHECK(base >= 0 && close(base) == 0);
	for (; base + files < LIMIT - 16; files++) {
		fds[files] = files % 3 == 2 ? dup(fds[files - 1]) : open(at(0, "file"), O_RDWR | O_DIRECT);
		CHECK(fds[files] >= 0);
		fill(block, 'b', files % BLOCKS);
		CHECK_IS(pwrite(fds[files], block, BLOCK, files % BLOCKS * BLOCK), BLOCK);
	}
	/* Of whatever kind. */
	int others[] = {socket(AF_UNIX, SOCK_STREAM, 0), (int)syscall(SYS_eventfd2, 0, 0), epoll_create1(0), fcntl(0, F_DUPFD, 3)};
	for (int at = 0; at < 4; at++)
		CHECK(others[at] >= 0);
	CHECK_IS(pipe(pair), 0);
	CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, others), 0);
	FILE *stream = fopen("/dev/null", "r");
	CHECK(stream != NULL && fclose(stream) == 0);
	/* Of functions that no hook sees. */
	sigset_t no_signals;
	sigemptyset(&no_signals);
	int unseen[] = {memfd_create("m", 0), timerfd_create(CLOCK_MONOTONIC, 0), inotify_init1(0), signalfd(-1, &no_signals, 0)};
	for (int at = 0; at < 4; at++)
		CHECK(unseen[at] >= 0 && close(unseen[at]) == 0);
	for (int at = 0; at < files; at++) {
		CHECK_IS(pread(fds[at], block, BLOCK, at % BLOCKS * BLOCK), BLOCK);
		CHECK(holds(block, at < BLOCKS ? 'b' : 'c', at % BLOCKS));
		fill(block, 'c', at % BLOCKS);
		CHECK_IS(pwrite(fds[at], block, BLOCK, at % BLOCKS * BLOCK), BLOCK);
		if (at % 64 == 0)
			CHECK_IS(fsync(fds[at]), 0);
	}
	for (int at = 0; at < files; at++)
		CHECK_IS(close(fds[at]), 0);
	expect("file", 'c');
}

static const struct test TESTS[] = {
	{"stale_transfers", stale_transfers},
	{"stale_large", stale_large},
	{"stale_in_a_batch", stale_in_a_batch},
	{"stale_for_others", stale_for_others},
	{"stale_bookkeeping", stale_bookkeeping},
	{"locks_end_with_the_file", locks_end_with_the_file},
	{"everything_closed_unseen", everything_closed_unseen},
	{"flags_changed_unseen", flags_changed_unseen},
	{"mapping_outlives_its_descriptor", mapping_outlives_its_descriptor},
	{"mapping_that_nobody_saw", mapping_that_nobody_saw},
	{"mapping_that_moved", mapping_that_moved},
	{"mapping_of_a_child", mapping_of_a_child},
	{"mapping_beside_a_spread_file", mapping_beside_a_spread_file},
	{"mapping_that_ended", mapping_that_ended},
	{"all_numbers_are_the_programs", all_numbers_are_the_programs},
	{"registered_files", registered_files},
	{"registered_by_a_request", registered_by_a_request},
	{"registered_by_a_call", registered_by_a_call},
	{"spliced_by_a_ring", spliced_by_a_ring},
	{"buffered_reads_beside_memory", buffered_reads_beside_memory},
	{"buffered_reads_of_a_stale_number", buffered_reads_of_a_stale_number},
};

int main(int count, char **arguments)
{
	if (count < 2)
		return 2;
	prepare();
	if (getenv("REFUSE") != NULL)
		refuse(getenv("REFUSE"));
	if (count == 3 && strcmp(arguments[1], "beside") == 0) {
		beside(atoi(arguments[2]), open_direct(at(0, "file"), O_RDWR), 1);
		return 0;
	}
	const char *name = count == 3 ? arguments[2] : "";
	if (strcmp(arguments[1], "unknown_then_direct") == 0)
		unknown_then_direct(name);
	else if (strcmp(arguments[1], "direct_then_unknown") == 0)
		direct_then_unknown(name);
	else if (strcmp(arguments[1], "buffered_reads_beside") == 0)
		buffered_reads_beside(name);
	else
		return run_named(TESTS, sizeof TESTS / sizeof *TESTS, arguments[1]);
	return 0;
}
