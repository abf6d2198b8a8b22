/* Threads that open, close, duplicate, submit, reap, read, write and sync at the same time: stress NAME SECONDS_TENTHS.
 *
 * Every block of a file holds the file's letter: whoever reads another one has read another file. */
#include "check.h"
#include <time.h>

enum { FILES = 4, BLOCKS = 64, THREADS = 6 };

static atomic_int stop;

/* Rounds that each thread has done. */
static atomic_int rounds[THREADS];

static int goes_on(void *argument)
{
	atomic_fetch_add(&rounds[(intptr_t)argument], 1);
	return !atomic_load(&stop);
}

static uint64_t random_of(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static const char *file(int index)
{
	static const char *const names[FILES] = {"file0", "file1", "file2", "file3"};
	return names[index];
}

static char letter_of(const char *block)
{
	char letter = block[8];
	return memcmp(block + 8, block + 9, BLOCK - 9) == 0 ? letter : '?';
}

/* For this time, and until each of them has done something, however busy the machine is. */
static void for_a_while(void *(*thread)(void *), int threads, int tenths)
{
	enum { ENOUGH = 100 };
	pthread_t ids[THREADS];
	for (int index = 0; index < threads; index++)
		CHECK_IS(pthread_create(&ids[index], NULL, thread, (void *)(intptr_t)index), 0);
	for (int tick = 0; tick < tenths; tick++)
		usleep(100000);
	for (int index = 0; index < threads; index++)
		while (atomic_load(&rounds[index]) < ENOUGH)
			usleep(1000);
	atomic_store(&stop, 1);
	for (int index = 0; index < threads; index++)
		CHECK_IS(pthread_join(ids[index], NULL), 0);
}

/* Descriptors that come, go and change hands while they are used by their number. A read may fail or meet any of the
 * files, but the file's letter and the place have to belong together. */

static void *descriptors(void *argument)
{
	uint64_t seed = 88172645463325252ULL + (uintptr_t)argument * 7919;
	char *block = aligned(BLOCK);
	while (goes_on(argument)) {
		int slot = random_of(&seed) % 8, which = random_of(&seed) % FILES, fd;
		switch (random_of(&seed) % 8) {
		case 0: /* open: the slot's former descriptor is replaced in one step */
		case 1:
			fd = open_direct(at(0, file(which)), O_RDWR);
			CHECK(dup2(fd, 100 + slot) == 100 + slot);
			CHECK_IS(close(fd), 0);
			break;
		case 2:
			(void)!close(100 + slot);
			break;
		case 3:
			fd = dup(100 + slot);
			if (fd >= 0) {
				if (pread(fd, block, BLOCK, 0) > 0)
					CHECK(strchr("ABCD", letter_of(block)) != NULL);
				CHECK_IS(close(fd), 0);
			}
			break;
		case 4:
			(void)!fsync(100 + slot);
			break;
		default: {
			uint64_t number = random_of(&seed) % BLOCKS, found;
			ssize_t got = pread(100 + slot, block, BLOCK, number * BLOCK);
			if (got < 0) {
				CHECK_IS(errno, EBADF);
				break;
			}
			CHECK_IS(got, BLOCK);
			memcpy(&found, block, sizeof found);
			CHECK_IS(found, number);
			CHECK(strchr("ABCD", letter_of(block)) != NULL);
		}
		}
	}
	free(block);
	return NULL;
}

/* A thread of its own for each file: nobody else's close, dup or open may ever show it another one. */
static void *owners(void *argument)
{
	int which = (int)(intptr_t)argument % FILES;
	uint64_t seed = 362436069 + (uintptr_t)argument * 104729;
	char *buffers = aligned(16 * BLOCK);
	io_context_t ctx = 0;
	struct iocb iocbs[16], *list[16];
	struct io_event events[16];
	CHECK_IS(io_setup(16, &ctx), 0);
	while (goes_on(argument)) {
		int fd = open_direct(at(which % 4, file(which)), O_RDWR), copy = -1;
		CHECK(fd >= 0);
		for (int round = random_of(&seed) % 8; round >= 0; round--) {
			int count = 1 + random_of(&seed) % 16;
			for (int index = 0; index < count; index++) {
				uint64_t number = random_of(&seed) % BLOCKS;
				list[index] = &iocbs[index];
				if (which == (int)(intptr_t)argument && random_of(&seed) % 3 == 0) {
					fill(buffers + index * BLOCK, 'A' + which, number);
					io_prep_pwrite(&iocbs[index], fd, buffers + index * BLOCK, BLOCK, number * BLOCK);
				} else {
					io_prep_pread(&iocbs[index], fd, buffers + index * BLOCK, BLOCK, number * BLOCK);
				}
			}
			CHECK_IS(io_submit(ctx, count, list), count);
			if (random_of(&seed) % 4 == 0 && copy < 0) {
				CHECK((copy = dup(fd)) >= 0);
				CHECK_IS(close(fd), 0);
				fd = copy;
				copy = -1;
			}
			for (int got = 0; got < count;) {
				int some = io_getevents(ctx, 1, 16, events, NULL);
				CHECK(some > 0);
				for (int index = 0; index < some; index++) {
					struct iocb *iocb = events[index].obj;
					uint64_t found;
					CHECK_IS(events[index].res, BLOCK);
					memcpy(&found, iocb->u.c.buf, sizeof found);
					CHECK_IS(found, iocb->u.c.offset / BLOCK);
					CHECK_IS(letter_of(iocb->u.c.buf), 'A' + which);
				}
				got += some;
			}
		}
		if (random_of(&seed) % 4 == 0)
			CHECK_IS(fsync(fd), 0);
		CHECK_IS(close(fd), 0);
	}
	CHECK_IS(io_destroy(ctx), 0);
	free(buffers);
	return NULL;
}

/* One thread submits, another reaps: at the moment an event is there, the iocb is the program's own, and it is reused
 * or freed at once. */
static io_context_t shared;
static int shared_fd;
static atomic_int in_flight;

static void *submits(void *argument)
{
	uint64_t seed = 521288629 + (uintptr_t)argument;
	while (goes_on(argument)) {
		struct iocb *list[8];
		int count = 1 + random_of(&seed) % 8;
		if (atomic_load(&in_flight) > 200) {
			sched_yield();
			continue;
		}
		for (int index = 0; index < count; index++) {
			list[index] = malloc(sizeof **list);
			io_prep_pread(list[index], shared_fd, aligned(BLOCK), BLOCK, random_of(&seed) % BLOCKS * BLOCK);
			list[index]->data = list[index];
		}
		atomic_fetch_add(&in_flight, count);
		for (int done = 0; done < count;) {
			int some = io_submit(shared, count - done, list + done);
			CHECK(some > 0 || some == -EAGAIN);
			done += some > 0 ? some : 0;
		}
	}
	return NULL;
}

static void *reaps(void *argument)
{
	struct io_event events[16];
	struct timespec soon = {0, 1000000};
	while (goes_on(argument) || atomic_load(&in_flight) > 0) {
		int got = io_getevents(shared, 1, 16, events, &soon);
		CHECK(got >= 0);
		CHECK(atomic_load(&in_flight) >= got); /* what comes before io_submit there comes before this here */
		for (int index = 0; index < got; index++) {
			struct iocb *iocb = events[index].obj;
			CHECK(events[index].data == (void *)iocb);
			CHECK_IS(iocb->aio_fildes, shared_fd);
			CHECK_IS(events[index].res, BLOCK);
			uint64_t found;
			memcpy(&found, iocb->u.c.buf, sizeof found);
			CHECK_IS(found, iocb->u.c.offset / BLOCK);
			CHECK_IS(letter_of(iocb->u.c.buf), 'A');
			free(iocb->u.c.buf);
			memset(iocb, 0xdd, sizeof *iocb);
			free(iocb);
		}
		atomic_fetch_sub(&in_flight, got);
	}
	return NULL;
}

static void *submits_or_reaps(void *argument)
{
	return (intptr_t)argument % 2 ? submits(argument) : reaps(argument);
}

/* Children by the dozen, of a process that has requests in flight; each reads, some run another program. */
static void *forks(void *argument)
{
	uint64_t seed = 88675123 + (uintptr_t)argument;
	char *block = aligned(BLOCK);
	int which = (int)(intptr_t)argument % FILES;
	int fd = open_direct(at(0, file(which)), O_RDWR);
	while (goes_on(argument)) {
		int way = random_of(&seed) % 4, status;
		pid_t child = way == 3 ? vfork() : fork();
		if (child == 0) {
			if (way == 3)
				execl("/bin/true", "true", NULL);
			if (pread(fd, block, BLOCK, 5 * BLOCK) != BLOCK || letter_of(block) != 'A' + which)
				_exit(7);
			if (way == 1) {
				close(fd);
				int again = open(at(1, file(which)), O_RDWR | O_DIRECT);
				if (again < 0 || pread(again, block, BLOCK, 6 * BLOCK) != BLOCK || letter_of(block) != 'A' + which)
					_exit(8);
				_exit(fsync(again) == 0 && close(again) == 0 ? 0 : 9);
			}
			if (way == 2)
				execl("/bin/true", "true", NULL);
			_exit(0);
		}
		CHECK(child > 0);
		for (int index = 0; index < 20; index++) {
			CHECK_IS(pread(fd, block, BLOCK, (uint64_t)index * BLOCK), BLOCK);
			CHECK_IS(letter_of(block), 'A' + which);
		}
		CHECK_IS(waitpid(child, &status, 0), child);
		CHECK_IS(status, 0);
	}
	CHECK_IS(close(fd), 0);
	free(block);
	return NULL;
}

/* Sizes and locks change under requests. Blocks hold the right number and letter, or zeros beyond what was cut. */
static void *changes(void *argument)
{
	uint64_t seed = 5783321 + (uintptr_t)argument;
	int which = (int)(intptr_t)argument % FILES;
	char *block = aligned(BLOCK);
	while (goes_on(argument)) {
		int fd = open_direct(at(which, file(which)), O_RDWR);
		for (int round = 0; round < 30; round++) {
			uint64_t number = random_of(&seed) % BLOCKS, found;
			switch (random_of(&seed) % 6) {
			case 0:
				CHECK_IS(ftruncate(fd, BLOCKS / 2 * BLOCK), 0);
				CHECK_IS(ftruncate(fd, BLOCKS * BLOCK), 0);
				break;
			case 1:
				CHECK_IS(fallocate(fd, 0, 0, BLOCKS * BLOCK), 0);
				break;
			case 2:
				fill(block, 'A' + which, number);
				CHECK_IS(pwrite(fd, block, BLOCK, number * BLOCK), BLOCK);
				break;
			case 3:
				if (round == 29)
					CHECK_IS(flock(fd, LOCK_SH), 0);
				break;
			default: {
				ssize_t got = pread(fd, block, BLOCK, number * BLOCK);
				CHECK(got == BLOCK || got == 0);
				memcpy(&found, block, sizeof found);
				if (got == BLOCK && letter_of(block) != 0) {
					CHECK_IS(letter_of(block), 'A' + which);
					CHECK_IS(found, number);
				}
			}
			}
		}
		CHECK_IS(close(fd), 0);
	}
	free(block);
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK_IS(argc, 3);
	int tenths = atoi(argv[2]);
	for (int index = 0; index < FILES; index++)
		make_file(at(0, file(index)), 'A' + index, BLOCKS);
	if (strcmp(argv[1], "descriptors") == 0) {
		for_a_while(descriptors, THREADS, tenths);
	} else if (strcmp(argv[1], "owners") == 0) {
		for_a_while(owners, THREADS, tenths);
	} else if (strcmp(argv[1], "reapers") == 0) {
		shared_fd = open_direct(at(0, file(0)), O_RDONLY);
		CHECK_IS(io_setup(1024, &shared), 0);
		for_a_while(submits_or_reaps, 4, tenths);
		CHECK_IS(io_destroy(shared), 0);
	} else if (strcmp(argv[1], "forks") == 0) {
		for_a_while(forks, 3, tenths);
	} else if (strcmp(argv[1], "changes") == 0) {
		for_a_while(changes, THREADS, tenths);
	} else {
		return 2;
	}
	/* No descriptor of this program is left open. */
	for (int slot = 0; slot < 8; slot++)
		close(100 + slot);
	if (strcmp(argv[1], "reapers") == 0)
		CHECK_IS(close(shared_fd), 0);
	for (int index = 0; index < FILES; index++) {
		int found[8];
		CHECK_IS(lane_files(file(index), -1, found, 8), 0);
	}
	return 0;
}
