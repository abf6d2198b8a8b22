/* libaio on buffered files, as it is documented and as programs rely on it: async NAME. Nothing here may tell whether
 * requests are carried out asynchronously (IOTRAP_ASYNC=1) or not. */
#include "check.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <ulimit.h>

#define DEPTH 64
#define BLOCKS 256

static io_context_t context(int events)
{
	io_context_t made = 0;
	CHECK_IS(io_setup(events, &made), 0);
	/* A program that has fetched events by the function goes on doing so. */
	struct io_event none[1];
	struct timespec now = {0, 0};
	CHECK_IS(io_getevents(made, 0, 1, none, &now), 0);
	return made;
}

/* A file that is not in the page cache. */
static void make_cold(const char *name, char letter, int blocks)
{
	make_file(name, letter, blocks);
	int fd = open(name, O_RDONLY);
	CHECK(fd >= 0);
	CHECK_IS(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	CHECK_IS(close(fd), 0);
}

static int buffered(const char *name, int flags)
{
	int fd = open(name, flags | O_CREAT, 0644);
	CHECK(fd >= 0);
	CHECK_IS(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0); /* nothing is read ahead */
	/* Only writes within the file are made asynchronous. */
	if ((flags & O_ACCMODE) != O_RDONLY && !(flags & O_APPEND) && lseek(fd, 0, SEEK_END) == 0)
		CHECK_IS(ftruncate(fd, 64 << 20), 0);
	CHECK_IS(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

/* A file without content, to which nothing may be written. */
static int empty(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
	CHECK(fd >= 0);
	return fd;
}

static void submit_one(io_context_t aio, struct iocb *iocb)
{
	CHECK_IS(io_submit(aio, 1, &iocb), 1);
}

/* One event, whose request is checked. */
static long long next(io_context_t aio, struct iocb *wanted)
{
	struct io_event event;
	CHECK_IS(io_getevents(aio, 1, 1, &event, NULL), 1);
	CHECK(event.obj == wanted);
	CHECK(event.data == wanted->data);
	CHECK_IS(event.res2, 0);
	return (long long)event.res;
}

/* Writes and reads with many in flight: every event is one request's, with its result and data. */
static void everything_comes_back(void)
{
	io_context_t aio = context(DEPTH);
	int fd = buffered("file", O_RDWR | O_TRUNC);
	struct iocb iocbs[DEPTH], before[DEPTH];
	char *buffers = malloc(DEPTH * BLOCK);
	for (int pass = 0; pass < 2; pass++) {
		int begun = 0, ended = 0, slots[DEPTH], free_slots = DEPTH;
		char seen[BLOCKS] = {0};
		CHECK_IS(fsync(fd), 0);
		CHECK_IS(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
		for (int slot = 0; slot < DEPTH; slot++)
			slots[slot] = slot;
		while (ended < BLOCKS) {
			while (free_slots > 0 && begun < BLOCKS) {
				int slot = slots[--free_slots];
				char *buffer = buffers + slot * BLOCK;
				if (pass == 0) {
					fill(buffer, 'w', begun);
					io_prep_pwrite(&iocbs[slot], fd, buffer, BLOCK, (long long)begun * BLOCK);
				} else {
					memset(buffer, 0, BLOCK);
					io_prep_pread(&iocbs[slot], fd, buffer, BLOCK, (long long)begun * BLOCK);
				}
				iocbs[slot].data = (void *)(intptr_t)begun;
				before[slot] = iocbs[slot];
				submit_one(aio, &iocbs[slot]);
				CHECK(memcmp(&iocbs[slot], &before[slot], sizeof iocbs[slot]) == 0);
				begun++;
			}
			struct io_event events[DEPTH];
			int got = io_getevents(aio, 1, DEPTH, events, NULL);
			CHECK(got > 0);
			for (int index = 0; index < got; index++) {
				int slot = (int)(events[index].obj - iocbs), number = (int)(intptr_t)events[index].data;
				CHECK(slot >= 0 && slot < DEPTH && (int)(intptr_t)iocbs[slot].data == number);
				CHECK_IS(events[index].res, BLOCK);
				CHECK(!seen[number]++);
				if (pass == 1)
					CHECK(holds(buffers + slot * BLOCK, 'w', number));
				slots[free_slots++] = slot;
				ended++;
			}
		}
		CHECK_IS(io_getevents(aio, 0, 1, &(struct io_event){0}, &(struct timespec){0, 0}), 0);
	}
	CHECK_IS(close(fd), 0);
	CHECK_IS(io_destroy(aio), 0);
}

/* One batch: buffered and direct reads and writes, vectors, a poll, an fsync. */
static void batches_of_everything(void)
{
	io_context_t aio = context(DEPTH);
	make_cold("direct", 'd', 8);
	make_cold("read", 'r', 8);
	int direct = open_direct("direct", O_RDWR), reads = buffered("read", O_RDONLY), writes = buffered("write", O_RDWR | O_TRUNC);
	int pipes[2];
	CHECK_IS(pipe(pipes), 0);
	char *buffers = aligned(8 * BLOCK);
	struct iovec two[2] = {{buffers + 4 * BLOCK, 100}, {buffers + 5 * BLOCK, BLOCK - 100}};
	struct iovec out[3];
	struct iocb iocbs[8], *all[8];
	fill(buffers + 2 * BLOCK, 'x', 2);
	fill(buffers + 6 * BLOCK, 'y', 6);
	out[0] = (struct iovec){buffers + 6 * BLOCK, 1};
	out[1] = (struct iovec){buffers + 6 * BLOCK + 1, 1000};
	out[2] = (struct iovec){buffers + 6 * BLOCK + 1001, BLOCK - 1001};
	io_prep_pread(&iocbs[0], direct, buffers, BLOCK, 0);
	io_prep_pread(&iocbs[1], reads, buffers + BLOCK, BLOCK, BLOCK);
	io_prep_pwrite(&iocbs[2], writes, buffers + 2 * BLOCK, BLOCK, 2 * BLOCK);
	io_prep_poll(&iocbs[3], pipes[0], POLLIN);
	io_prep_preadv(&iocbs[4], reads, two, 2, 4 * BLOCK);
	io_prep_pwritev(&iocbs[5], writes, out, 3, 6 * BLOCK);
	io_prep_fsync(&iocbs[6], writes);
	io_prep_pread(&iocbs[7], reads, buffers + 7 * BLOCK, BLOCK, 100 * BLOCK); /* beyond the end */
	for (int index = 0; index < 8; index++) {
		iocbs[index].data = &iocbs[index];
		all[index] = &iocbs[index];
	}
	CHECK_IS(io_submit(aio, 8, all), 8);
	memset(two, 0, sizeof two); /* the kernel has read them */
	memset(out, 0, sizeof out);
	const long long wanted[8] = {BLOCK, BLOCK, BLOCK, POLLIN, BLOCK, BLOCK, 0, 0};
	int seen = 0;
	while (seen < 8) {
		struct io_event event;
		int got = io_getevents(aio, 0, 1, &event, &(struct timespec){0, 100000000});
		CHECK(got >= 0);
		if (got == 0 && seen == 7)
			CHECK_IS(write(pipes[1], "x", 1), 1);
		if (got == 1) {
			int index = (int)(event.obj - iocbs);
			CHECK(event.data == event.obj);
			CHECK_IS((long long)event.res & (index == 3 ? POLLIN : -1LL), wanted[index]);
			seen++;
		}
	}
	CHECK(holds(buffers, 'd', 0) && holds(buffers + BLOCK, 'r', 1));
	char whole[BLOCK];
	memcpy(whole, buffers + 4 * BLOCK, 100);
	memcpy(whole + 100, buffers + 5 * BLOCK, BLOCK - 100);
	CHECK(holds(whole, 'r', 4));
	CHECK_IS(pread(writes, whole, BLOCK, 2 * BLOCK), BLOCK);
	CHECK(holds(whole, 'x', 2));
	CHECK_IS(pread(writes, whole, BLOCK, 6 * BLOCK), BLOCK);
	CHECK(holds(whole, 'y', 6));
	CHECK_IS(io_destroy(aio), 0);
}

/* io_getevents(2): min_nr, nr, timeouts. */
static void waits_as_documented(void)
{
	io_context_t aio = context(DEPTH);
	make_cold("file", 'a', 16);
	int fd = buffered("file", O_RDONLY);
	struct iocb iocbs[8], *all[8];
	char *buffers = malloc(8 * BLOCK);
	struct io_event events[16];
	for (int index = 0; index < 8; index++) {
		io_prep_pread(&iocbs[index], fd, buffers + index * BLOCK, BLOCK, index * BLOCK);
		all[index] = &iocbs[index];
	}
	CHECK_IS(io_submit(aio, 8, all), 8);
	CHECK_IS(io_getevents(aio, 3, 3, events, NULL), 3); /* no more than nr */
	CHECK_IS(io_getevents(aio, 5, 16, events, NULL), 5); /* all that is left */
	CHECK_IS(io_getevents(aio, 1, 16, events, &(struct timespec){0, 20000000}), 0); /* nothing: the time is over */
	/* Fewer than min_nr: those that are there when the time is over, as the eventfd says that both are. */
	int event = eventfd(0, EFD_CLOEXEC);
	for (int index = 0; index < 2; index++)
		io_set_eventfd(&iocbs[index], event);
	CHECK_IS(io_submit(aio, 2, all), 2);
	for (uint64_t there = 0, more; there < 2; there += more)
		CHECK_IS(read(event, &more, sizeof more), sizeof more);
	CHECK_IS(io_getevents(aio, 5, 16, events, &(struct timespec){0, 300000000}), 2);
	CHECK_IS(io_getevents(aio, 3, 2, events, NULL), -EINVAL);
	CHECK_IS(io_getevents(aio, -1, 2, events, NULL), -EINVAL);
	CHECK_IS(io_destroy(aio), 0);
}

/* IOCB_FLAG_RESFD: the eventfd counts completions; it may be closed when io_submit has returned. */
static void eventfds_are_signalled(void)
{
	io_context_t aio = context(DEPTH);
	make_cold("file", 'a', 64);
	int fd = buffered("file", O_RDONLY), event = eventfd(0, EFD_CLOEXEC);
	struct iocb iocbs[64], *all[64];
	struct io_event events[64];
	char *buffers = malloc(64 * BLOCK);
	for (int index = 0; index < 64; index++) {
		io_prep_pread(&iocbs[index], fd, buffers + index * BLOCK, BLOCK, index * BLOCK);
		io_set_eventfd(&iocbs[index], event);
		all[index] = &iocbs[index];
	}
	CHECK_IS(io_submit(aio, 64, all), 64);
	uint64_t total = 0;
	while (total < 64) {
		uint64_t some = 0;
		CHECK_IS(poll(&(struct pollfd){event, POLLIN, 0}, 1, -1), 1);
		CHECK_IS(read(event, &some, sizeof some), sizeof some);
		/* The events that were signalled can be fetched. */
		CHECK_IS(io_getevents(aio, some, some, events, &(struct timespec){0, 0}), some);
		total += some;
	}
	CHECK_IS(total, 64);
	for (int index = 0; index < 64; index++)
		CHECK(holds(buffers + index * BLOCK, 'a', index));
	CHECK_IS(io_submit(aio, 64, all), 64);
	CHECK_IS(close(event), 0);
	CHECK_IS(io_getevents(aio, 64, 64, events, NULL), 64);
	/* No eventfd at all, or not one. */
	CHECK_IS(io_submit(aio, 1, all), -EBADF);
	io_set_eventfd(&iocbs[0], fd);
	CHECK_IS(io_submit(aio, 1, all), -EINVAL);
	CHECK_IS(io_destroy(aio), 0);
}

/* io_destroy waits for what is in flight, and the memory is the program's again. */
static void destroying_waits(void)
{
	for (int round = 0; round < 20; round++) {
		io_context_t aio = context(DEPTH);
		int fd = buffered("file", O_RDWR | O_TRUNC);
		struct iocb iocbs[DEPTH], *all[DEPTH];
		char *buffers = malloc(DEPTH * BLOCK);
		for (int index = 0; index < DEPTH; index++) {
			fill(buffers + index * BLOCK, 'd' + round, index);
			io_prep_pwrite(&iocbs[index], fd, buffers + index * BLOCK, BLOCK, index * BLOCK);
			all[index] = &iocbs[index];
		}
		CHECK_IS(io_submit(aio, DEPTH, all), DEPTH);
		CHECK_IS(io_destroy(aio), 0);
		memset(buffers, 0, DEPTH * BLOCK);
		free(buffers);
		char block[BLOCK];
		for (int index = 0; index < DEPTH; index++) {
			CHECK_IS(pread(fd, block, BLOCK, index * BLOCK), BLOCK);
			CHECK(holds(block, 'd' + round, index));
		}
		CHECK_IS(io_submit(aio, 1, all), -EINVAL);
		CHECK_IS(close(fd), 0);
	}
}

/* A file may be closed, and its number be another file's, when io_submit has returned. */
static void closing_is_harmless(void)
{
	io_context_t aio = context(DEPTH);
	struct iocb iocbs[DEPTH], *all[DEPTH];
	struct io_event events[DEPTH];
	char *buffers = malloc(DEPTH * BLOCK), block[BLOCK], name[32];
	for (int round = 0; round < 30; round++) {
		snprintf(name, sizeof name, "right%d", round);
		int fd = buffered(name, O_RDWR), other = empty("wrong");
		for (int index = 0; index < DEPTH; index++) {
			fill(buffers + index * BLOCK, 'c', index + round);
			io_prep_pwrite(&iocbs[index], fd, buffers + index * BLOCK, BLOCK, index * BLOCK);
			all[index] = &iocbs[index];
		}
		CHECK_IS(io_submit(aio, DEPTH, all), DEPTH);
		memset(iocbs, 0xee, sizeof iocbs); /* the kernel has read them */
		switch (round % 4) {
		case 0:
			CHECK_IS(close(fd), 0);
			CHECK_IS(dup(other), fd);
			break;
		case 1:
			CHECK_IS(dup2(other, fd), fd);
			break;
		case 2:
			CHECK_IS(close_range(fd, fd, 0), 0);
			CHECK_IS(dup(other), fd);
			break;
		default:
			CHECK_IS(ftruncate(fd, DEPTH * BLOCK), 0);
		}
		CHECK_IS(io_getevents(aio, DEPTH, DEPTH, events, NULL), DEPTH);
		for (int index = 0; index < DEPTH; index++)
			CHECK_IS((long long)events[index].res, BLOCK);
		struct stat stat;
		CHECK_IS(fstat(other, &stat), 0);
		CHECK_IS(stat.st_size, 0);
		CHECK_IS(close(fd), 0);
		CHECK_IS(close(other), 0);
		CHECK((fd = open(name, O_RDONLY)) >= 0);
		for (int index = 0; index < DEPTH; index++) {
			CHECK_IS(pread(fd, block, BLOCK, index * BLOCK), BLOCK);
			CHECK(holds(block, 'c', index + round));
		}
		CHECK_IS(close(fd), 0);
	}
}

/* A program may end without fetching: what it has submitted is written, however it ends. Children have contexts of
 * their own, also after fork. */
static void ending_writes(void)
{
	everything_comes_back(); /* so that there is something to inherit */
	for (int how = 0; how < 4; how++) {
		char name[32], block[BLOCK];
		snprintf(name, sizeof name, "end%d", how);
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			io_context_t aio = context(DEPTH);
			int fd = buffered(name, O_RDWR);
			struct iocb iocbs[DEPTH], *all[DEPTH];
			char *buffers = malloc(DEPTH * BLOCK);
			for (int index = 0; index < DEPTH; index++) {
				fill(buffers + index * BLOCK, 'e', index);
				io_prep_pwrite(&iocbs[index], fd, buffers + index * BLOCK, BLOCK, index * BLOCK);
				all[index] = &iocbs[index];
			}
			CHECK_IS(io_submit(aio, DEPTH, all), DEPTH);
			if (how == 0)
				exit(7);
			if (how == 1)
				_exit(7);
			if (how == 2)
				close(fd);
			if (how == 3)
				fsync(fd);
			kill(getpid(), SIGKILL);
		}
		int status;
		CHECK_IS(waitpid(child, &status, 0), child);
		CHECK(how < 2 ? WIFEXITED(status) && WEXITSTATUS(status) == 7 : WIFSIGNALED(status));
		int fd = open(name, O_RDONLY);
		CHECK(fd >= 0);
		for (int index = 0; index < DEPTH; index++) {
			CHECK_IS(pread(fd, block, BLOCK, index * BLOCK), BLOCK);
			CHECK(holds(block, 'e', index));
		}
		CHECK_IS(close(fd), 0);
	}
	everything_comes_back();
}

struct ring {
	unsigned id, nr, head, tail, magic, compat, incompat, header;
	struct io_event events[];
};

/* A program that reads the ring from memory, without asking for its magic number, and never calls io_getevents. */
static void rings_are_readable(void)
{
	io_context_t aio = 0;
	CHECK_IS(io_setup(DEPTH, &aio), 0);
	make_cold("file", 'a', BLOCKS);
	int fd = buffered("file", O_RDONLY);
	struct iocb iocbs[DEPTH];
	char *buffers = malloc(DEPTH * BLOCK);
	volatile struct ring *ring = (volatile struct ring *)aio;
	for (int number = 0; number < BLOCKS; number++) {
		int slot = number % DEPTH;
		io_prep_pread(&iocbs[slot], fd, buffers + slot * BLOCK, BLOCK, (long long)number * BLOCK);
		submit_one(aio, &iocbs[slot]);
		while (ring->head == ring->tail)
			sched_yield();
		__sync_synchronize();
		struct io_event event = ring->events[ring->head % ring->nr];
		ring->head = (ring->head + 1) % ring->nr;
		CHECK(event.obj == &iocbs[slot]);
		CHECK_IS((long long)event.res, BLOCK);
		CHECK(holds(buffers + slot * BLOCK, 'a', number));
	}
	CHECK_IS(io_destroy(aio), 0);
}

/* Wrong requests fail with the kernel's errors. */
static void errors_are_the_kernels(void)
{
	io_context_t aio = context(DEPTH);
	make_cold("file", 'a', 4);
	int only_write = buffered("file", O_WRONLY), only_read = buffered("file", O_RDONLY), append = buffered("append", O_WRONLY | O_APPEND | O_TRUNC);
	char block[BLOCK] = {0};
	struct iocb iocb, *one = &iocb;
	io_prep_pread(&iocb, only_write, block, BLOCK, 0);
	CHECK_IS(io_submit(aio, 1, &one), -EBADF);
	io_prep_pwrite(&iocb, only_read, block, BLOCK, 0);
	CHECK_IS(io_submit(aio, 1, &one), -EBADF);
	io_prep_pread(&iocb, 999, block, BLOCK, 0);
	CHECK_IS(io_submit(aio, 1, &one), -EBADF);
	io_prep_pread(&iocb, only_read, block, BLOCK, -BLOCK);
	CHECK_IS(io_submit(aio, 1, &one), -EINVAL);
	struct iovec vector = {block, BLOCK};
	io_prep_pread(&iocb, only_read, block, BLOCK, LLONG_MAX - BLOCK + 2);
	CHECK_IS(io_submit(aio, 1, &one), -EINVAL);
	io_prep_preadv(&iocb, only_read, &vector, 1, LLONG_MAX - BLOCK + 2);
	CHECK_IS(io_submit(aio, 1, &one), -EINVAL);
	io_prep_pread(&iocb, only_read, (void *)-BLOCK, BLOCK, 0);
	CHECK_IS(io_submit(aio, 1, &one), -EFAULT);
	io_prep_pread(&iocb, only_read, (void *)8, BLOCK, 0);
	CHECK_IS(io_submit(aio, 1, &one), 1);
	CHECK_IS(next(aio, &iocb), -EFAULT);
	io_prep_pread(&iocb, only_read, block, BLOCK, 0);
	iocb.aio_lio_opcode = 77;
	CHECK_IS(io_submit(aio, 1, &one), -EINVAL);
	io_prep_pread(&iocb, only_read, block, BLOCK, 0);
	iocb.u.c.__pad3 = 1;
	CHECK_IS(io_submit(aio, 1, &one), -EINVAL);
	CHECK_IS(io_submit(aio, 0, &one), 0);
	CHECK_IS(io_submit(aio, -1, &one), -EINVAL);
	/* The good ones before a bad one are submitted. */
	struct iocb batch[3], *all[3] = {&batch[0], &batch[1], &batch[2]};
	char blocks[3][BLOCK];
	for (int index = 0; index < 3; index++)
		io_prep_pread(&batch[index], index == 2 ? 999 : only_read, blocks[index], BLOCK, index * BLOCK);
	CHECK_IS(io_submit(aio, 3, all), 2);
	struct io_event events[3];
	CHECK_IS(io_getevents(aio, 2, 3, events, NULL), 2);
	/* A read that has been submitted cannot be cancelled. */
	io_prep_pread(&iocb, only_read, block, BLOCK, 0);
	submit_one(aio, &iocb);
	CHECK(io_cancel(aio, &iocb, events) < 0);
	CHECK_IS(next(aio, &iocb), BLOCK);
	/* Appends in the order in which they are submitted. */
	struct iocb appends[32];
	char letters[32];
	for (int index = 0; index < 32; index++) {
		letters[index] = (char)('A' + index);
		io_prep_pwrite(&appends[index], append, &letters[index], 1, 0);
		submit_one(aio, &appends[index]);
	}
	for (int index = 0; index < 32; index++)
		CHECK_IS(io_getevents(aio, 1, 1, events, NULL), 1);
	char found[33] = {0};
	int fd = buffered("append", O_RDONLY);
	CHECK_IS(read(fd, found, 33), 32);
	CHECK(memcmp(found, letters, 32) == 0);
	CHECK_IS(io_destroy(aio), 0);
}

/* An fsync request covers the writes that were submitted before it, though nobody has waited for them. */
static void syncs_cover_writes(void)
{
	io_context_t aio = context(2 * DEPTH);
	int fd = buffered("file", O_RDWR | O_TRUNC), second = buffered("file", O_RDWR);
	struct iocb iocbs[DEPTH + 1], *all[DEPTH + 1];
	char *buffers = malloc(DEPTH * BLOCK), block[BLOCK];
	for (int round = 0; round < 10; round++) {
		for (int index = 0; index < DEPTH; index++) {
			fill(buffers + index * BLOCK, 's', round * DEPTH + index);
			io_prep_pwrite(&iocbs[index], fd, buffers + index * BLOCK, BLOCK, (long long)(round * DEPTH + index) * BLOCK);
			all[index] = &iocbs[index];
		}
		io_prep_fsync(&iocbs[DEPTH], round % 2 ? fd : second);
		all[DEPTH] = &iocbs[DEPTH];
		CHECK_IS(io_submit(aio, DEPTH + 1, all), DEPTH + 1);
		int left = DEPTH + 1;
		while (left > 0) {
			struct io_event event;
			CHECK_IS(io_getevents(aio, 1, 1, &event, NULL), 1);
			left--;
			if (event.obj != &iocbs[DEPTH])
				continue;
			CHECK_IS((long long)event.res, 0);
			for (int index = 0; index < DEPTH; index++) {
				CHECK_IS(pread(second, block, BLOCK, (long long)(round * DEPTH + index) * BLOCK), BLOCK);
				CHECK(holds(block, 's', round * DEPTH + index));
			}
		}
	}
	CHECK_IS(io_destroy(aio), 0);
}

/* A program may close whatever it likes: what is not its own stays open. */
static void descriptors_of_others_stay(void)
{
	everything_comes_back();
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	everything_comes_back();
	CHECK_IS(close_range(3, ~0U, 0), 0);
	everything_comes_back();
	closefrom(3);
	everything_comes_back();
	int mine = open("mine", O_RDWR | O_CREAT | O_TRUNC, 0644);
	for (int fd = 3; fd < 64; fd++) {
		if (fd != mine && dup2(mine, fd) != fd)
			CHECK_IS(errno, EBUSY);
	}
	everything_comes_back();
	struct stat stat;
	CHECK_IS(fstat(mine, &stat), 0);
	CHECK_IS(stat.st_size, 0);
}

static io_context_t shared;
static _Atomic int left;
static int shared_file;

static void *submits(void *which)
{
	struct iocb *iocbs = calloc(BLOCKS, sizeof *iocbs);
	char *buffers = malloc(BLOCKS * BLOCK);
	for (int number = 0; number < BLOCKS; number++) {
		io_prep_pread(&iocbs[number], shared_file, buffers + number * BLOCK, BLOCK, (long long)number * BLOCK);
		iocbs[number].data = which;
		struct iocb *one = &iocbs[number];
		int result;
		while ((result = io_submit(shared, 1, &one)) == -EAGAIN)
			sched_yield();
		CHECK_IS(result, 1);
	}
	while (left > 0)
		sched_yield();
	for (int number = 0; number < BLOCKS; number++)
		CHECK(holds(buffers + number * BLOCK, 'a', number));
	return NULL;
}

static void *fetches(void *unused)
{
	(void)unused;
	while (left > 0) {
		struct io_event events[8];
		int got = io_getevents(shared, 1, 8, events, &(struct timespec){0, 1000000});
		CHECK(got >= 0);
		for (int index = 0; index < got; index++)
			CHECK_IS((long long)events[index].res, BLOCK);
		left -= got;
	}
	return NULL;
}

/* Several threads submit to one context and several fetch from it. */
static void threads_share_a_context(void)
{
	make_cold("file", 'a', BLOCKS);
	shared = context(128);
	shared_file = buffered("file", O_RDONLY);
	pthread_t threads[6];
	left = 4 * BLOCKS;
	for (intptr_t index = 0; index < 6; index++)
		CHECK_IS(pthread_create(&threads[index], NULL, index < 4 ? submits : fetches, (void *)index), 0);
	for (int index = 0; index < 6; index++)
		CHECK_IS(pthread_join(threads[index], NULL), 0);
	CHECK_IS(io_destroy(shared), 0);
}

#define LARGE (256 << 10)
#define LARGE_COUNT 64

/* Submits large writes of the number of each block, and does not wait. */
static char *write_much(io_context_t aio, int fd)
{
	struct iocb iocbs[LARGE_COUNT], *all[LARGE_COUNT];
	char *buffers = malloc((size_t)LARGE_COUNT * LARGE);
	for (int number = 0; number < LARGE_COUNT * LARGE / BLOCK; number++)
		fill(buffers + (size_t)number * BLOCK, 'n', number);
	for (int index = 0; index < LARGE_COUNT; index++) {
		io_prep_pwrite(&iocbs[index], fd, buffers + (size_t)index * LARGE, LARGE, (long long)index * LARGE);
		all[index] = &iocbs[index];
	}
	CHECK_IS(io_submit(aio, LARGE_COUNT, all), LARGE_COUNT);
	return buffers;
}

static void all_written(io_context_t aio)
{
	struct io_event events[LARGE_COUNT];
	CHECK_IS(io_getevents(aio, LARGE_COUNT, LARGE_COUNT, events, NULL), LARGE_COUNT);
	for (int index = 0; index < LARGE_COUNT; index++)
		CHECK_IS((long long)events[index].res, LARGE);
}

static void is_empty(const char *name)
{
	struct stat found;
	CHECK_IS(stat(name, &found), 0);
	CHECK_IS(found.st_size, 0);
}

/* A descriptor is closed, and its number is another file's, by calls that nobody sees. */
static void numbers_change_unseen(void)
{
	io_context_t aio = context(DEPTH);
	for (int round = 0; round < 8; round++) {
		unlink("right");
		int fd = buffered("right", O_RDWR), wrong = empty("wrong");
		char *buffers = write_much(aio, fd);
		if (round % 2 == 0) {
			CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
			CHECK_IS(kernel(SYS_openat, AT_FDCWD, (long)"wrong", O_RDWR, 0), fd);
		} else {
			CHECK_IS(kernel(SYS_dup3, wrong, fd, 0, 0), fd);
		}
		all_written(aio);
		is_empty("wrong");
		expect_blocks("right", 'n', LARGE_COUNT * LARGE / BLOCK);
		CHECK_IS(close(fd), 0);
		CHECK_IS(close(wrong), 0);
		free(buffers);
	}
	CHECK_IS(io_destroy(aio), 0);
}

static void *writes_apart(void *number)
{
	int fd = *(int *)number;
	CHECK_IS(unshare(CLONE_FILES), 0);
	/* The number is another file's for this thread than for the others. */
	CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
	CHECK_IS(kernel(SYS_openat, AT_FDCWD, (long)"right", O_RDWR, 0), fd);
	io_context_t aio = context(DEPTH);
	for (int round = 0; round < 4; round++) {
		char *buffers = write_much(aio, fd);
		if (round == 3)
			CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
		all_written(aio);
		free(buffers);
	}
	CHECK_IS(io_destroy(aio), 0);
	return NULL;
}

/* A thread has a table of descriptors of its own: made before anything was asynchronous, and after it. */
static void threads_have_their_own_numbers(void)
{
	for (int round = 0; round < 2; round++) {
		unlink("right");
		CHECK_IS(close(buffered("right", O_RDWR)), 0);
		int fd = empty("wrong");
		pthread_t thread;
		CHECK_IS(pthread_create(&thread, NULL, writes_apart, &fd), 0);
		CHECK_IS(pthread_join(thread, NULL), 0);
		is_empty("wrong");
		expect_blocks("right", 'n', LARGE_COUNT * LARGE / BLOCK);
		CHECK_IS(close(fd), 0);
		everything_comes_back();
	}
}

/* A program closes every number, and opens its own files with those numbers, by calls that nobody sees: nothing is written
 * to them, and requests come back as ever. */
static void nothing_is_written_to_numbers_of_others(void)
{
	everything_comes_back();
	CHECK_IS(kernel(SYS_close_range, 3, ~0U, 0, 0), 0);
	int mine = empty("mine");
	for (int fd = 3; fd < 10000; fd++)
		if (fd != mine && (fd < 64 || fd > 900))
			kernel(SYS_dup3, mine, fd, 0, 0);
	for (int fd = 16; fd < 48; fd++)
		kernel(SYS_close, fd, 0, 0, 0);
	everything_comes_back();
	CHECK_IS(lseek(mine, 0, SEEK_CUR), 0);
	is_empty("mine");
}

/* Locks of POSIX belong to the process and the file, and go when the process closes any descriptor of the file. */
static void locks_stay(void)
{
	io_context_t aio = context(DEPTH);
	unlink("right");
	int fd = buffered("right", O_RDWR);
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	CHECK_IS(fcntl(fd, F_SETLK, &lock), 0);
	char *buffers = write_much(aio, fd);
	all_written(aio);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_IS(fcntl(fd, F_GETLK, &lock), 0);
		_exit(lock.l_type == F_WRLCK ? 0 : 3);
	}
	int status;
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	free(buffers);
	CHECK_IS(io_destroy(aio), 0);
}

static void end_by_return(void) { exit(0); }
static void end_by_underscore(void) { _exit(0); }
static void end_quickly(void) { quick_exit(0); }
static void end_by_number(void) { syscall(SYS_exit_group, 0); }
static void end_of_the_only_thread(void) { syscall(SYS_exit, 0); }
static void end_of_main(void) { pthread_exit(NULL); }
static char *const arguments_of_true[] = {"true", NULL}, *const no_environment[] = {NULL};
static void end_by_execve(void) { execve("/bin/true", arguments_of_true, no_environment); }
static void end_by_execv(void) { execv("/bin/true", arguments_of_true); }
static void end_by_execvp(void) { execvp("true", arguments_of_true); }
static void end_by_execvpe(void) { execvpe("true", arguments_of_true, no_environment); }
static void end_by_fexecve(void) { fexecve(open("/bin/true", O_RDONLY | O_CLOEXEC), arguments_of_true, no_environment); }
static void end_by_execve_number(void) { syscall(SYS_execve, "/bin/true", arguments_of_true, no_environment); }

static void end_by_execveat(void)
{
	syscall(SYS_execveat, AT_FDCWD, "/bin/true", arguments_of_true, no_environment, 0);
}

#define EIGHT_WORDS "a", "b", "c", "d", "e", "f", "g", "h"
#define CHECKS_WORDS "[ \"$*\" = \"a b c d e f g h\" ]"
static void end_by_execl(void) { execl("/bin/sh", "sh", "-c", CHECKS_WORDS, "sh", EIGHT_WORDS, NULL); }
static void end_by_execlp(void) { execlp("sh", "sh", "-c", CHECKS_WORDS, "sh", EIGHT_WORDS, NULL); }

static void end_by_execle(void)
{
	char *const environment[] = {"WORDS=a b c d e f g h", NULL};
	execle("/bin/sh", "sh", "-c", "[ \"$*\" = \"$WORDS\" ]", "sh", EIGHT_WORDS, NULL, environment);
}

static void *ends_by_execve(void *unused)
{
	end_by_execve();
	return unused;
}

static void end_by_a_thread(void)
{
	pthread_t thread;
	CHECK_IS(pthread_create(&thread, NULL, ends_by_execve, NULL), 0);
	pthread_join(thread, NULL);
}

/* An execve that fails ends nothing: what comes after it is submitted as ever. */
static void end_after_a_failure(void)
{
	CHECK_IS(execv("/nowhere", arguments_of_true), -1);
	CHECK_IS(execl("/nowhere", "nowhere", NULL), -1);
	end_by_execv();
}

/* The child goes on, and ends well. */
static void end_as_a_daemon(void)
{
	CHECK_IS(daemon(1, 1), 0);
	_exit(0);
}

/* However a program ends, but for a signal, what it has submitted is written. */
static void every_end_writes(void)
{
	void (*const ends[])(void) = {
		end_by_return, end_by_underscore, end_quickly, end_by_number, end_of_the_only_thread, end_of_main, end_by_execve,
		end_by_execv, end_by_execvp, end_by_execvpe, end_by_fexecve, end_by_execve_number, end_by_execveat, end_by_execl,
		end_by_execlp, end_by_execle, end_by_a_thread, end_after_a_failure, end_as_a_daemon,
	};
	for (size_t how = 0; how < sizeof ends / sizeof *ends; how++) {
		char name[32];
		snprintf(name, sizeof name, "every-end%zu", how);
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			write_much(context(DEPTH), buffered(name, O_RDWR));
			ends[how]();
			_exit(9);
		}
		int status;
		CHECK_IS(waitpid(child, &status, 0), child);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			dprintf(2, "end %zu: status %#x\n", how, status);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		expect_blocks(name, 'n', LARGE_COUNT * LARGE / BLOCK);
	}
}

static void cut_by_truncate(void) { CHECK_IS(truncate("cut", 0), 0); }
static void cut_by_number(void) { CHECK_IS(syscall(SYS_truncate, "cut", 0L), 0); }
static void cut_by_open(void) { CHECK_IS(close(open("cut", O_RDWR | O_TRUNC)), 0); }
static void cut_by_openat(void) { CHECK_IS(close(openat(AT_FDCWD, "cut", O_WRONLY | O_TRUNC)), 0); }
static void cut_by_creat(void) { CHECK_IS(close(creat("cut", 0644)), 0); }
static void cut_by_fopen(void) { CHECK_IS(fclose(fopen("cut", "we")), 0); }
static void cut_by_freopen(void) { CHECK_IS(fclose(freopen("cut", "w+", fopen("right", "r"))), 0); }

static void cut_by_openat2(void)
{
	uint64_t how[3] = {O_RDWR | O_TRUNC, 0, 0};
	CHECK_IS(close((int)syscall(SYS_openat2, AT_FDCWD, "cut", how, sizeof how)), 0);
}

/* A file that is cut by its name is empty, though writes were submitted before. */
static void cuts_come_after_writes(void)
{
	void (*const cuts[])(void) = {
		cut_by_truncate, cut_by_number, cut_by_open, cut_by_openat, cut_by_creat, cut_by_fopen, cut_by_freopen, cut_by_openat2,
	};
	io_context_t aio = context(DEPTH);
	CHECK_IS(close(buffered("right", O_RDWR)), 0);
	for (size_t how = 0; how < sizeof cuts / sizeof *cuts; how++) {
		int fd = buffered("cut", O_RDWR);
		char *buffers = write_much(aio, fd);
		cuts[how]();
		all_written(aio);
		is_empty("cut");
		CHECK_IS(close(fd), 0);
		free(buffers);
	}
	CHECK_IS(io_destroy(aio), 0);
}

/* Calls that zero a file, an ioctl or a hole through its memory, come after the writes that were submitted before. */
static void ioctls_come_after_writes(void)
{
	struct {
		int16_t type, whence;
		int64_t start, length;
		int32_t system;
		uint32_t process;
		int32_t rest[4];
	} all = {.whence = SEEK_SET, .length = (int64_t)LARGE_COUNT * LARGE};
	const unsigned long zero_range = _IOW('X', 57, all), punch_hole = _IOW('X', 43, all);
	static char zeroes[BLOCK], block[BLOCK];
	io_context_t aio = context(DEPTH);
	for (int how = 0; how < 5; how++) {
		int fd = buffered("zeroed", O_RDWR | O_TRUNC);
		void *memory = mmap(NULL, (size_t)all.length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(memory != MAP_FAILED);
		char *buffers = write_much(aio, fd);
		switch (how) {
		case 0: CHECK_IS(ioctl(fd, zero_range, &all), 0); break;
		case 1: CHECK_IS(ioctl(fd, punch_hole, &all), 0); break;
		case 2: CHECK_IS(madvise(memory, (size_t)all.length, MADV_REMOVE), 0); break;
		case 3: CHECK_IS(syscall(SYS_madvise, memory, all.length, MADV_REMOVE), 0); break;
		default: CHECK_IS(syscall(SYS_ioctl, fd, zero_range, &all), 0); break;
		}
		CHECK_IS(munmap(memory, (size_t)all.length), 0);
		all_written(aio);
		for (int number = 0; number < LARGE_COUNT * LARGE / BLOCK; number++) {
			CHECK_IS(pread(fd, block, BLOCK, (long long)number * BLOCK), BLOCK);
			CHECK(memcmp(block, zeroes, BLOCK) == 0);
		}
		CHECK_IS(close(fd), 0);
		free(buffers);
	}
	CHECK_IS(io_destroy(aio), 0);
}

/* A copy of a file has the writes that were submitted before. */
static void copies_have_submitted_writes(void)
{
	io_context_t aio = context(DEPTH);
	const long long all = (long long)LARGE_COUNT * LARGE;
	for (int how = 0; how < 3; how++) {
		unlink("source");
		unlink("copy");
		int from = buffered("source", O_RDWR), to = buffered("copy", O_RDWR), pipes[2];
		CHECK_IS(pipe(pipes), 0);
		char *buffers = write_much(aio, from);
		for (long long done = 0, now = 0; done < all; done += now) {
			size_t left = (size_t)(all - done);
			if (how == 0) {
				now = copy_file_range(from, NULL, to, NULL, left, 0);
			} else if (how == 1) {
				now = sendfile(to, from, NULL, left);
			} else {
				now = splice(from, NULL, pipes[1], NULL, BLOCK, 0);
				CHECK_IS(splice(pipes[0], NULL, to, NULL, (size_t)now, 0), now);
			}
			CHECK(now > 0);
		}
		expect_blocks("copy", 'n', LARGE_COUNT * LARGE / BLOCK);
		all_written(aio);
		for (int index = 0; index < 2; index++)
			CHECK_IS(close(pipes[index]), 0);
		CHECK_IS(close(from), 0);
		CHECK_IS(close(to), 0);
		free(buffers);
	}
	CHECK_IS(io_destroy(aio), 0);
}

/* Sets a lock: of fcntl(2), of an open file, of lockf(3), of flock(2). */
static void set_lock(int fd, int how, int kind)
{
	struct flock lock = {.l_type = (short)kind, .l_whence = SEEK_SET};
	if (how < 2)
		CHECK_IS(fcntl(fd, how == 0 ? F_SETLKW : F_OFD_SETLKW, &lock), 0);
	else if (how == 2)
		CHECK_IS(lockf(fd, kind == F_WRLCK ? F_LOCK : F_ULOCK, 0), 0);
	else
		CHECK_IS(flock(fd, kind == F_WRLCK ? LOCK_EX : kind == F_RDLCK ? LOCK_SH : LOCK_UN), 0);
}

/* The next holder of a lock sees what was submitted under it, whether the lock is given back or weakened. */
static void unlocks_come_after_writes(void)
{
	for (int how = 0; how < 4; how++) {
		for (int weakened = 0; weakened < 2; weakened++) {
			if (how == 2 && weakened)
				continue; /* lockf knows one kind of lock */
			unlink("locked");
			io_context_t aio = context(DEPTH);
			int fd = buffered("locked", O_RDWR);
			set_lock(fd, how, F_WRLCK);
			pid_t child = fork();
			CHECK(child >= 0);
			if (child == 0) {
				int own = open("locked", O_RDWR);
				set_lock(own, how, weakened ? F_RDLCK : F_WRLCK);
				expect_blocks("locked", 'n', LARGE_COUNT * LARGE / BLOCK);
				_exit(0);
			}
			char *buffers = write_much(aio, fd);
			set_lock(fd, how, weakened ? F_RDLCK : F_UNLCK);
			int status;
			CHECK_IS(waitpid(child, &status, 0), child);
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
			all_written(aio);
			CHECK_IS(close(fd), 0);
			CHECK_IS(io_destroy(aio), 0);
			free(buffers);
		}
	}
}

/* Every kind of sync covers the writes that were submitted before. */
static void every_sync_covers_writes(void)
{
	io_context_t aio = context(DEPTH);
	for (int how = 0; how < 8; how++) {
		unlink("synced");
		int fd = buffered("synced", O_RDWR);
		void *memory = mmap(NULL, BLOCK, PROT_READ, MAP_SHARED, fd, 0);
		CHECK(memory != MAP_FAILED);
		char *buffers = write_much(aio, fd);
		const int range = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
		switch (how) {
		case 0: CHECK_IS(fsync(fd), 0); break;
		case 1: CHECK_IS(fdatasync(fd), 0); break;
		case 2: CHECK_IS(syncfs(fd), 0); break;
		case 3: CHECK_IS(sync_file_range(fd, 0, 0, (unsigned)range), 0); break;
		case 4: sync(); break;
		case 5: CHECK_IS(msync(memory, BLOCK, MS_SYNC), 0); break;
		case 6: CHECK_IS(syscall(SYS_msync, memory, BLOCK, MS_SYNC), 0); break;
		default: CHECK_IS(syscall(SYS_sync), 0); break;
		}
		CHECK_IS(munmap(memory, BLOCK), 0);
		expect_blocks("synced", 'n', LARGE_COUNT * LARGE / BLOCK);
		all_written(aio);
		CHECK_IS(close(fd), 0);
		free(buffers);
	}
	CHECK_IS(io_destroy(aio), 0);
}

/* Writes keep their offsets when the descriptor begins to append after they were submitted. */
static void flags_change_after_writes(void)
{
	io_context_t aio = context(DEPTH);
	for (int round = 0; round < 4; round++) {
		unlink("flagged");
		int fd = buffered("flagged", O_RDWR);
		CHECK_IS(ftruncate(fd, (long long)LARGE_COUNT * LARGE), 0);
		char *buffers = write_much(aio, fd);
		CHECK_IS(fcntl(fd, F_SETFL, O_APPEND), 0);
		all_written(aio);
		struct stat found;
		CHECK_IS(fstat(fd, &found), 0);
		CHECK_IS(found.st_size, (long long)LARGE_COUNT * LARGE);
		expect_blocks("flagged", 'n', LARGE_COUNT * LARGE / BLOCK);
		CHECK_IS(close(fd), 0);
		free(buffers);
	}
	CHECK_IS(io_destroy(aio), 0);
}

/* A smaller limit of file sizes is for later writes. */
static void limits_come_after_writes(void)
{
	struct rlimit before, small;
	io_context_t aio = context(DEPTH);
	CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	CHECK_IS(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){.rlim_cur = BLOCK, .rlim_max = before.rlim_max};
	for (int how = 0; how < 5; how++) {
		int fd = buffered("limited", O_RDWR | O_TRUNC);
		char *buffers = write_much(aio, fd);
		switch (how) {
		case 0: CHECK_IS(setrlimit(RLIMIT_FSIZE, &small), 0); break;
		case 1: CHECK_IS(prlimit(0, RLIMIT_FSIZE, &small, NULL), 0); break;
		case 2: CHECK_IS(syscall(SYS_setrlimit, RLIMIT_FSIZE, &small), 0); break;
		case 3: CHECK_IS(syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &small, NULL), 0); break;
		default: CHECK_IS(ulimit(UL_SETFSIZE, BLOCK / 512), BLOCK / 512); break;
		}
		all_written(aio);
		CHECK_IS(pwrite(fd, buffers, BLOCK, BLOCK), -1);
		CHECK_IS(errno, EFBIG);
		if (how < 4)
			CHECK_IS(setrlimit(RLIMIT_FSIZE, &before), 0); /* ulimit(3) lowers the hard limit, too */
		expect_blocks("limited", 'n', LARGE_COUNT * LARGE / BLOCK);
		CHECK_IS(close(fd), 0);
		free(buffers);
	}
	CHECK_IS(io_destroy(aio), 0);
}

/* A seal is for later writes. */
static void seals_come_after_writes(void)
{
	io_context_t aio = context(DEPTH);
	for (int how = 0; how < 2; how++) {
		int fd = memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC), seals = F_SEAL_WRITE | F_SEAL_GROW;
		CHECK(fd >= 0);
		CHECK_IS(ftruncate(fd, LARGE_COUNT * LARGE), 0);
		char *buffers = write_much(aio, fd), path[32];
		CHECK_IS(how == 0 ? fcntl(fd, F_ADD_SEALS, seals) : syscall(SYS_fcntl, fd, F_ADD_SEALS, seals), 0);
		all_written(aio);
		CHECK_IS(pwrite(fd, buffers, BLOCK, 0), -1);
		CHECK_IS(errno, EPERM);
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		expect_blocks(path, 'n', LARGE_COUNT * LARGE / BLOCK);
		CHECK_IS(close(fd), 0);
		free(buffers);
	}
	CHECK_IS(io_destroy(aio), 0);
}

