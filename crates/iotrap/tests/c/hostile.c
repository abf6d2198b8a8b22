/* Programs that are hard on an interposer: hostile TEST. Each prints what its calls returned. With the library it prints
 * the same as without. Before and after its test, each program reads a file by every lane, so that the file is spread. */
#include "check.h"
#include <liburing.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/time.h>

enum { BLOCKS = 32 };

static char *memory;

/* Tells the result of a call, or its error. */
static void said(const char *what, long long result)
{
	int error = errno;
	if (result < 0)
		printf("%s: %s\n", what, strerrorname_np(error));
	else
		printf("%s: %lld\n", what, result);
	errno = 0;
}

/* Tells the result of a request of a ring or of libaio. */
static void came(const char *what, long long result)
{
	errno = result < 0 ? (int)-result : 0;
	said(what, result < 0 ? -1 : result);
}

#define SAY(call) said(#call, (long long)(call))

/* Reads every block of a descriptor; the letters of their contents. */
static void letters(const char *what, int fd)
{
	char *block = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(block != MAP_FAILED);
	printf("%s: ", what);
	for (int number = 0; number < BLOCKS + 4; number++) {
		ssize_t got = pread(fd, block, BLOCK, (off_t)number * BLOCK);
		if (got <= 0)
			break;
		putchar(block[BLOCK - 1] != 0 && got == BLOCK ? block[BLOCK - 1] : '?');
	}
	putchar('\n');
	CHECK_IS(munmap(block, BLOCK), 0);
}

/* A new file of blocks of this letter, open for reading and writing with O_DIRECT, and spread. */
static int spread(const char *name, char letter)
{
	make_file(at(0, name), letter, BLOCKS);
	int fd = open_direct(at(0, name), O_RDWR);
	for (int number = 0; number < 8; number++)
		CHECK_IS(pread(fd, memory, BLOCK, (off_t)number * BLOCK), BLOCK);
	return fd;
}

/* Writes a block of this letter. */
static ssize_t put(int fd, char letter, int number)
{
	memset(memory, letter, BLOCK);
	return pwrite(fd, memory, BLOCK, (off_t)number * BLOCK);
}

static void ends_well(int child)
{
	int status;
	CHECK_IS(waitpid(child, &status, 0), child);
	printf("child: %x\n", status);
}

static int forked(void)
{
	fflush(stdout);
	int child = fork();
	CHECK(child >= 0);
	return child;
}

static void leave(void)
{
	fflush(stdout);
	_exit(0);
}

/* ---- memory of the program's allocator ---- */

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static _Atomic long allocations;

void *malloc(size_t bytes)
{
	allocations++;
	return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	allocations++;
	return __libc_calloc(count, bytes);
}

void *realloc(void *from, size_t bytes)
{
	allocations++;
	return __libc_realloc(from, bytes);
}

#define COUNTED(call)                                                  \
	do {                                                               \
		long before_ = allocations;                                    \
		CHECK((long)(call) != -1);                                     \
		printf("%s: %ld allocations\n", #call, allocations - before_); \
	} while (0)

/* A signal may find the program inside malloc(3), and a handler may call and end there: a call that allocated would wait
 * for a lock that nobody gives back. */
static void allocates_nothing(void)
{
	io_context_t requests = 0;
	struct iocb iocbs[2], *list[2] = {&iocbs[0], &iocbs[1]};
	struct io_event events[2];
	struct iovec parts[2] = {{memory, BLOCK}, {memory + BLOCK, BLOCK}};
	struct stat status;
	make_file(at(0, "one"), 'a', BLOCKS);
	for (int turn = 0, fd; turn < 2; turn++) {
		COUNTED(fd = open(at(0, "one"), O_RDWR | O_DIRECT));
		COUNTED(pread(fd, memory, BLOCK, 0));
		COUNTED(pread(fd, memory, BLOCKS * BLOCK, 0));
		COUNTED(pwrite(fd, memory, BLOCK, BLOCK));
		COUNTED(pwrite(fd, memory, BLOCK, (BLOCKS + turn) * BLOCK));
		COUNTED(preadv2(fd, parts, 2, 0, 0));
		COUNTED(fsync(fd));
		COUNTED(fstat(fd, &status));
		COUNTED(lseek(fd, 0, SEEK_END));
		COUNTED(dup2(fd, 50));
		COUNTED(syscall(SYS_pread64, 50, memory, BLOCK, 0L));
		COUNTED(close(50));
		COUNTED(io_setup(4, &requests));
		COUNTED(io_getevents(requests, 0, 1, events, &(struct timespec){0, 0}));
		int plain;
		COUNTED(plain = open(at(0, "one"), O_RDWR));
		io_prep_pwrite(list[0], plain, memory, BLOCK, 0);
		io_prep_pread(list[1], fd, memory + BLOCK, BLOCK, BLOCK);
		COUNTED(io_submit(requests, 2, list));
		COUNTED(io_getevents(requests, 2, 2, events, NULL));
		COUNTED(io_destroy(requests));
		requests = 0;
		COUNTED(close(plain));
		COUNTED(mmap(NULL, BLOCK, PROT_READ, MAP_SHARED, fd, 0));
		COUNTED(flock(fd, LOCK_SH));
		COUNTED(ftruncate(fd, (BLOCKS + turn) * BLOCK));
		COUNTED(signal(SIGUSR2, SIG_IGN) == SIG_ERR ? -1 : 0);
		COUNTED(close(fd));
	}
	COUNTED(unshare(CLONE_FILES));
}

/* ---- the table of descriptors ---- */

static int exchanged;
static _Atomic int stop;

static void *exchanges(void *files)
{
	for (int turn = 0; !stop; turn++)
		CHECK_IS(dup2(((int *)files)[turn % 2], exchanged), exchanged);
	return NULL;
}

/* One number means two files in turns, while others read by it. */
static void exchanged_beside_reads(void)
{
	int files[2] = {spread("one", 'a'), spread("other", 'b')}, wrong = 0;
	exchanged = dup(files[0]);
	pthread_t other;
	CHECK_IS(pthread_create(&other, NULL, exchanges, files), 0);
	for (int turn = 0; turn < 4000; turn++) {
		CHECK_IS(pread(exchanged, memory, BLOCK, (off_t)(turn % BLOCKS) * BLOCK), BLOCK);
		wrong += memory[8] != memory[BLOCK - 1] || (memory[8] != 'a' && memory[8] != 'b');
	}
	stop = 1;
	CHECK_IS(pthread_join(other, NULL), 0);
	printf("wrong: %d\n", wrong);
	letters("one", files[0]);
	letters("other", files[1]);
}

/* A process of its own memory that shares the table puts another file in a number's place. */
static void shared_table(void)
{
	int fd = spread("one", 'a'), other = spread("other", 'b');
	fflush(stdout);
	long child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0L, 0L, 0L, 0L);
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_IS(dup2(other, fd), fd);
		CHECK_IS(put(fd, 'c', 3), BLOCK);
		_exit(0);
	}
	ends_well((int)child);
	letters("exchanged", fd);
	SAY(put(fd, 'd', 4));
	SAY(fsync(fd));
	letters("other", other);
	SAY(close(fd));
	fd = open_direct(at(2, "one"), O_RDWR);
	letters("one", fd);
}

