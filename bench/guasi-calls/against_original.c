/*
 * Measures nanoseconds per call of whichever library of GUASI's interface it is linked with:
 *     against_original nothing DEPTH MAX_THREADS CALLS
 *     against_original write DEPTH MAX_THREADS CALLS FILE sync|dsync|buffered
 * `nothing` is a function that does nothing; `write` writes 4 KiB at random places of a file of 64 MiB.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <guasi.h>
#include <guasi_syscalls.h>

#define BLOCK 4096
#define BLOCKS 16384
#define MAX_DEPTH 1024

static guasi_param_t nothing(void *priv, guasi_param_t const *params)
{
	(void) priv;
	return params[0];
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static int filled(const char *path, const char *how)
{
	static char zeros[BLOCK * 256];
	int flags = O_RDWR | (!strcmp(how, "sync") ? O_SYNC : !strcmp(how, "dsync") ? O_DSYNC : 0);
	int plain = open(path, O_RDWR | O_CREAT, 0600);

	if (lseek(plain, 0, SEEK_END) < (off_t) BLOCK * BLOCKS)
		for (int i = 0; i < BLOCKS / 256; i++)
			if (pwrite(plain, zeros, sizeof(zeros), (off_t) i * sizeof(zeros)) != sizeof(zeros))
				abort();
	fsync(plain);
	close(plain);
	return open(path, flags);
}

int main(int argc, char **argv)
{
	static guasi_req_t fetched[MAX_DEPTH];
	static char buffers[MAX_DEPTH][BLOCK];
	int writes, fd = -1, depth;
	long calls, submitted = 0, done = 0;
	double start;
	guasi_t h;

	if (argc < 5 || (depth = atoi(argv[2])) < 1 || depth > MAX_DEPTH)
		return 2;
	writes = !strcmp(argv[1], "write");
	calls = atol(argv[4]);
	if (writes && (argc < 7 || (fd = filled(argv[5], argv[6])) < 0))
		return 2;
	h = guasi_create(0, atoi(argv[3]), 1);
	srand(1);
	start = seconds();
	while (done < calls) {
		int n;

		for (; submitted < calls && submitted - done < depth; submitted++) {
			guasi_req_t taken = writes
				? guasi__pwrite(h, NULL, NULL, 0, fd, buffers[submitted % depth], BLOCK,
						(off_t) (rand() % BLOCKS) * BLOCK)
				: guasi_submit(h, NULL, NULL, 0, nothing, NULL, 1, (guasi_param_t) BLOCK);

			if (!taken)
				abort();
		}
		n = guasi_fetch(h, fetched, 1, depth, -1);
		for (int i = 0; i < n; i++) {
			struct guasi_reqinfo info;

			guasi_req_info(fetched[i], &info);
			if (info.result != BLOCK)
				abort();
			guasi_req_free(fetched[i]);
		}
		done += n;
	}
	printf("%.0f\n", (seconds() - start) / calls * 1e9);
	return 0;
}
