/* io_uring by liburing on a file of a pool: uring NAME. Contents are what they should be, whatever is spread. */
#include "check.h"
#include <liburing.h>

#define BLOCKS 256
#define DEPTH 32

enum way { PLAIN, VECTORS, BY_WAITING, POLLED };

/* Writes and reads all blocks with DEPTH in flight; user_data is the block's number. */
static void transfer(struct io_uring *ring, int fd, char letter, int write, enum way way)
{
	char *buffers = aligned(DEPTH * BLOCK);
	struct iovec vectors[DEPTH];
	int begun = 0, ended = 0, in_flight = 0, slots[DEPTH], of_block[BLOCKS];
	for (int slot = 0; slot < DEPTH; slot++)
		slots[slot] = slot;
	while (ended < BLOCKS) {
		while (in_flight < DEPTH && begun < BLOCKS) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
			if (sqe == NULL)
				break;
			int slot = slots[DEPTH - 1 - in_flight++];
			char *buffer = buffers + slot * BLOCK;
			vectors[slot] = (struct iovec){buffer, BLOCK};
			of_block[begun] = slot;
			if (write)
				fill(buffer, letter, begun);
			else
				memset(buffer, 0, BLOCK);
			unsigned long long offset = (unsigned long long)begun * BLOCK;
			if (way == VECTORS)
				write ? io_uring_prep_writev(sqe, fd, &vectors[slot], 1, offset) : io_uring_prep_readv(sqe, fd, &vectors[slot], 1, offset);
			else
				write ? io_uring_prep_write(sqe, fd, buffer, BLOCK, offset) : io_uring_prep_read(sqe, fd, buffer, BLOCK, offset);
			sqe->user_data = begun++;
		}
		if (way == BY_WAITING)
			CHECK(io_uring_submit_and_wait(ring, 1) >= 0);
		else
			CHECK(io_uring_submit(ring) >= 0);
		struct io_uring_cqe *cqe;
		CHECK_IS(io_uring_wait_cqe(ring, &cqe), 0);
		do {
			int block = (int)cqe->user_data, slot = of_block[block];
			CHECK_IS(cqe->res, BLOCK);
			if (!write)
				CHECK(holds(buffers + slot * BLOCK, letter, block));
			slots[DEPTH - in_flight--] = slot;
			ended++;
			io_uring_cqe_seen(ring, cqe);
		} while (io_uring_peek_cqe(ring, &cqe) == 0);
	}
	free(buffers);
}

static void sync_file(struct io_uring *ring, int fd, int wanted)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;
	io_uring_prep_fsync(sqe, fd, 0);
	CHECK_IS(io_uring_submit(ring), 1);
	CHECK_IS(io_uring_wait_cqe(ring, &cqe), 0);
	CHECK_IS(cqe->res, wanted);
	io_uring_cqe_seen(ring, cqe);
}

static void reads_and_writes(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	for (int way = PLAIN; way <= POLLED; way++) {
		struct io_uring ring;
		CHECK_IS(io_uring_queue_init(DEPTH, &ring, way == POLLED ? IORING_SETUP_SQPOLL : 0), 0);
		transfer(&ring, fd, 'b' + way, 1, way);
		sync_file(&ring, fd, 0);
		transfer(&ring, fd, 'b' + way, 0, way);
		expect_blocks(at(way, "file"), 'b' + way, BLOCKS);
		io_uring_queue_exit(&ring);
	}
	CHECK_IS(close(fd), 0);
}

/* The library passes on requests that it may not move: links, drains, fixed files and buffers, requests with the same
 * user_data. */
