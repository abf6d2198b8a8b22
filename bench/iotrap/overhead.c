/* Measures the cost of one call: overhead aio|psync FILE DIRECT BATCH MILLISECONDS prints nanoseconds per request.
 *
 * The program reads 4 KiB after 4 KiB of a file that is in memory, so that the hook is a large part of the cost. It
 * takes the median of rounds of 32 requests, so that a round in which another process ran does not count. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <libaio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, MOST = 256, ROUND = 32, ROUNDS = 1 << 20 };

static float samples[ROUNDS];

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static double now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

int main(int argc, char **argv)
{
	static struct iocb iocbs[MOST], *list[MOST];
	static struct io_event events[MOST];
	io_context_t context = 0;
	char *buffers;
	if (argc != 6) {
		fprintf(stderr, "overhead aio|psync FILE DIRECT BATCH MILLISECONDS\n");
		return 2;
	}
	int direct = atoi(argv[3]) ? O_DIRECT : 0, batch = atoi(argv[4]), aio = strcmp(argv[1], "aio") == 0;
	int fd = open(argv[2], O_RDONLY | direct);
	if (fd < 0 || batch < 1 || batch > MOST || posix_memalign((void **)&buffers, BLOCK, MOST * BLOCK))
		fail(argv[2]);
	long blocks = lseek(fd, 0, SEEK_END) / BLOCK, done = 0;
	if (aio && io_setup(MOST, &context) != 0)
		fail("io_setup");
	double begun = now_ns(), end = begun + atof(argv[5]) * 1e6, now = begun;
	int rounds = 0;
	while (now < end && rounds < ROUNDS) {
		double before = now;
		int requests = 0;
		do {
			for (int index = 0; index < batch; index++, requests++, done++) {
				long long offset = done % blocks * BLOCK;
				if (aio) {
					list[index] = &iocbs[index];
					io_prep_pread(&iocbs[index], fd, buffers + index * BLOCK, BLOCK, offset);
				} else if (pread(fd, buffers, BLOCK, offset) != BLOCK) {
					fail("pread");
				}
			}
			if (aio && (io_submit(context, batch, list) != batch || io_getevents(context, batch, batch, events, NULL) != batch))
				fail("libaio");
		} while (requests < ROUND);
		now = now_ns();
		samples[rounds++] = (now - before) / requests;
	}
	qsort(samples, rounds, sizeof *samples, compare);
	printf("%.1f\n", samples[rounds / 2]);
	return 0;
}
