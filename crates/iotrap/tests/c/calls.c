/* Random system calls with random arguments, of which many are invalid: calls FIRST SEEDS CALLS. It prints the
 * result, errno, the bytes and the attributes of each call. The output depends on the seeds alone, so with the library
 * it is the same as without.
 *
 * The program has one thread. A batch of requests that are carried out at the same time only reads, or writes the same
 * byte everywhere. Nothing is printed that two runs have differently by nature: times, inode numbers, addresses. */
#include "check.h"
#include <aio.h>
#include <liburing.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

enum { FILES = 4, SLOTS = 12, ARENA = 2 << 20, MOST_VECTORS = 5 };

static uint64_t state;
static int seed, number;
static char *arena, *read_only, *unmapped;
static int slots[SLOTS];
static io_context_t context;
static struct io_uring ring;
static int has_ring;
static char *mapped;
static size_t mapped_bytes;

static uint64_t drawn(void)
{
	state += 0x9e3779b97f4a7c15ULL;
	uint64_t z = state;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static int below(int limit)
{
	return (int)(drawn() % (unsigned)limit);
}

#define ONE_OF(first, ...)                                                     \
	({                                                                         \
		__typeof__(first) list_[] = {first, __VA_ARGS__};                      \
		list_[below(sizeof list_ / sizeof *list_)];                            \
	})

static uint64_t sum(const void *bytes, size_t count)
{
	uint64_t hash = 0xcbf29ce484222325ULL;
	const unsigned char *at = bytes;
	for (size_t index = 0; index < count; index++)
		hash = (hash ^ at[index]) * 0x100000001b3ULL;
	return hash;
}

/* ---- arguments ---- */

static const char *name_of(int file)
{
	static char names[8][32];
	static int next;
	char *name = names[next++ % 8];
	snprintf(name, sizeof names[0], "calls.%d.%d", seed, file);
	return name;
}

/* A path: mostly of a file of the pool, by any lane. */
static const char *some_path(void)
{
	int kind = below(40), lane_ = below(3) ? 0 : below(4);
	switch (kind) {
	case 0: return "/dev/null";
	case 1: return at(lane_, "no such/file");
	case 2: return at(lane_, ".");
	case 3: return "";
	case 4: return (const char *)8;
	case 5: return unmapped;
	case 6: return "/dev/zero";
	default: return at(lane_, name_of(below(FILES)));
	}
}

/* A device belongs to the whole machine: its mode and its times stay. */
static int is_a_device(int fd)
{
	struct stat found;
	return fstat(fd, &found) == 0 && (S_ISCHR(found.st_mode) || S_ISBLK(found.st_mode));
}

static int some_fd(void)
{
	int kind = below(60);
	if (kind == 0)
		return ONE_OF(-1, 9999, INT_MAX, INT_MIN, AT_FDCWD, 1 << 20);
	return slots[kind < 40 ? below(4) : below(SLOTS)];
}

static size_t some_length(void)
{
	switch (below(12)) {
	case 0: return 0;
	case 1: return (size_t)below(5000);
	case 2: return ONE_OF(1UL, 511UL, 512UL, 513UL, 4095UL, 4097UL);
	case 3: return (size_t)(1 + below(400)) * BLOCK;
	case 4: return ONE_OF((1UL << 20) + 100, (1UL << 20) + BLOCK, 1UL << 20, 2UL << 20, (2UL << 20) + 512);
	case 5: return below(4) ? BLOCK : ONE_OF(SIZE_MAX, SIZE_MAX / 2, 3UL << 30, 1UL << 31, (1UL << 32) + BLOCK);
	default: return (size_t)(1 + below(4)) * BLOCK;
	}
}

static off_t some_offset(void)
{
	switch (below(16)) {
	case 0: return ONE_OF(-1L, INT64_MAX, INT64_MIN, -4096L, INT64_MAX - 4095, 1L << 62);
	case 1: return below(70000);
	case 2: return ONE_OF(1L, 511L, 512L, 513L, 4095L, 4097L);
	case 3: return (off_t)below(600) * BLOCK;
	default: return (off_t)below(16) * BLOCK;
	}
}

/* Lengths of writes have to be whole sectors: of a longer one that O_DIRECT refuses, a disk's file system writes as many
 * extents as fit, and the extents are those that the allocator has found. */
static int is_written_whole(int fd)
{
	struct statfs of;
	return fstatfs(fd, &of) == 0 && of.f_type != 0x01021994 /* tmpfs */;
}

static size_t length_to_write(int fd, size_t length)
{
	return length > 512 && is_written_whole(fd) ? length / 512 * 512 : length;
}

/* Memory for a transfer of this length: mostly all of it is there. */
static char *some_memory(size_t length)
{
	switch (below(24)) {
	case 0: return ONE_OF((char *)NULL, (char *)8, (char *)-8L, (char *)0xffffffff81000000L, unmapped);
	case 1: return read_only;
	case 2: return arena + ARENA - ONE_OF(1, 100, 512, BLOCK, BLOCK + 512, 3 * BLOCK); /* nothing lies behind it */
	case 3: return arena + below(BLOCK);
	default: return length <= ARENA / 2 ? arena + (size_t)below(128) * BLOCK : arena;
	}
}

/* Fills the memory with the byte of the next write, which tells the calls apart. */
static void paint(void)
{
	static int next;
	memset(arena, 'a' + next++ % 26, ARENA);
}

static struct iovec vectors[MOST_VECTORS];

/* Each vector of a list has memory of its own: nobody says in which order the kernel fills them. */
static int some_vectors(void)
{
	int count = below(30) == 0 ? ONE_OF(-1, 0, 1025, INT_MAX) : 1 + below(MOST_VECTORS - 1);
	for (int at = 0; at < MOST_VECTORS; at++) {
		size_t length = some_length();
		if (length > ARENA / 8 && below(10))
			length = BLOCK;
		char *memory = below(20) ? arena + (size_t)at * (ARENA / MOST_VECTORS) / BLOCK * BLOCK + (below(8) ? 0 : 512) : some_memory(length);
		vectors[at] = (struct iovec){memory, length};
	}
	return count;
}

/* The list for a write. */
static void vectors_to_write(int fd)
{
	for (int at = 0; at < MOST_VECTORS; at++)
		vectors[at].iov_len = length_to_write(fd, vectors[at].iov_len < 512 ? BLOCK : vectors[at].iov_len);
}

static const struct iovec *place_of_vectors(void)
{
	return below(30) == 0 ? ONE_OF((struct iovec *)NULL, (struct iovec *)8, (struct iovec *)unmapped) : vectors;
}

/* ---- what is told ---- */

static void tell(const char *what, long long result)
{
	int error = errno;
	printf("%d.%d %s: %lld", seed, number, what, result);
	if (result < 0)
		printf(" %s", error ? strerrorname_np(error) : "-");
	printf("\n");
}

/* The bytes that a read has brought. */
static void tell_read(const char *what, const void *memory, long long result)
{
	int error = errno;
	uint64_t brought = 0;
	if (result > 0 && result <= ARENA)
		brought = sum(memory, (size_t)result);
	printf("%d.%d %s: %lld", seed, number, what, result);
	if (result < 0)
		printf(" %s", error ? strerrorname_np(error) : "-");
	printf(" %016llx\n", (unsigned long long)brought);
}

static void tell_vectors(const char *what, long long result)
{
	int error = errno;
	uint64_t brought = 0;
	long long left = result;
	for (int at = 0; at < MOST_VECTORS && left > 0; at++) {
		size_t some = vectors[at].iov_len < (size_t)left ? vectors[at].iov_len : (size_t)left;
		if (some <= ARENA)
			brought = brought * 31 + sum(vectors[at].iov_base, some);
		left -= (long long)some;
	}
	errno = error;
	printf("%d.%d %s: %lld", seed, number, what, result);
	if (result < 0)
		printf(" %s", error ? strerrorname_np(error) : "-");
	printf(" %016llx\n", (unsigned long long)brought);
}

static void tell_status(const char *what, long long result, const struct stat *status)
{
	if (result == 0 && S_ISREG(status->st_mode))
		printf("%d.%d %s: mode %o links %d size %lld\n", seed, number, what, status->st_mode, (int)status->st_nlink,
		       (long long)status->st_size);
	else
		tell(what, result);
}

static void keep(int fd)
{
	if (fd < 0)
		return;
	int at = below(3) ? below(4) : below(SLOTS);
	int before = slots[at];
	slots[at] = fd;
	for (int other = 0; other < SLOTS; other++)
		if (slots[other] == before && other != at)
			before = -1;
	if (before > 2 && before != fd)
		tell("close", close(before));
}

/* ---- calls ---- */

/* True for a pipe and an eventfd: without O_NONBLOCK, and by a ring, their readers wait for ever. */
static int waits(int fd)
{
	struct stat status;
	return fstat(fd, &status) == 0 && (S_ISFIFO(status.st_mode) || (status.st_mode & S_IFMT) == 0);
}

static void opens(void)
{
	int flags = ONE_OF(O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR);
	if (below(3))
		flags |= O_DIRECT;
	if (below(6) == 0)
		flags |= ONE_OF(O_CREAT, O_CREAT | O_EXCL, O_TRUNC, O_APPEND, O_SYNC, O_DSYNC, O_NOATIME, O_NOFOLLOW, O_NONBLOCK, O_CLOEXEC);
	if (below(40) == 0)
		flags |= ONE_OF(O_PATH, O_DIRECTORY, O_TMPFILE, 3, O_ASYNC);
	const char *path = some_path();
	int mode = ONE_OF(0644, 0600, 0);
	int fd;
	switch (below(6)) {
	case 0: fd = openat(AT_FDCWD, path, flags, mode); break;
	case 1: fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode); break;
	case 2: fd = (int)syscall(SYS_open, path, flags, mode); break;
	case 3: fd = openat(some_fd(), path, flags, mode); break;
	default: fd = open(path, flags, mode); break;
	}
	tell("open", fd);
	keep(fd);
}

