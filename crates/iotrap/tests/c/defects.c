/* The defects of the original iotrap, each as a program that must not see it: defects NAME. */
#include "check.h"

#include <linux/fs.h>
#include <sys/ioctl.h>

static io_context_t context(int events)
{
	io_context_t made = 0;
	CHECK_IS(io_setup(events, &made), 0);
	return made;
}

/* Replaces the lanes' files by sockets, past the library: every fsync on one of them fails with EINVAL. */
static int break_lanes(const char *name, int own)
{
	int found[8], pair[2];
	int count = lane_files(name, own, found, 8);
	for (int index = 0; index < count; index++) {
		CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		replace_lane(pair[0], found[index]);
	}
	return count;
}

static void write_blocks(int fd, char letter, int blocks)
{
	char *block = aligned(BLOCK);
	for (int number = 0; number < blocks; number++) {
		fill(block, letter, number);
		CHECK_IS(pwrite(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
	}
	free(block);
}

/* 1. An error of any lane that was written is an error of fsync, of whatever kind; told once. */
static void fsync_tells_errors_of_lanes(void)
{
	make_file(at(0, "file"), 'a', 64);
	int fd = open_direct(at(0, "file"), O_RDWR);
	write_blocks(fd, 'b', 64);
	CHECK_IS(fsync(fd), 0);
	write_blocks(fd, 'c', 64);
	CHECK_IS(break_lanes("file", fd), 3);
	errno = 0;
	CHECK_IS(fsync(fd), -1);
	CHECK_IS(errno, EINVAL);
	CHECK_IS(fsync(fd), 0);
	CHECK_IS(fdatasync(fd), 0);
	CHECK_IS(close(fd), 0);
	expect_blocks(at(1, "file"), 'c', 64);
}

static void fdatasync_tells_errors_of_lanes(void)
{
	make_file(at(0, "file"), 'a', 64);
	int fd = open_direct(at(0, "file"), O_RDWR);
	write_blocks(fd, 'b', 64);
	CHECK_IS(break_lanes("file", fd), 3);
	CHECK_IS(fdatasync(fd), -1);
	CHECK_IS(errno, EINVAL);
	CHECK_IS(close(fd), 0);
}

/* The same through libaio: the request is refused, as one that cannot be carried out. */
static void aio_fsync_tells_errors_of_lanes(void)
{
	make_file(at(0, "file"), 'a', 64);
	int fd = open_direct(at(0, "file"), O_RDWR);
	io_context_t ctx = context(8);
	struct iocb sync, *list[1] = {&sync};
	struct io_event event;
	write_blocks(fd, 'b', 64);
	io_prep_fsync(&sync, fd);
	CHECK_IS(io_submit(ctx, 1, list), 1);
	CHECK_IS(io_getevents(ctx, 1, 1, &event, NULL), 1);
	CHECK_IS((long)event.res, 0);
	write_blocks(fd, 'c', 64);
	CHECK_IS(break_lanes("file", fd), 3);
	io_prep_fdsync(&sync, fd);
	CHECK_IS(io_submit(ctx, 1, list), -EINVAL);
	CHECK_IS(io_destroy(ctx), 0);
}

/* The same where requests are made asynchronous: the submitter goes on, and the event tells. */
static void aio_fsync_of_lanes_comes_back(void)
{
	make_file(at(0, "file"), 'a', 64);
	int fd = open_direct(at(0, "file"), O_RDWR);
	io_context_t ctx = context(8);
	struct iocb sync, *list[1] = {&sync};
	struct io_event event;
	CHECK_IS(io_getevents(ctx, 0, 1, &event, &(struct timespec){0}), 0);
	for (int round = 0; round < 2; round++) {
		write_blocks(fd, 'b' + round, 64);
		if (round == 1)
			CHECK_IS(break_lanes("file", fd), 3);
		io_prep_fsync(&sync, fd);
		CHECK_IS(io_submit(ctx, 1, list), 1);
		CHECK_IS(io_getevents(ctx, 1, 1, &event, NULL), 1);
		CHECK(event.obj == &sync);
		CHECK_IS((long)event.res, round == 0 ? 0 : -EINVAL);
	}
	CHECK_IS(close(fd), 0);
	CHECK_IS(io_destroy(ctx), 0);
	expect_blocks(at(1, "file"), 'c', 64);
}

/* fsync(2) through one descriptor stores data that was written through another one of the same file. */
static void fsync_of_another_descriptor(void)
{
	make_file(at(0, "file"), 'a', 64);
	int fd = open_direct(at(0, "file"), O_RDWR);
	write_blocks(fd, 'b', 64);
	int other = open(at(0, "file"), O_RDONLY);
	CHECK(other >= 0);
	CHECK_IS(fsync(other), 0);
	CHECK_IS(close(other), 0);
	CHECK_IS(close(fd), 0);
}

/* 2. A batch over several files: every request reaches its own. */
static void batches_over_several_files(void)
{
	enum { FILES = 5, BLOCKS = 32 };
	static struct iocb iocbs[FILES * BLOCKS];
	struct iocb *list[FILES * BLOCKS];
	struct io_event events[FILES * BLOCKS];
	int fds[FILES];
	char name[16], *buffers = aligned((size_t)FILES * BLOCKS * BLOCK);
	for (int file = 0; file < FILES; file++) {
		snprintf(name, sizeof name, "file%d", file);
		make_file(at(0, name), 'a', BLOCKS);
		fds[file] = open_direct(at(file % 4, name), O_RDWR);
	}
	io_context_t ctx = context(FILES * BLOCKS);
	for (int round = 0; round < 2; round++) {
		for (int at = 0; at < FILES * BLOCKS; at++) {
			int file = at % FILES, number = at / FILES;
			char *buffer = buffers + (size_t)at * BLOCK;
			list[at] = &iocbs[at];
			if (round == 0) {
				fill(buffer, 'A' + file, number);
				io_prep_pwrite(&iocbs[at], fds[file], buffer, BLOCK, (long long)number * BLOCK);
			} else {
				memset(buffer, 0, BLOCK);
				io_prep_pread(&iocbs[at], fds[file], buffer, BLOCK, (long long)number * BLOCK);
			}
		}
		CHECK_IS(io_submit(ctx, FILES * BLOCKS, list), FILES * BLOCKS);
		CHECK_IS(io_getevents(ctx, FILES * BLOCKS, FILES * BLOCKS, events, NULL), FILES * BLOCKS);
		for (int at = 0; at < FILES * BLOCKS; at++)
			CHECK_IS(events[at].res, BLOCK);
	}
	for (int at = 0; at < FILES * BLOCKS; at++)
		CHECK(holds(buffers + (size_t)at * BLOCK, 'A' + at % FILES, at / FILES));
	/* A poll is not for files: it goes nowhere but to its own descriptor. */
	int pipes[2];
	CHECK_IS(pipe(pipes), 0);
	struct iocb poll, *one[1] = {&poll};
	io_prep_poll(&poll, pipes[0], 1 /* POLLIN */);
	CHECK_IS(io_submit(ctx, 1, one), 1);
	CHECK_IS(write(pipes[1], "x", 1), 1);
	CHECK_IS(io_getevents(ctx, 1, 1, events, NULL), 1);
	CHECK(events[0].obj == &poll);
	CHECK_IS(io_destroy(ctx), 0);
}

/* 3. However a descriptor was closed: when its number is used for another file, requests go to that file. */
static void expect_reused(int fd, const char *how)
{
	char *block = aligned(BLOCK);
	int next = open_direct(at(0, "other"), O_RDONLY);
	if (next != fd) {
		CHECK_IS(dup2(next, fd), fd);
		CHECK_IS(close(next), 0);
	}
	for (int number = 0; number < 16; number++) {
		CHECK_IS(pread(fd, block, BLOCK, number * BLOCK), BLOCK);
		if (!holds(block, 'o', number)) {
			dprintf(2, "after %s the number still reads the old file\n", how);
			_exit(1);
		}
	}
	CHECK_IS(close(fd), 0);
	free(block);
}

static void every_way_to_close(void)
{
	make_file(at(0, "file"), 'f', 16);
	make_file(at(0, "other"), 'o', 16);
	int null = open("/dev/null", O_RDWR), fd, found[8];

	fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	CHECK_IS(close(fd), 0);
	CHECK_IS(lane_files("file", -1, found, 8), 0);
	expect_reused(fd, "close");

	fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(dup2(null, fd), fd);
	CHECK_IS(lane_files("file", -1, found, 8), 0);
	CHECK_IS(close(fd), 0);
	expect_reused(fd, "dup2");

	fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(dup3(null, fd, O_CLOEXEC), fd);
	CHECK_IS(close(fd), 0);
	expect_reused(fd, "dup3");

	fd = open_direct(at(0, "file"), O_RDWR);
	FILE *stream = fdopen(fd, "r+");
	CHECK(stream != NULL);
	CHECK_IS(fclose(stream), 0);
	CHECK_IS(lane_files("file", -1, found, 8), 0);
	expect_reused(fd, "fclose");

	fd = open_direct(at(0, "file"), O_RDWR);
	stream = fdopen(fd, "r");
	CHECK((stream = freopen("/dev/null", "r", stream)) != NULL);
	CHECK_IS(fclose(stream), 0);
	expect_reused(fd, "freopen");

	fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(close_range(fd, fd, 0), 0);
	expect_reused(fd, "close_range");

	fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(syscall(SYS_close, fd), 0);
	expect_reused(fd, "syscall(SYS_close)");

	fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0); /* past the library */
	expect_reused(fd, "a close that nobody saw");

	fd = open_direct(at(0, "file"), O_RDWR);
	closefrom(fd);
	CHECK_IS(lane_files("file", -1, found, 8), 0);
	expect_reused(fd, "closefrom");

	/* dup2 that fails closes nothing. */
	char *block = aligned(BLOCK);
	fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(dup2(9999, fd), -1);
	CHECK_IS(errno, EBADF);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	CHECK_IS(pread(fd, block, BLOCK, 0), BLOCK);
	CHECK(holds(block, 'f', 0));
	CHECK_IS(dup2(fd, fd), fd);
	CHECK_IS(pread(fd, block, BLOCK, BLOCK), BLOCK);
	CHECK_IS(close(fd), 0);
}

/* dup'ed descriptors are one file: it is closed with the last of them. */
static void duplicates_share(void)
{
	int found[8], copies[4];
	char *block = aligned(BLOCK);
	make_file(at(0, "file"), 'f', 64);
	int fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	CHECK((copies[0] = dup(fd)) >= 0);
	CHECK((copies[1] = fcntl(fd, F_DUPFD, 100)) >= 100);
	CHECK((copies[2] = fcntl(fd, F_DUPFD_CLOEXEC, 200)) >= 200);
	CHECK((copies[3] = dup2(fd, 300)) == 300);
	CHECK_IS(close(fd), 0);
	for (int index = 0; index < 4; index++) {
		CHECK_IS(lane_files("file", -1, found, 8), 3 + 4 - index);
		for (int number = 0; number < 64; number++) {
			CHECK_IS(pread(copies[index], block, BLOCK, number * BLOCK), BLOCK);
			CHECK(holds(block, 'f', number));
		}
		CHECK_IS(close(copies[index]), 0);
	}
	CHECK_IS(lane_files("file", -1, found, 8), 0);
}

/* 4. After io_submit the program's iocbs are what it made them, and they can be used again, for any file. */
static void iocbs_stay_the_programs(void)
{
	enum { COUNT = 200 };
	static struct iocb iocbs[COUNT], before[COUNT];
	struct iocb *list[COUNT];
	struct io_event events[COUNT];
	char *buffers = aligned((size_t)COUNT * BLOCK);
	make_file(at(0, "file"), 'f', COUNT);
	make_file(at(0, "other"), 'o', COUNT);
	io_context_t ctx = context(COUNT);
	for (int round = 0; round < 6; round++) {
		int fd = open_direct(at(0, round % 2 ? "other" : "file"), O_RDWR);
		for (int at = 0; at < COUNT; at++) {
			list[at] = &iocbs[at];
			if (round < 2) {
				io_prep_pread(&iocbs[at], fd, buffers + (size_t)at * BLOCK, BLOCK, (long long)at * BLOCK);
				iocbs[at].data = (void *)(uintptr_t)(at + 7);
			} else {
				iocbs[at].aio_fildes = fd; /* nothing but this is set anew */
			}
			before[at] = iocbs[at];
		}
		CHECK_IS(io_submit(ctx, COUNT, list), COUNT);
		for (int at = 0; at < COUNT; at++) {
			before[at].key = iocbs[at].key; /* the kernel's */
			CHECK(memcmp(&before[at], &iocbs[at], sizeof before[at]) == 0);
		}
		CHECK_IS(io_getevents(ctx, COUNT, COUNT, events, NULL), COUNT);
		unsigned char seen[COUNT] = {0};
		for (int at = 0; at < COUNT; at++) {
			long index = (struct iocb *)events[at].obj - iocbs;
			CHECK(index >= 0 && index < COUNT && !seen[index]++);
			CHECK_IS((uintptr_t)events[at].data, index + 7);
			CHECK_IS(events[at].res, BLOCK);
			CHECK(holds(buffers + (size_t)index * BLOCK, round % 2 ? 'o' : 'f', index));
		}
		CHECK_IS(close(fd), 0);
	}
	CHECK_IS(io_destroy(ctx), 0);
}

/* An iocb that lives only as long as the call, and one that is in a batch twice. */
static void iocbs_that_go_and_repeat(void)
{
	char *buffers = aligned(32 * BLOCK);
	make_file(at(0, "file"), 'f', 32);
	int fd = open_direct(at(0, "file"), O_RDONLY);
	io_context_t ctx = context(64);
	struct io_event events[64];
	for (int at = 0; at < 32; at++) {
		struct iocb *once = malloc(sizeof *once), *list[1] = {once};
		io_prep_pread(once, fd, buffers + (size_t)at * BLOCK, BLOCK, (long long)at * BLOCK);
		CHECK_IS(io_submit(ctx, 1, list), 1);
		memset(once, 0xee, sizeof *once);
		free(once);
	}
	CHECK_IS(io_getevents(ctx, 32, 64, events, NULL), 32);
	for (int at = 0; at < 32; at++)
		CHECK(holds(buffers + (size_t)at * BLOCK, 'f', at));
	struct iocb twice, *both[3] = {&twice, &twice, &twice};
	io_prep_pread(&twice, fd, buffers, BLOCK, 5 * BLOCK);
	CHECK_IS(io_submit(ctx, 3, both), 3);
	CHECK_IS(twice.aio_fildes, fd);
	CHECK_IS(io_getevents(ctx, 3, 3, events, NULL), 3);
	for (int at = 0; at < 3; at++)
		CHECK(events[at].obj == &twice && (long)events[at].res == BLOCK);
	CHECK(holds(buffers, 'f', 5));
	CHECK_IS(io_destroy(ctx), 0);
}

/* 5. The same name is not the same file. LANE1's "renamed" is another one. */
static void same_name_other_file(void)
{
	char *block = aligned(BLOCK);
	int fd = open_direct(at(0, "renamed"), O_RDWR), found[8];
	CHECK_IS(lane_files("renamed", fd, found, 8), 0);
	for (int number = 0; number < 16; number++) {
		CHECK_IS(pread(fd, block, BLOCK, number * BLOCK), BLOCK);
		CHECK(holds(block, 'm', number));
	}
	write_blocks(fd, 'n', 16);
	CHECK_IS(close(fd), 0);
	expect_blocks(at(0, "renamed"), 'n', 16);
	expect_blocks(at(1, "renamed"), 't', 16);
}

/* `..`, symbolic links and relative paths lead where the kernel says. */
static void paths_as_the_kernel_resolves_them(void)
{
	int found[8], fd, directory;
	make_file(at(0, "file"), 'f', 16);
	CHECK_IS(mkdir(at(0, "directory"), 0755), 0);
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/directory/../file", lane(1));
	fd = open_direct(path, O_RDONLY);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	CHECK_IS(close(fd), 0);
	snprintf(path, sizeof path, "%s/link", getenv("SCRATCH"));
	CHECK_IS(symlink(at(2, "file"), path), 0);
	fd = open_direct(path, O_RDONLY);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	CHECK_IS(close(fd), 0);
	CHECK_IS(chdir(lane(3)), 0);
	fd = open_direct("file", O_RDONLY);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	CHECK_IS(close(fd), 0);
	CHECK((directory = open(at(0, "directory"), O_RDONLY | O_DIRECTORY)) >= 0);
	CHECK((fd = openat(directory, "../file", O_RDONLY | O_DIRECT)) >= 0);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	CHECK_IS(close(fd), 0);
	CHECK((fd = (int)syscall(SYS_openat, directory, "../file", O_RDONLY | O_DIRECT, 0)) >= 0);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	CHECK_IS(close(fd), 0);
	extern int __open_2(const char *, int), __openat_2(int, const char *, int), __open64_2(const char *, int);
	CHECK((fd = __open_2("file", O_RDONLY | O_DIRECT)) >= 0);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	CHECK_IS(close(fd), 0);
	CHECK((fd = __open64_2("file", O_RDONLY | O_DIRECT)) >= 0);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	CHECK_IS(close(fd), 0);
	CHECK((fd = __openat_2(directory, "../file", O_RDONLY | O_DIRECT)) >= 0);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	CHECK_IS(close(fd), 0);
	/* The longest prefix wins: a pool inside a lane of another. */
	make_file(at(0, "inner/file2"), 'f', 16);
	fd = open_direct(at(0, "inner/file2"), O_RDONLY);
	CHECK_IS(lane_files_in_use("file2", fd, found, 8), 1);
	CHECK_IS(close(fd), 0);
}

/* 6. Requests without O_DIRECT, and appends, stay on the opened lane. */
static void buffered_and_append_stay(void)
{
	int found[8];
	make_file(at(0, "file"), 'f', 16);
	int buffered = open(at(0, "file"), O_RDWR);
	CHECK_IS(lane_files("file", buffered, found, 8), 0);
	CHECK_IS(close(buffered), 0);
	int append = open_direct(at(0, "file"), O_RDWR | O_APPEND);
	CHECK_IS(lane_files("file", append, found, 8), 0);
	char *block = aligned(BLOCK);
	fill(block, 'f', 16);
	CHECK_IS(write(append, block, BLOCK), BLOCK);
	CHECK_IS(close(append), 0);
	expect_blocks(at(1, "file"), 'f', 17);
	int path = open(at(0, "file"), O_PATH);
	CHECK_IS(lane_files("file", path, found, 8), 0);
	CHECK_IS(close(path), 0);
	int unnamed = open(lane(0), O_TMPFILE | O_RDWR | O_DIRECT, 0600);
	if (unnamed >= 0) {
		CHECK_IS(pwrite(unnamed, block, BLOCK, 0), BLOCK);
		CHECK_IS(pread(unnamed, block, BLOCK, 0), BLOCK);
		CHECK(holds(block, 'f', 16));
		CHECK_IS(close(unnamed), 0);
	}
}

/* O_DIRECT reads see what was written through the page cache before, however it was. */
static void buffered_writes_are_seen(void)
{
	make_file(at(0, "file"), 'a', 64);
	char *block = aligned(BLOCK), plain[BLOCK];
	int direct = open_direct(at(0, "file"), O_RDONLY);
	int buffered = open(at(0, "file"), O_RDWR);
	FILE *stream = fopen(at(0, "file"), "r+");
	char *mapped = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, buffered, 63 * BLOCK);
	CHECK(stream != NULL && mapped != MAP_FAILED);
	for (int number = 0; number < 60; number++) {
		fill(plain, 'b', number);
		if (number % 3 == 0) {
			CHECK_IS(pwrite(buffered, plain, BLOCK, number * BLOCK), BLOCK);
		} else if (number % 3 == 1) {
			CHECK_IS(lseek(buffered, number * BLOCK, SEEK_SET), number * BLOCK);
			CHECK_IS(write(buffered, plain, BLOCK), BLOCK);
		} else {
			CHECK_IS(fseek(stream, number * BLOCK, SEEK_SET), 0);
			CHECK_IS(fwrite(plain, BLOCK, 1, stream), 1);
			CHECK_IS(fflush(stream), 0);
		}
		CHECK_IS(pread(direct, block, BLOCK, number * BLOCK), BLOCK);
		CHECK(holds(block, 'b', number));
	}
	fill(mapped, 'm', 63);
	CHECK_IS(pread(direct, block, BLOCK, 63 * BLOCK), BLOCK);
	CHECK(holds(block, 'm', 63));
	/* And the other way round. */
	int writer = open_direct(at(0, "file"), O_WRONLY);
	for (int number = 0; number < 60; number++) {
		fill(block, 'c', number);
		CHECK_IS(pwrite(writer, block, BLOCK, number * BLOCK), BLOCK);
		CHECK_IS(pread(buffered, plain, BLOCK, number * BLOCK), BLOCK);
		CHECK(holds(plain, 'c', number));
	}
}