static void what_is_not_plain(void)
{
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	char *buffers = aligned(8 * BLOCK);
	struct io_uring ring;
	struct io_uring_cqe *cqe;
	CHECK_IS(io_uring_queue_init(DEPTH, &ring, 0), 0);
	CHECK_IS(io_uring_register_files(&ring, &fd, 1), 0);
	CHECK_IS(io_uring_register_buffers(&ring, &(struct iovec){buffers + 7 * BLOCK, BLOCK}, 1), 0);
	for (int round = 0; round < 50; round++) {
		/* A write, linked to a sync, linked to a read of the same block. */
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		fill(buffers, 'l', round);
		io_uring_prep_write(sqe, fd, buffers, BLOCK, round * BLOCK);
		sqe->flags |= IOSQE_IO_LINK;
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
		sqe->flags |= IOSQE_IO_LINK;
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_read(sqe, fd, buffers + BLOCK, BLOCK, round * BLOCK);
		/* The number 0 is a registered file, not a descriptor. */
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_read(sqe, 0, buffers + 2 * BLOCK, BLOCK, 60 * BLOCK);
		sqe->flags |= IOSQE_FIXED_FILE;
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_read_fixed(sqe, fd, buffers + 7 * BLOCK, BLOCK, 61 * BLOCK, 0);
		/* Twins. */
		for (int twin = 3; twin < 6; twin++) {
			sqe = io_uring_get_sqe(&ring);
			io_uring_prep_read(sqe, fd, buffers + twin * BLOCK, BLOCK, (60 + twin) * BLOCK);
			sqe->user_data = 77;
		}
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_nop(sqe);
		sqe->flags |= IOSQE_IO_DRAIN;
		CHECK_IS(io_uring_submit_and_wait(&ring, 9), 9);
		for (int index = 0; index < 9; index++) {
			CHECK_IS(io_uring_wait_cqe(&ring, &cqe), 0);
			CHECK(cqe->res >= 0);
			io_uring_cqe_seen(&ring, cqe);
		}
		CHECK(holds(buffers + BLOCK, 'l', round) && holds(buffers + 2 * BLOCK, 'a', 60) && holds(buffers + 7 * BLOCK, 'a', 61));
		for (int twin = 3; twin < 6; twin++)
			CHECK(holds(buffers + twin * BLOCK, 'a', 60 + twin));
	}
	io_uring_queue_exit(&ring);
	CHECK_IS(close(fd), 0);
}

/* Syncing and closing by the ring, by the descriptor with requests that nobody has fetched, and leaving the ring. */
static void syncs_and_ends(void)
{
	struct io_uring ring;
	struct io_uring_cqe *cqe;
	char *buffers = aligned(DEPTH * BLOCK), block[BLOCK];
	CHECK_IS(io_uring_queue_init(DEPTH, &ring, 0), 0);
	for (int round = 0; round < 20; round++) {
		make_file(at(0, "file"), 'a', DEPTH);
		int fd = open_direct(at(0, "file"), O_RDWR), other = open(at(0, "other"), O_RDWR | O_CREAT | O_TRUNC, 0644);
		for (int index = 0; index < DEPTH; index++) {
			fill(buffers + index * BLOCK, 'b' + round, index);
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
			io_uring_prep_write(sqe, fd, buffers + index * BLOCK, BLOCK, index * BLOCK);
			sqe->user_data = index + 1;
		}
		CHECK_IS(io_uring_submit(&ring), DEPTH);
		int fetched = 0;
		if (round % 3 == 0) {
			CHECK_IS(fsync(fd), 0);
			CHECK_IS(close(fd), 0);
		} else if (round % 3 == 1) {
			CHECK_IS(ftruncate(fd, DEPTH * BLOCK), 0);
			CHECK_IS(dup2(other, fd), fd);
			CHECK_IS(close(fd), 0);
		} else {
			for (; fetched < DEPTH; fetched++) {
				CHECK_IS(io_uring_wait_cqe(&ring, &cqe), 0);
				CHECK_IS(cqe->res, BLOCK);
				io_uring_cqe_seen(&ring, cqe);
			}
			sync_file(&ring, fd, 0);
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
			io_uring_prep_close(sqe, fd);
			CHECK_IS(io_uring_submit_and_wait(&ring, 1), 1);
			CHECK_IS(io_uring_wait_cqe(&ring, &cqe), 0);
			CHECK_IS(cqe->res, 0);
			io_uring_cqe_seen(&ring, cqe);
			/* The number is another file's now. */
			CHECK_IS(dup(other), fd);
			CHECK_IS(pwrite(fd, "x", 1, 0), 1);
			CHECK_IS(close(fd), 0);
		}
		for (; fetched < DEPTH; fetched++) {
			CHECK_IS(io_uring_wait_cqe(&ring, &cqe), 0);
			CHECK_IS(cqe->res, BLOCK);
			io_uring_cqe_seen(&ring, cqe);
		}
		CHECK_IS(close(other), 0);
		int back = open(at(round % 4, "file"), O_RDONLY);
		for (int index = 0; index < DEPTH; index++) {
			CHECK_IS(pread(back, block, BLOCK, index * BLOCK), BLOCK);
			CHECK(holds(block, 'b' + round, index));
		}
		CHECK_IS(close(back), 0);
	}
	/* Nobody fetches. */
	int fd = open_direct(at(0, "file"), O_RDONLY);
	for (int index = 0; index < DEPTH; index++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		io_uring_prep_read(sqe, fd, buffers + index * BLOCK, BLOCK, index * BLOCK);
		sqe->user_data = index + 1;
	}
	CHECK_IS(io_uring_submit(&ring), DEPTH);
	io_uring_queue_exit(&ring);
	CHECK_IS(close(fd), 0);
}