static void duplicates(void)
{
	int fd = some_fd(), to = ONE_OF(some_fd(), 20 + below(8), 20 + below(8));
	if (to >= 0 && to <= 2)
		to = 20;
	int result;
	switch (below(6)) {
	case 0: result = dup(fd); break;
	case 1: result = fcntl(fd, F_DUPFD, below(40)); break;
	case 2: result = fcntl(fd, F_DUPFD_CLOEXEC, ONE_OF(0, 30, -1, INT_MAX)); break;
	case 3: result = dup3(fd, to, ONE_OF(0, O_CLOEXEC, O_DIRECT)); break;
	case 4: result = (int)syscall(SYS_dup2, fd, to); break;
	default: result = dup2(fd, to); break;
	}
	tell("dup", result);
	keep(result);
}

static void closes(void)
{
	int fd = ONE_OF(some_fd(), slots[below(SLOTS)]);
	if (fd >= 0 && fd <= 2)
		return;
	tell("close", below(3) ? close(fd) : syscall(SYS_close, fd));
}

static void reads(void)
{
	int fd = some_fd();
	size_t length = some_length();
	char *memory = some_memory(length);
	switch (below(5)) {
	case 0: tell_read("read", memory, read(fd, memory, length)); break;
	case 1: {
		off_t offset = some_offset();
		tell_read("syscall pread", memory, syscall(SYS_pread64, fd, memory, length, offset));
		break;
	}
	default: {
		off_t offset = some_offset();
		tell_read("pread", memory, pread(fd, memory, length, offset));
	}
	}
}

