/* Requests that the library spreads, and requests that stay, row by row: rows NAME. The test that starts this program
 * looks at the requests of each lane. */
#include "check.h"

enum { BLOCKS = 256 };

static char *block;

static void reads(int fd, char letter)
{
	for (int number = 0; number < BLOCKS; number++) {
		memset(block, 0, BLOCK);
		CHECK_IS(pread(fd, block, BLOCK, number * BLOCK), BLOCK);
		CHECK(holds(block, letter, number));
	}
}

static void writes(int fd, char letter)
{
	for (int number = 0; number < BLOCKS; number++) {
		fill(block, letter, number);
		CHECK_IS(pwrite(fd, block, BLOCK, number * BLOCK), BLOCK);
	}
}

static int direct_file(int flags)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	return open_direct(at(0, "file"), flags);
}

static void direct_reads(void)
{
	reads(direct_file(O_RDONLY), 'a');
}

static void direct_writes(void)
{
	int fd = direct_file(O_RDWR);
	writes(fd, 'b');
	CHECK_IS(close(fd), 0);
	fd = open(at(2, "file"), O_RDONLY);
	reads(fd, 'b');
}

/* Every batch of one request takes the next lane, not the first. */
static void libaio_one_by_one(void)
{
	int fd = direct_file(O_RDONLY);
	io_context_t ctx = 0;
	struct iocb iocb, *list[1] = {&iocb};
	struct io_event event;
	CHECK_IS(io_setup(4, &ctx), 0);
	for (int number = 0; number < BLOCKS; number++) {
		io_prep_pread(&iocb, fd, block, BLOCK, number * BLOCK);
		if (number % 2)
			CHECK_IS(syscall(SYS_io_submit, ctx, 1L, list), 1);
		else
			CHECK_IS(io_submit(ctx, 1, list), 1);
		if (number % 3)
			CHECK_IS(syscall(SYS_io_getevents, ctx, 1L, 1L, &event, NULL), 1);
		else
			CHECK_IS(io_getevents(ctx, 1, 1, &event, NULL), 1);
		CHECK_IS(event.res, BLOCK);
		CHECK(event.obj == &iocb && holds(block, 'a', number));
	}
	CHECK_IS(io_destroy(ctx), 0);
}

/* Vectors, flags, fortified calls. */
static void every_kind_of_call(void)
{
	extern ssize_t __pread_chk(int, void *, size_t, off_t, size_t), __pread64_chk(int, void *, size_t, off_t, size_t);
	int fd = direct_file(O_RDWR);
	char *two = aligned(2 * BLOCK);
	struct iovec vectors[2] = {{two, BLOCK}, {two + BLOCK, BLOCK}};
	for (int number = 0; number + 1 < BLOCKS; number += 2) {
		fill(two, 'v', number);
		fill(two + BLOCK, 'v', number + 1);
		switch (number / 2 % 4) {
		case 0: CHECK_IS(pwritev(fd, vectors, 2, number * BLOCK), 2 * BLOCK); break;
		case 1: CHECK_IS(pwritev64(fd, vectors, 2, number * BLOCK), 2 * BLOCK); break;
		case 2: CHECK_IS(pwritev2(fd, vectors, 2, number * BLOCK, RWF_DSYNC), 2 * BLOCK); break;
		case 3: CHECK_IS(syscall(SYS_pwritev2, fd, vectors, 2L, (long)number * BLOCK, 0L, 0L), 2 * BLOCK); break;
		}
	}
	for (int number = 0; number + 1 < BLOCKS; number += 2) {
		memset(two, 0, 2 * BLOCK);
		switch (number / 2 % 7) {
		case 0: CHECK_IS(preadv(fd, vectors, 2, number * BLOCK), 2 * BLOCK); break;
		case 1: CHECK_IS(preadv64(fd, vectors, 2, number * BLOCK), 2 * BLOCK); break;
		case 2: CHECK_IS(preadv2(fd, vectors, 2, number * BLOCK, 0), 2 * BLOCK); break;
		case 3: CHECK_IS(__pread_chk(fd, two, 2 * BLOCK, number * BLOCK, 2 * BLOCK), 2 * BLOCK); break;
		case 4: CHECK_IS(__pread64_chk(fd, two, 2 * BLOCK, number * BLOCK, 3 * BLOCK), 2 * BLOCK); break;
		case 5: CHECK_IS(pread64(fd, two, 2 * BLOCK, number * BLOCK), 2 * BLOCK); break;
		case 6: CHECK_IS(syscall(SYS_pread64, fd, two, 2L * BLOCK, (long)number * BLOCK), 2 * BLOCK); break;
		}
		CHECK(holds(two, 'v', number) && holds(two + BLOCK, 'v', number + 1));
	}
	/* An append by flag goes to the end, and is seen there. */
	fill(two, 'z', BLOCKS);
	CHECK_IS(pwritev2(fd, vectors, 1, 0, RWF_APPEND), BLOCK);
	CHECK_IS(pread(fd, two, BLOCK, BLOCKS * BLOCK), BLOCK);
	CHECK(holds(two, 'z', BLOCKS));
	/* At the descriptor's own position. */
	CHECK_IS(lseek(fd, 4 * BLOCK, SEEK_SET), 4 * BLOCK);
	CHECK_IS(preadv2(fd, vectors, 1, -1, 0), BLOCK);
	CHECK(holds(two, 'v', 4));
	CHECK_IS(lseek(fd, 0, SEEK_CUR), 5 * BLOCK);
}

