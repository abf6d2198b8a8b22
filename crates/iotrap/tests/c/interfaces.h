/* Shared by the test programs: one request by each interface. A program that shows failures in a way of its own defines
 * MUST_BE beforehand. */
#ifndef INTERFACES_H
#define INTERFACES_H
#include "check.h"
#include <aio.h>
#include <liburing.h>

#ifndef MUST_BE
#define MUST_BE CHECK_IS
#endif

static io_context_t context;
/* Without io_uring, its ring_fd is -1. */
static struct io_uring liburing;

static inline void make_interfaces(int requests)
{
	CHECK_IS(io_setup(requests, &context), 0);
	if (io_uring_queue_init(requests, &liburing, 0) != 0)
		liburing.ring_fd = -1;
}

static inline ssize_t by_libaio(int fd, int write, void *buffer, size_t bytes, off_t offset)
{
	struct iocb iocb, *list[1] = {&iocb};
	struct io_event event;
	if (write)
		io_prep_pwrite(&iocb, fd, buffer, bytes, offset);
	else
		io_prep_pread(&iocb, fd, buffer, bytes, offset);
	MUST_BE(io_submit(context, 1, list), 1);
	MUST_BE(io_getevents(context, 1, 1, &event, NULL), 1);
	CHECK(event.obj == &iocb);
	return (ssize_t)event.res;
}

static inline ssize_t by_aio(int fd, int write, void *buffer, size_t bytes, off_t offset)
{
	struct aiocb cb = {.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = bytes, .aio_offset = offset};
	const struct aiocb *list[1] = {&cb};
	MUST_BE(write ? aio_write(&cb) : aio_read(&cb), 0);
	while (aio_error(&cb) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	return aio_return(&cb);
}

static inline int of_liburing(void)
{
	struct io_uring_cqe *cqe;
	MUST_BE(io_uring_submit(&liburing), 1);
	MUST_BE(io_uring_wait_cqe(&liburing, &cqe), 0);
	int result = cqe->res;
	io_uring_cqe_seen(&liburing, cqe);
	return result;
}

static inline ssize_t by_liburing(int fd, int write, void *buffer, size_t bytes, off_t offset)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&liburing);
	if (write)
		io_uring_prep_write(sqe, fd, buffer, bytes, offset);
	else
		io_uring_prep_read(sqe, fd, buffer, bytes, offset);
	return of_liburing();
}

static inline int liburing_open(const char *path, int flags)
{
	io_uring_prep_openat(io_uring_get_sqe(&liburing), AT_FDCWD, path, flags, 0600);
	return of_liburing();
}
#endif
