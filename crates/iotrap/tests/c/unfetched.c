/* Results that the program does not fetch: unfetched NAME. The requests have ended all the same: they fill no window,
 * make no lane look silent, and keep no lane open. */
#include "check.h"
#include <aio.h>
#include <liburing.h>

enum { BLOCKS = 64, ALL = 16 };

static char *block;

static int direct_file(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	return open_direct(at(0, "file"), O_RDWR);
}

static void read_all(int fd)
{
	for (int number = 0; number < BLOCKS; number++) {
		memset(block, 0, BLOCK);
		CHECK_IS(pread(fd, block, BLOCK, number * BLOCK), BLOCK);
		CHECK(holds(block, 'a', number));
	}
}

static struct iocb iocbs[ALL];

/* Gives the kernel as many reads as it takes, one at a time, and returns how many. */
static int submit(io_context_t ctx, int fd, int count)
{
	for (int number = 0; number < count; number++) {
		struct iocb *one = &iocbs[number];
		io_prep_pread(one, fd, aligned(BLOCK), BLOCK, number * BLOCK);
		int done = io_submit(ctx, 1, &one);
		if (done == -EAGAIN)
			return number;
		CHECK_IS(done, 1);
	}
	return count;
}

static void fetch(io_context_t ctx, int count)
{
	struct io_event events[ALL];
	CHECK_IS(io_getevents(ctx, count, ALL, events, NULL), count);
	for (int at = 0; at < count; at++)
		CHECK_IS(events[at].res, BLOCK);
}

static void beside_libaio(void)
{
	int fd = direct_file();
	io_context_t ctx = 0;
	CHECK_IS(io_setup(ALL, &ctx), 0);
	for (int round = 0; round < 3; round++) {
		int submitted = submit(ctx, fd, ALL);
		CHECK(submitted >= 4);
		read_all(fd);
		fetch(ctx, submitted);
	}
	CHECK_IS(io_destroy(ctx), 0);
}

static void *reads(void *fd)
{
	block = aligned(BLOCK);
	read_all(*(int *)fd);
	return NULL;
}

/* The thread that would fetch waits for the one that reads. */
static void beside_another_thread(void)
{
	int fd = direct_file();
	io_context_t ctx = 0;
	pthread_t thread;
	CHECK_IS(io_setup(ALL, &ctx), 0);
	/* Seen to fetch by io_getevents: otherwise nothing is spread in a program of several threads. */
	fetch(ctx, submit(ctx, fd, 1));
	for (int round = 0; round < 3; round++) {
		int submitted = submit(ctx, fd, ALL);
		CHECK(submitted > 0);
		CHECK_IS(pthread_create(&thread, NULL, reads, &fd), 0);
		CHECK_IS(pthread_join(thread, NULL), 0);
		fetch(ctx, submitted);
	}
	CHECK_IS(io_destroy(ctx), 0);
}

static struct aiocb cbs[ALL];

static void begin(int fd, int kind, int count)
{
	for (int number = 0; number < count; number++) {
		memset(&cbs[number], 0, sizeof cbs[number]);
		cbs[number].aio_fildes = fd;
		cbs[number].aio_buf = aligned(BLOCK);
		cbs[number].aio_nbytes = BLOCK;
		cbs[number].aio_offset = number * BLOCK;
		cbs[number].aio_sigevent.sigev_notify = SIGEV_NONE;
		fill((void *)cbs[number].aio_buf, 'a', number);
		CHECK_IS(kind == LIO_READ ? aio_read(&cbs[number]) : aio_write(&cbs[number]), 0);
	}
}

static void wait_for_all(int count)
{
	for (int number = 0; number < count; number++) {
		const struct aiocb *one = &cbs[number];
		while (aio_suspend(&one, 1, NULL) != 0)
			CHECK_IS(errno, EINTR);
	}
}

static void return_all(int count)
{
	for (int number = 0; number < count; number++) {
		while (aio_error(&cbs[number]) == EINPROGRESS)
			sched_yield();
		CHECK_IS(aio_error(&cbs[number]), 0);
		CHECK_IS(aio_return(&cbs[number]), BLOCK);
		CHECK(holds((const void *)cbs[number].aio_buf, 'a', number));
	}
}

static void beside_posix_aio(void)
{
	int fd = direct_file();
	for (int round = 0; round < 3; round++) {
		begin(fd, round % 2 ? LIO_WRITE : LIO_READ, ALL);
		read_all(fd);
		return_all(ALL);
	}
}

/* Nobody returns the requests: the lanes are closed with the file, and the results are there later. */
static void never_returned(void)
{
	int found[64];
	for (int round = 0; round < 2; round++) {
		int fd = direct_file();
		if (getenv("IOTRAP_POOLS") != NULL)
			CHECK(lane_files_in_use("file", fd, found, 64) > 0);
		begin(fd, round ? LIO_WRITE : LIO_READ, ALL);
		wait_for_all(ALL);
		CHECK_IS(close(fd), 0);
		CHECK_IS(lane_files("file", -1, found, 64), 0);
		return_all(ALL);
	}
	/* The end of each is known, and nobody takes the result. */
	int fd = direct_file();
	read_all(fd);
	begin(fd, LIO_READ, ALL);
	for (int number = 0; number < ALL; number++)
		while (aio_error(&cbs[number]) == EINPROGRESS)
			sched_yield();
	CHECK_IS(close(fd), 0);
	CHECK_IS(lane_files("file", -1, found, 64), 0);
	/* Their aiocbs are used again. */
	fd = direct_file();
	begin(fd, LIO_READ, ALL);
	return_all(ALL);
	CHECK_IS(close(fd), 0);
	CHECK_IS(lane_files("file", -1, found, 64), 0);
}