static void writes(void)
{
	int fd = some_fd();
	size_t length = length_to_write(fd, some_length());
	char *memory = some_memory(length);
	off_t offset = some_offset();
	if (offset > (4L << 20) && below(20))
		offset = 0;
	paint();
	switch (below(5)) {
	case 0: tell("write", write(fd, memory, length)); break;
	case 1: tell("syscall pwrite", syscall(SYS_pwrite64, fd, memory, length, offset)); break;
	default: tell("pwrite", pwrite(fd, memory, length, offset)); break;
	}
}

static void vectored(void)
{
	int fd = some_fd(), count = some_vectors();
	off_t offset = some_offset();
	const struct iovec *list = place_of_vectors();
	int flags = below(3) ? 0 : ONE_OF(RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_APPEND, 0x20 /* NOAPPEND */, 0x40 /* ATOMIC */, 1 << 20, -1, RWF_HIPRI | RWF_DSYNC);
	int way = below(8);
	if (way >= 4)
		vectors_to_write(fd);
	switch (way) {
	case 0: tell_vectors("readv", readv(fd, list, count)); break;
	case 1: tell_vectors("preadv", preadv(fd, list, count, offset)); break;
	case 2: tell_vectors("preadv2", preadv2(fd, list, count, offset, flags)); break;
	case 3: tell_vectors("syscall preadv", syscall(SYS_preadv, fd, list, count, offset, 0L)); break;
	case 4: paint(); tell("writev", writev(fd, list, count)); break;
	case 5: paint(); tell("pwritev", pwritev(fd, list, count, offset)); break;
	case 6: paint(); tell("pwritev2", pwritev2(fd, list, count, offset, flags)); break;
	default: paint(); tell("syscall pwritev2", syscall(SYS_pwritev2, fd, list, count, offset, 0L, flags)); break;
	}
}

static void seeks(void)
{
	int fd = some_fd();
	off_t offset = some_offset();
	int whence = ONE_OF(SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE, 9);
	/* On a disk, data and holes depend on what the page cache holds of allocated space. */
	struct statfs of;
	if ((whence == SEEK_DATA || whence == SEEK_HOLE) && (fstatfs(fd, &of) != 0 || of.f_type != 0x01021994 /* tmpfs */))
		whence = SEEK_SET;
	tell("lseek", lseek(fd, offset, whence));
}

static void resizes(void)
{
	int fd = some_fd();
	off_t length = below(3) ? (off_t)below(40) * BLOCK : ONE_OF(-1L, 0L, 100L, 5000L, INT64_MAX, 2L << 20);
	int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE, FALLOC_FL_COLLAPSE_RANGE,
	               FALLOC_FL_INSERT_RANGE, FALLOC_FL_PUNCH_HOLE, -1};
	off_t from = (off_t)below(16) * BLOCK + (below(6) ? 0 : 100);
	off_t bytes = below(8) ? (off_t)(1 + below(16)) * BLOCK : ONE_OF(0L, -1L, 100L, INT64_MAX);
	switch (below(6)) {
	case 0: tell("ftruncate", ftruncate(fd, length)); break;
	case 1: tell("truncate", truncate(some_path(), length)); break;
	case 2: tell("posix_fallocate", below(2) && fd >= 0 ? posix_fallocate(fd, from, below(8) ? bytes & 0xfffff : -1) : 0); break;
	default: {
		int mode = modes[below(8)];
		tell("fallocate", fallocate(fd, mode, from, bytes > (64L << 20) && mode <= 1 ? -1 : bytes));
	}
	}
}

static void syncs(void)
{
	int fd = some_fd();
	switch (below(6)) {
	case 0: tell("fsync", fsync(fd)); break;
	case 1: tell("fdatasync", fdatasync(fd)); break;
	case 2: tell("syscall fsync", syscall(SYS_fsync, fd)); break;
	case 3: tell("sync_file_range", sync_file_range(fd, some_offset(), some_offset(), ONE_OF(0U, 2U, 7U, 99U))); break;
	case 4: tell("fadvise", posix_fadvise(fd, some_offset(), some_offset(), ONE_OF(0, 3, 4, 99))); break;
	default: tell("syncfs", syscall(SYS_sync_file_range, fd, 0L, 0L, 7)); break;
	}
}

static void statuses(void)
{
	struct stat status;
	struct statx more;
	int fd = some_fd();
	long result;
	switch (below(6)) {
	case 0:
	case 1: tell_status("fstat", fstat(fd, &status), &status); break;
	case 2: tell_status("stat", stat(at(below(4), name_of(below(FILES))), &status), &status); break;
	case 3: tell_status("fstatat", fstatat(fd, "", &status, AT_EMPTY_PATH), &status); break;
	case 4:
		result = statx(fd, "", AT_EMPTY_PATH | ONE_OF(0, AT_STATX_FORCE_SYNC, AT_STATX_DONT_SYNC), STATX_SIZE | STATX_BLOCKS, &more);
		tell("statx", result < 0 ? result : S_ISREG(more.stx_mode) ? (long)more.stx_size : -2);
		break;
	default: tell("syscall fstat", syscall(SYS_fstat, fd, ONE_OF((char *)&status, unmapped, (char *)8)));
	}
}

