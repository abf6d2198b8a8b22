/*
 * The sum of all bytes of a file, with 32 reads in flight:
 *
 *     cc -O2 checksum.c $(pkg-config --cflags --libs guasi) -o checksum && ./checksum FILE
 *
 * A buffer belongs to its request from the submission until the request is freed: the program touches it in between
 * only when guasi_fetch has returned the request.
 */
#include <errno.h>
#include <fcntl.h>
#include <guasi.h>
#include <guasi_syscalls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH = 32, BLOCK = 65536 };

/* A read in flight: the place in the file, and the bytes. */
struct piece {
	off_t at;
	unsigned char bytes[BLOCK];
};

static struct piece pieces[DEPTH];

/* Submits the read of a piece. */
static void submit(guasi_t context, int file, struct piece *piece, off_t at)
{
	piece->at = at;
	if (!guasi__pread(context, piece, NULL, 0, file, piece->bytes, BLOCK, at)) {
		fprintf(stderr, "checksum: a request was not accepted\n");
		exit(1);
	}
}

int main(int count, char **words)
{
	unsigned long long sum = 0;
	struct stat status;
	off_t next = 0;
	int in_flight = 0, file, failed = 0;
	guasi_t context;

	if (count != 2) {
		fprintf(stderr, "usage: checksum FILE\n");
		return 2;
	}
	file = open(words[1], O_RDONLY);
	if (file < 0 || fstat(file, &status) < 0) {
		fprintf(stderr, "checksum: %s: %s\n", words[1], strerror(errno));
		return 1;
	}
	context = guasi_create(0, DEPTH, 1);
	if (!context) {
		fprintf(stderr, "checksum: guasi_create failed\n");
		return 1;
	}
	for (; in_flight < DEPTH && next < status.st_size; next += BLOCK)
		submit(context, file, &pieces[in_flight++], next);
	while (in_flight > 0) {
		guasi_req_t requests[DEPTH];
		int got = guasi_fetch(context, requests, 1, DEPTH, -1);

		for (int i = 0; i < got; i++) {
			struct guasi_reqinfo info;
			struct piece *piece;

			guasi_req_info(requests[i], &info);
			guasi_req_free(requests[i]);
			piece = info.priv;
			in_flight--;
			if (info.result < 0) {
				fprintf(stderr, "checksum: %s at %lld: %s\n", words[1], (long long) piece->at,
					strerror((int) info.error));
				failed = 1;
				continue;
			}
			if (info.result < BLOCK && piece->at + info.result < status.st_size) {
				fprintf(stderr, "checksum: %s became shorter\n", words[1]);
				failed = 1;
			}
			for (guasi_param_t byte = 0; byte < info.result; byte++)
				sum += piece->bytes[byte];
			if (next < status.st_size) {
				submit(context, file, piece, next);
				next += BLOCK;
				in_flight++;
			}
		}
	}
	guasi_free(context);
	close(file);
	if (failed)
		return 1;
	printf("%llu\n", sum);
	return 0;
}