static void submit_to(struct io_uring *ring, int fd, int from, int count)
{
	for (int number = from; number < from + count; number++) {
		struct io_uring_sqe *entry = io_uring_get_sqe(ring);
		io_uring_prep_read(entry, fd, aligned(BLOCK), BLOCK, number * BLOCK);
		entry->user_data = number + 1;
	}
	CHECK_IS(io_uring_submit(ring), count);
}

/* Completions that lie in the queue of a ring. */
static void beside_a_ring(void)
{
	int fd = direct_file();
	struct io_uring ring;
	CHECK_IS(io_uring_queue_init(ALL, &ring, 0), 0);
	submit_to(&ring, fd, 0, ALL);
	read_all(fd);
	for (int number = 0; number < ALL; number++) {
		struct io_uring_cqe *one;
		CHECK_IS(io_uring_wait_cqe(&ring, &one), 0);
		CHECK_IS(one->res, BLOCK);
		io_uring_cqe_seen(&ring, one);
	}
	read_all(fd);
	io_uring_queue_exit(&ring);
}

/* A ring's completions, which the program takes from memory: no call tells that the requests have ended. */
static void ring_in_memory(void)
{
	int found[64], fd = direct_file();
	struct io_uring ring;
	CHECK_IS(io_uring_queue_init(ALL, &ring, 0), 0);
	read_all(fd);
	submit_to(&ring, fd, 0, ALL);
	while (io_uring_cq_ready(&ring) < ALL)
		sched_yield();
	io_uring_cq_advance(&ring, ALL);
	CHECK_IS(close(fd), 0);
	CHECK_IS(lane_files("file", -1, found, 64), 0);
	io_uring_queue_exit(&ring);
}

static void a_moment(void)
{
	struct timespec time = {.tv_sec = 1, .tv_nsec = 200 * 1000 * 1000};
	CHECK_IS(nanosleep(&time, NULL), 0);
}

/* The program does other things for longer than a lane may be silent. */
static void fetched_late(void)
{
	int fd = direct_file();
	io_context_t ctx = 0;
	struct io_uring ring;
	CHECK_IS(io_setup(ALL, &ctx), 0);
	CHECK_IS(io_uring_queue_init(2 * ALL, &ring, 0), 0);
	int submitted = submit(ctx, fd, ALL);
	a_moment();
	read_all(fd);
	fetch(ctx, submitted);
	submit_to(&ring, fd, 0, ALL);
	a_moment();
	submit_to(&ring, fd, ALL, ALL);
	a_moment();
	int other = open_direct(at(0, "file"), O_RDONLY);
	read_all(other);
	begin(fd, LIO_READ, ALL);
	a_moment();
	read_all(fd);
	return_all(ALL);
	io_uring_queue_exit(&ring);
}

/* The program takes the events by system calls of its own. Calls that wait for the lanes do not wait for these. */
static void fetched_unseen(void)
{
	for (int known = 0; known < 2; known++) {
		int fd = direct_file();
		io_context_t ctx = 0;
		CHECK_IS(io_setup(ALL, &ctx), 0);
		if (known)
			fetch(ctx, submit(ctx, fd, ALL));
		for (int round = 0; round < 3; round++) {
			struct io_event events[ALL];
			int submitted = submit(ctx, fd, ALL);
			CHECK_IS(submitted, ALL);
			for (int fetched = 0; fetched < ALL;) {
				long some = inline6(SYS_io_getevents, (long)ctx, 1, ALL - fetched, (long)events, 0, 0);
				CHECK(some > 0);
				for (int at = 0; at < some; at++) {
					CHECK_IS(events[at].res, BLOCK);
					CHECK((struct iocb *)events[at].obj >= iocbs && (struct iocb *)events[at].obj < iocbs + ALL);
				}
				fetched += (int)some;
			}
			if (round == 1)
				CHECK_IS(ftruncate(fd, BLOCKS * BLOCK), 0);
		}
		CHECK(mmap(NULL, BLOCK, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
		CHECK_IS(io_destroy(ctx), 0);
		CHECK_IS(close(fd), 0);
	}
}

int main(int count, char **arguments)
{
	static const struct test tests[] = {
		{"beside_libaio", beside_libaio},
		{"beside_another_thread", beside_another_thread},
		{"beside_posix_aio", beside_posix_aio},
		{"never_returned", never_returned},
		{"beside_a_ring", beside_a_ring},
		{"ring_in_memory", ring_in_memory},
		{"fetched_late", fetched_late},
		{"fetched_unseen", fetched_unseen},
	};
	CHECK_IS(count, 2);
	alarm(60);
	block = aligned(BLOCK);
	return run_named(tests, sizeof tests / sizeof *tests, arguments[1]);
}