static void controls(void)
{
	int fd = some_fd();
	struct flock lock = {.l_type = ONE_OF(F_RDLCK, F_WRLCK, F_UNLCK), .l_whence = SEEK_SET, .l_start = below(100), .l_len = below(100)};
	switch (below(14)) {
	case 0:
	case 1: tell("getfl", fcntl(fd, F_GETFL)); break;
	case 2:
		if (fd > 2 && !waits(fd))
			tell("setfl", fcntl(fd, F_SETFL, ONE_OF(0, O_DIRECT, O_APPEND, O_NONBLOCK, O_DIRECT | O_APPEND, -1)));
		break;
	case 3: tell("getfd", fcntl(fd, F_GETFD)); break;
	case 4: tell("setfd", fcntl(fd, F_SETFD, below(2))); break;
	case 5: tell("setlk", below(8) ? 0 : fcntl(fd, F_SETLK, below(10) ? &lock : (struct flock *)8)); break;
	case 6: tell("getlk", fcntl(fd, F_GETLK, below(10) ? &lock : (struct flock *)unmapped)); break;
	case 7: tell("flock", below(8) ? 0 : flock(fd, ONE_OF(LOCK_SH, LOCK_EX, LOCK_UN, 99) | LOCK_NB)); break;
	case 8: tell("fcntl", fcntl(fd, ONE_OF(9999, -1, F_GETSIG, F_GETLEASE, F_GETPIPE_SZ, F_GET_SEALS), below(3))); break;
	case 9: {
		int value = -1;
		tell("fionread", fd > 2 ? ioctl(fd, FIGETBSZ, below(8) ? (char *)&value : (char *)8) : 0);
		break;
	}
	case 10: tell("ioctl", ioctl(fd, ONE_OF(0UL, FICLONERANGE, FICLONE, 0xffffffffUL), ONE_OF((long)some_fd(), 8L, (long)unmapped))); break;
	case 11: tell("readahead", readahead(fd, some_offset(), some_length())); break;
	case 12: {
		int mode = ONE_OF(0644, 0600, 0400);
		tell("fchmod", is_a_device(fd) ? 0 : fchmod(fd, mode));
		break;
	}
	default: {
		struct timespec times[2] = {{below(1000), 0}, {below(1000), below(20) ? 0 : 2000000000}};
		tell("futimens", is_a_device(fd) ? 0 : futimens(fd, times));
	}
	}
}

static void copies(void)
{
	int from = some_fd(), to = some_fd();
	off_t in = some_offset(), out = some_offset() & 0xfffff;
	off_t *in_at = ONE_OF(&in, &in, NULL), *out_at = ONE_OF(&out, &out, NULL);
	size_t length = (size_t)below(4 * BLOCK);
	if (below(30) == 0)
		in_at = ONE_OF((off_t *)8, (off_t *)unmapped);
	switch (below(3)) {
	case 0: tell("sendfile", sendfile(to, from, in_at, length)); break;
	case 1: tell("copy_file_range", copy_file_range(from, in_at, to, out_at, length, below(20) ? 0 : 1)); break;
	default: tell("splice", splice(from, in_at, to, out_at, length, SPLICE_F_NONBLOCK)); break;
	}
}

static void names_change(void)
{
	const char *one = at(below(4), name_of(below(FILES))), *other = at(below(4), name_of(below(FILES)));
	switch (below(12)) {
	case 0: tell("rename", rename(one, other)); break;
	case 1: tell("unlink", unlink(one)); break;
	case 2: tell("link", link(one, other)); break;
	case 3: {
		int from = some_fd();
		tell("linkat", linkat(from, "", AT_FDCWD, other, AT_EMPTY_PATH | ONE_OF(0, 0, 1)));
		break;
	}
	case 4: {
		unsigned flags = ONE_OF(0U, (unsigned)RENAME_NOREPLACE, (unsigned)RENAME_EXCHANGE, 3U, 99U);
		tell("renameat2", renameat2(AT_FDCWD, below(9) ? one : (char *)8, AT_FDCWD, other, flags));
		break;
	}
	case 5: tell("unlinkat", unlinkat(some_fd(), one, ONE_OF(0, AT_REMOVEDIR, 99))); break;
	default: tell("access", access(one, F_OK)); break;
	}
}

static void maps(void)
{
	if (mapped != NULL) {
		size_t offset = (size_t)below(8) * 512;
		/* The kernel reads the memory, so that a page behind the end is EFAULT and no SIGBUS. */
		struct iovec here = {arena, 256}, there = {mapped + offset, 256};
		if (below(2)) {
			tell_read("mapped", arena, syscall(SYS_process_vm_readv, getpid(), &here, 1L, &there, 1L, 0L));
		} else {
			tell("msync", msync(mapped, mapped_bytes, ONE_OF(MS_SYNC, MS_ASYNC, 99)));
			tell("munmap", munmap(mapped, mapped_bytes));
			mapped = NULL;
		}
		return;
	}
	if (below(4))
		return;
	mapped_bytes = BLOCK * (size_t)(1 + below(3));
	void *place = mmap(NULL, mapped_bytes, PROT_READ | (below(2) ? PROT_WRITE : 0), ONE_OF(MAP_SHARED, MAP_PRIVATE), some_fd(),
	                   (off_t)below(4) * BLOCK);
	tell("mmap", place == MAP_FAILED ? -1 : 0);
	mapped = place == MAP_FAILED ? NULL : place;
}

/* The work that an io_uring leaves to the thread ends waits of the kernel early (EINTR). */
static void fetch(long count, struct io_event *events)
{
	for (long got = 0; got < count;) {
		int more = io_getevents(context, 1, count - got, events + got, NULL);
		CHECK(more > 0 || more == -EINTR);
		got += more > 0 ? more : 0;
	}
}