static void *leaves_the_table(void *fd)
{
	SAY(unshare(CLONE_FILES));
	SAY(close(*(int *)fd));
	int own = open_direct(at(1, "other"), O_RDWR);
	said("the same number", own == *(int *)fd);
	SAY(put(own, 'c', 1));
	letters("of the thread", own);
	return NULL;
}

static void one_thread_leaves(void)
{
	int fd = spread("one", 'a');
	make_file(at(0, "other"), 'b', BLOCKS);
	pthread_t thread;
	CHECK_IS(pthread_create(&thread, NULL, leaves_the_table, &fd), 0);
	CHECK_IS(pthread_join(thread, NULL), 0);
	SAY(put(fd, 'd', 2));
	letters("of the process", fd);
	expect_blocks(at(3, "one"), 'a', 1);
}

static void ranges(void)
{
	int fd = spread("one", 'a'), second = dup(fd), last = dup2(fd, 77);
	SAY(close_range(70, 80, CLOSE_RANGE_CLOEXEC));
	SAY(fcntl(last, F_GETFD));
	SAY(close_range(70, 80, 0));
	SAY(pread(last, memory, BLOCK, 0));
	SAY(close_range((unsigned)second, (unsigned)second, CLOSE_RANGE_UNSHARE));
	SAY(pread(second, memory, BLOCK, 0));
	SAY(put(fd, 'b', 1));
	letters("left", fd);
	SAY(close_range(3, ~0U, 0));
	SAY(pread(fd, memory, BLOCK, 0));
	said("open again", open_direct(at(1, "one"), O_RDWR) == 3);
	letters("again", 3);
}

static void taken_by_pidfd(void)
{
	int fd = spread("one", 'a');
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	CHECK(self >= 0);
	int taken = (int)syscall(SYS_pidfd_getfd, self, fd, 0);
	CHECK(taken >= 0);
	SAY(put(taken, 'b', 1));
	SAY(put(fd, 'c', 2));
	letters("taken", taken);
	SAY(close(fd));
	SAY(put(taken, 'd', 3));
	letters("left", taken);
	SAY(ftruncate(taken, 5 * BLOCK));
	letters("cut", taken);
	SAY(syscall(SYS_pidfd_getfd, self, 9999, 0));
}

static int sent(int fd)
{
	int pair[2], got = -1;
	char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 'x';
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	struct cmsghdr *header = (struct cmsghdr *)room;
	*header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	CHECK_IS(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
	CHECK_IS(sendmsg(pair[0], &message, 0), 1);
	CHECK_IS(close(fd), 0);
	CHECK_IS(recvmsg(pair[1], &message, 0), 1);
	memcpy(&got, CMSG_DATA(header), sizeof got);
	CHECK_IS(close(pair[0]), 0);
	CHECK_IS(close(pair[1]), 0);
	return got;
}

/* A file that is sent and closed comes back, and keeps its position, its flags and its contents. */
static void sent_and_closed(void)
{
	int fd = spread("one", 'a');
	SAY(lseek(fd, 5 * BLOCK, SEEK_SET));
	for (int turn = 0; turn < 20; turn++) {
		fd = sent(fd);
		CHECK_IS(put(fd, (char)('b' + turn), turn), BLOCK);
		CHECK_IS(flock(fd, LOCK_EX | LOCK_NB), 0);
	}
	SAY(read(fd, memory, BLOCK));
	SAY(lseek(fd, 0, SEEK_CUR));
	printf("flags: %x\n", fcntl(fd, F_GETFL));
	letters("sent", fd);
	int other = open_direct(at(1, "one"), O_RDWR);
	SAY(flock(other, LOCK_EX | LOCK_NB));
	SAY(close(fd));
	SAY(flock(other, LOCK_EX | LOCK_NB));
	letters("other", other);
}

/* ---- limits and roots that come late ---- */

static void late_limits(void)
{
	struct rlimit before, none = {3, 4096}, small;
	int fd = spread("one", 'a');
	CHECK_IS(getrlimit(RLIMIT_NOFILE, &before), 0);
	none.rlim_max = before.rlim_max;
	SAY(setrlimit(RLIMIT_NOFILE, &none));
	SAY(open(at(0, "one"), O_RDONLY));
	SAY(dup(fd));
	SAY(put(fd, 'b', 1));
	letters("without numbers", fd);
	SAY(setrlimit(RLIMIT_NOFILE, &before));
	signal(SIGXFSZ, SIG_IGN);
	small = (struct rlimit){6 * BLOCK, RLIM_INFINITY};
	SAY(setrlimit(RLIMIT_FSIZE, &small));
	SAY(put(fd, 'c', 5));
	SAY(put(fd, 'c', 6));
	memset(memory, 'd', 4 * BLOCK);
	SAY(pwrite(fd, memory, 4 * BLOCK, 4 * BLOCK));
	SAY(ftruncate(fd, 40 * BLOCK));
	SAY(prlimit(0, RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}, NULL));
	SAY(put(fd, 'e', 7));
	letters("at the end", fd);
}

