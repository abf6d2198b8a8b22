/* The attributes of a file while other lanes are written: sizes CASE HOW. Every acknowledged write is in the file, every
 * byte that was cut is gone, and the program sees the size that the file has. */
#include "check.h"
#include <poll.h>
#include <sys/inotify.h>

#define BLOCKS 64
#define KEPT 32
#define ROUNDS 40

static const char *how;
static char *block;

static void cut(int fd, int blocks)
{
	off_t size = (off_t)blocks * BLOCK;
	if (strcmp(how, "truncate") == 0) {
		CHECK_IS(truncate(at(0, "file"), size), 0);
	} else if (strcmp(how, "open") == 0) {
		int other = open(at(0, "file"), O_WRONLY | O_DIRECT | O_TRUNC);
		CHECK(other >= 0 && close(other) == 0);
	} else {
		CHECK_IS(ftruncate(fd, size), 0);
	}
}

struct work {
	int fd;
	char letter;
	atomic_int begun;
};

static void *writes(void *argument)
{
	struct work *work = argument;
	char *own = aligned(BLOCK);
	for (int number = KEPT; number < BLOCKS; number++) {
		fill(own, work->letter, number);
		CHECK_IS(pwrite(work->fd, own, BLOCK, (off_t)number * BLOCK), BLOCK);
		atomic_store(&work->begun, number - KEPT + 1);
	}
	free(own);
	return NULL;
}

static int is_zero(const char *from)
{
	for (int at = 0; at < BLOCK; at++) {
		if (from[at] != 0)
			return 0;
	}
	return 1;
}