/* Puts files that nobody else has in the place of the lanes': a request that goes there is seen. */
static int stand_ins(const char *name, int own, long bytes, int *found)
{
	int count = lane_files(name, own, found, 8);
	for (int index = 0; index < count; index++) {
		int file = memfd_create("stand-in", 0);
		CHECK(file >= 0);
		CHECK_IS(ftruncate(file, bytes), 0);
		replace_lane(file, found[index]);
	}
	return count;
}

static int one(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	CHECK_IS(io_uring_submit(ring), 1);
	CHECK_IS(io_uring_wait_cqe(ring, &cqe), 0);
	int result = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return result;
}

/* A completion that came before a request is not the request's, though both have one user_data. */
static void twins_of_the_past(void)
{
	struct io_uring ring;
	struct stat status;
	char *buffer = aligned(3 * BLOCK);
	int found[8], other = memfd_create("other", 0);
	CHECK_IS(write(other, buffer, 2 * BLOCK), 2 * BLOCK);
	CHECK_IS(io_uring_queue_init(8, &ring, 0), 0);
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	io_uring_prep_read(sqe, other, buffer, 2 * BLOCK, 0);
	sqe->user_data = 0;
	CHECK_IS(one(&ring), 2 * BLOCK);
	int fd = open_direct(at(0, "empty"), O_RDWR | O_CREAT);
	int count = stand_ins("empty", fd, 0, found);
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_read(sqe, fd, buffer, BLOCK, BLOCK);
	sqe->user_data = 0;
	CHECK_IS(one(&ring), 0);
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_nop(sqe);
	sqe->user_data = 0;
	CHECK_IS(one(&ring), 0);
	/* The file is as empty as it was: only the opened lane may let it grow. */
	for (int block = 0; block < 4; block++)
		CHECK_IS(pwrite(fd, buffer, BLOCK, block * BLOCK), BLOCK);
	CHECK_IS(fstat(fd, &status), 0);
	CHECK_IS(status.st_size, 4 * BLOCK);
	for (int index = 0; index < count; index++) {
		CHECK_IS(kernel(SYS_fstat, found[index], (long)&status, 0, 0), 0);
		CHECK_IS(status.st_size, 0);
	}
	io_uring_queue_exit(&ring);
	CHECK_IS(close(fd), 0);
}

/* A request stays on the opened lane while another one has its user_data: a pipe's, which waits. */
static void twins_in_flight(void)
{
	struct io_uring ring;
	struct io_uring_cqe *cqe;
	char *buffer = aligned(BLOCK), byte[1] = {1};
	int found[8], pipes[2];
	make_file(at(0, "file"), 'a', 16);
	int fd = open_direct(at(0, "file"), O_RDWR);
	stand_ins("file", fd, 16 * BLOCK, found);
	CHECK_IS(pipe(pipes), 0);
	CHECK_IS(io_uring_queue_init(8, &ring, 0), 0);
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	io_uring_prep_read(sqe, pipes[0], byte, 1, 0);
	sqe->user_data = 5;
	CHECK_IS(io_uring_submit(&ring), 1);
	for (int block = 0; block < 16; block++) {
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_read(sqe, fd, buffer, BLOCK, block * BLOCK);
		sqe->user_data = 5;
		CHECK_IS(one(&ring), BLOCK);
		CHECK(holds(buffer, 'a', block));
	}
	CHECK_IS(write(pipes[1], byte, 1), 1);
	CHECK_IS(io_uring_wait_cqe(&ring, &cqe), 0);
	CHECK_IS(cqe->res, 1);
	io_uring_cqe_seen(&ring, cqe);
	io_uring_queue_exit(&ring);
	CHECK_IS(close(fd), 0);
}

