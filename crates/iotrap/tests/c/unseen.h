/* Calls that libiotrap.so does not see: system calls in the program's own code, a ring of its own, files from a socket. */
#ifndef UNSEEN_H
#define UNSEEN_H
#include "check.h"
#include <liburing.h>

static inline int unseen_open(const char *path, int flags)
{
	int fd = (int)kernel(SYS_openat, AT_FDCWD, (long)path, flags, 0600);
	CHECK(fd >= 0);
	return fd;
}

/* A ring of the program's own, as a statically linked liburing has it. */
static struct {
	int fd;
	unsigned *tail, *mask, *array, *cq_head, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring = {.fd = -1};

static inline int has_ring(void)
{
	struct io_uring_params params = {0};
	if (ring.fd >= 0)
		return 1;
	int fd = (int)kernel(SYS_io_uring_setup, 8, (long)&params, 0, 0);
	if (fd < 0)
		return 0;
	ring.fd = 600; /* out of the way of the numbers that matter */
	CHECK_IS(kernel(SYS_dup3, fd, ring.fd, O_CLOEXEC, 0), ring.fd);
	CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
	long shared = PROT_READ | PROT_WRITE;
	char *sq = (char *)inline6(SYS_mmap, 0, params.sq_off.array + params.sq_entries * 4, shared, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	char *cq = (char *)inline6(SYS_mmap, 0, params.cq_off.cqes + params.cq_entries * sizeof *ring.cqes, shared, MAP_SHARED, ring.fd, IORING_OFF_CQ_RING);
	ring.sqes = (void *)inline6(SYS_mmap, 0, params.sq_entries * sizeof *ring.sqes, shared, MAP_SHARED, ring.fd, IORING_OFF_SQES);
	ring.tail = (unsigned *)(sq + params.sq_off.tail);
	ring.mask = (unsigned *)(sq + params.sq_off.ring_mask);
	ring.array = (unsigned *)(sq + params.sq_off.array);
	ring.cq_head = (unsigned *)(cq + params.cq_off.head);
	ring.cq_mask = (unsigned *)(cq + params.cq_off.ring_mask);
	ring.cqes = (struct io_uring_cqe *)(cq + params.cq_off.cqes);
	return 1;
}

static inline int by_ring(const struct io_uring_sqe *wanted)
{
	unsigned at = *ring.tail & *ring.mask;
	ring.sqes[at] = *wanted;
	ring.array[at] = at;
	__atomic_store_n(ring.tail, *ring.tail + 1, __ATOMIC_RELEASE);
	CHECK_IS(inline6(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0), 1);
	int result = ring.cqes[*ring.cq_head & *ring.cq_mask].res;
	__atomic_store_n(ring.cq_head, *ring.cq_head + 1, __ATOMIC_RELEASE);
	return result;
}

static inline void send_file(int socket, int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec byte = {"x", 1};
	struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	control.header.cmsg_len = CMSG_LEN(sizeof fd);
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	CHECK_IS(sendmsg(socket, &message, 0), 1);
}

static inline int receive_file(int socket)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	char byte[1];
	struct iovec vector = {byte, 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	int fd;
	CHECK_IS(recvmsg(socket, &message, 0), 1);
	memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
	CHECK(fd >= 0);
	return fd;
}
#endif