static void late_root(void)
{
	int fd = spread("one", 'a'), here = open("/", O_RDONLY | O_DIRECTORY);
	char inside[PATH_MAX];
	snprintf(inside, sizeof inside, "%s", lane(1));
	SAY(chroot(inside));
	SAY(chdir("/"));
	int rooted = open_direct("/one", O_RDWR);
	SAY(put(rooted, 'b', 1));
	SAY(put(fd, 'c', 2));
	letters("rooted", rooted);
	letters("opened", fd);
	SAY(ftruncate(rooted, 7 * BLOCK));
	SAY(truncate("/one", 6 * BLOCK));
	struct stat one;
	SAY(fstat(fd, &one));
	said("size", one.st_size);
	SAY(fchdir(here));
	SAY(chroot("."));
	letters("back", open_direct(at(3, "one"), O_RDWR));
}

/* ---- sizes and ends of files ---- */

static io_context_t context;

static long long by_libaio(int kind, int fd, void *from, size_t length, off_t offset, int flags)
{
	struct iocb iocb, *list = &iocb;
	struct io_event event;
	if (kind == 'r')
		io_prep_pread(&iocb, fd, from, length, offset);
	else if (kind == 'w')
		io_prep_pwrite(&iocb, fd, from, length, offset);
	else
		io_prep_fsync(&iocb, fd);
	iocb.aio_rw_flags = flags;
	int result = io_submit(context, 1, &list);
	if (result != 1)
		return result;
	while ((result = io_getevents(context, 1, 1, &event, NULL)) == -EINTR)
		continue;
	CHECK_IS(result, 1);
	return (long)event.res;
}

static void begins_libaio(void)
{
	CHECK_IS(io_setup(8, &context), 0);
	CHECK_IS(io_getevents(context, 0, 1, (struct io_event[1]){{0}}, &(struct timespec){0, 0}), 0);
}

/* Writes at the end by each interface, behind a write of libaio that makes the file longer and is not waited for. */
static void appended(int direct)
{
	struct iocb iocb, *list = &iocb;
	struct io_event event;
	struct iovec part = {memory, BLOCK};
	struct stat one;
	begins_libaio();
	for (int way = 0; way < 8; way++) {
		int fd = spread("one", 'a');
		int end = open(at(0, "one"), O_WRONLY | direct | (way < 3 ? O_APPEND : 0)), plain = open(at(0, "one"), O_RDWR | direct);
		char *late = memory + 64 * BLOCK;
		memset(late, 'b', BLOCK);
		memset(memory, 'c', BLOCK);
		io_prep_pwrite(&iocb, plain, late, BLOCK, BLOCKS * BLOCK);
		CHECK_IS(io_submit(context, 1, &list), 1);
		switch (way) {
		case 0: SAY(write(end, memory, BLOCK)); break;
		case 1: SAY(pwrite(end, memory, BLOCK, 0)); break;
		case 2: SAY(by_libaio('w', end, memory, BLOCK, 0, 0) == BLOCK ? BLOCK : -1); break;
		case 3: SAY(pwritev2(end, &part, 1, 0, RWF_APPEND)); break;
		case 4: SAY(lseek(end, 0, SEEK_END)); SAY(write(end, memory, BLOCK)); break;
		case 5: SAY(fstat(end, &one)); said("size", one.st_size); SAY(pwrite(end, memory, BLOCK, one.st_size)); break;
		case 6: came("flag", by_libaio('w', end, memory, BLOCK, 0, RWF_APPEND)); break;
		default: SAY(fallocate(end, 0, BLOCKS * BLOCK, 2 * BLOCK)); SAY(lseek(end, 0, SEEK_END)); break;
		}
		CHECK_IS(io_getevents(context, 1, 1, &event, NULL), 1);
		came("late", (long)event.res);
		letters("file", fd);
		CHECK_IS(close(fd) | close(end) | close(plain), 0);
	}
}

static void appended_buffered(void) { appended(0); }
static void appended_direct(void) { appended(O_DIRECT); }

