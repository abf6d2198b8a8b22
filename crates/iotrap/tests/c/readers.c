/* Other programs on this machine that read through the page cache beside a program that writes: readers WAY, with pread,
 * preadv2, libaio, aio or liburing. Each lane has a reader. The library does not know the readers: they make their
 * calls inline. When a reader opens the file again, it sees what was written before. */
#include "interfaces.h"

enum { BLOCKS = 32, ROUNDS = 12 };

static char *block;

static struct {
	pid_t child;
	int orders, answers;
} readers[4];

/* The letters that the blocks hold. */
static char letters[BLOCKS];

/* A process that reads all blocks of a lane's file: through the descriptor that it has, or, after the order 'o', through
 * a new one. The letters that it has to find come with the order. It answers with the number of other blocks. */
static void reader(int lane, int orders, int answers)
{
	char order, own[BLOCK], wanted[BLOCK];
	long fd = -1;
	while (kernel(SYS_read, orders, (long)&order, 1, 0) == 1 && kernel(SYS_read, orders, (long)letters, BLOCKS, 0) == BLOCKS) {
		int wrong = 0;
		if (order == 'o' && fd >= 0)
			kernel(SYS_close, fd, 0, 0, 0);
		if (order == 'o')
			fd = kernel(SYS_openat, AT_FDCWD, (long)at(lane, "file"), O_RDONLY, 0);
		for (int number = 0; number < BLOCKS; number++) {
			fill(wanted, letters[number], number);
			wrong += kernel(SYS_pread64, fd, (long)own, BLOCK, number * BLOCK) != BLOCK || memcmp(own, wanted, BLOCK) != 0;
		}
		if (kernel(SYS_write, answers, (long)&wrong, sizeof wrong, 0) != sizeof wrong)
			break;
	}
	inline6(SYS_exit_group, 0, 0, 0, 0, 0, 0);
}

static void start(void)
{
	for (int lane = 0; lane < 4; lane++) {
		int orders[2], answers[2];
		CHECK_IS(pipe2(orders, O_CLOEXEC), 0);
		CHECK_IS(pipe2(answers, O_CLOEXEC), 0);
		readers[lane].child = fork();
		CHECK(readers[lane].child >= 0);
		if (readers[lane].child == 0) {
			close(orders[1]);
			reader(lane, orders[0], answers[1]);
		}
		close(orders[0]);
		close(answers[1]);
		readers[lane].orders = orders[1];
		readers[lane].answers = answers[0];
	}
}

/* The blocks that a lane's reader finds wrong. */
static int wrong(int lane, char order)
{
	int count;
	CHECK_IS(write(readers[lane].orders, &order, 1), 1);
	CHECK_IS(write(readers[lane].orders, letters, BLOCKS), BLOCKS);
	CHECK_IS(read(readers[lane].answers, &count, sizeof count), sizeof count);
	return count;
}

static ssize_t write_block(const char *way, int fd, off_t offset)
{
	struct iovec vector = {block, BLOCK};
	if (strcmp(way, "pread") == 0)
		return pwrite(fd, block, BLOCK, offset);
	if (strcmp(way, "preadv2") == 0)
		return pwritev2(fd, &vector, 1, offset, 0);
	if (strcmp(way, "libaio") == 0)
		return by_libaio(fd, 1, block, BLOCK, offset);
	if (strcmp(way, "aio") == 0)
		return by_aio(fd, 1, block, BLOCK, offset);
	return by_liburing(fd, 1, block, BLOCK, offset);
}

int main(int count, char **arguments)
{
	CHECK_IS(count, 2);
	const char *way = arguments[1];
	block = aligned(BLOCK);
	make_file(at(0, "file"), 'a', BLOCKS);
	memset(letters, 'a', BLOCKS);
	start();
	make_interfaces(8);
	if (strcmp(way, "liburing") == 0 && liburing.ring_fd < 0)
		return 0;
	int fd = open_direct(at(0, "file"), O_RDWR), stale = 0, failed = 0;
	for (int lane = 0; lane < 4; lane++)
		CHECK_IS(wrong(lane, 'o'), 0);
	for (int round = 1; round <= ROUNDS; round++) {
		for (int step = 0; step < 1 + round % 3; step++) {
			int number = round * 5 % BLOCKS + step;
			letters[number] = 'a' + round;
			fill(block, letters[number], number);
			CHECK_IS(write_block(way, fd, number * BLOCK), BLOCK);
		}
		if (round % 8 == 0)
			CHECK_IS(fsync(fd), 0);
		/* The server's clock goes on, so that the times of the file tell the next change from this one. */
		struct timespec tick = {.tv_nsec = 20 * 1000 * 1000};
		nanosleep(&tick, NULL);
		for (int lane = 0; lane < 4; lane++) {
			stale += wrong(lane, 'r');
			int after = wrong(lane, 'o');
			if (after != 0)
				dprintf(2, "round %d, lane %d: %d of %d blocks are old after an open\n", round, lane, after, BLOCKS);
			failed |= after;
		}
	}
	printf("%d blocks were old before the open\n", stale);
	CHECK_IS(close(fd), 0);
	for (int lane = 0; lane < 4; lane++)
		close(readers[lane].orders);
	for (int lane = 0; lane < 4; lane++)
		waitpid(readers[lane].child, NULL, 0);
	return failed != 0;
}