static void by_libaio(void)
{
	enum { BATCH = 3 };
	struct iocb iocbs[BATCH], *list[BATCH];
	struct io_event events[BATCH];
	int count = 1 + below(BATCH), write = below(2), sync_ = below(12) == 0;
	paint();
	for (int at = 0; at < count; at++) {
		size_t length = some_length();
		if (length > ARENA)
			length = BLOCK;
		/* Each has memory of its own. */
		char *memory = count > 1 || below(10) ? arena + (size_t)at * (600 << 10) : some_memory(length);
		off_t offset = some_offset();
		if (write && offset > (4L << 20))
			offset = BLOCK;
		memset(&iocbs[at], 0, sizeof iocbs[at]);
		if (count > 1 && length > (512 << 10))
			length = BLOCK;
		int fd = some_fd();
		if (write)
			io_prep_pwrite(&iocbs[at], fd, memory, length_to_write(fd, length), offset);
		else
			io_prep_pread(&iocbs[at], fd, memory, length, offset);
		if (sync_) {
			fd = some_fd();
			if (below(2))
				io_prep_fsync(&iocbs[at], fd);
			else
				io_prep_fdsync(&iocbs[at], fd);
		}
		if (below(40) == 0)
			iocbs[at].aio_lio_opcode = (short)ONE_OF(6, 99, -1);
		if (below(40) == 0)
			iocbs[at].aio_rw_flags = ONE_OF(RWF_HIPRI, RWF_DSYNC, 1 << 20);
		iocbs[at].data = (void *)(intptr_t)(at + 1);
		list[at] = &iocbs[at];
	}
	if (below(30) == 0)
		list[below(count)] = ONE_OF((struct iocb *)NULL, (struct iocb *)8, (struct iocb *)unmapped);
	long result;
	if (below(2))
		result = io_submit(context, count, list);
	else
		result = syscall(SYS_io_submit, context, (long)count, list);
	tell("io_submit", result);
	if (result <= 0)
		return;
	long long results[BATCH] = {0};
	fetch(result, events);
	for (long at = 0; at < result; at++)
		results[(intptr_t)events[at].data - 1] = (long long)events[at].res;
	for (long at = 0; at < result; at++) {
		errno = results[at] < 0 ? (int)-results[at] : 0;
		tell_read("event", (void *)iocbs[at].u.c.buf, results[at]);
	}
}