/* Copies in the kernel, whose source has just grown by a write that is not waited for. */
static void copied_behind_writes(void)
{
	begins_libaio();
	for (int way = 0; way < 4; way++) {
		struct iocb iocb, *list = &iocb;
		struct io_event event;
		int fd = spread("one", 'a'), other = spread("other", 'z'), plain = open(at(0, "one"), O_RDWR), pair[2];
		memset(memory, 'b', 2 * BLOCK);
		io_prep_pwrite(&iocb, plain, memory, 2 * BLOCK, (BLOCKS - 1) * BLOCK);
		CHECK_IS(io_submit(context, 1, &list), 1);
		off_t in = (BLOCKS - 2) * BLOCK, out = 0;
		CHECK_IS(pipe(pair), 0);
		int into = open(at(1, "other"), O_RDWR);
		switch (way) {
		case 0: SAY(sendfile(into, plain, &in, 8 * BLOCK)); break;
		case 1: SAY(copy_file_range(plain, &in, into, &out, 8 * BLOCK, 0)); break;
		case 2: SAY(splice(plain, &in, pair[1], NULL, 2 * BLOCK, 0)); SAY(splice(pair[0], NULL, into, &out, 2 * BLOCK, 0)); break;
		default: SAY(ioctl(into, FICLONE, plain));
		}
		CHECK_IS(io_getevents(context, 1, 1, &event, NULL), 1);
		came("late", (long)event.res);
		letters("source", fd);
		letters("copy", other);
		CHECK_IS(close(fd) | close(other) | close(plain) | close(into) | close(pair[0]) | close(pair[1]), 0);
	}
}

/* Cuts and holes beside writes that are not waited for. */
static void cut_beside_writes(void)
{
	begins_libaio();
	for (int way = 0; way < 6; way++) {
		enum { BATCH = 8 };
		struct iocb iocbs[BATCH], *list[BATCH];
		struct io_event events[BATCH];
		struct stat one;
		int fd = spread("one", 'a'), plain = way % 2 ? fd : open(at(0, "one"), O_RDWR);
		for (int number = 0; number < BATCH; number++) {
			memset(memory + (8 + number) * BLOCK, 'b', BLOCK);
			list[number] = &iocbs[number];
			io_prep_pwrite(&iocbs[number], plain, memory + (8 + number) * BLOCK, BLOCK, (off_t)(BLOCKS - 4 + number) * BLOCK);
		}
		CHECK_IS(io_submit(context, BATCH, list), BATCH);
		CHECK_IS(io_getevents(context, BATCH, BATCH, events, NULL), BATCH);
		CHECK_IS(io_submit(context, 4, list), 4); /* within the size */
		CHECK_IS(io_getevents(context, 4, 4, events, NULL), 4);
		switch (way) {
		case 0: SAY(ftruncate(plain, 30 * BLOCK)); break;
		case 1: SAY(truncate(at(2, "one"), 30 * BLOCK)); break;
		case 2: SAY(close(open(at(3, "one"), O_RDWR | O_TRUNC))); break;
		case 3: SAY(fallocate(plain, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 29 * BLOCK, 2 * BLOCK)); break;
		case 4: SAY(fallocate(plain, FALLOC_FL_KEEP_SIZE, 0, 50 * BLOCK)); break;
		default: SAY(ftruncate(fd, 34 * BLOCK + 100)); break;
		}
		SAY(fstat(fd, &one));
		said("size", one.st_size);
		letters("file", fd);
		CHECK_IS(close(fd), 0);
		if (plain != fd)
			CHECK_IS(close(plain), 0);
	}
}

/* Files of all sorts: without a name, in memory, of the kernel. */
static void other_files(void)
{
	int pool = spread("one", 'a'), memfd = memfd_create("one", MFD_ALLOW_SEALING), nameless = open(lane(0), O_TMPFILE | O_RDWR | O_DIRECT, 0600);
	CHECK(nameless >= 0);
	SAY(put(memfd, 'b', 0));
	SAY(fcntl(memfd, F_ADD_SEALS, F_SEAL_WRITE));
	SAY(put(memfd, 'c', 0));
	letters("memfd", memfd);
	for (int number = 0; number < 4; number++)
		CHECK_IS(put(nameless, (char)('d' + number), number), BLOCK);
	letters("without a name", nameless);
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", nameless);
	unlink(at(0, "named"));
	SAY(linkat(AT_FDCWD, path, AT_FDCWD, at(0, "named"), AT_SYMLINK_FOLLOW));
	int named = open_direct(at(2, "named"), O_RDWR);
	SAY(put(named, 'x', 1));
	SAY(put(nameless, 'y', 2));
	letters("named", named);
	letters("without a name", nameless);
	SAY(unlink(at(0, "one")));
	SAY(put(pool, 'z', 3));
	letters("removed", pool);
	SAY(open("/proc/self/fd/9999", O_RDONLY));
	int zero = open("/dev/zero", O_RDWR);
	SAY(pread(zero, memory, BLOCK, 1));
	SAY(pwrite(zero, memory, BLOCK, 1));
}

static void flags_of_requests(void)
{
	volatile int negative = -1;
	volatile size_t everything = SIZE_MAX;
	int fd = spread("one", 'a'), plain = open(at(0, "one"), O_RDWR);
	struct iovec parts[2] = {{memory, BLOCK}, {memory + BLOCK, BLOCK}}, odd = {memory, 100};
	static const int flags[] = {0, RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_DSYNC | RWF_SYNC, 1 << 29, -1};
	for (size_t at_ = 0; at_ < sizeof flags / sizeof *flags; at_++) {
		printf("%x\n", flags[at_]);
		SAY(preadv2(fd, parts, 2, BLOCK, flags[at_]));
		SAY(pwritev2(fd, parts, 2, BLOCK, flags[at_]));
		SAY(preadv2(fd, &odd, 1, BLOCK, flags[at_]));
		SAY(preadv2(fd, parts, negative, BLOCK, flags[at_]));
		SAY(preadv2(fd, parts, 0, BLOCK, flags[at_]));
		SAY(preadv2(fd, parts, 2, -2, flags[at_]));
		SAY(pwritev2(plain, parts, 1, -2, flags[at_]));
	}
	SAY(preadv2(fd, parts, 2, BLOCKS * BLOCK, 0));
	SAY(pread(fd, memory, BLOCK, (off_t)INT64_MAX - 100));
	SAY(pread(fd, memory, everything, 0));
	SAY(pread(fd, memory, BLOCK, -1));
	letters("file", fd);
}