static void extending_writes(void)
{
	int fd = open_direct(at(0, "file"), O_RDWR | O_CREAT);
	struct stat status;
	for (int number = 0; number < BLOCKS; number++) {
		fill(block, 'e', number);
		CHECK_IS(pwrite(fd, block, BLOCK, number * BLOCK), BLOCK);
		CHECK_IS(fstat(fd, &status), 0);
		CHECK_IS(status.st_size, (number + 1) * BLOCK);
	}
}

static void buffered_writes(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open(at(0, "file"), O_RDWR);
	writes(fd, 'b');
	reads(fd, 'b');
	io_context_t ctx = 0;
	struct iocb iocb, *list[1] = {&iocb};
	struct io_event event;
	CHECK_IS(io_setup(4, &ctx), 0);
	for (int number = 0; number < BLOCKS; number++) {
		fill(block, 'c', number);
		io_prep_pwrite(&iocb, fd, block, BLOCK, number * BLOCK);
		CHECK_IS(io_submit(ctx, 1, list), 1);
		CHECK_IS(io_getevents(ctx, 1, 1, &event, NULL), 1);
	}
	reads(fd, 'c');
}

/* Where the pool allows it; and not while somebody in the program writes it. */
static void buffered_reads(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open(at(0, "file"), O_RDONLY);
	reads(fd, 'a');
}

static void buffered_reads_with_a_writer(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open(at(0, "file"), O_RDONLY);
	int writer = open(at(0, "file"), O_WRONLY);
	reads(fd, 'a');
	writes(writer, 'b');
	reads(fd, 'b');
}

static int locked_by(short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
	int fd = open(at(0, "file"), O_RDWR);
	_exit(fcntl(fd, F_GETLK, &lock) != 0 ? 99 : lock.l_type != F_UNLCK);
}

static void expect_locked(int locked)
{
	int status;
	pid_t child = fork();
	if (child == 0)
		locked_by(F_WRLCK);
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(WEXITSTATUS(status), locked);
}

/* A lock ends spreading, and nothing that the library does drops it. */
static void locked_files(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
	int fd = direct_file(O_RDWR);
	CHECK_IS(fcntl(fd, F_SETLK, &lock), 0);
	expect_locked(1);
	reads(fd, 'a');
	writes(fd, 'b');
	CHECK_IS(fsync(fd), 0);
	int copy = dup(fd);
	reads(copy, 'b');
	expect_locked(1);
	lock.l_type = F_UNLCK;
	CHECK_IS(fcntl(fd, F_SETLK, &lock), 0);
	expect_locked(0);
}

static void flocked_files(void)
{
	int fd = direct_file(O_RDWR), other = open(at(0, "file"), O_RDONLY);
	CHECK_IS(flock(other, LOCK_SH), 0);
	reads(fd, 'a');
	CHECK_IS(flock(other, LOCK_UN), 0);
}

static void lockfed_files(void)
{
	int fd = direct_file(O_RDWR);
	CHECK_IS(lockf(fd, F_LOCK, 0), 0);
	expect_locked(1);
	reads(fd, 'a');
	expect_locked(1);
}