static void by_aio(void)
{
	size_t length = some_length();
	if (length > ARENA)
		length = BLOCK;
	struct aiocb cb = {.aio_fildes = some_fd(), .aio_buf = arena, .aio_nbytes = length, .aio_offset = some_offset() & 0xfffff};
	const struct aiocb *list[1] = {&cb};
	int write = below(2);
	if (write)
		cb.aio_nbytes = length_to_write(cb.aio_fildes, cb.aio_nbytes);
	paint();
	int begun = write ? aio_write(&cb) : aio_read(&cb);
	if (begun != 0) {
		tell("aio", begun);
		return;
	}
	while (aio_error(&cb) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	errno = aio_error(&cb);
	tell_read("aio", arena, aio_return(&cb));
}

static void by_ring(void)
{
	int fd = some_fd();
	if (!has_ring || waits(fd))
		return;
	int count = some_vectors();
	size_t length = some_length();
	char *memory = some_memory(length);
	off_t offset = some_offset() & 0xfffff;
	paint();
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	struct io_uring_cqe *cqe;
	int kind = below(9), reads_ = kind <= 2;
	if (!reads_) {
		length = length_to_write(fd, length);
		vectors_to_write(fd);
	}
	switch (kind) {
	case 0:
	case 1: io_uring_prep_read(sqe, fd, memory, (unsigned)length, (unsigned long long)offset); break;
	case 2: io_uring_prep_readv(sqe, fd, place_of_vectors(), (unsigned)count, (unsigned long long)offset); break;
	case 3:
	case 4: io_uring_prep_write(sqe, fd, memory, (unsigned)length, (unsigned long long)offset); break;
	case 5: io_uring_prep_writev(sqe, fd, place_of_vectors(), (unsigned)count, (unsigned long long)offset); break;
	case 6: io_uring_prep_fsync(sqe, fd, below(2) ? IORING_FSYNC_DATASYNC : 0); break;
	case 7: io_uring_prep_fallocate(sqe, fd, 0, offset, BLOCK); break;
	default: io_uring_prep_sync_file_range(sqe, fd, BLOCK, (unsigned long long)offset, 7); break;
	}
	if (below(30) == 0)
		sqe->rw_flags = ONE_OF(RWF_HIPRI, RWF_DSYNC, 1 << 20);
	sqe->user_data = (unsigned long long)number + 1;
	int submitted = io_uring_submit(&ring);
	CHECK_IS(submitted, 1);
	CHECK_IS(io_uring_wait_cqe(&ring, &cqe), 0);
	CHECK_IS(cqe->user_data, number + 1);
	long long result = cqe->res;
	io_uring_cqe_seen(&ring, cqe);
	errno = result < 0 ? (int)-result : 0;
	if (reads_ && kind < 2)
		tell_read("ring read", memory, result);
	else if (reads_)
		tell_vectors("ring readv", result);
	else
		tell("ring", result);
}

/* openat2, paths through /proc, and handles. */
static void opens_otherwise(void)
{
	struct open_how how = {.flags = (uint64_t)(ONE_OF(O_RDONLY, O_RDWR, O_RDWR) | ONE_OF(0, O_DIRECT, O_DIRECT, O_APPEND))};
	char path[64];
	if (below(8) == 0)
		how.flags |= ONE_OF(1UL << 40, (unsigned long)O_PATH, (unsigned long)O_TRUNC);
	if (below(8) == 0)
		how.resolve = ONE_OF((uint64_t)RESOLVE_NO_XDEV, (uint64_t)RESOLVE_BENEATH, (uint64_t)RESOLVE_NO_SYMLINKS, (uint64_t)RESOLVE_CACHED, 1UL << 40);
	/* A pipe would be a second end of it, and a descriptor of the file may have no name any more. */
	snprintf(path, sizeof path, "/proc/self/fd/%d", slots[below(4)]);
	struct stat status;
	int again = stat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink > 0;
	const char *name = again && below(2) ? path : some_path();
	void *at_ = below(12) ? (void *)&how : ONE_OF((void *)8, NULL, (void *)unmapped);
	size_t size = below(12) ? sizeof how : ONE_OF(0UL, 8UL, sizeof how + 8, 1UL << 20);
	int fd;
	if (below(2)) {
		/* The bytes behind the structure are not zero in each run. */
		if (size == sizeof how + 8)
			size = sizeof how;
		fd = (int)syscall(SYS_openat2, AT_FDCWD, name, at_, size);
	} else {
		fd = open(name, (int)how.flags & (O_ACCMODE | O_DIRECT));
	}
	tell("open otherwise", fd);
	keep(fd);
}

static void closes_a_range(void)
{
	unsigned first = (unsigned)ONE_OF(slots[below(SLOTS)], 20 + below(8), 20 + below(8)), last = first + (unsigned)below(3);
	if (first <= 2 || (int)first < 0)
		return;
	/* The ring and the library's numbers are not the program's to close. */
	if (has_ring && first <= (unsigned)ring.ring_fd && last >= (unsigned)ring.ring_fd)
		return;
	int flags = below(6) ? 0 : ONE_OF(CLOSE_RANGE_CLOEXEC, 99);
	switch (below(4)) {
	case 0: tell("close_range", syscall(SYS_close_range, first, last, flags)); break;
	case 1: tell("close_range", close_range(last + 1, first, flags)); break;
	default: tell("close_range", close_range(first, last, flags));
	}
}

/* statx of a name, with flags and places that may be wrong. */
static void statuses_by_name(void)
{
	struct statx more;
	const char *path = some_path();
	int flags = ONE_OF(0, AT_STATX_FORCE_SYNC, AT_STATX_DONT_SYNC, AT_SYMLINK_NOFOLLOW, 1 << 30);
	unsigned mask = ONE_OF((unsigned)STATX_BASIC_STATS, (unsigned)STATX_ALL, (unsigned)STATX_SIZE, 1U << 31);
	void *place = below(10) ? (void *)&more : ONE_OF((void *)8, (void *)unmapped);
	long result = syscall(SYS_statx, AT_FDCWD, path, flags, mask, place);
	tell("statx of a name", result < 0 ? result : S_ISREG(more.stx_mode) ? (long)more.stx_size : 0);
}

/* Requests of libaio that are not plain, and calls on its contexts. */
static void by_other_libaio(void)
{
	struct iocb iocb, *list = &iocb;
	struct io_event event;
	struct timespec none = {0, below(12) ? 0 : 2000000000};
	int fd = some_fd(), kind = below(9), count = below(5) ? 2 : some_vectors();
	if (waits(fd))
		return;
	paint();
	some_vectors();
	if (kind == 1)
		vectors_to_write(fd);
	memset(&iocb, 0, sizeof iocb);
	off_t offset = some_offset() & 0xfffff;
	switch (kind) {
	case 0: io_prep_preadv(&iocb, fd, place_of_vectors(), count, offset); break;
	case 1: io_prep_pwritev(&iocb, fd, place_of_vectors(), count, offset); break;
	case 2: io_prep_pread(&iocb, fd, arena, BLOCK, offset); break;
	case 3: io_prep_pwrite(&iocb, fd, arena, BLOCK, offset); break;
	case 4: tell("io_getevents", syscall(SYS_io_getevents, ONE_OF((unsigned long)context, 8UL), ONE_OF(0L, 0L, -1L, 2L), 1L, (long)ONE_OF((char *)&event, (char *)8), &none)); return;
	case 5: tell("io_getevents", io_getevents(context, 0, ONE_OF(0, 1, -1), &event, &none)); return;
	case 6: tell("io_cancel", io_cancel(context, ONE_OF(&iocb, (struct iocb *)8), &event)); return;
	case 7: tell("io_destroy", syscall(SYS_io_destroy, ONE_OF(8UL, (unsigned long)arena))); return;
	default: tell("io_submit", syscall(SYS_io_submit, context, ONE_OF(0L, -1L), (long)ONE_OF((char *)&list, (char *)8))); return;
	}
	if (below(3) == 0)
		io_set_eventfd(&iocb, some_fd());
	if (below(12) == 0)
		iocb.aio_reqprio = (short)ONE_OF(1, -1);
	if (below(8) == 0)
		iocb.aio_rw_flags = ONE_OF(RWF_APPEND, RWF_SYNC, -1);
	long result = io_submit(context, 1, &list);
	tell("io_submit", result);
	if (result != 1)
		return;
	fetch(1, &event);
	CHECK(event.obj == &iocb);
	errno = (long)event.res < 0 ? -(int)event.res : 0;
	if (kind == 0)
		tell_vectors("event", (long)event.res);
	else
		tell_read("event", arena, (long)event.res);
}

/* A list of POSIX aio. */
static void by_list(void)
{
	enum { BATCH = 3 };
	struct aiocb cbs[BATCH], *list[BATCH];
	int count = 1 + below(BATCH), write = below(2);
	paint();
	for (int at = 0; at < count; at++) {
		cbs[at] = (struct aiocb){.aio_fildes = slots[below(4)], .aio_buf = arena + (size_t)at * (600 << 10), .aio_nbytes = (size_t)(1 + below(4)) * BLOCK,
		                         .aio_offset = (off_t)below(16) * BLOCK, .aio_lio_opcode = write ? LIO_WRITE : LIO_READ};
		if (below(12) == 0)
			cbs[at].aio_lio_opcode = ONE_OF(LIO_NOP, 99);
		list[at] = below(12) ? &cbs[at] : NULL;
	}
	int listed = lio_listio(LIO_WAIT, list, count, NULL);
	if (listed == 0 || errno != EINTR)
		tell("lio_listio", listed);
	for (int at = 0; at < count; at++) {
		if (list[at] == NULL || cbs[at].aio_lio_opcode == LIO_NOP || cbs[at].aio_lio_opcode == 99)
			continue;
		while (aio_error(&cbs[at]) == EINPROGRESS)
			aio_suspend((const struct aiocb *[]){&cbs[at]}, 1, NULL);
		errno = aio_error(&cbs[at]);
		tell_read("of the list", (void *)cbs[at].aio_buf, aio_return(&cbs[at]));
	}
}

/* A ring that the program drives by syscall(2) alone; it is made for one chain of requests. */
static void by_bare_ring(void)
{
	struct io_uring_params params = {0};
	int ring_ = (int)syscall(SYS_io_uring_setup, below(20) ? 4 : ONE_OF(0, 1 << 30), &params);
	tell("io_uring_setup", ring_ < 0 ? ring_ : 0);
	if (ring_ < 0)
		return;
	size_t sq = params.sq_off.array + params.sq_entries * 4, cq = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	size_t bytes = sq > cq ? sq : cq;
	char *rings = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring_, IORING_OFF_SQ_RING);
	struct io_uring_sqe *sqes = mmap(NULL, params.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring_, IORING_OFF_SQES);
	CHECK(rings != MAP_FAILED && (void *)sqes != MAP_FAILED);
	int count = 1 + below(3), linked = below(2), write = below(2), registers = below(3) == 0, file = slots[below(4)];
	if (registers)
		registers = !waits(file) && syscall(SYS_io_uring_register, ring_, IORING_REGISTER_FILES, &file, below(20) ? 1 : 30000000) == 0;
	paint();
	for (int at = 0; at < count; at++) {
		struct io_uring_sqe *sqe = &sqes[at];
		int fd = slots[below(4)];
		if (waits(fd))
			fd = -1;
		memset(sqe, 0, sizeof *sqe);
		sqe->opcode = (uint8_t)(write ? IORING_OP_WRITE : IORING_OP_READ);
		sqe->fd = fd;
		sqe->addr = (uintptr_t)(below(20) ? arena + (size_t)at * (600 << 10) : unmapped);
		sqe->len = (unsigned)(1 + below(3)) * BLOCK;
		sqe->off = (unsigned long long)below(14) * BLOCK;
		sqe->user_data = (unsigned long long)at;
		sqe->flags = (uint8_t)(linked ? IOSQE_IO_LINK : 0);
		if (registers) {
			sqe->flags |= IOSQE_FIXED_FILE;
			sqe->fd = below(6) ? 0 : 1;
		}
		if (below(30) == 0)
			sqe->opcode = (uint8_t)ONE_OF(IORING_OP_NOP, IORING_OP_FSYNC, 200);
		if (sqe->opcode != IORING_OP_READ && sqe->opcode != IORING_OP_WRITE)
			sqe->addr = sqe->len = 0, sqe->off = 0;
		((unsigned *)(rings + params.sq_off.array))[at] = (unsigned)at;
	}
	__atomic_store_n((unsigned *)(rings + params.sq_off.tail), (unsigned)count, __ATOMIC_RELEASE);
	long result = syscall(SYS_io_uring_enter, ring_, count, count, IORING_ENTER_GETEVENTS, NULL, 0L);
	tell("io_uring_enter", result);
	/* A chain that is refused ends the submission early: what was taken completes, though not always before the wait
	 * ends. */
	unsigned *tail = (unsigned *)(rings + params.cq_off.tail), found;
	while ((found = __atomic_load_n(tail, __ATOMIC_ACQUIRE)) < (result > 0 ? (unsigned)result : 0))
		syscall(SYS_io_uring_enter, ring_, 0, 1 + found, IORING_ENTER_GETEVENTS, NULL, 0L);
	for (int at = 0; at < count; at++)
		for (unsigned place = 0; place < found; place++) {
			struct io_uring_cqe *cqe = (struct io_uring_cqe *)(rings + params.cq_off.cqes) + place;
			if (cqe->user_data != (unsigned long long)at)
				continue;
			errno = cqe->res < 0 ? -cqe->res : 0;
			tell_read("of the ring", arena + (size_t)at * (600 << 10), cqe->res);
		}
	CHECK_IS(munmap(rings, bytes), 0);
	CHECK_IS(munmap(sqes, params.sq_entries * sizeof *sqes), 0);
	tell("close", close(ring_));
}