/* ---- memory that is not there ---- */

static void bad_memory(void)
{
	int fd = spread("one", 'a');
	char *gone = mmap(NULL, 4 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK_IS(pread(fd, gone, BLOCK, 0), BLOCK); /* the library has seen that memory */
	CHECK_IS(munmap(gone + 2 * BLOCK, 2 * BLOCK), 0);
	struct iovec parts[2] = {{gone, BLOCK}, {gone + 2 * BLOCK, BLOCK}}, *lists[] = {parts, NULL, (struct iovec *)8, (struct iovec *)(gone + 3 * BLOCK)};
	SAY(pread(fd, gone + 2 * BLOCK, BLOCK, 0));
	SAY(pwrite(fd, gone + 2 * BLOCK, BLOCK, 0));
	SAY(pread(fd, gone, 4 * BLOCK, 0));
	SAY(pwrite(fd, gone, 4 * BLOCK, 4 * BLOCK));
	for (int number = 0; number < 4; number++) {
		SAY(preadv(fd, lists[number], 2, 0));
		SAY(pwritev(fd, lists[number], 2, 0));
		SAY(syscall(SYS_preadv2, fd, lists[number], 2L, 0L, 0L, 0L));
	}
	CHECK_IS(mprotect(gone, 2 * BLOCK, PROT_READ), 0);
	SAY(pread(fd, gone, BLOCK, 0));
	CHECK_IS(mprotect(gone, 2 * BLOCK, PROT_NONE), 0);
	SAY(pwrite(fd, gone, BLOCK, 0));
	begins_libaio();
	came("libaio", by_libaio('r', fd, gone, BLOCK, 0, 0));
	came("libaio", by_libaio('w', fd, gone, BLOCK, 0, 0));
	SAY(syscall(SYS_io_submit, context, 1L, gone));
	SAY(syscall(SYS_io_getevents, context, 0L, 1L, NULL, gone));
	SAY(syscall(SYS_openat, AT_FDCWD, gone, O_RDONLY));
	SAY(syscall(SYS_openat2, AT_FDCWD, at(0, "one"), gone, 24L));
	SAY(syscall(SYS_stat, gone, memory));
	SAY(syscall(SYS_fstat, fd, gone));
	SAY(syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_SIZE, gone));
	SAY(syscall(SYS_truncate, gone, 0L));
	SAY(syscall(SYS_copy_file_range, fd, gone, fd, NULL, 100L, 0L));
	SAY(syscall(SYS_sendfile, fd, fd, gone, 100L));
	SAY(syscall(SYS_fcntl, fd, F_SETLK, gone));
	SAY(syscall(SYS_execve, gone, NULL, NULL));
	SAY(syscall(SYS_execve, "/no such", gone, NULL));
	SAY(syscall(SYS_rename, gone, gone));
	SAY(syscall(SYS_recvmsg, fd, gone, 0L));
	SAY(syscall(SYS_prlimit64, 0L, RLIMIT_NOFILE, gone, NULL));
	SAY(syscall(SYS_io_uring_setup, 4L, gone));
	letters("file", fd);
}

/* ---- io_uring ---- */

static struct io_uring ring;

static struct io_uring_sqe *entry(uint64_t data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	CHECK(sqe != NULL);
	memset(sqe, 0, sizeof *sqe);
	sqe->user_data = data;
	return sqe;
}

/* Submits the entries; their results in the order of their data. */
static void run_ring(const char *what, unsigned count)
{
	int results[32] = {0};
	CHECK_IS(io_uring_submit(&ring), count);
	for (unsigned number = 0; number < count; number++) {
		struct io_uring_cqe *cqe;
		int waited;
		while ((waited = io_uring_wait_cqe(&ring, &cqe)) == -EINTR)
			continue;
		CHECK_IS(waited, 0);
		CHECK(cqe->user_data < 32);
		results[cqe->user_data] = cqe->res;
		io_uring_cqe_seen(&ring, cqe);
	}
	for (unsigned number = 0; number < count; number++)
		came(what, results[number]);
}

#define FLAGGED(sqe, more, prepare)     \
	do {                                \
		uint64_t data_ = (sqe)->user_data; \
		prepare;                        \
		(sqe)->user_data = data_;       \
		(sqe)->flags |= (more);         \
	} while (0)

static void ring_orders(void)
{
	int fd = spread("one", 'a');
	CHECK_IS(io_uring_queue_init(16, &ring, 0), 0);
	static const unsigned kinds[] = {0, IOSQE_IO_LINK, IOSQE_IO_HARDLINK, IOSQE_IO_DRAIN, IOSQE_ASYNC, IOSQE_ASYNC | IOSQE_IO_LINK};
	for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
		struct io_uring_sqe *sqe;
		memset(memory, (char)('b' + kind), 4 * BLOCK);
		sqe = entry(0);
		FLAGGED(sqe, kinds[kind], io_uring_prep_write(sqe, fd, memory, BLOCK, kind * BLOCK));
		sqe = entry(1);
		FLAGGED(sqe, kinds[kind], io_uring_prep_fsync(sqe, fd, 0));
		sqe = entry(2);
		FLAGGED(sqe, 0, io_uring_prep_read(sqe, fd, memory + 8 * BLOCK, BLOCK, 20 * BLOCK));
		run_ring("request", 3);
		/* A chain whose first request fails. */
		sqe = entry(0);
		FLAGGED(sqe, kinds[kind] & ~(unsigned)IOSQE_IO_DRAIN, io_uring_prep_read(sqe, fd, (void *)8, BLOCK, 0));
		sqe = entry(1);
		FLAGGED(sqe, 0, io_uring_prep_read(sqe, fd, memory + 8 * BLOCK, BLOCK, 0));
		run_ring("chain", 2);
	}
	letters("file", fd);
	io_uring_queue_exit(&ring);
}

