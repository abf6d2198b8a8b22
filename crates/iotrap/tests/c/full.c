/* A file system that has no more room: full NAME ERRNO. Each request is carried out, or fails with that error (or with
 * fewer bytes), and data that were acknowledged are there. */
#include "check.h"
#include <aio.h>
#include <liburing.h>

enum { BLOCKS = 4096, AT_A_TIME = 64 };

static char *blocks[AT_A_TIME], *place;
static int wanted, done, failed;
static char written[BLOCKS];

/* Counts the result of a request that writes this block: bytes, or `-errno`. */
static void count(int number, long result)
{
	if (result == BLOCK) {
		written[number] = 1;
		done++;
	} else {
		CHECK_IS(result, -wanted);
		failed++;
	}
}

static void by_call(int fd, int first)
{
	for (int at = 0; at < AT_A_TIME; at++) {
		ssize_t result = pwrite(fd, blocks[at], BLOCK, (off_t)(first + at) * BLOCK);
		count(first + at, result < 0 ? -errno : result);
	}
}

static void by_libaio(int fd, int first)
{
	static io_context_t ctx;
	static struct iocb iocbs[AT_A_TIME], *all[AT_A_TIME];
	struct io_event events[AT_A_TIME];
	if (ctx == NULL) {
		CHECK_IS(io_setup(AT_A_TIME, &ctx), 0);
		CHECK_IS(io_getevents(ctx, 0, 1, events, &(struct timespec){0, 0}), 0);
	}
	for (int at = 0; at < AT_A_TIME; at++) {
		io_prep_pwrite(&iocbs[at], fd, blocks[at], BLOCK, (long long)(first + at) * BLOCK);
		all[at] = &iocbs[at];
	}
	CHECK_IS(io_submit(ctx, AT_A_TIME, all), AT_A_TIME);
	CHECK_IS(io_getevents(ctx, AT_A_TIME, AT_A_TIME, events, NULL), AT_A_TIME);
	for (int at = 0; at < AT_A_TIME; at++)
		count(first + (int)((struct iocb *)events[at].obj - iocbs), (long)events[at].res);
}

static void by_posix_aio(int fd, int first)
{
	static struct aiocb all[AT_A_TIME];
	for (int at = 0; at < AT_A_TIME; at++) {
		all[at] = (struct aiocb){.aio_fildes = fd, .aio_buf = blocks[at], .aio_nbytes = BLOCK, .aio_offset = (off_t)(first + at) * BLOCK};
		CHECK_IS(aio_write(&all[at]), 0);
	}
	for (int at = 0; at < AT_A_TIME; at++) {
		const struct aiocb *one = &all[at];
		while (aio_error(one) == EINPROGRESS)
			aio_suspend(&one, 1, NULL);
		int error = aio_error(one);
		ssize_t result = aio_return(&all[at]);
		count(first + at, error != 0 ? -error : result);
	}
}

static void by_ring(int fd, int first)
{
	static struct io_uring ring;
	static int made;
	if (!made) {
		CHECK_IS(io_uring_queue_init(AT_A_TIME, &ring, 0), 0);
		made = 1;
	}
	for (int at = 0; at < AT_A_TIME; at++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		CHECK(sqe != NULL);
		io_uring_prep_write(sqe, fd, blocks[at], BLOCK, (uint64_t)(first + at) * BLOCK);
		sqe->user_data = (uint64_t)(first + at);
	}
	CHECK_IS(io_uring_submit(&ring), AT_A_TIME);
	for (int at = 0; at < AT_A_TIME; at++) {
		struct io_uring_cqe *cqe;
		CHECK_IS(io_uring_wait_cqe(&ring, &cqe), 0);
		count((int)cqe->user_data, cqe->res);
		io_uring_cqe_seen(&ring, cqe);
	}
}

/* Fills the holes of a file, and reads what was acknowledged past the page cache. */
static void fill_up(void (*some)(int, int), int flags)
{
	int fd = open(place, O_RDWR | O_CREAT | O_EXCL | flags, 0644);
	CHECK(fd >= 0);
	CHECK_IS(ftruncate(fd, (off_t)BLOCKS * BLOCK), 0);
	for (int first = 0; first < BLOCKS; first += AT_A_TIME) {
		for (int at = 0; at < AT_A_TIME; at++)
			fill(blocks[at], 'w', (uint64_t)(first + at));
		some(fd, first);
	}
	CHECK(done > BLOCKS / 16);
	CHECK(failed > BLOCKS / 16);
	CHECK_IS(fsync(fd), 0);
	CHECK_IS(close(fd), 0);
	fd = open_direct(place, O_RDONLY);
	for (int number = 0; number < BLOCKS; number++) {
		if (!written[number])
			continue;
		CHECK_IS(pread(fd, blocks[0], BLOCK, (off_t)number * BLOCK), BLOCK);
		CHECK(holds(blocks[0], 'w', (uint64_t)number));
	}
	CHECK_IS(close(fd), 0);
	CHECK_IS(unlink(place), 0);
}

static void calls(void) { fill_up(by_call, O_DIRECT); }
static void libaio(void) { fill_up(by_libaio, O_DIRECT); }
static void posix_aio(void) { fill_up(by_posix_aio, O_DIRECT); }
static void rings(void) { fill_up(by_ring, O_DIRECT); }
static void buffered_calls(void) { fill_up(by_call, 0); }
static void buffered_libaio(void) { fill_up(by_libaio, 0); }
static void buffered_posix_aio(void) { fill_up(by_posix_aio, 0); }
static void buffered_rings(void) { fill_up(by_ring, 0); }

int main(int count, char **arguments)
{
	static const struct test tests[] = {
		{"calls", calls},
		{"libaio", libaio},
		{"posix_aio", posix_aio},
		{"rings", rings},
		{"buffered_calls", buffered_calls},
		{"buffered_libaio", buffered_libaio},
		{"buffered_posix_aio", buffered_posix_aio},
		{"buffered_rings", buffered_rings},
	};
	CHECK_IS(count, 3);
	wanted = strcmp(arguments[2], "EDQUOT") == 0 ? EDQUOT : ENOSPC;
	place = strdup(at(0, "file"));
	for (int at = 0; at < AT_A_TIME; at++)
		blocks[at] = aligned(BLOCK);
	return run_named(tests, sizeof tests / sizeof *tests, arguments[1]);
}