/* 7. Nonsense is answered as without the library. */
static void nonsense_is_harmless(void)
{
	char path[PATH_MAX * 2];
	errno = 0;
	CHECK_IS(close(-1), -1);
	CHECK_IS(errno, EBADF);
	CHECK_IS(close(INT_MAX), -1);
	CHECK_IS(dup(-1), -1);
	CHECK_IS(dup2(-1, -1), -1);
	CHECK_IS(fsync(-1), -1);
	CHECK_IS(pread(-1, path, 1, 0), -1);
	CHECK_IS(errno, EBADF);
	CHECK_IS(pread(INT_MIN, path, 1, 0), -1);
	io_context_t ctx = context(4);
	CHECK_IS(io_submit(ctx, 0, NULL), 0);
	CHECK_IS(io_submit(ctx, -1, NULL), -EINVAL);
	CHECK_IS(io_submit((io_context_t)8, 1, (struct iocb **)&ctx), -EINVAL);
	struct io_event event;
	struct timespec none = {0, 0};
	CHECK_IS(io_getevents(ctx, 0, 1, &event, &none), 0);
	struct timespec soon = {0, 1000};
	CHECK_IS(io_getevents(ctx, 2, 1, &event, &soon), -EINVAL);
	CHECK_IS(io_destroy(ctx), 0);
	CHECK_IS(io_destroy(ctx), -EINVAL);
	snprintf(path, sizeof path, "%s/", lane(0));
	memset(path + strlen(path), 'x', sizeof path - strlen(path) - 1);
	path[sizeof path - 1] = 0;
	CHECK_IS(open(path, O_RDONLY), -1);
	CHECK_IS(errno, ENAMETOOLONG);
	const char *volatile nowhere = NULL;
	CHECK_IS(open(nowhere, O_RDONLY), -1);
	CHECK_IS(errno, EFAULT);
	CHECK_IS(open(at(0, "missing"), O_RDONLY), -1);
	CHECK_IS(errno, ENOENT);
	/* A path of exactly the longest kind, which would be too long on no lane. */
	CHECK_IS(chdir(lane(0)), 0);
	char name[201];
	memset(name, 'd', 200);
	name[200] = 0;
	for (int depth = 0; depth < 25; depth++) {
		CHECK_IS(mkdir(name, 0755), 0);
		CHECK_IS(chdir(name), 0);
	}
	make_file("deep", 'f', 1);
	int fd = open_direct("deep", O_RDWR);
	char *block = aligned(BLOCK);
	CHECK_IS(pread(fd, block, BLOCK, 0), BLOCK);
	CHECK(holds(block, 'f', 0));
	CHECK_IS(close(fd), 0);
	/* A FIFO is not opened twice: that would block. */
	CHECK_IS(chdir("/"), 0);
	CHECK_IS(mkfifo(at(0, "fifo"), 0644), 0);
	fd = open(at(0, "fifo"), O_RDONLY | O_NONBLOCK);
	CHECK(fd >= 0);
	int writer = open(at(0, "fifo"), O_WRONLY);
	CHECK_IS(write(writer, "x", 1), 1);
	CHECK_IS(read(fd, path, 1), 1);
	/* Directories, devices. */
	CHECK((fd = open(lane(0), O_RDONLY)) >= 0);
	CHECK_IS(pread(fd, path, 1, 0), -1);
	CHECK_IS(errno, EISDIR);
}