/* Registered files and buffers, files that only the ring has, and requests that close and open. */
static void ring_files(void)
{
	int fd = spread("one", 'a'), other = spread("other", 'z');
	struct iovec part = {memory, 16 * BLOCK};
	struct io_uring_sqe *sqe;
	CHECK_IS(io_uring_queue_init(16, &ring, 0), 0);
	came("register", io_uring_register_files(&ring, (int[]){fd, other, -1, -1}, 4));
	came("register", io_uring_register_buffers(&ring, &part, 1));
	memset(memory, 'b', 16 * BLOCK);
	sqe = entry(0);
	FLAGGED(sqe, IOSQE_FIXED_FILE, io_uring_prep_write_fixed(sqe, 0, memory, BLOCK, 0, 0));
	sqe = entry(1);
	FLAGGED(sqe, 0, io_uring_prep_write_fixed(sqe, fd, memory + BLOCK, BLOCK, BLOCK, 0));
	sqe = entry(2);
	FLAGGED(sqe, 0, io_uring_prep_write_fixed(sqe, fd, memory + 17 * BLOCK, BLOCK, BLOCK, 0));
	sqe = entry(3);
	FLAGGED(sqe, IOSQE_FIXED_FILE, io_uring_prep_read(sqe, 2, memory, BLOCK, 0));
	sqe = entry(4);
	FLAGGED(sqe, IOSQE_FIXED_FILE, io_uring_prep_read(sqe, 99, memory, BLOCK, 0));
	run_ring("fixed", 5);
	SAY(close(fd));
	memset(memory, 'c', BLOCK);
	sqe = entry(0);
	FLAGGED(sqe, IOSQE_FIXED_FILE, io_uring_prep_write(sqe, 0, memory, BLOCK, 2 * BLOCK));
	run_ring("closed", 1);
	came("update", io_uring_register_files_update(&ring, 0, (int[]){other}, 1));
	sqe = entry(0);
	FLAGGED(sqe, IOSQE_FIXED_FILE, io_uring_prep_write(sqe, 0, memory, BLOCK, 3 * BLOCK));
	run_ring("updated", 1);
	letters("other", other);
	fd = open_direct(at(0, "one"), O_RDWR);
	letters("one", fd);
	sqe = entry(0);
	FLAGGED(sqe, 0, io_uring_prep_close(sqe, fd));
	run_ring("closed", 1);
	SAY(pread(fd, memory, BLOCK, 0));
	sqe = entry(0);
	FLAGGED(sqe, 0, io_uring_prep_openat(sqe, AT_FDCWD, at(0, "other"), O_RDWR | O_DIRECT, 0));
	run_ring("opened", 1);
	letters("opened", fd);
	sqe = entry(0);
	FLAGGED(sqe, 0, io_uring_prep_openat_direct(sqe, AT_FDCWD, at(1, "one"), O_RDWR | O_DIRECT, 0, 2));
	run_ring("opened for the ring", 1);
	memset(memory, 'd', BLOCK);
	sqe = entry(0);
	FLAGGED(sqe, IOSQE_FIXED_FILE, io_uring_prep_write(sqe, 2, memory, BLOCK, 5 * BLOCK));
	sqe = entry(1);
	FLAGGED(sqe, 0, io_uring_prep_fallocate(sqe, fd, 0, BLOCKS * BLOCK, BLOCK));
	run_ring("written", 2);
	struct stat one;
	SAY(fstat(fd, &one));
	said("size", one.st_size);
	letters("one", open_direct(at(2, "one"), O_RDWR));
	io_uring_queue_exit(&ring);
}

/* The memory of a ring is gone, and so is its descriptor. */
static void ring_memory_gone(void)
{
	int fd = spread("one", 'a');
	struct io_uring_params params = {0};
	int bare = (int)syscall(SYS_io_uring_setup, 4, &params);
	CHECK(bare >= 0);
	size_t bytes = params.sq_off.array + params.sq_entries * 4, more = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
	bytes = bytes > more ? bytes : more;
	char *rings = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bare, IORING_OFF_SQ_RING);
	struct io_uring_sqe *sqes = mmap(NULL, params.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, bare, IORING_OFF_SQES);
	CHECK(rings != MAP_FAILED && (void *)sqes != MAP_FAILED);
	for (unsigned turn = 0; turn < 2; turn++) {
		sqes[turn] = (struct io_uring_sqe){.opcode = IORING_OP_WRITE, .fd = fd, .addr = (uintptr_t)memory, .len = BLOCK, .off = turn * BLOCK};
		((unsigned *)(rings + params.sq_off.array))[turn] = turn;
		__atomic_store_n((unsigned *)(rings + params.sq_off.tail), turn + 1, __ATOMIC_RELEASE);
		memset(memory, 'b', BLOCK);
		if (turn == 1) {
			CHECK_IS(munmap(rings, bytes), 0);
			CHECK_IS(munmap(sqes, params.sq_entries * sizeof *sqes), 0);
		}
		SAY(syscall(SYS_io_uring_enter, bare, 1, turn + 1, IORING_ENTER_GETEVENTS, NULL, 0L));
	}
	SAY(close(bare));
	SAY(syscall(SYS_io_uring_enter, bare, 1, 0, 0, NULL, 0L));
	SAY(syscall(SYS_io_uring_register, bare, IORING_REGISTER_FILES, &fd, 1L));
	letters("file", fd);
}