/* stdio on a duplicate, with a buffer of its own. */
static void by_stdio(void)
{
	int fd = dup(slots[below(4)]);
	if (fd < 0)
		return;
	FILE *stream = fdopen(fd, ONE_OF((const char *)"r", "r+", "w", "a", "nonsense"));
	tell("fdopen", stream == NULL ? -1 : 0);
	if (stream == NULL) {
		close(fd);
		return;
	}
	static char room[4 * BLOCK] __attribute__((aligned(4096)));
	setvbuf(stream, room, _IOFBF, BLOCK);
	errno = 0;
	if (below(2))
		tell_read("fread", arena, (long long)fread(arena, 1, (size_t)below(3 * BLOCK), stream));
	else
		tell("fwrite", (long long)fwrite(arena, 1, (size_t)below(3) * BLOCK, stream));
	tell("fseek", fseek(stream, (long)below(8) * BLOCK, ONE_OF(SEEK_SET, SEEK_CUR, SEEK_END)));
	tell("fclose", fclose(stream));
}

/* A descriptor that goes through a socket. */
static void by_socket(void)
{
	int pair[2], fd = some_fd(), got = -1;
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec byte = {"x", 1};
	struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	control.header.cmsg_len = CMSG_LEN(sizeof fd);
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	long sent = sendmsg(pair[0], &message, 0);
	tell("sendmsg", sent);
	if (sent == 1) {
		char into;
		struct iovec place = {&into, 1};
		message = (struct msghdr){.msg_iov = &place, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
		tell("recvmsg", recvmsg(pair[1], below(10) ? &message : (struct msghdr *)8, MSG_DONTWAIT));
		if (message.msg_controllen == CMSG_LEN(sizeof got) || message.msg_controllen == sizeof control)
			memcpy(&got, CMSG_DATA(&control.header), sizeof got);
		if (got == fd) /* nothing was received */
			got = -1;
	}
	CHECK_IS(close(pair[0]), 0);
	CHECK_IS(close(pair[1]), 0);
	tell("received", got);
	keep(got);
}

/* A child that uses the files it has inherited. */
static void by_child(void)
{
	fflush(stdout);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		for (int times = 1 + below(3); times > 0; times--)
			ONE_OF(&reads, &writes, &vectored, &syncs, &resizes, &seeks, &duplicates)();
		fflush(stdout);
		_exit(0);
	}
	int status;
	CHECK_IS(waitpid(child, &status, 0), child);
	tell("child", status);
	/* The child has drawn numbers that the parent has not. */
	drawn();
}