/* Locked through a descriptor that stdio has opened. */
static void locked_by_stdio(void)
{
	int fd = direct_file(O_RDONLY);
	FILE *stream = fopen(at(0, "file"), "r");
	CHECK_IS(flock(fileno(stream), LOCK_SH), 0);
	reads(fd, 'a');
}

static void mapped_files(void)
{
	int fd = direct_file(O_RDWR);
	writes(fd, 'b');
	char *memory = mmap(NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(memory != MAP_FAILED);
	for (int number = 0; number < BLOCKS; number++) {
		CHECK(holds(memory + number * BLOCK, 'b', number));
		fill(memory + number * BLOCK, 'm', number);
	}
	reads(fd, 'm');
}

static void flags_that_change(void)
{
	int fd = direct_file(O_RDWR), found[8];
	int flags = fcntl(fd, F_GETFL);
	CHECK_IS(fcntl(fd, F_SETFL, flags | O_NONBLOCK), 0);
	reads(fd, 'a');
	CHECK_IS(lane_files("file", fd, found, 8), 3);
	for (int index = 0; index < 3; index++)
		CHECK(kernel(SYS_fcntl, found[index], F_GETFL, 0, 0) & O_NONBLOCK);
	CHECK_IS(fcntl(fd, F_SETFL, flags), 0);
	for (int index = 0; index < 3; index++)
		CHECK(!(kernel(SYS_fcntl, found[index], F_GETFL, 0, 0) & O_NONBLOCK));
}

static void append_by_flag(void)
{
	int fd = direct_file(O_RDWR);
	int flags = fcntl(fd, F_GETFL);
	CHECK_IS(fcntl(fd, F_SETFL, flags | O_APPEND), 0);
	fill(block, 'a', BLOCKS);
	CHECK_IS(pwrite(fd, block, BLOCK, 0), BLOCK); /* Linux: appends */
	struct stat status;
	CHECK_IS(fstat(fd, &status), 0);
	CHECK_IS(status.st_size, (BLOCKS + 1) * BLOCK);
	reads(fd, 'a');
}

static void direct_by_flag(void)
{
	int fd = direct_file(O_RDWR);
	int flags = fcntl(fd, F_GETFL);
	CHECK_IS(fcntl(fd, F_SETFL, flags & ~O_DIRECT), 0);
	writes(fd, 'b');
	CHECK_IS(fcntl(fd, F_SETFL, flags), 0);
	reads(fd, 'b');
}

/* Requests in flight, then a change of size: in that order. */
static void sizes_that_change(void)
{
	static struct iocb iocbs[64];
	struct iocb *list[64];
	struct io_event events[64];
	struct stat status;
	int fd = direct_file(O_RDWR);
	io_context_t ctx = 0;
	char *buffers = aligned(64 * BLOCK);
	CHECK_IS(io_setup(64, &ctx), 0);
	for (int round = 0; round < 20; round++) {
		for (int at = 0; at < 64; at++) {
			fill(buffers + at * BLOCK, 'w', at);
			io_prep_pwrite(&iocbs[at], fd, buffers + at * BLOCK, BLOCK, (BLOCKS - 64 + at) * BLOCK);
			list[at] = &iocbs[at];
		}
		CHECK_IS(io_submit(ctx, 64, list), 64);
		/* Nothing is fetched: whoever waits for the lanes has to find out by himself. */
		CHECK_IS(ftruncate(fd, 16 * BLOCK), 0);
		CHECK_IS(fstat(fd, &status), 0);
		CHECK_IS(status.st_size, 16 * BLOCK);
		CHECK_IS(io_getevents(ctx, 64, 64, events, NULL), 64);
		CHECK_IS(fstat(fd, &status), 0);
		CHECK_IS(status.st_size, 16 * BLOCK);
		CHECK_IS(fallocate(fd, 0, 0, BLOCKS * BLOCK), 0);
		CHECK_IS(pread(fd, block, BLOCK, 20 * BLOCK), BLOCK);
		CHECK(block[0] == 0 && memcmp(block, block + 1, BLOCK - 1) == 0);
	}
	CHECK_IS(posix_fallocate(fd, 0, 2 * BLOCKS * BLOCK), 0);
	CHECK_IS(truncate(at(0, "file"), BLOCK), 0);
	CHECK_IS(pread(fd, block, BLOCK, BLOCK), 0);
	CHECK_IS(truncate(at(0, "file"), BLOCKS * BLOCK), 0);
	writes(fd, 'z');
	close(open(at(0, "file"), O_WRONLY | O_TRUNC));
	CHECK_IS(pread(fd, block, BLOCK, 0), 0);
	CHECK_IS(io_destroy(ctx), 0);
}

static void copies_in_the_kernel(void)
{
	int fd = direct_file(O_RDWR), pipes[2];
	writes(fd, 'b');
	int out = open(at(1, "copy"), O_RDWR | O_CREAT | O_TRUNC, 0644);
	off_t from = 0;
	while (from < BLOCKS * BLOCK)
		CHECK(sendfile(out, fd, &from, BLOCKS * BLOCK - from) > 0);
	reads(out, 'b');
	int direct = open_direct(at(1, "copy"), O_RDWR);
	writes(fd, 'c');
	loff_t in_at = 0, out_at = 0;
	while (in_at < BLOCKS * BLOCK)
		CHECK(copy_file_range(fd, &in_at, out, &out_at, BLOCKS * BLOCK - in_at, 0) > 0);
	reads(direct, 'c');
	CHECK_IS(pipe(pipes), 0);
	fill(block, 's', 0);
	CHECK_IS(write(pipes[1], block, BLOCK), BLOCK);
	loff_t splice_at = 0;
	CHECK_IS(splice(pipes[0], NULL, out, &splice_at, BLOCK, 0), BLOCK);
	CHECK_IS(pread(direct, block, BLOCK, 0), BLOCK);
	CHECK(holds(block, 's', 0));
}

static void expect_child(pid_t child)
{
	int status;
	CHECK(child > 0);
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
}

/* A child has the files, on their own lane, and none of our descriptors. */
static void forked_children(void)
{
	int fd = direct_file(O_RDWR), found[8];
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	for (int way = 0; way < 3; way++) {
		pid_t child = way == 0 ? fork() : way == 1 ? _Fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
		if (child == 0) {
			reads(fd, 'a');
			CHECK_IS(lane_files("file", fd, found, 8), 0);
			writes(fd, 'a');
			CHECK_IS(fsync(fd), 0);
			CHECK_IS(close(fd), 0);
			fd = open_direct(at(0, "file"), O_RDONLY);
			CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
			reads(fd, 'a');
			_exit(0);
		}
		expect_child(child);
		CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
		reads(fd, 'a');
	}
}

extern char **environ;

static void spawned_children(void)
{
	int fd = direct_file(O_RDONLY), found[8];
	posix_spawn_file_actions_t actions;
	CHECK_IS(posix_spawn_file_actions_init(&actions), 0);
	CHECK_IS(posix_spawn_file_actions_adddup2(&actions, fd, 0), 0);
	CHECK_IS(posix_spawn_file_actions_addclose(&actions, fd), 0);
	char *arguments[] = {"sh", "-c", "[ $(ls -l /proc/self/fd | grep -c '/file$') = 1 ] && cmp -n 4096 - \"$LANE1/file\"", NULL};
	for (int round = 0; round < 10; round++) {
		pid_t child;
		CHECK_IS(posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ), 0);
		expect_child(child);
		CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
		reads(fd, 'a');
		CHECK_IS(lseek(fd, 0, SEEK_SET), 0);
	}
}

