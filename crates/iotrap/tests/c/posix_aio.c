/* POSIX aio on a file of a pool: posix_aio NAME. The program's aiocbs stay its own; contents are what they should be. */
#include "check.h"
#include <aio.h>
#include <signal.h>

#define BLOCKS 128
#define DEPTH 32

static void prepare(struct aiocb *cb, int fd, void *buffer, long long block)
{
	memset(cb, 0, sizeof *cb);
	cb->aio_fildes = fd;
	cb->aio_buf = buffer;
	cb->aio_nbytes = BLOCK;
	cb->aio_offset = block * BLOCK;
	cb->aio_sigevent.sigev_notify = SIGEV_NONE;
}

static void wait_for(struct aiocb *cb)
{
	const struct aiocb *list[1] = {cb};
	while (aio_error(cb) == EINPROGRESS)
		CHECK(aio_suspend(list, 1, NULL) == 0 || errno == EINTR);
}

/* Writes everything, syncs, reads it back. */
static void reads_and_writes(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	struct aiocb cbs[DEPTH];
	char *buffers = aligned(DEPTH * BLOCK);
	for (int pass = 0; pass < 2; pass++) {
		for (int from = 0; from < BLOCKS; from += DEPTH) {
			for (int index = 0; index < DEPTH; index++) {
				if (pass == 0)
					fill(buffers + index * BLOCK, 'p', from + index);
				else
					memset(buffers + index * BLOCK, 0, BLOCK);
				prepare(&cbs[index], fd, buffers + index * BLOCK, from + index);
				CHECK_IS(pass == 0 ? aio_write(&cbs[index]) : aio_read(&cbs[index]), 0);
				CHECK_IS(cbs[index].aio_fildes, fd);
			}
			for (int index = 0; index < DEPTH; index++) {
				wait_for(&cbs[index]);
				CHECK_IS(aio_error(&cbs[index]), 0);
				CHECK_IS(aio_return(&cbs[index]), BLOCK);
				CHECK_IS(cbs[index].aio_fildes, fd);
				if (pass == 1)
					CHECK(holds(buffers + index * BLOCK, 'p', from + index));
			}
		}
		struct aiocb sync;
		prepare(&sync, fd, NULL, 0);
		CHECK_IS(aio_fsync(pass ? O_DSYNC : O_SYNC, &sync), 0);
		wait_for(&sync);
		CHECK_IS(aio_return(&sync), 0);
	}
	CHECK_IS(close(fd), 0);
	expect_blocks(at(1, "file"), 'p', BLOCKS);
}

static _Atomic int told;
static void tell(union sigval value)
{
	told += value.sival_int;
}

static void on_signal(int number, siginfo_t *info, void *unused)
{
	(void)number, (void)unused;
	told += info->si_value.sival_int;
}

/* lio_listio both ways, with every kind of notification, empty places and LIO_NOP. */
static void lists(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
	CHECK_IS(sigaction(SIGUSR1, &action, NULL), 0);
	struct aiocb cbs[DEPTH], *list[DEPTH + 2];
	char *buffers = aligned(DEPTH * BLOCK);
	for (int round = 0; round < 4; round++) {
		told = 0;
		for (int index = 0; index < DEPTH; index++) {
			prepare(&cbs[index], fd, buffers + index * BLOCK, round * DEPTH + index);
			cbs[index].aio_lio_opcode = LIO_WRITE;
			if (index % 3 == 0) {
				cbs[index].aio_sigevent.sigev_notify = SIGEV_THREAD;
				cbs[index].aio_sigevent.sigev_notify_function = tell;
				cbs[index].aio_sigevent.sigev_value.sival_int = 1;
			} else if (index % 3 == 1) {
				cbs[index].aio_sigevent.sigev_notify = SIGEV_SIGNAL;
				cbs[index].aio_sigevent.sigev_signo = SIGUSR1;
				cbs[index].aio_sigevent.sigev_value.sival_int = 1;
			}
			fill(buffers + index * BLOCK, 'l', round * DEPTH + index);
			list[index] = &cbs[index];
		}
		list[DEPTH] = NULL;
		struct aiocb nothing;
		prepare(&nothing, fd, buffers, 0);
		nothing.aio_lio_opcode = LIO_NOP;
		list[DEPTH + 1] = &nothing;
		struct sigevent all = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = tell, .sigev_value.sival_int = 1000};
		int mode = round % 2 ? LIO_NOWAIT : LIO_WAIT;
		CHECK_IS(lio_listio(mode, list, DEPTH + 2, mode == LIO_NOWAIT ? &all : NULL), 0);
		for (int index = 0; index < DEPTH; index++) {
			if (mode == LIO_NOWAIT)
				wait_for(&cbs[index]);
			CHECK_IS(aio_error(&cbs[index]), 0);
			CHECK_IS(aio_return(&cbs[index]), BLOCK);
		}
		/* Real-time signals queue, SIGUSR1 does not: at least one of its kind comes. */
		int threads = (DEPTH + 2) / 3 + (mode == LIO_NOWAIT ? 1000 : 0);
		while (told < threads + 1)
			sched_yield();
	}
	CHECK_IS(fsync(fd), 0);
	CHECK_IS(close(fd), 0);
	expect_blocks(at(2, "file"), 'l', BLOCKS);
}