/* ---- threads that end, and signals ---- */

static int shared;

static void *calls_for_ever(void *kind)
{
	char *own = mmap(NULL, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct stat status;
	struct iovec part = {own, BLOCK};
	if ((intptr_t)kind == 9)
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;) {
		switch ((intptr_t)kind % 9) {
		case 0: pread(shared, own, BLOCK, 0); break;
		case 1: memset(own, 'b', BLOCK); pwrite(shared, own, BLOCK, 4 * BLOCK); break;
		case 2: preadv2(shared, &part, 1, BLOCK, 0); break;
		case 3: fsync(shared); break;
		case 4: close(open(at(0, "one"), O_RDWR | O_DIRECT)); break;
		case 5: fstat(shared, &status); break;
		case 6: dup2(shared, 60); break;
		case 7: fdatasync(shared); break;
		default: syscall(SYS_pread64, shared, own, BLOCK, 0L);
		}
		pthread_testcancel();
	}
	return NULL;
}

static void ends_the_thread(int signal_)
{
	(void)signal_;
	pthread_exit(PTHREAD_CANCELED);
}

/* Ends a thread by pthread_cancel(3), or by a handler that does not come back. */
static int ends_thread(pthread_t thread, int by_signal)
{
	return by_signal ? pthread_kill(thread, SIGUSR1) : pthread_cancel(thread);
}

/* Threads are ended in each call; the next ones work as well. */
static void ended_in_calls(int by_signal)
{
	signal(SIGUSR1, ends_the_thread);
	shared = spread("one", 'a');
	int ended = 0;
	for (int turn = 0; turn < 15; turn++) {
		pthread_t threads[9];
		void *result;
		for (intptr_t kind = 0; kind < 9; kind++)
			CHECK_IS(pthread_create(&threads[kind], NULL, calls_for_ever, (void *)kind), 0);
		for (int number = 0; number < BLOCKS; number++)
			CHECK_IS(pread(shared, memory, BLOCK, (off_t)number * BLOCK), BLOCK);
		for (int kind = 0; kind < 9; kind++)
			CHECK_IS(ends_thread(threads[kind], by_signal), 0);
		for (int kind = 0; kind < 9; kind++) {
			CHECK_IS(pthread_join(threads[kind], &result), 0);
			ended += result == PTHREAD_CANCELED;
		}
	}
	printf("ended: %d\n", ended);
	letters("file", shared);
	SAY(close(shared));
	letters("again", open_direct(at(1, "one"), O_RDONLY));
}

static void cancelled(void) { ended_in_calls(0); }
static void ended_by_handlers(void) { ended_in_calls(1); }

static _Atomic long interrupted;
static sigjmp_buf back;
static volatile sig_atomic_t jumps;

static void interrupts(int signal_)
{
	(void)signal_;
	int error = errno;
	static char place[2 * BLOCK + BLOCK];
	char *own = (char *)(((uintptr_t)place + BLOCK - 1) / BLOCK * BLOCK);
	struct stat status;
	interrupted++;
	if (pread(shared, own, BLOCK, 20 * BLOCK) != BLOCK || own[BLOCK - 1] != 'a' || fstat(shared, &status) != 0)
		_exit(3);
	int again = open(at(1, "one"), O_RDONLY | O_DIRECT);
	if (again < 0 || close(again) != 0)
		_exit(4);
	errno = error;
	if (jumps)
		siglongjmp(back, 1);
}

/* A timer interrupts all calls, and its handler calls too; at last it jumps out of them. */
static void interrupted_calls(void)
{
	shared = spread("one", 'a');
	begins_libaio();
	signal(SIGALRM, interrupts);
	CHECK_IS(setitimer(ITIMER_REAL, &(struct itimerval){{0, 700}, {0, 700}}, NULL), 0);
	for (volatile int turn = 0; turn < 3000 && (interrupted < 300 || turn < 300); turn++) {
		int number = turn % 16;
		if (turn == 1500 || (interrupted > 150 && !jumps))
			jumps = 1;
		if (sigsetjmp(back, 1) != 0)
			continue;
		CHECK_IS(put(shared, 'b', number), BLOCK);
		CHECK_IS(pread(shared, memory + BLOCK, BLOCK, number * BLOCK), BLOCK);
		CHECK(memory[2 * BLOCK - 1] == 'b');
		if (!jumps)
			CHECK_IS(by_libaio('w', shared, memory + BLOCK, BLOCK, number * BLOCK, 0), BLOCK);
		CHECK_IS(fdatasync(shared), 0);
	}
	CHECK_IS(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL), 0);
	jumps = 0;
	CHECK(interrupted > 0);
	letters("file", shared);
	SAY(fsync(shared));
	SAY(ftruncate(shared, 20 * BLOCK));
	letters("cut", shared);
	SAY(close(shared));
}

/* ---- children ---- */

static int vforked;

static void children(void)
{
	int fd = spread("one", 'a'), other = spread("other", 'z');
	int child = forked();
	if (child == 0) {
		SAY(put(fd, 'b', 1));
		SAY(dup2(other, fd));
		SAY(put(fd, 'c', 2));
		letters("of the child", fd);
		leave();
	}
	ends_well(child);
	vforked = fd;
	pid_t quick = vfork();
	if (quick == 0) {
		close(vforked);
		dup2(other, vforked);
		pwrite(vforked, memory, 0, 0);
		execl("/bin/sh", "sh", "-c", "exit 7", NULL);
		_exit(1);
	}
	ends_well(quick);
	letters("one", fd);
	letters("other", other);
	/* An executed program has the descriptor, too. */
	char script[128];
	CHECK_IS(fcntl(fd, F_SETFD, 0), 0);
	snprintf(script, sizeof script, "dd bs=4096 count=1 iflag=fullblock skip=2 <&%d 2>&1 | tail -c 4", fd);
	child = forked();
	if (child == 0) {
		execl("/bin/sh", "sh", "-c", script, NULL);
		_exit(1);
	}
	ends_well(child);
	SAY(lseek(fd, 0, SEEK_CUR));
	SAY(put(fd, 'd', 3));
	letters("one", fd);
}