static void descriptors_sent(void)
{
	int pair[2], fd = direct_file(O_RDWR);
	CHECK_IS(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	char byte = 0;
	struct iovec vector = {&byte, 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	pid_t child = fork();
	if (child == 0) {
		CHECK_IS(recvmsg(pair[1], &message, 0), 1);
		int received;
		memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
		reads(received, 'b');
		writes(received, 'c');
		_exit(0);
	}
	writes(fd, 'b');
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	CHECK_IS(sendmsg(pair[0], &message, 0), 1);
	expect_child(child);
	reads(fd, 'c');
}

/* A lane that fails: reads are done elsewhere, and it is opened anew. */
static void reads_on_a_failing_lane(void)
{
	int fd = direct_file(O_RDONLY), found[8];
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	int writes_only = (int)kernel(SYS_openat, AT_FDCWD, (long)at(0, "file"), O_WRONLY, 0);
	replace_lane(writes_only, found[1]);
	reads(fd, 'a');
	/* Until it has been opened again, by name and proven, at the same number. */
	for (;;) {
		reads(fd, 'a');
		if ((kernel(SYS_fcntl, found[1], F_GETFL, 0, 0) & O_ACCMODE) == O_RDONLY)
			break;
		usleep(1000);
	}
	reads(fd, 'a');
}

/* A file whose lane failed is closed before the lane is tried: other files get it back. */
static void lanes_that_come_back_for_others(void)
{
	int fd = direct_file(O_RDONLY), found[8];
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	int writes_only = (int)kernel(SYS_openat, AT_FDCWD, (long)at(0, "file"), O_WRONLY, 0);
	replace_lane(writes_only, found[1]);
	reads(fd, 'a');
	CHECK_IS(close(fd), 0);
	fd = open_direct(at(0, "file"), O_RDONLY);
	while (lane_files("file", fd, found, 8) < 4) /* with the one of this test */
		reads(fd, 'a');
	reads(fd, 'a');
}

/* Locked through stdio before the library has heard of the file: opening it does not drop the lock. */
static void locked_before(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	FILE *stream = fopen(at(0, "file"), "r+");
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	CHECK_IS(fcntl(fileno(stream), F_SETLK, &lock), 0);
	int fd = open_direct(at(0, "file"), O_RDONLY);
	reads(fd, 'a');
	expect_locked(1);
}

/* Locked through a descriptor that no hook saw come, and closed: nothing of that is left. */
static void locked_and_closed(void)
{
	int fd = direct_file(O_RDONLY), found[8];
	CHECK_IS(close(fd), 0);
	for (int round = 0; round < 4; round++) {
		int unseen = (int)kernel(SYS_openat, AT_FDCWD, (long)at(0, "file"), O_RDWR | O_DIRECT, 0);
		CHECK(unseen >= 0);
		struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
		CHECK_IS(round % 2 ? flock(unseen, LOCK_EX) : fcntl(unseen, F_SETLK, &lock), 0);
		expect_locked(round % 2 == 0);
		CHECK_IS(close(unseen), 0);
		fd = open_direct(at(0, "file"), O_RDONLY);
		CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
		reads(fd, 'a');
		CHECK_IS(close(fd), 0);
	}
}

/* Lanes are opened at the same time, each under a number beyond the soft limit: which is what it was afterwards. */
static void limits_stay(void)
{
	struct rlimit before, after;
	CHECK_IS(getrlimit(RLIMIT_NOFILE, &before), 0);
	CHECK(before.rlim_max > 1024);
	before.rlim_cur = 1024;
	CHECK_IS(setrlimit(RLIMIT_NOFILE, &before), 0);
	make_file(at(0, "file"), 'a', BLOCKS);
	for (int round = 0; round < 100; round++) {
		int fd = open_direct(at(0, "file"), O_RDONLY);
		CHECK_IS(close(fd), 0);
		CHECK_IS(getrlimit(RLIMIT_NOFILE, &after), 0);
		CHECK_IS(after.rlim_cur, before.rlim_cur);
	}
}

/* Holds up everybody who opens something on a lane (fanotify(7)), as a server does that gives no answer: until `go`
 * says so, or for good. */
static pid_t hold_up(int lane, int go[2])
{
	int ready[2];
	char byte;
	CHECK_IS(pipe(ready), 0);
	CHECK_IS(pipe(go), 0);
	pid_t child = fork();
	if (child == 0) {
		close(go[1]);
		int watch = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY);
		CHECK(watch >= 0);
		CHECK_IS(fanotify_mark(watch, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN_PERM, AT_FDCWD, at(lane, ".")), 0);
		CHECK_IS(write(ready[1], "r", 1), 1);
		CHECK(read(go[0], &byte, 1) >= 0);
		for (;;) {
			struct fanotify_event_metadata event;
			CHECK_IS(read(watch, &event, sizeof event), (int)sizeof event);
			struct fanotify_response answer = {.fd = event.fd, .response = FAN_ALLOW};
			CHECK_IS(write(watch, &answer, sizeof answer), (int)sizeof answer);
			close(event.fd);
		}
	}
	CHECK_IS(read(ready[0], &byte, 1), 1);
	close(go[0]);
	return child;
}

static void until_open_on(int lanes, const char *name, int fd)
{
	int found[8];
	while (lane_files_in_use(name, fd, found, 8) != lanes)
		usleep(1000);
}

/* A lane that does not answer when a file is opened holds nobody up, and is there when it answers. */
static void silent_lane(void)
{
	int go[2];
	make_file(at(0, "file"), 'a', BLOCKS);
	make_file(at(0, "other"), 'o', BLOCKS);
	make_file(at(0, "third"), 't', BLOCKS);
	pid_t holder = hold_up(1, go);
	int fd = open_direct(at(0, "file"), O_RDWR);
	until_open_on(2, "file", fd);
	reads(fd, 'a');
	writes(fd, 'b');
	int other = open_direct(at(0, "other"), O_RDONLY);
	until_open_on(2, "other", other);
	reads(other, 'o');
	/* Closed while somebody is still out for it; the number is another file's then. */
	CHECK_IS(close(other), 0);
	CHECK_IS(open_direct(at(0, "third"), O_RDONLY), other);
	/* A child knows of none of this, finds the same, and ends. */
	pid_t child = fork();
	if (child == 0) {
		int own = open_direct(at(0, "other"), O_RDONLY);
		until_open_on(2, "other", own);
		reads(own, 'o');
		exit(0);
	}
	int status;
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
	CHECK_IS(write(go[1], "g", 1), 1);
	reads(other, 't');
	CHECK_IS(close(other), 0);
	do
		reads(fd, 'b');
	while (lane_files("file", fd, (int[8]){0}, 8) != 3);
	writes(fd, 'c');
	reads(fd, 'c');
	CHECK_IS(fsync(fd), 0);
	CHECK_IS(close(fd), 0);
	CHECK_IS(kill(holder, SIGKILL), 0);
	CHECK_IS(waitpid(holder, &status, 0), holder);
}

/* The same with libaio, where the kernel refuses the lane's descriptor. */
static void libaio_on_a_failing_lane(void)
{
	int fd = direct_file(O_RDONLY), found[8];
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	int writes_only = (int)kernel(SYS_openat, AT_FDCWD, (long)at(0, "file"), O_WRONLY, 0);
	replace_lane(writes_only, found[1]);
	io_context_t ctx = 0;
	struct iocb iocbs[8], *list[8];
	struct io_event events[8];
	char *buffers = aligned(8 * BLOCK);
	CHECK_IS(io_setup(8, &ctx), 0);
	for (int number = 0; number < BLOCKS; number += 8) {
		for (int at = 0; at < 8; at++) {
			io_prep_pread(&iocbs[at], fd, buffers + at * BLOCK, BLOCK, (number + at) * BLOCK);
			list[at] = &iocbs[at];
		}
		for (int done = 0; done < 8;) {
			int some = io_submit(ctx, 8 - done, list + done);
			CHECK(some > 0);
			done += some;
		}
		CHECK_IS(io_getevents(ctx, 8, 8, events, NULL), 8);
		for (int at = 0; at < 8; at++)
			CHECK(events[at].res == BLOCK && holds(buffers + at * BLOCK, 'a', number + at));
	}
}

/* A lane that believes the file to be shorter: what it has is not the end. */
static void short_reads_of_a_lane(void)
{
	int fd = direct_file(O_RDONLY), found[8];
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	make_file(at(0, "short"), 'a', 3);
	for (int index = 0; index < 3; index++) {
		int shorter = (int)kernel(SYS_openat, AT_FDCWD, (long)at(0, "short"), O_RDONLY | O_DIRECT, 0);
		replace_lane(shorter, found[index]);
	}
	reads(fd, 'a');
	io_context_t ctx = 0;
	struct iocb iocb, *list[1] = {&iocb};
	struct io_event event;
	struct iovec vectors[2] = {{block, BLOCK / 2}, {block + BLOCK / 2, BLOCK / 2}};
	CHECK_IS(io_setup(4, &ctx), 0);
	for (int number = 0; number < BLOCKS; number++) {
		memset(block, 0, BLOCK);
		if (number % 2)
			io_prep_pread(&iocb, fd, block, BLOCK, number * BLOCK);
		else
			io_prep_preadv(&iocb, fd, vectors, 2, number * BLOCK);
		CHECK_IS(io_submit(ctx, 1, list), 1);
		CHECK_IS(io_getevents(ctx, 1, 1, &event, NULL), 1);
		CHECK_IS(event.res, BLOCK);
		CHECK(holds(block, 'a', number));
	}
}

struct ring {
	unsigned id, nr, head, tail, magic, compat, incompat, header_length;
	struct io_event events[];
};

/* The program takes events from the ring itself, and changes the iocb at once. */
static void rings_read_by_the_program(void)
{
	int fd = direct_file(O_RDWR);
	io_context_t ctx = 0;
	static struct iocb iocbs[16], *list[16];
	char *buffers = aligned(16 * BLOCK);
	CHECK_IS(io_setup(16, &ctx), 0);
	volatile struct ring *ring = (struct ring *)ctx;
	for (int round = 0; round < 400; round++) {
		for (int at = 0; at < 16; at++) {
			list[at] = &iocbs[at];
			io_prep_pread(&iocbs[at], fd, buffers + at * BLOCK, BLOCK, (round * 16 + at) % BLOCKS * BLOCK);
			iocbs[at].data = (void *)(uintptr_t)(round * 16 + at);
		}
		CHECK_IS(io_submit(ctx, 16, list), 16);
		for (int got = 0; got < 16;) {
			unsigned head = ring->head;
			if (head == ring->tail)
				continue;
			__sync_synchronize();
			struct io_event event = ring->events[head];
			ring->head = (head + 1) % ring->nr;
			struct iocb *iocb = event.obj;
			CHECK_IS(event.res, BLOCK);
			CHECK_IS(iocb->aio_fildes, fd);
			CHECK(event.data == iocb->data);
			CHECK(holds(iocb->u.c.buf, 'a', iocb->u.c.offset / BLOCK));
			got++;
		}
	}
	CHECK_IS(io_destroy(ctx), 0);
}

/* The library cuts a request that is larger than the pool's split into parts on all lanes; the end is odd. */
static void large_transfers(void)
{
	enum { LARGE = 1024 };
	make_file(at(0, "file"), 'a', LARGE);
	int fd = open_direct(at(0, "file"), O_RDWR);
	char *buffer = aligned(LARGE * BLOCK);
	for (int length = 1; length <= LARGE; length = length * 2 + 1) {
		memset(buffer, 0, LARGE * BLOCK);
		CHECK_IS(pread(fd, buffer, length * BLOCK, (LARGE - length) * (long)BLOCK), length * BLOCK);
		for (int number = 0; number < length; number++)
			CHECK(holds(buffer + number * BLOCK, 'a', LARGE - length + number));
	}
	CHECK_IS(pread(fd, buffer, LARGE * BLOCK, BLOCK), (LARGE - 1) * BLOCK);
	CHECK_IS(pread(fd, buffer, LARGE * BLOCK, LARGE * BLOCK), 0);
	for (int number = 0; number < LARGE; number++)
		fill(buffer + number * BLOCK, 'b', number);
	CHECK_IS(pwrite(fd, buffer, LARGE * BLOCK, 0), LARGE * BLOCK);
	CHECK_IS(fsync(fd), 0);
	memset(buffer, 0, LARGE * BLOCK);
	CHECK_IS(pread(fd, buffer, LARGE * BLOCK, 0), LARGE * BLOCK);
	for (int number = 0; number < LARGE; number++)
		CHECK(holds(buffer + number * BLOCK, 'b', number));
	pid_t child = fork();
	if (child == 0) {
		fd = open_direct(at(0, "file"), O_RDONLY);
		CHECK_IS(pread(fd, buffer, LARGE * BLOCK, 0), LARGE * BLOCK);
		CHECK(holds(buffer, 'b', 0));
		_exit(0);
	}
	expect_child(child);
}

/* A window of one request: io_submit says EAGAIN, and goes on when something has come back. */
static void windows(void)
{
	int fd = direct_file(O_RDONLY);
	io_context_t ctx = 0;
	static struct iocb iocbs[64], *list[64];
	struct io_event events[64];
	char *buffers = aligned(64 * BLOCK);
	CHECK_IS(io_setup(64, &ctx), 0);
	for (int at = 0; at < 64; at++) {
		list[at] = &iocbs[at];
		io_prep_pread(&iocbs[at], fd, buffers + at * BLOCK, BLOCK, at * BLOCK);
	}
	int submitted = 0, fetched = 0, refused = 0;
	while (fetched < 64) {
		int some = submitted < 64 ? io_submit(ctx, 64 - submitted, list + submitted) : 0;
		CHECK(some >= 0 || some == -EAGAIN);
		refused += some < 0 || submitted + some < 64;
		submitted += some > 0 ? some : 0;
		CHECK(submitted - fetched <= 4);
		some = io_getevents(ctx, 1, 64, events, NULL);
		CHECK(some > 0);
		fetched += some;
	}
	CHECK(refused > 0);
	for (int at = 0; at < 64; at++)
		CHECK(holds(buffers + at * BLOCK, 'a', at));
}

/* pthread_cancel of a thread that reads: as without the library. */
static void *reads_for_ever(void *argument)
{
	char *room = aligned(BLOCK);
	for (int number = 0;; number++)
		CHECK_IS(pread(*(int *)argument, room, BLOCK, number % BLOCKS * BLOCK), BLOCK);
	return NULL;
}

/* The same, by a thread that may be cancelled at any instruction. */
static void *reads_and_ends_anywhere(void *argument)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (int number = 0;; number++)
		(void)!pread(*(int *)argument, block, BLOCK, number % BLOCKS * BLOCK);
	return NULL;
}