/* Calls that place by the size of a file see the writes that were submitted before. */
static void ends_are_known(void)
{
	io_context_t aio = context(LARGE_COUNT + 1);
	for (int how = 0; how < 4; how++) {
		struct io_event events[LARGE_COUNT + 1];
		int fd = open("growing", O_RDWR | O_CREAT | O_TRUNC, 0644), more = 0;
		CHECK(fd >= 0);
		char *buffers = write_much(aio, fd);
		struct iocb record, *one = &record;
		struct stat found;
		int end = open("growing", O_WRONLY | (how < 2 ? O_APPEND : 0));
		CHECK(end >= 0);
		switch (how) {
		case 0:
			CHECK_IS(write(end, "tail", 4), 4);
			break;
		case 1:
			io_prep_pwrite(&record, end, "tail", 4, 0);
			CHECK_IS(io_submit(aio, 1, &one), 1);
			more = 1;
			break;
		case 2:
			CHECK_IS(lseek(end, 0, SEEK_END), LARGE_COUNT * LARGE);
			CHECK_IS(write(end, "tail", 4), 4);
			break;
		default:
			CHECK_IS(fstat(end, &found), 0);
			CHECK_IS(pwrite(end, "tail", 4, found.st_size), 4);
		}
		CHECK_IS(io_getevents(aio, LARGE_COUNT + more, LARGE_COUNT + more, events, NULL), LARGE_COUNT + more);
		char tail[5] = {0};
		CHECK_IS(pread(fd, tail, 5, LARGE_COUNT * LARGE), 4);
		CHECK(memcmp(tail, "tail", 4) == 0);
		CHECK_IS(close(end), 0);
		CHECK_IS(close(fd), 0);
		free(buffers);
	}
	CHECK_IS(io_destroy(aio), 0);
}