/* ---- locks and watchers ---- */

static void locks(void)
{
	int fd = spread("one", 'a'), second = open_direct(at(1, "one"), O_RDWR);
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10}, asked = lock;
	SAY(fcntl(fd, F_OFD_SETLK, &lock));
	SAY(fcntl(second, F_OFD_GETLK, &asked));
	printf("held: %d\n", asked.l_type);
	SAY(fcntl(second, F_OFD_SETLK, &lock));
	lock.l_type = F_UNLCK;
	SAY(fcntl(fd, F_OFD_SETLK, &lock));
	lock.l_type = F_WRLCK;
	SAY(fcntl(second, F_SETLK, &lock));
	int child = forked();
	if (child == 0) {
		SAY(fcntl(fd, F_SETLK, &lock));
		asked = lock;
		SAY(fcntl(fd, F_GETLK, &asked));
		printf("held by the parent: %d\n", asked.l_pid == getppid());
		leave();
	}
	ends_well(child);
	SAY(put(fd, 'b', 1));
	SAY(close(fd)); /* the lock of the process ends */
	child = forked();
	if (child == 0) {
		SAY(fcntl(second, F_SETLK, &lock));
		leave();
	}
	ends_well(child);
	SAY(fcntl(second, F_SETLEASE, F_WRLCK));
	SAY(fcntl(second, F_GETLEASE));
	SAY(fcntl(second, F_SETLEASE, F_UNLCK));
	letters("file", second);
	SAY(close(second));
	fd = open_direct(at(2, "one"), O_RDWR);
	SAY(fcntl(fd, F_SETLEASE, F_WRLCK));
	SAY(put(fd, 'c', 2));
	letters("leased", fd);
}

static void watched(void)
{
	int fd = spread("one", 'a'), watch = inotify_init1(IN_NONBLOCK), counts[32] = {0};
	SAY(inotify_add_watch(watch, at(0, "one"), IN_MODIFY | IN_ACCESS | IN_ATTRIB));
	for (int number = 0; number < 16; number++) {
		CHECK_IS(put(fd, 'b', number), BLOCK);
		CHECK_IS(pread(fd, memory, BLOCK, 0), BLOCK);
		char room[4096] __attribute__((aligned(8)));
		for (ssize_t bytes, from = 0; (bytes = read(watch, room, sizeof room)) > 0; from = 0)
			for (; from < bytes; from += (ssize_t)sizeof(struct inotify_event) + (ssize_t)((struct inotify_event *)(room + from))->len)
				counts[__builtin_ctz(((struct inotify_event *)(room + from))->mask)]++;
	}
	SAY(fchmod(fd, 0600));
	printf("access %d, modify %d\n", counts[0], counts[1]);
}

/* ---- memory of the file ---- */

static void mapped(void)
{
	int fd = spread("one", 'a');
	CHECK_IS(put(fd, 'b', 1), BLOCK);
	char *map = mmap(NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED);
	printf("%c %c\n", map[BLOCK - 1], map[2 * BLOCK - 1]);
	memset(map + 3 * BLOCK, 'c', BLOCK);
	CHECK_IS(put(fd, 'd', 4), BLOCK);
	printf("%c\n", map[5 * BLOCK - 1]);
	SAY(msync(map, BLOCKS * BLOCK, MS_SYNC));
	letters("file", fd);
	memset(map + 5 * BLOCK, 'e', BLOCK);
	letters("unsynced", fd);
	/* A transfer from the file into its own memory. */
	SAY(pread(fd, map + 6 * BLOCK, BLOCK, 3 * BLOCK));
	SAY(pwrite(fd, map + 5 * BLOCK, BLOCK, 8 * BLOCK));
	letters("through itself", fd);
	SAY(munmap(map, BLOCKS * BLOCK));
	SAY(close(fd));
	fd = open_direct(at(1, "one"), O_RDWR);
	SAY(put(fd, 'f', 9));
	letters("again", fd);
}

static const struct test TESTS[] = {
	{"exchanged_beside_reads", exchanged_beside_reads}, {"shared_table", shared_table}, {"one_thread_leaves", one_thread_leaves},
	{"ranges", ranges}, {"taken_by_pidfd", taken_by_pidfd}, {"sent_and_closed", sent_and_closed}, {"late_limits", late_limits},
	{"late_root", late_root}, {"appended_buffered", appended_buffered}, {"appended_direct", appended_direct},
	{"copied_behind_writes", copied_behind_writes}, {"cut_beside_writes", cut_beside_writes}, {"other_files", other_files},
	{"flags_of_requests", flags_of_requests}, {"bad_memory", bad_memory}, {"ring_orders", ring_orders}, {"ring_files", ring_files},
	{"ring_memory_gone", ring_memory_gone}, {"cancelled", cancelled}, {"ended_by_handlers", ended_by_handlers}, {"allocates_nothing", allocates_nothing}, {"interrupted_calls", interrupted_calls},
	{"children", children}, {"locks", locks}, {"watched", watched}, {"mapped", mapped},
};

int main(int count, char **arguments)
{
	CHECK_IS(count, 2);
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	memory = mmap(NULL, 128 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	return run_named(TESTS, sizeof TESTS / sizeof *TESTS, arguments[1]);
}
