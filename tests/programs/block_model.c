/* Random I/O on a block device, held against a map of what each block may hold.
 *
 *   block_model DEVICE THREADS OPS SEED
 *
 * Each thread has a part of the device, and does OPS reads, writes (some with FUA), discards, zeroings and flushes there, past
 * the page cache. A write that fails may have changed each of its blocks or not: both are allowed until the block is read
 * or written again. Before, everything is zeroed; at the end everything is read. It says "ready" and "done"
 * before and after the random ops, with how many failed, and waits for a line each time, so that trouble can be made and
 * ended. Status 1 and the block if it has what it may not have, 2 if the program itself cannot go on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#define BLOCK 4096u
#define MOST_BLOCKS 48u   /* of an op */
#define MOST_ALLOWED 64u  /* contents that a block may have at once */

/* The possible contents of a block: the stamps of writes, 0 for zeros. */
struct block {
	uint32_t count;
	uint32_t allowed[MOST_ALLOWED];
};

struct worker {
	pthread_t thread;
	uint64_t random;
	uint64_t first, blocks;
	uint32_t stamp;
	unsigned long failed;
	struct block *model;
	unsigned char *data, *expected;
};

static int device;
static unsigned long ops;

static void give_up(const char *what)
{
	printf("block_model: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void say_and_wait(const char *word, uint64_t failed)
{
	char line[16];

	printf("%s %llu failed\n", word, (unsigned long long)failed);
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin)) {
		printf("block_model: nobody says when to go on\n");
		exit(2);
	}
}

/* splitmix64: https://prng.di.unimi.it/splitmix64.c */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t below(struct worker *w, uint64_t bound)
{
	return (w->random = mix(w->random)) % bound;
}

/* Fills a block as the write of that stamp does. */
static void fill(unsigned char *block, uint32_t stamp, uint64_t number)
{
	uint64_t seed = mix((uint64_t)stamp << 32 ^ number);
	for (unsigned at = 0; at < BLOCK; at += 8) {
		uint64_t word = stamp ? seed + at * 0x9e3779b97f4a7c15u : 0;
		memcpy(block + at, &word, 8);
	}
}

/* A write has ended: its blocks hold its stamp now, or, if it failed, may. */
static void wrote(struct worker *w, uint64_t at, uint64_t count, uint32_t stamp, int good)
{
	for (uint64_t n = at; n < at + count; n++) {
		struct block *block = &w->model[n];
		if (good)
			block->count = 0;
		if (block->count == MOST_ALLOWED) {
			printf("block_model: block %llu failed too often to keep track\n", (unsigned long long)(w->first + n));
			exit(2);
		}
		block->allowed[block->count++] = stamp;
	}
}

/* Blocks were read: each holds one of what it may, and that alone from now on. */
static void check(struct worker *w, uint64_t at, uint64_t count)
{
	for (uint64_t n = at; n < at + count; n++) {
		struct block *block = &w->model[n];
		unsigned char *found = w->data + (n - at) * BLOCK;
		uint32_t i;
		for (i = 0; i < block->count; i++) {
			fill(w->expected, block->allowed[i], w->first + n);
			if (!memcmp(found, w->expected, BLOCK))
				break;
		}
		if (i == block->count) {
			printf("WRONG: block %llu begins with %02x%02x%02x%02x, one of %u is allowed, the last of stamp %u\n",
			       (unsigned long long)(w->first + n), found[0], found[1], found[2], found[3], block->count,
			       block->allowed[block->count - 1]);
			exit(1);
		}
		block->allowed[0] = block->allowed[i];
		block->count = 1;
	}
}

static void one(struct worker *w)
{
	uint64_t at = below(w, w->blocks);
	uint64_t most = w->blocks - at < MOST_BLOCKS ? w->blocks - at : MOST_BLOCKS;
	uint64_t count = 1 + below(w, below(w, 2) ? most : most < 4 ? most : 4);
	off_t offset = (w->first + at) * BLOCK;
	size_t len = count * BLOCK;
	uint64_t range[2] = { offset, len };
	struct iovec vec = { w->data, len };
	uint32_t stamp;
	int good;

	switch (below(w, 16)) {
	case 0:
		good = !fsync(device);
		break;
	case 1:
		good = !ioctl(device, BLKDISCARD, range);
		wrote(w, at, count, 0, good);
		break;
	case 2:
		good = !ioctl(device, BLKZEROOUT, range);
		wrote(w, at, count, 0, good);
		break;
	case 3 ... 8:
		stamp = ++w->stamp;
		for (uint64_t n = 0; n < count; n++)
			fill(w->data + n * BLOCK, stamp, w->first + at + n);
		good = pwritev2(device, &vec, 1, offset, below(w, 4) ? 0 : RWF_DSYNC) == (ssize_t)len;
		wrote(w, at, count, stamp, good);
		break;
	default:
		memset(w->data, 0xa5, len);
		good = pread(device, w->data, len, offset) == (ssize_t)len;
		if (good)
			check(w, at, count);
	}
	w->failed += !good;
}

static void *work(void *of)
{
	for (unsigned long n = 0; n < ops; n++)
		one(of);
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t bytes, failed = 0;

	if (argc != 5) {
		fprintf(stderr, "usage: block_model DEVICE THREADS OPS SEED\n");
		return 2;
	}
	uint64_t threads = strtoul(argv[2], NULL, 10), seed = strtoul(argv[4], NULL, 10);
	ops = strtoul(argv[3], NULL, 10);
	device = open(argv[1], O_RDWR | O_DIRECT);
	if (device < 0 || ioctl(device, BLKGETSIZE64, &bytes))
		give_up(argv[1]);
	uint64_t all[2] = { 0, bytes };
	if (!threads || bytes / BLOCK < threads || ioctl(device, BLKZEROOUT, all))
		give_up("zeroing everything");
	struct worker *workers = calloc(threads, sizeof *workers);
	for (uint64_t n = 0; n < threads; n++) {
		struct worker *w = &workers[n];
		w->random = mix(seed * 1000 + n);
		w->blocks = bytes / BLOCK / threads;
		w->first = n * w->blocks;
		w->model = calloc(w->blocks, sizeof *w->model);
		w->expected = malloc(BLOCK);
		if (!w->model || !w->expected || posix_memalign((void **)&w->data, BLOCK, MOST_BLOCKS * BLOCK))
			give_up("memory");
		wrote(w, 0, w->blocks, 0, 1);
	}
	say_and_wait("ready", 0);
	for (uint64_t n = 0; n < threads; n++)
		if ((errno = pthread_create(&workers[n].thread, NULL, work, &workers[n])))
			give_up("a thread");
	for (uint64_t n = 0; n < threads; n++) {
		struct worker *w = &workers[n];
		pthread_join(w->thread, NULL);
		failed += w->failed;
	}
	say_and_wait("done", failed);
	for (uint64_t n = 0; n < threads; n++) {
		struct worker *w = &workers[n];
		for (uint64_t at = 0; at < w->blocks; at += MOST_BLOCKS) {
			uint64_t count = w->blocks - at < MOST_BLOCKS ? w->blocks - at : MOST_BLOCKS;
			if (pread(device, w->data, count * BLOCK, (w->first + at) * BLOCK) != (ssize_t)(count * BLOCK))
				give_up("reading everything");
			check(w, at, count);
		}
	}
	printf("all right\n");
	return 0;
}