/* One thread writes blocks behind the place at which another thread cuts the file. */
static void beside_writes(void)
{
	int kept = strcmp(how, "open") == 0 ? 0 : KEPT;
	for (int round = 0; round < ROUNDS; round++) {
		make_file(at(0, "file"), 'a', BLOCKS);
		int fd = open_direct(at(0, "file"), O_RDWR);
		struct work work = {fd, 'A' + round % 26, 0};
		pthread_t thread;
		CHECK_IS(pread(fd, block, BLOCK, 0), BLOCK);
		CHECK_IS(pthread_create(&thread, NULL, writes, &work), 0);
		while (atomic_load(&work.begun) < round % (BLOCKS - KEPT))
			;
		cut(fd, kept);
		CHECK_IS(pthread_join(thread, NULL), 0);
		struct stat stat;
		CHECK_IS(fstat(fd, &stat), 0);
		int blocks = (int)(stat.st_size / BLOCK), written = 0;
		CHECK(blocks == kept || blocks == BLOCKS);
		fill(block, 'z', blocks);
		CHECK_IS(pwrite(fd, block, BLOCK, stat.st_size), BLOCK); /* a program's own append */
		for (int number = kept; number < blocks; number++) {
			CHECK_IS(pread(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
			if (number >= KEPT && holds(block, work.letter, number))
				written++;
			else
				CHECK(is_zero(block) && written == 0); /* cut; the writes after the cut are all there */
		}
		CHECK(blocks == kept || written > 0);
		CHECK_IS(pread(fd, block, BLOCK, (off_t)blocks * BLOCK), BLOCK);
		CHECK(holds(block, 'z', blocks));
		CHECK_IS(pread(fd, block, BLOCK, (off_t)(blocks + 1) * BLOCK), 0);
		CHECK_IS(close(fd), 0);
	}
}

/* Another process cuts the file: the writes after that extend it again. */
static void by_a_child(void)
{
	for (int round = 0; round < 8; round++) {
		int status;
		make_file(at(0, "file"), 'a', BLOCKS);
		int fd = open_direct(at(0, "file"), O_RDWR);
		for (int number = 0; number < 8; number++) {
			fill(block, 'b', number);
			CHECK_IS(pwrite(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
		}
		pid_t child = fork();
		if (child == 0) {
			cut(fd, KEPT);
			_exit(0);
		}
		CHECK_IS(waitpid(child, &status, 0), child);
		CHECK_IS(status, 0);
		int kept = strcmp(how, "open") == 0 ? 0 : KEPT;
		for (int number = kept; number < kept + 8; number++) {
			fill(block, 'c', number);
			CHECK_IS(pwrite(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
			struct stat stat;
			CHECK_IS(fstat(fd, &stat), 0);
			CHECK_IS(stat.st_size, (off_t)(number + 1) * BLOCK);
		}
		for (int number = kept; number < kept + 8; number++) {
			CHECK_IS(pread(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
			CHECK(holds(block, 'c', number));
		}
		CHECK_IS(close(fd), 0);
	}
}

/* A child writes through the page cache, while its parent writes past the cache. Each has its own blocks. */
static void beside_a_child(void)
{
	for (int round = 0; round < 8; round++) {
		int status, ready[2];
		char byte = 0;
		make_file(at(0, "file"), 'a', BLOCKS);
		CHECK_IS(pipe(ready), 0);
		int cached = -1;
		if (strcmp(how, "inherited") == 0)
			CHECK((cached = open(at(0, "file"), O_RDWR)) >= 0);
		int fd = open_direct(at(0, "file"), O_RDWR);
		CHECK_IS(pread(fd, block, BLOCK, 0), BLOCK);
		pid_t child = fork();
		if (child == 0) {
			char small[64];
			if (cached < 0)
				CHECK((cached = open(at(0, "file"), O_RDWR)) >= 0);
			CHECK_IS(read(ready[0], &byte, 1), 1);
			for (int number = 1; number < BLOCKS; number += 2) {
				/* Parts of a block: the page is read before it is changed. */
				memset(small, 'k', sizeof small);
				for (int part = 0; part < BLOCK; part += sizeof small)
					CHECK_IS(pwrite(cached, small, sizeof small, (off_t)number * BLOCK + part), sizeof small);
				char whole[BLOCK];
				CHECK_IS(pread(cached, whole, BLOCK, (off_t)(number - 1) * BLOCK), BLOCK);
			}
			CHECK_IS(close(cached), 0);
			_exit(0);
		}
		if (cached >= 0)
			CHECK_IS(close(cached), 0);
		CHECK_IS(write(ready[1], &byte, 1), 1);
		for (int number = 0; number < BLOCKS; number += 2) {
			fill(block, 'd', number);
			CHECK_IS(pwrite(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
		}
		CHECK_IS(waitpid(child, &status, 0), child);
		CHECK_IS(status, 0);
		CHECK_IS(fsync(fd), 0);
		for (int number = 0; number < BLOCKS; number++) {
			CHECK_IS(pread(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
			if (number % 2 == 0)
				CHECK(holds(block, 'd', number));
			else
				CHECK(block[0] == 'k' && block[BLOCK - 1] == 'k');
		}
		CHECK_IS(close(fd), 0);
		int again = open(at(0, "file"), O_RDONLY);
		for (int number = 0; number < BLOCKS; number++) {
			CHECK_IS(pread(again, block, BLOCK, (off_t)number * BLOCK), BLOCK);
			CHECK(number % 2 == 0 ? holds(block, 'd', number) : block[0] == 'k' && block[BLOCK - 1] == 'k');
		}
		CHECK_IS(close(again), 0);
		CHECK_IS(close(ready[0]), 0);
		CHECK_IS(close(ready[1]), 0);
	}
}

static void turn(int fd[2], int send)
{
	char byte = 0;
	if (send)
		CHECK_IS(write(fd[1], &byte, 1), 1);
	else
		CHECK_IS(read(fd[0], &byte, 1), 1);
}

/* A child and its parent write parts of the same pages in turns, the child through the page cache, and each reads what the
 * other has written and not synced. */
static void in_turns_with_a_child(void)
{
	enum { PART = 512 };
	int status, down[2], up[2];
	make_file(at(0, "file"), 'a', BLOCKS);
	CHECK_IS(pipe(down), 0);
	CHECK_IS(pipe(up), 0);
	int cached = strcmp(how, "inherited") == 0 ? open(at(0, "file"), O_RDWR) : -1;
	int fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(pread(fd, block, BLOCK, 0), BLOCK);
	pid_t child = fork();
	if (child == 0) {
		char part[PART];
		if (cached < 0)
			CHECK((cached = open(at(0, "file"), O_RDWR)) >= 0);
		for (int number = 0; number < BLOCKS; number++) {
			off_t from = (off_t)number * BLOCK;
			memset(part, 'k', PART);
			CHECK_IS(pwrite(cached, part, PART, from), PART);
			turn(up, 1);
			turn(down, 0);
			CHECK_IS(pread(cached, part, PART, from + PART), PART);
			CHECK(part[0] == 'd' && part[PART - 1] == 'd');
			memset(part, 'l', PART);
			CHECK_IS(pwrite(cached, part, PART, from + 2 * PART), PART);
			turn(up, 1);
		}
		_exit(0); /* without a close */
	}
	if (cached >= 0)
		CHECK_IS(close(cached), 0);
	for (int number = 0; number < BLOCKS; number++) {
		off_t from = (off_t)number * BLOCK;
		turn(up, 0);
		CHECK_IS(pread(fd, block, BLOCK, from), BLOCK);
		CHECK(block[0] == 'k' && block[PART - 1] == 'k');
		memset(block, 'd', PART);
		CHECK_IS(pwrite(fd, block, PART, from + PART), PART);
		turn(down, 1);
		turn(up, 0);
		CHECK_IS(pread(fd, block, BLOCK, from), BLOCK);
		CHECK(block[0] == 'k' && block[PART] == 'd' && block[2 * PART - 1] == 'd' && block[2 * PART] == 'l');
	}
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
	for (int number = 0; number < BLOCKS; number++) {
		CHECK_IS(pread(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
		CHECK(block[0] == 'k' && block[PART] == 'd' && block[2 * PART - 1] == 'd' && block[2 * PART] == 'l');
	}
	CHECK_IS(close(fd), 0);
}

/* A question for the attributes of the file, in one of the ways of libc and the kernel. */
static struct stat asked(int fd)
{
	struct stat found;
	struct statx more;
	const char *path = at(0, "file");
	if (strcmp(how, "fstat") == 0) {
		CHECK_IS(fstat(fd, &found), 0);
	} else if (strcmp(how, "stat") == 0) {
		CHECK_IS(stat(path, &found), 0);
	} else if (strcmp(how, "lstat") == 0) {
		CHECK_IS(lstat(path, &found), 0);
	} else if (strcmp(how, "fstatat") == 0) {
		CHECK_IS(fstatat(fd, "", &found, AT_EMPTY_PATH), 0);
	} else if (strcmp(how, "syscall") == 0) {
		CHECK_IS(syscall(SYS_newfstatat, AT_FDCWD, path, &found, 0), 0);
	} else {
		CHECK_IS(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &more), 0);
		found.st_mtim = (struct timespec){more.stx_mtime.tv_sec, more.stx_mtime.tv_nsec};
		found.st_blocks = (blkcnt_t)more.stx_blocks;
		found.st_size = (off_t)more.stx_size;
	}
	return found;
}

/* Each write shows in the times and the blocks of the file as soon as it has ended: they are those of the server. */
static void attributes(void)
{
	int fd = open(at(0, "file"), O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0);
	CHECK_IS(ftruncate(fd, (off_t)BLOCKS * BLOCK), 0);
	CHECK_IS(close(fd), 0);
	fd = open_direct(at(0, "file"), O_RDWR);
	for (int number = 0; number < BLOCKS; number++) {
		struct statx now;
		usleep(15000); /* the server's clock goes on in ticks */
		fill(block, 'e', number);
		CHECK_IS(pwrite(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
		struct stat found = asked(fd);
		CHECK_IS(lseek(fd, 0, SEEK_END), (off_t)BLOCKS * BLOCK);
		CHECK_IS(inline6(SYS_statx, fd, (long)"", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, (long)&now, 0), 0);
		CHECK_IS(found.st_mtim.tv_sec, now.stx_mtime.tv_sec);
		CHECK_IS(found.st_mtim.tv_nsec, now.stx_mtime.tv_nsec);
		CHECK_IS(found.st_blocks, now.stx_blocks);
		CHECK_IS(found.st_size, now.stx_size);
	}
	CHECK_IS(close(fd), 0);
}

/* A program that watches its file is told of each of its writes, whether the watch is there before the lanes or not. */
static void watched(void)
{
	int before = strcmp(how, "before") == 0, watch = inotify_init1(IN_NONBLOCK);
	char events[4096];
	CHECK(watch >= 0);
	make_file(at(0, "file"), 'a', BLOCKS);
	if (before)
		CHECK(inotify_add_watch(watch, at(0, "file"), IN_MODIFY) >= 0);
	int fd = open_direct(at(0, "file"), O_RDWR);
	for (int number = 0; number < BLOCKS; number++)
		CHECK_IS(pread(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
	if (!before)
		CHECK(inotify_add_watch(watch, at(0, "file"), IN_MODIFY) >= 0);
	for (int number = 0; number < 16; number++) {
		fill(block, 'w', number);
		CHECK_IS(pwrite(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
		CHECK_IS(poll(&(struct pollfd){watch, POLLIN, 0}, 1, 10000), 1);
		CHECK(read(watch, events, sizeof events) > 0);
	}
	CHECK_IS(close(fd), 0);
	CHECK_IS(close(watch), 0);
}

int main(int count, char **arguments)
{
	static const struct test tests[] = {
		{"beside_writes", beside_writes}, {"by_a_child", by_a_child}, {"beside_a_child", beside_a_child},
		{"in_turns_with_a_child", in_turns_with_a_child}, {"attributes", attributes},
		{"watched", watched},
	};
	CHECK_IS(count, 3);
	how = arguments[2];
	block = aligned(BLOCK);
	return run_named(tests, sizeof tests / sizeof *tests, arguments[1]);
}