static void (*const CALLS[])(void) = {
	opens, opens, reads, reads, reads, writes, writes, writes, vectored, vectored, by_libaio, by_libaio, by_ring, by_ring,
	by_aio, duplicates, closes, seeks, resizes, syncs, statuses, controls, copies, names_change, maps,
	opens_otherwise, closes_a_range, statuses_by_name, by_other_libaio, by_list, by_bare_ring, by_stdio, by_socket, by_child,
};

/* ---- programs ---- */

static void makes_files(void)
{
	for (int file = 0; file < FILES; file++) {
		int fd = open(at(0, name_of(file)), O_RDWR | O_CREAT | O_TRUNC, 0644);
		CHECK(fd >= 0);
		size_t bytes = file == 0 ? 2 << 20 : file == 1 ? 16 * BLOCK : file == 2 ? 10 * BLOCK + 100 : 0;
		for (size_t at = 0; at < bytes; at++)
			arena[at] = (char)(at / 512 * 7 + (size_t)file);
		CHECK_IS(write(fd, arena, bytes), bytes);
		CHECK_IS(fsync(fd), 0);
		CHECK_IS(close(fd), 0);
	}
}

static void tells_files(void)
{
	for (int file = 0; file < FILES; file++) {
		for (int lane_ = 0; lane_ < 4; lane_ += 3) {
			int fd = open(at(lane_, name_of(file)), O_RDONLY);
			if (fd < 0) {
				printf("%d: file %d: none\n", seed, file);
				continue;
			}
			long long size = lseek(fd, 0, SEEK_END);
			lseek(fd, 0, SEEK_SET);
			uint64_t hash = 0;
			ssize_t some;
			while (size <= (64 << 20) && (some = read(fd, arena, ARENA)) > 0)
				hash = hash * 31 + sum(arena, (size_t)some);
			printf("%d: file %d by lane %d: %lld bytes %016llx\n", seed, file, lane_, size, (unsigned long long)hash);
			CHECK_IS(close(fd), 0);
		}
		unlink(at(0, name_of(file)));
	}
}

static void program(int calls)
{
	int pair[2];
	state = (uint64_t)seed * 0x2545f4914f6cdd1dULL;
	arena = mmap(NULL, ARENA + BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	read_only = mmap(NULL, ARENA, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unmapped = mmap(NULL, BLOCK, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(arena != MAP_FAILED && read_only != MAP_FAILED && unmapped != MAP_FAILED);
	CHECK_IS(mprotect(arena + ARENA, BLOCK, PROT_NONE), 0);
	CHECK_IS(munmap(unmapped, BLOCK), 0);
	unmapped = (char *)0x500000000000; /* at no place that the kernel chooses */
	makes_files();
	CHECK_IS(io_setup(16, &context), 0);
	CHECK_IS(io_getevents(context, 0, 1, (struct io_event[1]){{0}}, &(struct timespec){0, 0}), 0);
	has_ring = io_uring_queue_init(8, &ring, 0) == 0;
	CHECK_IS(pipe2(pair, O_NONBLOCK), 0);
	for (int slot = 0; slot < SLOTS; slot++)
		slots[slot] = slot < 4 ? open(at(0, name_of(slot)), O_RDWR | O_DIRECT) : -1;
	slots[4] = pair[0];
	slots[5] = pair[1];
	slots[6] = open("/dev/null", O_RDWR);
	slots[7] = memfd_create("calls", 0);
	slots[8] = open(at(0, "."), O_RDONLY);
	slots[9] = open(at(0, name_of(1)), O_RDONLY);
	slots[10] = eventfd(0, EFD_NONBLOCK);
	for (number = 0; number < calls; number++) {
		errno = 0;
		CALLS[below(sizeof CALLS / sizeof *CALLS)]();
		fflush(stdout);
	}
	tells_files();
	fflush(stdout);
}

int main(int count, char **arguments)
{
	CHECK_IS(count, 4);
	int first = atoi(arguments[1]), seeds = atoi(arguments[2]);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	for (seed = first; seed < first + seeds; seed++) {
		int status;
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			alarm(600);
			program(atoi(arguments[3]));
			_exit(0);
		}
		CHECK_IS(waitpid(child, &status, 0), child);
		if (status != 0)
			printf("%d: ended with status %x\n", seed, status);
		fflush(stdout);
	}
	return 0;
}