static void cancelled_threads(void)
{
	int direct = direct_file(O_RDONLY), buffered = open(at(0, "file"), O_RDWR);
	for (int round = 0; round < 40; round++) {
		pthread_t thread;
		void *result;
		void *(*runs)(void *) = round < 20 ? reads_for_ever : reads_and_ends_anywhere;
		CHECK_IS(pthread_create(&thread, NULL, runs, round % 2 ? &direct : &buffered), 0);
		usleep(500 * (round % 4));
		CHECK_IS(pthread_cancel(thread), 0);
		CHECK_IS(pthread_join(thread, &result), 0);
		CHECK(result == PTHREAD_CANCELED);
	}
	reads(direct, 'a');
}

static const struct test TESTS[] = {
	{"direct_reads", direct_reads},
	{"direct_writes", direct_writes},
	{"libaio_one_by_one", libaio_one_by_one},
	{"every_kind_of_call", every_kind_of_call},
	{"extending_writes", extending_writes},
	{"buffered_writes", buffered_writes},
	{"buffered_reads", buffered_reads},
	{"buffered_reads_with_a_writer", buffered_reads_with_a_writer},
	{"locked_files", locked_files},
	{"flocked_files", flocked_files},
	{"lockfed_files", lockfed_files},
	{"locked_by_stdio", locked_by_stdio},
	{"mapped_files", mapped_files},
	{"flags_that_change", flags_that_change},
	{"append_by_flag", append_by_flag},
	{"direct_by_flag", direct_by_flag},
	{"sizes_that_change", sizes_that_change},
	{"copies_in_the_kernel", copies_in_the_kernel},
	{"forked_children", forked_children},
	{"spawned_children", spawned_children},
	{"descriptors_sent", descriptors_sent},
	{"reads_on_a_failing_lane", reads_on_a_failing_lane},
	{"lanes_that_come_back_for_others", lanes_that_come_back_for_others},
	{"locked_before", locked_before},
	{"locked_and_closed", locked_and_closed},
	{"limits_stay", limits_stay},
	{"silent_lane", silent_lane},
	{"libaio_on_a_failing_lane", libaio_on_a_failing_lane},
	{"short_reads_of_a_lane", short_reads_of_a_lane},
	{"rings_read_by_the_program", rings_read_by_the_program},
	{"large_transfers", large_transfers},
	{"windows", windows},
	{"cancelled_threads", cancelled_threads},
};

int main(int argc, char **argv)
{
	CHECK_IS(argc, 2);
	block = aligned(BLOCK);
	return run_named(TESTS, sizeof TESTS / sizeof *TESTS, argv[1]);
}