/* Descriptors beyond any table, and a limit that was raised. */
static void high_numbers(void)
{
	struct rlimit limit;
	CHECK_IS(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK_IS(setrlimit(RLIMIT_NOFILE, &limit), 0);
	make_file(at(0, "file"), 'f', 16);
	char *block = aligned(BLOCK);
	int fd = open_direct(at(0, "file"), O_RDONLY);
	int high = fcntl(fd, F_DUPFD, limit.rlim_max - 1);
	CHECK_IS(high, limit.rlim_max - 1);
	for (int number = 0; number < 16; number++) {
		CHECK_IS(pread(high, block, BLOCK, number * BLOCK), BLOCK);
		CHECK(holds(block, 'f', number));
	}
	CHECK_IS(close(high), 0);
	CHECK_IS(close(fd), 0);
}

/* With no descriptors left the program has all of its own, and works. */
static void limit_reached(void)
{
	struct rlimit limit = {64, 64};
	CHECK_IS(setrlimit(RLIMIT_NOFILE, &limit), 0);
	make_file(at(0, "file"), 'f', 16);
	char *block = aligned(BLOCK);
	int fds[64], count = 0;
	while ((fds[count] = open(at(0, "file"), O_RDONLY | O_DIRECT)) >= 0)
		count++;
	CHECK_IS(errno, EMFILE);
	CHECK(count > 8);
	for (int index = 0; index < count; index++) {
		for (int number = 0; number < 16; number++) {
			CHECK_IS(pread(fds[index], block, BLOCK, number * BLOCK), BLOCK);
			CHECK(holds(block, 'f', number));
		}
	}
	for (int index = 0; index < count; index++)
		CHECK_IS(close(fds[index]), 0);
}

/* Where the hard limit is higher, lanes take none of the numbers below the soft one. */
static void limit_is_the_programs(void)
{
	struct rlimit limit, now;
	CHECK_IS(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 256;
	CHECK_IS(setrlimit(RLIMIT_NOFILE, &limit), 0);
	make_file(at(0, "file"), 'f', 16);
	int fds[256], count = 0;
	int free_numbers = 0;
	for (int number = 0; number < 256; number++)
		free_numbers += !is_open(number);
	while ((fds[count] = open(at(0, "file"), O_RDONLY | (count == 0 ? O_DIRECT : 0))) >= 0)
		count++;
	CHECK_IS(errno, EMFILE);
	CHECK_IS(count, free_numbers);
	CHECK_IS(getrlimit(RLIMIT_NOFILE, &now), 0);
	CHECK_IS(now.rlim_cur, 256);
	CHECK_IS(now.rlim_max, limit.rlim_max);
	char *block = aligned(BLOCK);
	CHECK_IS(pread(fds[0], block, BLOCK, BLOCK), BLOCK);
	CHECK(holds(block, 'f', 1));
}

/* A vfork child changes its descriptors; those of the parent stay. */
static void vfork_children(void)
{
	make_file(at(0, "file"), 'f', 64);
	make_file(at(0, "other"), 'o', 64);
	char *block = aligned(BLOCK);
	int fd = open_direct(at(0, "file"), O_RDONLY), found[8];
	int null = open("/dev/null", O_RDWR);
	pid_t child = vfork();
	if (child == 0) {
		close(fd);
		dup2(null, fd);
		close_range(3, ~0U, 0);
		_exit(0);
	}
	int status;
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	for (int number = 0; number < 64; number++) {
		CHECK_IS(pread(fd, block, BLOCK, number * BLOCK), BLOCK);
		CHECK(holds(block, 'f', number));
	}
	CHECK_IS(close(fd), 0);
	expect_reused(fd, "vfork");
}

/* 8. Errors are libaio's: -errno from the function, -1 and errno from syscall(2), partial counts. */
static void errors_as_libaio_returns_them(void)
{
	make_file(at(0, "file"), 'f', 16);
	int fd = open_direct(at(0, "file"), O_RDONLY);
	io_context_t ctx = context(16);
	struct iocb iocbs[4], *list[4] = {&iocbs[0], &iocbs[1], &iocbs[2], &iocbs[3]};
	struct io_event events[16];
	char *buffers = aligned(4 * BLOCK);
	for (int at = 0; at < 4; at++)
		io_prep_pread(&iocbs[at], fd, buffers + at * BLOCK, BLOCK, at * BLOCK);
	iocbs[2].aio_fildes = 12345;
	errno = 77;
	CHECK_IS(io_submit(ctx, 4, list), 2);
	CHECK_IS(errno, 77);
	for (int at = 0; at < 4; at++)
		CHECK_IS(iocbs[at].aio_fildes, at == 2 ? 12345 : fd);
	CHECK_IS(io_submit(ctx, 2, list + 2), -EBADF);
	CHECK_IS(errno, 77);
	CHECK_IS(syscall(SYS_io_submit, ctx, 2, list + 2), -1);
	CHECK_IS(errno, EBADF);
	iocbs[3].aio_lio_opcode = 99;
	CHECK_IS(io_submit(ctx, 1, list + 3), -EINVAL);
	CHECK_IS(io_getevents(ctx, 2, 16, events, NULL), 2);
	for (int at = 0; at < 2; at++)
		CHECK_IS(events[at].res, BLOCK);
	/* A request that is not a multiple of a block fails as it would on the opened lane. */
	io_prep_pread(&iocbs[0], fd, buffers + 1, BLOCK, 0);
	int submitted = io_submit(ctx, 1, list);
	if (submitted == 1) {
		CHECK_IS(io_getevents(ctx, 1, 1, events, NULL), 1);
		CHECK_IS((long)events[0].res, -EINVAL);
	} else {
		CHECK_IS(submitted, -EINVAL);
	}
	CHECK_IS(pread(fd, buffers + 1, BLOCK, 0), -1);
	CHECK_IS(errno, EINVAL);
	/* More than the context holds. */
	io_context_t small = context(1);
	static struct iocb many[300];
	struct iocb *all[300];
	for (int at = 0; at < 300; at++) {
		all[at] = &many[at];
		io_prep_pread(&many[at], fd, buffers, BLOCK, 0);
	}
	int some = io_submit(small, 300, all);
	CHECK(some == -EAGAIN || (some > 0 && some <= 300));
	for (int at = 0; at < 300; at++)
		CHECK_IS(many[at].aio_fildes, fd);
	CHECK_IS(io_destroy(small), 0);
	CHECK_IS(io_destroy(ctx), 0);
}

/* The older convention of libaio, by its symbol's version. */
__asm__(".symver old_getevents, io_getevents@LIBAIO_0.1");
extern int old_getevents(io_context_t ctx, long nr, struct io_event *events, struct timespec *timeout);

static void both_versions_of_io_getevents(void)
{
	make_file(at(0, "file"), 'f', 16);
	int fd = open_direct(at(0, "file"), O_RDONLY);
	io_context_t ctx = context(16);
	struct iocb iocbs[4], *list[4] = {&iocbs[0], &iocbs[1], &iocbs[2], &iocbs[3]};
	struct io_event events[4];
	struct timespec long_time = {600, 0}, none = {0, 0};
	char *buffers = aligned(4 * BLOCK);
	for (int at = 0; at < 4; at++)
		io_prep_pread(&iocbs[at], fd, buffers + at * BLOCK, BLOCK, at * BLOCK);
	CHECK_IS(io_submit(ctx, 4, list), 4);
	int got = 0;
	while (got < 3) {
		int some = old_getevents(ctx, 3 - got, events + got, got == 1 ? NULL : &long_time);
		CHECK(some > 0);
		got += some;
	}
	CHECK_IS(io_getevents(ctx, 1, 1, events + 3, &long_time), 1);
	CHECK_IS(old_getevents(ctx, 1, events, &none), 0);
	CHECK_IS(io_getevents(ctx, 0, 4, events, &none), 0);
	for (int at = 0; at < 4; at++)
		CHECK(holds(buffers + at * BLOCK, 'f', at));
	CHECK_IS(io_destroy(ctx), 0);
}

/* Lanes' descriptors lie high, are closed by exec, and cannot be closed by the program. */
static void lanes_are_out_of_the_way(void)
{
	make_file(at(0, "file"), 'f', 16);
	int fd = open_direct(at(0, "file"), O_RDONLY), found[8];
	int next = open("/dev/null", O_RDONLY);
	CHECK_IS(next, fd + 1);
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	for (int index = 0; index < 3; index++) {
		CHECK(found[index] > 255);
		CHECK_IS(kernel(SYS_fcntl, found[index], F_GETFD, 0, 0), FD_CLOEXEC);
		CHECK_IS(close(found[index]), 0);
		CHECK_IS(dup(found[index]), -1);
		CHECK_IS(errno, EBADF);
		CHECK(is_open(found[index]));
	}
	CHECK_IS(close_range(next, ~0U, 0), 0);
	for (int number = 0; number < 70000; number++)
		if (number > fd)
			close(number);
	char *block = aligned(BLOCK);
	for (int number = 0; number < 16; number++) {
		CHECK_IS(pread(fd, block, BLOCK, number * BLOCK), BLOCK);
		CHECK(holds(block, 'f', number));
	}
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	/* The program takes a number that the library uses for a lane: the file stays on the opened lane. */
	int null = open("/dev/null", O_RDONLY);
	CHECK_IS(dup2(null, found[1]), found[1]);
	for (int number = 0; number < 16; number++) {
		CHECK_IS(pread(fd, block, BLOCK, number * BLOCK), BLOCK);
		CHECK(holds(block, 'f', number));
	}
	CHECK_IS(close(fd), 0);
	CHECK(is_open(found[1]));
	CHECK_IS(close(found[1]), 0);
	/* No descriptor of the library is left after exec. */
	fd = open_direct(at(0, "file"), O_RDONLY);
	execl("/bin/sh", "sh", "-c", "[ $(ls -l /proc/self/fd | grep -c '/file$') = 1 ]", NULL);
}

/* Addresses that lead nowhere: the kernel's errors, for libc's functions and for syscall(2). */
static void bad_addresses(void)
{
	make_file(at(0, "file"), 'a', 4);
	int fd = open_direct(at(0, "file"), O_RDWR);
	io_context_t ctx = 0;
	char *closed = mmap(NULL, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(closed != MAP_FAILED);
	CHECK_IS(mprotect(closed + BLOCK, BLOCK, PROT_NONE), 0);
	void *bad[] = {NULL, (void *)-1, (void *)0xffffffff81000000, closed + BLOCK, closed + BLOCK - 8};
	struct iocb good, vectored;
	struct io_event event;
	CHECK_IS(io_setup(8, &ctx), 0);
	int sockets[2];
	CHECK_IS(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets), 0);
	io_prep_pread(&good, fd, aligned(BLOCK), BLOCK, 0);
	for (size_t each = 0; each < sizeof bad / sizeof *bad; each++) {
		struct iocb *list[] = {&good, bad[each]}, **place = bad[each];
		if (each < 4) { /* the last one is a place for one address, and zero */
			CHECK_IS(io_submit(ctx, 1, place), -EFAULT);
			CHECK_IS(syscall(SYS_io_submit, ctx, 1L, place), -1);
			CHECK_IS(errno, EFAULT);
		}
		CHECK_IS(io_submit(ctx, 1, list + 1), -EFAULT);
		CHECK_IS(io_submit(ctx, 2, list), 1);
		CHECK_IS(io_getevents(ctx, 1, 1, &event, NULL), 1);
		CHECK_IS(event.res, BLOCK);
		io_prep_preadv(&vectored, fd, bad[each], 2, 0);
		list[0] = &vectored;
		CHECK_IS(io_submit(ctx, 1, list), -EFAULT);
		CHECK_IS(preadv(fd, bad[each], 2, 0), -1);
		CHECK_IS(errno, EFAULT);
		CHECK_IS(pwritev2(fd, bad[each], 2, 0, 0), -1);
		CHECK_IS(errno, EFAULT);
		CHECK_IS(pread(fd, each == 4 ? bad[3] : bad[each], BLOCK, 0), -1);
		CHECK_IS(errno, EFAULT);
		if (each > 0) /* libaio's own function reads the time itself */
			CHECK(syscall(SYS_io_getevents, ctx, 1L, 1L, &event, bad[each]) == -1 && errno == EFAULT);
		CHECK_IS(syscall(SYS_openat2, AT_FDCWD, at(0, "file"), bad[each], 24L), -1);
		CHECK(errno == EFAULT || errno == ENOSYS);
		CHECK_IS(ioctl(fd, FICLONERANGE, bad[each]), -1);
		CHECK_IS(recvmsg(sockets[0], bad[each], MSG_DONTWAIT), -1);
		CHECK_IS(errno, EFAULT);
		CHECK_IS(recvmmsg(sockets[0], bad[each], 2, MSG_DONTWAIT, NULL), -1);
		CHECK_IS(errno, EFAULT);
		if (each > 0 && each < 4) { /* a path may be null for nobody but libc, and the last one is an empty path */
			char *nothing[] = {NULL};
			CHECK_IS(execve(bad[each], nothing, nothing), -1);
			CHECK_IS(errno, EFAULT);
			CHECK_IS(syscall(SYS_execveat, AT_FDCWD, bad[each], NULL, NULL, 0), -1);
			CHECK_IS(errno, EFAULT);
		}
	}
	/* The kernel writes to an iocb that it takes. */
	memcpy(closed, &good, sizeof good);
	memcpy(closed + 64, &good, sizeof good);
	CHECK_IS(mprotect(closed, BLOCK, PROT_READ), 0);
	for (int round = 0; round < 4; round++) {
		struct iocb *list[] = {&good, (struct iocb *)closed, (struct iocb *)(closed + 64)};
		CHECK_IS(io_submit(ctx, 2, list + 1), -EFAULT);
		CHECK_IS(io_submit(ctx, 3, list), 1);
		CHECK_IS(io_getevents(ctx, 1, 1, &event, NULL), 1);
		CHECK_IS(event.res, BLOCK);
	}
	CHECK_IS(close(sockets[0]), 0);
	CHECK_IS(close(sockets[1]), 0);
	CHECK_IS(io_destroy(ctx), 0);
	CHECK_IS(close(fd), 0);
}

static const struct test TESTS[] = {
	{"fsync_tells_errors_of_lanes", fsync_tells_errors_of_lanes},
	{"fdatasync_tells_errors_of_lanes", fdatasync_tells_errors_of_lanes},
	{"aio_fsync_of_lanes_comes_back", aio_fsync_of_lanes_comes_back},
	{"aio_fsync_tells_errors_of_lanes", aio_fsync_tells_errors_of_lanes},
	{"fsync_of_another_descriptor", fsync_of_another_descriptor},
	{"batches_over_several_files", batches_over_several_files},
	{"every_way_to_close", every_way_to_close},
	{"duplicates_share", duplicates_share},
	{"iocbs_stay_the_programs", iocbs_stay_the_programs},
	{"iocbs_that_go_and_repeat", iocbs_that_go_and_repeat},
	{"same_name_other_file", same_name_other_file},
	{"paths_as_the_kernel_resolves_them", paths_as_the_kernel_resolves_them},
	{"buffered_and_append_stay", buffered_and_append_stay},
	{"buffered_writes_are_seen", buffered_writes_are_seen},
	{"nonsense_is_harmless", nonsense_is_harmless},
	{"high_numbers", high_numbers},
	{"bad_addresses", bad_addresses},
	{"limit_reached", limit_reached},
	{"limit_is_the_programs", limit_is_the_programs},
	{"vfork_children", vfork_children},
	{"errors_as_libaio_returns_them", errors_as_libaio_returns_them},
	{"both_versions_of_io_getevents", both_versions_of_io_getevents},
	{"lanes_are_out_of_the_way", lanes_are_out_of_the_way},
};

int main(int argc, char **argv)
{
	CHECK_IS(argc, 2);
	return run_named(TESTS, sizeof TESTS / sizeof *TESTS, argv[1]);
}