/* Errors are told where they belong; cancelling and closing are harmless; aiocbs are used again. */
static void errors_and_ends(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR), only_read = open_direct(at(0, "file"), O_RDONLY);
	char *buffers = aligned(DEPTH * BLOCK);
	struct aiocb cb, cbs[DEPTH];
	prepare(&cb, only_read, buffers, 0);
	CHECK_IS(aio_write(&cb), 0);
	wait_for(&cb);
	CHECK_IS(aio_error(&cb), EBADF);
	CHECK_IS(aio_return(&cb), -1);
	prepare(&cb, fd, buffers + 1, 0); /* not aligned for O_DIRECT, as far as the file system minds */
	CHECK_IS(aio_read(&cb), 0);
	wait_for(&cb);
	CHECK(aio_error(&cb) == EINVAL || aio_error(&cb) == 0);
	aio_return(&cb);
	prepare(&cb, fd, buffers, BLOCKS + 10); /* beyond the end */
	CHECK_IS(aio_read(&cb), 0);
	wait_for(&cb);
	CHECK_IS(aio_return(&cb), 0);
	CHECK_IS(aio_fsync(12345, &cb), -1);
	CHECK_IS(errno, EINVAL);
	CHECK_IS(aio_cancel(fd, NULL), AIO_ALLDONE);
	for (int round = 0; round < 20; round++) {
		for (int index = 0; index < DEPTH; index++) {
			prepare(&cbs[index], fd, buffers + index * BLOCK, index);
			CHECK_IS(aio_read(&cbs[index]), 0);
		}
		int one = aio_cancel(fd, &cbs[DEPTH - 1]), all = aio_cancel(fd, NULL);
		CHECK(one == AIO_CANCELED || one == AIO_NOTCANCELED || one == AIO_ALLDONE);
		CHECK(all == AIO_CANCELED || all == AIO_NOTCANCELED || all == AIO_ALLDONE);
		for (int index = 0; index < DEPTH; index++) {
			wait_for(&cbs[index]);
			int error = aio_error(&cbs[index]);
			CHECK(error == 0 || error == ECANCELED);
			CHECK_IS(aio_return(&cbs[index]), error ? -1 : BLOCK);
			if (error == 0)
				CHECK(holds(buffers + index * BLOCK, 'a', index));
		}
	}
	/* Nobody asks, and the file is closed, cut and synced all the same. */
	for (int index = 0; index < DEPTH; index++) {
		fill(buffers + index * BLOCK, 'z', index);
		prepare(&cbs[index], fd, buffers + index * BLOCK, index);
		CHECK_IS(aio_write(&cbs[index]), 0);
	}
	for (int index = 0; index < DEPTH; index++)
		wait_for(&cbs[index]);
	CHECK_IS(fsync(fd), 0);
	CHECK_IS(ftruncate(fd, DEPTH * BLOCK), 0);
	CHECK_IS(close(fd), 0);
	for (int index = 0; index < DEPTH; index++)
		CHECK_IS(aio_return(&cbs[index]), BLOCK);
	CHECK_IS(close(only_read), 0);
	int back = open(at(3, "file"), O_RDONLY);
	char block[BLOCK];
	for (int index = 0; index < DEPTH; index++) {
		CHECK_IS(pread(back, block, BLOCK, index * BLOCK), BLOCK);
		CHECK(holds(block, 'z', index));
	}
	CHECK_IS(pread(back, block, BLOCK, DEPTH * BLOCK), 0);
	/* A file of no pool. */
	int other = open("/dev/zero", O_RDONLY);
	prepare(&cb, other, buffers, 0);
	CHECK_IS(aio_read(&cb), 0);
	wait_for(&cb);
	CHECK_IS(aio_return(&cb), BLOCK);
	CHECK_IS(close(other), 0);
}

/* A child has no requests of its parent's, and makes its own. */
static void after_fork(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_IS(close(fd), 0);
		reads_and_writes();
		_exit(0);
	}
	int status;
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	reads_and_writes();
}

/* Buffered writes stay with the program's own descriptor, and so does everything afterwards. */
static void buffered_writes_stay(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open(at(0, "file"), O_RDWR), direct = open_direct(at(0, "file"), O_RDWR);
	char *buffer = aligned(BLOCK);
	struct aiocb cb;
	for (int number = 0; number < BLOCKS; number++) {
		fill(buffer, 'b', number);
		prepare(&cb, fd, buffer, number);
		CHECK_IS(aio_write(&cb), 0);
		wait_for(&cb);
		CHECK_IS(aio_return(&cb), BLOCK);
		memset(buffer, 0, BLOCK);
		prepare(&cb, direct, buffer, number);
		CHECK_IS(aio_read(&cb), 0);
		wait_for(&cb);
		CHECK_IS(aio_return(&cb), BLOCK);
		CHECK(holds(buffer, 'b', number));
	}
	CHECK_IS(close(fd), 0);
	CHECK_IS(close(direct), 0);
}

int main(int count, char **arguments)
{
	static const struct test tests[] = {
		{"reads_and_writes", reads_and_writes},
		{"lists", lists},
		{"errors_and_ends", errors_and_ends},
		{"after_fork", after_fork},
		{"buffered_writes_stay", buffered_writes_stay},
	};
	CHECK(count == 2);
	return run_named(tests, sizeof tests / sizeof *tests, arguments[1]);
}