/* A request whose twin comes later and stays: neither a close nor the end of the ring waits for the twin. */
static void twins_that_stay(void)
{
	struct io_uring ring;
	char *buffer = aligned(BLOCK), byte[1];
	int pipes[2];
	make_file(at(0, "file"), 'a', 16);
	int fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(pipe(pipes), 0);
	CHECK_IS(io_uring_queue_init(8, &ring, 0), 0);
	for (int block = 0; block < 4; block++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		io_uring_prep_write(sqe, fd, buffer, BLOCK, block * BLOCK);
		sqe->user_data = block;
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_read(sqe, pipes[0], byte, 1, 0);
		sqe->user_data = block;
		CHECK_IS(io_uring_submit_and_wait(&ring, 1), 2);
	}
	CHECK_IS(fsync(fd), 0);
	CHECK_IS(ftruncate(fd, 8 * BLOCK), 0);
	CHECK_IS(close(fd), 0);
	io_uring_queue_exit(&ring);
}

/* Reads of all blocks are submitted and have ended, and the library has not looked since. */
static void reads_have_ended(struct io_uring *ring, int fd, char *buffers, int count)
{
	for (int index = 0; index < count; index++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
		CHECK(sqe != NULL);
		io_uring_prep_read(sqe, fd, buffers + index * BLOCK, BLOCK, (unsigned long long)index * BLOCK);
		sqe->user_data = index + 1;
	}
	CHECK_IS(io_uring_submit(ring), count);
	for (int index = 0; index < count; index++) {
		struct io_uring_cqe *cqe;
		CHECK_IS(io_uring_wait_cqe(ring, &cqe), 0);
		CHECK_IS(cqe->res, BLOCK);
		CHECK(holds(buffers + (cqe->user_data - 1) * BLOCK, 'm', (int)cqe->user_data - 1));
		io_uring_cqe_seen(ring, cqe);
	}
}