/* The process ends with its last thread, and a signal ends it: the library's threads do not keep it alive. */
static void nobody_stays_behind(void)
{
	for (int how = 0; how < 2; how++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			everything_comes_back();
			if (how == 0)
				pthread_exit(NULL);
			while (1)
				pause();
		}
		int status = 0, tries = how == 0 ? 6000 : 100;
		pid_t ended = 0;
		/* (The child may still be at work when the signal comes: that ends it, too.) */
		for (; ended == 0 && tries > 0; tries--) {
			ended = waitpid(child, &status, WNOHANG);
			if (ended == 0)
				usleep(10000);
		}
		if (ended == 0) {
			CHECK_IS(kill(child, how == 0 ? SIGKILL : SIGTERM), 0);
			CHECK_IS(waitpid(child, &status, 0), child);
		}
		CHECK(how == 0 ? WIFEXITED(status) && WEXITSTATUS(status) == 0 : WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	}
	everything_comes_back();
}

int main(int count, char **arguments)
{
	static const struct test tests[] = {
		{"everything_comes_back", everything_comes_back},
		{"batches_of_everything", batches_of_everything},
		{"waits_as_documented", waits_as_documented},
		{"eventfds_are_signalled", eventfds_are_signalled},
		{"destroying_waits", destroying_waits},
		{"closing_is_harmless", closing_is_harmless},
		{"ending_writes", ending_writes},
		{"numbers_change_unseen", numbers_change_unseen},
		{"threads_have_their_own_numbers", threads_have_their_own_numbers},
		{"nothing_is_written_to_numbers_of_others", nothing_is_written_to_numbers_of_others},
		{"locks_stay", locks_stay},
		{"every_end_writes", every_end_writes},
		{"nobody_stays_behind", nobody_stays_behind},
		{"rings_are_readable", rings_are_readable},
		{"errors_are_the_kernels", errors_are_the_kernels},
		{"syncs_cover_writes", syncs_cover_writes},
		{"descriptors_of_others_stay", descriptors_of_others_stay},
		{"threads_share_a_context", threads_share_a_context},
		{"cuts_come_after_writes", cuts_come_after_writes},
		{"ioctls_come_after_writes", ioctls_come_after_writes},
		{"copies_have_submitted_writes", copies_have_submitted_writes},
		{"unlocks_come_after_writes", unlocks_come_after_writes},
		{"every_sync_covers_writes", every_sync_covers_writes},
		{"flags_change_after_writes", flags_change_after_writes},
		{"limits_come_after_writes", limits_come_after_writes},
		{"seals_come_after_writes", seals_come_after_writes},
		{"ends_are_known", ends_are_known},
	};
	CHECK(count == 2);
	return run_named(tests, sizeof tests / sizeof *tests, arguments[1]);
}