/* A structure is copied, and the ring is ended at its new address. Calls that wait for lanes come afterwards. */
static void copies_of_the_structure(void)
{
	make_file(at(0, "file"), 'm', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	char *buffers = aligned(DEPTH * BLOCK);
	for (int round = 0; round < 100; round++) { /* more than the rings that are known at a time */
		struct io_uring *first = malloc(sizeof *first), second;
		CHECK_IS(io_uring_queue_init(DEPTH, first, 0), 0);
		reads_have_ended(first, fd, buffers, DEPTH);
		second = *first;
		memset(first, 0xee, sizeof *first);
		free(first);
		if (round % 2 == 0)
			reads_have_ended(&second, fd, buffers, DEPTH);
		io_uring_queue_exit(&second);
		CHECK_IS(ftruncate(fd, BLOCKS * BLOCK), 0);
	}
	free(buffers);
	CHECK_IS(close(fd), 0);
}

#define RESIZE_RINGS 33

/* The kernel makes other queues, and the program maps them in place of the old ones, by calls that nobody sees. */
static int resize(struct io_uring *ring, unsigned entries)
{
	struct io_uring_params made = {.sq_entries = entries, .cq_entries = 2 * entries, .flags = IORING_SETUP_CQSIZE};
	long result = kernel(SYS_io_uring_register, ring->ring_fd, RESIZE_RINGS, (long)&made, 1);
	if (result < 0)
		return (int)result;
	struct io_uring_sq *sq = &ring->sq;
	struct io_uring_cq *cq = &ring->cq;
	unsigned head = sq->sqe_head, tail = sq->sqe_tail;
	CHECK_IS(kernel(SYS_munmap, (long)sq->ring_ptr, sq->ring_sz, 0, 0), 0);
	CHECK_IS(kernel(SYS_munmap, (long)sq->sqes, sq->ring_entries * sizeof *sq->sqes, 0, 0), 0);
	/* The kernel does not tell where the array is: behind the completions, in a cache line of its own. */
	size_t array = (made.cq_off.cqes + made.cq_entries * sizeof(struct io_uring_cqe) + 63) / 64 * 64, bytes = array + made.sq_entries * sizeof(unsigned);
	char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->ring_fd, IORING_OFF_SQ_RING);
	CHECK(start != MAP_FAILED);
	sq->ring_ptr = cq->ring_ptr = start;
	sq->ring_sz = cq->ring_sz = bytes;
	sq->khead = (unsigned *)(start + made.sq_off.head);
	sq->ktail = (unsigned *)(start + made.sq_off.tail);
	sq->kring_mask = (unsigned *)(start + made.sq_off.ring_mask);
	sq->kring_entries = (unsigned *)(start + made.sq_off.ring_entries);
	sq->kflags = (unsigned *)(start + made.sq_off.flags);
	sq->kdropped = (unsigned *)(start + made.sq_off.dropped);
	sq->array = (unsigned *)(start + array);
	sq->ring_mask = *sq->kring_mask;
	sq->ring_entries = *sq->kring_entries;
	for (unsigned index = 0; index < sq->ring_entries; index++)
		sq->array[index] = index;
	cq->khead = (unsigned *)(start + made.cq_off.head);
	cq->ktail = (unsigned *)(start + made.cq_off.tail);
	cq->kring_mask = (unsigned *)(start + made.cq_off.ring_mask);
	cq->kring_entries = (unsigned *)(start + made.cq_off.ring_entries);
	cq->kflags = (unsigned *)(start + made.cq_off.flags);
	cq->koverflow = (unsigned *)(start + made.cq_off.overflow);
	cq->cqes = (struct io_uring_cqe *)(start + made.cq_off.cqes);
	cq->ring_mask = *cq->kring_mask;
	cq->ring_entries = *cq->kring_entries;
	sq->sqes = mmap(NULL, made.sq_entries * sizeof *sq->sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->ring_fd, IORING_OFF_SQES);
	CHECK((void *)sq->sqes != MAP_FAILED);
	sq->sqe_head = head;
	sq->sqe_tail = tail;
	return 0;
}

/* A ring gets larger and smaller queues between its requests (Linux 6.13). */
static void queues_of_another_size(void)
{
	make_file(at(0, "file"), 'm', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	char *buffers = aligned(4 * DEPTH * BLOCK);
	struct io_uring ring;
	if (io_uring_queue_init(DEPTH, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN) < 0)
		return;
	reads_have_ended(&ring, fd, buffers, DEPTH);
	if (resize(&ring, 4 * DEPTH) == 0) {
		CHECK_IS(ftruncate(fd, BLOCKS * BLOCK), 0); /* waits for lanes */
		reads_have_ended(&ring, fd, buffers, 4 * DEPTH);
		CHECK_IS(resize(&ring, DEPTH / 2), 0);
		CHECK_IS(ftruncate(fd, BLOCKS * BLOCK), 0);
		reads_have_ended(&ring, fd, buffers, DEPTH / 2);
	}
	io_uring_queue_exit(&ring);
	free(buffers);
	CHECK_IS(close(fd), 0);
}

int main(int count, char **arguments)
{
	static const struct test tests[] = {
		{"reads_and_writes", reads_and_writes},
		{"what_is_not_plain", what_is_not_plain},
		{"syncs_and_ends", syncs_and_ends},
		{"twins_of_the_past", twins_of_the_past},
		{"twins_in_flight", twins_in_flight},
		{"twins_that_stay", twins_that_stay},
		{"copies_of_the_structure", copies_of_the_structure},
		{"queues_of_another_size", queues_of_another_size},
	};
	CHECK(count == 2);
	return run_named(tests, sizeof tests / sizeof *tests, arguments[1]);
}
