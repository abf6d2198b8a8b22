/* io_uring by system calls on a file of a pool: raw_ring NAME [inline|liburing]. With `inline` the calls do not pass
 * through libc; with `liburing` they are those of its functions that are system calls and nothing else (since 2.3).
 * Contents are what they should be, whatever is spread. */
#include "unseen.h"
#include <sys/eventfd.h>

#define BLOCKS 256
#define DEPTH 32
#ifndef IORING_SETUP_NO_SQARRAY
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

static int by_inline, by_liburing;

static long call(long number, long a, long b, long c, long d, long e, long f)
{
	if (by_liburing) {
		int result = -ENOSYS;
		if (number == SYS_io_uring_setup)
			result = io_uring_setup((unsigned)a, (void *)b);
		else if (number == SYS_io_uring_register)
			result = io_uring_register((unsigned)a, (unsigned)b, (void *)c, (unsigned)d);
		else if (number == SYS_io_uring_enter && e == 0)
			result = io_uring_enter((unsigned)a, (unsigned)b, (unsigned)c, (unsigned)d, NULL);
		else if (number == SYS_io_uring_enter)
			result = io_uring_enter2((unsigned)a, (unsigned)b, (unsigned)c, (unsigned)d, (void *)e, (size_t)f);
		if (result >= 0)
			return result;
		if (result != -ENOSYS) {
			errno = -result;
			return -1;
		}
	}
	if (by_inline) {
		long result = inline6(number, a, b, c, d, e, f);
		if (result < 0 && result > -4096) {
			errno = (int)-result;
			return -1;
		}
		return result;
	}
	return syscall(number, a, b, c, d, e, f);
}

struct queue {
	int fd, no_array;
	struct io_uring_params params;
	char *rings;
	size_t bytes;
	unsigned *head, *tail, *mask, *array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	unsigned written;
};

/* Makes a ring; false if the kernel does not know such rings. */
static int make(struct queue *queue, unsigned entries, unsigned flags)
{
	memset(queue, 0, sizeof *queue);
	queue->params.flags = flags;
	queue->fd = (int)call(SYS_io_uring_setup, entries, (long)&queue->params, 0, 0, 0, 0);
	if (queue->fd < 0) {
		CHECK(errno == EINVAL || errno == EOPNOTSUPP);
		return 0;
	}
	struct io_uring_params *params = &queue->params;
	size_t sq = params->sq_off.array + params->sq_entries * 4, cq = params->cq_off.cqes + params->cq_entries * sizeof *queue->cqes * (flags & IORING_SETUP_CQE32 ? 2 : 1);
	queue->bytes = sq > cq ? sq : cq;
	queue->rings = mmap(NULL, queue->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, queue->fd, IORING_OFF_SQ_RING);
	CHECK(queue->rings != MAP_FAILED);
	queue->sqes = mmap(NULL, params->sq_entries * sizeof *queue->sqes * (flags & IORING_SETUP_SQE128 ? 2 : 1), PROT_READ | PROT_WRITE, MAP_SHARED, queue->fd, IORING_OFF_SQES);
	CHECK((void *)queue->sqes != MAP_FAILED);
	queue->head = (unsigned *)(queue->rings + params->sq_off.head);
	queue->tail = (unsigned *)(queue->rings + params->sq_off.tail);
	queue->mask = (unsigned *)(queue->rings + params->sq_off.ring_mask);
	queue->array = (unsigned *)(queue->rings + params->sq_off.array);
	queue->cq_head = (unsigned *)(queue->rings + params->cq_off.head);
	queue->cq_tail = (unsigned *)(queue->rings + params->cq_off.tail);
	queue->cq_mask = (unsigned *)(queue->rings + params->cq_off.ring_mask);
	queue->cqes = (struct io_uring_cqe *)(queue->rings + params->cq_off.cqes);
	queue->no_array = (flags & IORING_SETUP_NO_SQARRAY) != 0;
	return 1;
}

static void unmake(struct queue *queue)
{
	CHECK_IS(munmap(queue->rings, queue->bytes), 0);
	CHECK_IS(munmap(queue->sqes, queue->params.sq_entries * sizeof *queue->sqes * (queue->params.flags & IORING_SETUP_SQE128 ? 2 : 1)), 0);
	CHECK_IS(call(SYS_close, queue->fd, 0, 0, 0, 0, 0), 0);
}

/* Writes the place `slot` of the array; the entry there is the program's to fill. */
static struct io_uring_sqe *use(struct queue *queue, unsigned slot)
{
	unsigned tail = *queue->tail;
	if (queue->no_array)
		slot = tail & *queue->mask;
	else
		queue->array[tail & *queue->mask] = slot;
	queue->written++;
	__atomic_store_n(queue->tail, tail + 1, __ATOMIC_RELEASE);
	return &queue->sqes[slot * (queue->params.flags & IORING_SETUP_SQE128 ? 2 : 1)];
}

static void fill_entry(struct io_uring_sqe *sqe, int opcode, int fd, void *address, unsigned length, uint64_t offset, uint64_t tag)
{
	memset(sqe, 0, sizeof *sqe);
	sqe->opcode = (uint8_t)opcode;
	sqe->fd = fd;
	sqe->addr = (uintptr_t)address;
	sqe->len = length;
	sqe->off = offset;
	sqe->user_data = tag;
}

static long enter(struct queue *queue, unsigned count, unsigned least)
{
	long done = call(SYS_io_uring_enter, queue->fd, count, least, least ? IORING_ENTER_GETEVENTS : 0, 0, 0);
	if (done > 0)
		queue->written -= (unsigned)done;
	return done;
}

/* The oldest completion; waits for it. */
static struct io_uring_cqe reap(struct queue *queue)
{
	while (*queue->cq_head == __atomic_load_n(queue->cq_tail, __ATOMIC_ACQUIRE))
		CHECK(call(SYS_io_uring_enter, queue->fd, 0, 1, IORING_ENTER_GETEVENTS, 0, 0) >= 0);
	struct io_uring_cqe cqe = queue->cqes[(*queue->cq_head & *queue->cq_mask) * (queue->params.flags & IORING_SETUP_CQE32 ? 2 : 1)];
	__atomic_store_n(queue->cq_head, *queue->cq_head + 1, __ATOMIC_RELEASE);
	return cqe;
}

static int one(struct queue *queue)
{
	CHECK_IS(enter(queue, 1, 1), 1);
	return reap(queue).res;
}

/* Transfers all blocks with DEPTH in flight. Entry n belongs to slot n, as fio has it; with `filled` an entry keeps all
 * that does not change. */
static void transfer(struct queue *queue, int fd, char letter, int opcode, int flags, int filled, unsigned least)
{
	int write = opcode == IORING_OP_WRITE || opcode == IORING_OP_WRITEV || opcode == IORING_OP_WRITE_FIXED;
	int by_vector = opcode == IORING_OP_WRITEV || opcode == IORING_OP_READV;
	int fixed = opcode == IORING_OP_READ_FIXED || opcode == IORING_OP_WRITE_FIXED;
	char *buffers = aligned(DEPTH * BLOCK);
	struct iovec vectors[DEPTH], all = {buffers, DEPTH * BLOCK};
	int begun = 0, ended = 0, in_flight = 0, slots[DEPTH], of_block[BLOCKS];
	if (fixed)
		CHECK_IS(call(SYS_io_uring_register, queue->fd, IORING_REGISTER_BUFFERS, (long)&all, 1, 0, 0), 0);
	for (int slot = 0; slot < DEPTH; slot++) {
		slots[slot] = slot;
		vectors[slot] = (struct iovec){buffers + slot * BLOCK, BLOCK};
		fill_entry(&queue->sqes[slot], opcode, fd, by_vector ? (void *)&vectors[slot] : buffers + slot * BLOCK, by_vector ? 1 : BLOCK, 0, 0);
		queue->sqes[slot].flags = (uint8_t)flags;
	}
	while (ended < BLOCKS) {
		int more = 0;
		while (in_flight < DEPTH && begun < BLOCKS) {
			int slot = slots[DEPTH - 1 - in_flight++];
			char *buffer = buffers + slot * BLOCK;
			of_block[begun] = slot;
			write ? fill(buffer, letter, begun) : (void)memset(buffer, 0, BLOCK);
			struct io_uring_sqe *sqe = use(queue, slot);
			if (!filled || queue->no_array) {
				fill_entry(sqe, opcode, fd, by_vector ? (void *)&vectors[slot] : buffer, by_vector ? 1 : BLOCK, 0, 0);
				sqe->flags = (uint8_t)flags;
			}
			sqe->off = (uint64_t)begun * BLOCK;
			sqe->user_data = (uint64_t)begun++;
			more++;
		}
		CHECK_IS(enter(queue, more, least), more);
		for (int slot = 0; slot < DEPTH && filled && !queue->no_array; slot++) {
			CHECK_IS(queue->sqes[slot].fd, fd); /* the program's entry is as it was */
			CHECK_IS(queue->sqes[slot].flags, flags);
		}
		do {
			struct io_uring_cqe cqe = reap(queue);
			int block = (int)cqe.user_data, slot = of_block[block];
			CHECK_IS(cqe.res, BLOCK);
			if (!write)
				CHECK(holds(buffers + slot * BLOCK, letter, block));
			slots[DEPTH - in_flight--] = slot;
			ended++;
		} while (*queue->cq_head != __atomic_load_n(queue->cq_tail, __ATOMIC_ACQUIRE));
	}
	if (fixed)
		CHECK_IS(call(SYS_io_uring_register, queue->fd, IORING_UNREGISTER_BUFFERS, 0, 0, 0, 0), 0);
	free(buffers);
}

/* The server has these blocks: they are read by a lane, past its page cache. (A client of NFS that has a file open for
 * writing takes changes for its own, and keeps its cache. A client of NFS 3 knows a change by its time, and the server's
 * clock ticks every few milliseconds, later on a busy machine.) */
static void expect_there(const char *path, char letter, int blocks)
{
	char *block = aligned(BLOCK);
	int fd = (int)kernel(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_DIRECT, 0);
	CHECK(fd >= 0);
	for (int number = 0; number < blocks; number++) {
		CHECK_IS(kernel(SYS_pread64, fd, (long)block, BLOCK, (long)number * BLOCK), BLOCK);
		CHECK(holds(block, letter, number));
	}
	CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
	free(block);
}

static int sync_file(struct queue *queue, int fd, int flags)
{
	struct io_uring_sqe *sqe = use(queue, 0);
	fill_entry(sqe, IORING_OP_FSYNC, fd, NULL, 0, 0, 9999);
	sqe->flags = (uint8_t)flags;
	return one(queue);
}

static void reads_and_writes(void)
{
	static const struct {
		int write, read, filled;
		unsigned flags, least;
	} ways[] = {
		{IORING_OP_WRITE, IORING_OP_READ, 0, 0, 0},
		{IORING_OP_WRITE, IORING_OP_READ, 1, 0, 1},
		{IORING_OP_WRITEV, IORING_OP_READV, 0, IORING_SETUP_CLAMP, 1},
		{IORING_OP_WRITE_FIXED, IORING_OP_READ_FIXED, 1, 0, 0},
		{IORING_OP_WRITE, IORING_OP_READ, 0, IORING_SETUP_NO_SQARRAY, 1},
		{IORING_OP_WRITE, IORING_OP_READ, 0, IORING_SETUP_COOP_TASKRUN, 0},
		{IORING_OP_WRITE, IORING_OP_READ, 0, IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER, 1},
	};
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	for (int way = 0; way < (int)(sizeof ways / sizeof *ways); way++) {
		struct queue queue;
		if (!make(&queue, DEPTH, ways[way].flags))
			continue;
		transfer(&queue, fd, 'b' + way, ways[way].write, 0, ways[way].filled, ways[way].least);
		CHECK_IS(sync_file(&queue, fd, 0), 0);
		transfer(&queue, fd, 'b' + way, ways[way].read, 0, ways[way].filled, ways[way].least);
		expect_there(at(way % 4, "file"), 'b' + way, BLOCKS);
		expect_blocks(at(0, "file"), 'b' + way, BLOCKS);
		unmake(&queue);
	}
	CHECK_IS(close(fd), 0);
}

static void registered(struct queue *queue, int what, void *argument, unsigned count, int wanted)
{
	CHECK_IS(call(SYS_io_uring_register, queue->fd, what, (long)argument, count, 0, 0), wanted);
}

/* Requests on registered files, which the program has closed. */
static void registered_files(void)
{
	struct queue queue;
	make_file(at(0, "file"), 'a', BLOCKS);
	int files[3] = {-1, open_direct(at(0, "file"), O_RDWR), -1};
	CHECK(make(&queue, DEPTH, 0));
	registered(&queue, IORING_REGISTER_FILES, files, 3, 0);
	for (int round = 0; round < 2; round++) {
		transfer(&queue, 1, 'b' + round, IORING_OP_WRITE, IOSQE_FIXED_FILE, round, 1);
		CHECK_IS(sync_file(&queue, 1, IOSQE_FIXED_FILE), 0);
		transfer(&queue, 1, 'b' + round, IORING_OP_READ, IOSQE_FIXED_FILE, round, 1);
		expect_there(at(2, "file"), 'b' + round, BLOCKS);
		expect_blocks(at(0, "file"), 'b' + round, BLOCKS);
		if (round == 0)
			CHECK_IS(close(files[1]), 0);
	}
	unmake(&queue);
}

/* A place of the table that has come to mean another file, by every call that can do that. */
static void registered_files_that_change(void)
{
	char *block = aligned(BLOCK);
	make_file(at(0, "first"), 'f', 16);
	make_file(at(0, "second"), 's', 16);
	int first = open_direct(at(0, "first"), O_RDWR), second = open_direct(at(0, "second"), O_RDWR);
	for (int way = 0; way < 5; way++) {
		struct queue queue;
		struct io_uring_sqe *sqe;
		CHECK(make(&queue, 8, 0));
		registered(&queue, IORING_REGISTER_FILES, &first, 1, 0);
		for (int turn = 0; turn < 12; turn++) {
			sqe = use(&queue, 0);
			fill_entry(sqe, IORING_OP_READ, 0, block, BLOCK, turn * BLOCK, 1);
			sqe->flags = IOSQE_FIXED_FILE;
			CHECK_IS(one(&queue), BLOCK);
			CHECK(holds(block, turn < 6 ? 'f' : 's', turn));
			if (turn != 5)
				continue;
			struct io_uring_files_update update = {.offset = 0, .fds = (uintptr_t)&second};
			struct io_uring_rsrc_update2 update2 = {.offset = 0, .data = (uintptr_t)&second, .nr = 1};
			switch (way) {
			case 0: registered(&queue, IORING_REGISTER_FILES_UPDATE, &update, 1, 1); break;
			case 1: registered(&queue, IORING_REGISTER_FILES_UPDATE2, &update2, sizeof update2, 1); break;
			case 2:
				registered(&queue, IORING_UNREGISTER_FILES, NULL, 0, 0);
				registered(&queue, IORING_REGISTER_FILES, &second, 1, 0);
				break;
			case 3:
				sqe = use(&queue, 0);
				fill_entry(sqe, IORING_OP_FILES_UPDATE, -1, &second, 1, 0, 2);
				CHECK_IS(one(&queue), 1);
				break;
			default: /* opened into the place */
				sqe = use(&queue, 0);
				fill_entry(sqe, IORING_OP_OPENAT, AT_FDCWD, (void *)(uintptr_t)at(0, "second"), 0, 0, 2);
				sqe->open_flags = O_RDWR | O_DIRECT;
				sqe->file_index = 1;
				CHECK_IS(one(&queue), 0);
			}
		}
		unmake(&queue);
	}
	CHECK_IS(close(first), 0);
	CHECK_IS(close(second), 0);
}

/* The kernel stops at an entry that it refuses: the entries behind it are not in flight. */
static void entries_that_are_left(void)
{
	struct queue queue;
	char *buffers = aligned(4 * BLOCK);
	make_file(at(0, "file"), 'a', 16);
	for (int round = 0; round < 8; round++) {
		int fd = open_direct(at(0, "file"), O_RDWR);
		CHECK(make(&queue, 8, 0));
		for (int index = 0; index < 4; index++) {
			struct io_uring_sqe *sqe = use(&queue, index);
			fill_entry(sqe, index == 1 ? 255 : IORING_OP_READ, fd, buffers + index * BLOCK, BLOCK, index * BLOCK, round & 1 ? 7 : index);
		}
		long done = enter(&queue, 4, round & 2 ? 1 : 0);
		CHECK_IS(done, 2);
		for (int index = 0; index < 4; index++)
			CHECK_IS(queue.sqes[index].fd, fd);
		/* Neither waits for what was not submitted. */
		CHECK_IS(fsync(fd), 0);
		CHECK_IS(ftruncate(fd, 16 * BLOCK), 0);
		if (round & 4) {
			CHECK_IS(enter(&queue, 2, 0), 2);
			for (int index = 0; index < 4; index++) {
				int result = reap(&queue).res;
				CHECK(result == BLOCK || result == -EINVAL);
			}
			CHECK(holds(buffers + 3 * BLOCK, 'a', 3));
		}
		CHECK_IS(close(fd), 0);
		unmake(&queue);
	}
}

/* Rings of which nothing is spread. */
static void other_kinds(void)
{
	static const unsigned kinds[] = {
		IORING_SETUP_SQE128, IORING_SETUP_CQE32, IORING_SETUP_IOPOLL, IORING_SETUP_SQPOLL,
	};
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	for (int kind = 0; kind < 4; kind++) {
		struct queue queue;
		char *buffer = aligned(BLOCK);
		if (!make(&queue, 8, kinds[kind]))
			continue;
		for (int block = 0; block < 16; block++) {
			int polled = (kinds[kind] & IORING_SETUP_SQPOLL) != 0;
			fill_entry(&queue.sqes[block % 8 * (kinds[kind] & IORING_SETUP_SQE128 ? 2 : 1)], IORING_OP_READ, fd, buffer, BLOCK, block * BLOCK, block);
			use(&queue, block % 8);
			if (polled)
				CHECK(call(SYS_io_uring_enter, queue.fd, 1, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_SQ_WAKEUP, 0, 0) >= 0);
			int result = polled ? reap(&queue).res : one(&queue);
			CHECK(result == BLOCK || (kinds[kind] & IORING_SETUP_IOPOLL && result == -EOPNOTSUPP));
			CHECK(result < 0 || holds(buffer, 'a', block));
		}
		unmake(&queue);
	}
	CHECK_IS(close(fd), 0);
}

/* Linked, drained, provided buffers, the position of the file, twins. */
static void what_is_not_plain(void)
{
	struct queue queue;
	char *buffers = aligned(8 * BLOCK);
	make_file(at(0, "file"), 'a', BLOCKS);
	int fd = open_direct(at(0, "file"), O_RDWR);
	CHECK(make(&queue, 16, 0));
	for (int round = 0; round < 20; round++) {
		for (int index = 0; index < 7; index++) {
			struct io_uring_sqe *sqe = use(&queue, index);
			fill_entry(sqe, IORING_OP_READ, fd, buffers + index * BLOCK, BLOCK, (uint64_t)(round + index) * BLOCK, index < 4 ? index : 77);
			sqe->flags = index == 0 ? IOSQE_IO_LINK : index == 2 ? IOSQE_IO_DRAIN : 0;
			if (index == 3)
				sqe->rw_flags = RWF_HIPRI;
		}
		CHECK_IS(enter(&queue, 7, 7), 7);
		for (int index = 0; index < 7; index++) {
			int result = reap(&queue).res;
			CHECK(result == BLOCK || result == -EOPNOTSUPP || result == -EINVAL); /* RWF_HIPRI */
		}
		for (int index = 0; index < 7; index++)
			CHECK(index == 3 || holds(buffers + index * BLOCK, 'a', round + index));
	}
	unmake(&queue);
	CHECK_IS(close(fd), 0);
}

/* A ring that is entered by a duplicate of its number, and by system calls that nobody sees. */
static void two_drivers(void)
{
	char *buffer = aligned(BLOCK);
	make_file(at(0, "file"), 'a', 64);
	int fd = open_direct(at(0, "file"), O_RDWR);
	for (int way = 0; way < 2; way++) {
		struct queue queue;
		CHECK(make(&queue, 8, 0));
		int other = (int)kernel(SYS_dup, queue.fd, 0, 0, 0);
		for (int block = 0; block < 48; block++) {
			fill_entry(use(&queue, 0), IORING_OP_READ, fd, buffer, BLOCK, (uint64_t)block * BLOCK, 5);
			if (block % 8 == 7)
				CHECK_IS(way == 0 ? syscall(SYS_io_uring_enter, other, 1, 1, IORING_ENTER_GETEVENTS, 0, 0)
				                  : inline6(SYS_io_uring_enter, queue.fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0), 1);
			else
				CHECK_IS(enter(&queue, 1, 1), 1);
			CHECK_IS(reap(&queue).res, BLOCK);
			CHECK(holds(buffer, 'a', block));
		}
		CHECK_IS(close(other), 0);
		unmake(&queue);
	}
	CHECK_IS(close(fd), 0);
}

/* Requests in flight while the file is closed, synced and cut, while the ring ends, and while a child is made. */
static void ends(void)
{
	char *buffers = aligned(DEPTH * BLOCK);
	for (int round = 0; round < 24; round++) {
		struct queue queue;
		if (!make(&queue, DEPTH, round < 12 ? 0 : IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER))
			break;
		make_file(at(0, "file"), 'a', DEPTH);
		int fd = open_direct(at(0, "file"), O_RDWR);
		for (int index = 0; index < DEPTH; index++) {
			fill(buffers + index * BLOCK, 'b' + round, index);
			fill_entry(use(&queue, index), IORING_OP_WRITE, fd, buffers + index * BLOCK, BLOCK, index * BLOCK, index);
		}
		CHECK_IS(enter(&queue, DEPTH, 0), DEPTH);
		switch (round % 4) {
		case 0: CHECK_IS(fsync(fd), 0); break;
		case 1: CHECK_IS(ftruncate(fd, DEPTH * BLOCK), 0); break;
		case 2: {
			pid_t child = fork();
			CHECK(child >= 0);
			if (child == 0)
				_exit(pread(fd, buffers, BLOCK, 0) != BLOCK);
			int status;
			CHECK_IS(waitpid(child, &status, 0), child);
			CHECK_IS(status, 0);
			break;
		}
		default:;
		}
		CHECK_IS(close(fd), 0);
		for (int index = 0; index < DEPTH; index++)
			CHECK_IS(reap(&queue).res, BLOCK);
		unmake(&queue);
		expect_there(at(round % 4, "file"), 'b' + round, DEPTH);
	}
}

struct waits {
	int fd, event;
};

/* The completions of such a ring come when its thread asks for them: another thread does not wait for that. */
static void *only_syncs(void *argument)
{
	CHECK_IS(fsync(*(int *)argument), 0);
	CHECK_IS(ftruncate(*(int *)argument, 16 * BLOCK), 0);
	return NULL;
}

static void completions_that_are_held_back(void)
{
	struct queue queue;
	pthread_t thread;
	char *buffers = aligned(8 * BLOCK);
	make_file(at(0, "file"), 'a', 16);
	int fd = open_direct(at(0, "file"), O_RDWR);
	if (!make(&queue, 16, IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER))
		return;
	for (int round = 0; round < 20; round++) {
		for (int index = 0; index < 8; index++)
			fill_entry(use(&queue, index), IORING_OP_WRITE, fd, buffers + index * BLOCK, BLOCK, index * BLOCK, index);
		CHECK_IS(enter(&queue, 8, 0), 8);
		if (round >= 10) {
			CHECK_IS(pthread_create(&thread, NULL, only_syncs, &fd), 0);
			CHECK_IS(pthread_join(thread, NULL), 0);
		} else {
			only_syncs(&fd);
		}
		for (int index = 0; index < 8; index++)
			CHECK_IS(reap(&queue).res, BLOCK);
	}
	unmake(&queue);
	CHECK_IS(close(fd), 0);
}

static void *syncs_and_wakes(void *argument)
{
	struct waits *waits = argument;
	CHECK_IS(fsync(waits->fd), 0);
	CHECK_IS(eventfd_write(waits->event, 1), 0);
	return NULL;
}

/* A thread waits in the ring for what another one does after a sync: neither waits for the other. */
static void a_waiter_holds_up_nobody(void)
{
	struct queue queue;
	char *buffers = aligned(8 * BLOCK);
	uint64_t value;
	make_file(at(0, "file"), 'a', 16);
	struct waits waits = {open_direct(at(0, "file"), O_RDWR), eventfd(0, 0)};
	CHECK(make(&queue, 16, 0));
	for (int round = 0; round < 20; round++) {
		pthread_t thread;
		fill_entry(use(&queue, 0), IORING_OP_READ, waits.event, &value, 8, 0, 100);
		for (int index = 1; index < 8; index++)
			fill_entry(use(&queue, index), IORING_OP_WRITE, waits.fd, buffers + index * BLOCK, BLOCK, index * BLOCK, index);
		CHECK_IS(pthread_create(&thread, NULL, syncs_and_wakes, &waits), 0);
		CHECK_IS(enter(&queue, 8, 8), 8);
		for (int index = 0; index < 8; index++)
			CHECK(reap(&queue).res > 0);
		CHECK_IS(pthread_join(thread, NULL), 0);
	}
	unmake(&queue);
	CHECK_IS(close(waits.fd), 0);
}

int main(int count, char **arguments)
{
	static const struct test tests[] = {
		{"reads_and_writes", reads_and_writes},
		{"registered_files", registered_files},
		{"registered_files_that_change", registered_files_that_change},
		{"entries_that_are_left", entries_that_are_left},
		{"other_kinds", other_kinds},
		{"what_is_not_plain", what_is_not_plain},
		{"two_drivers", two_drivers},
		{"ends", ends},
		{"completions_that_are_held_back", completions_that_are_held_back},
		{"a_waiter_holds_up_nobody", a_waiter_holds_up_nobody},
	};
	CHECK(count >= 2);
	by_inline = count > 2 && strcmp(arguments[2], "inline") == 0;
	by_liburing = count > 2 && strcmp(arguments[2], "liburing") == 0;
	return run_named(tests, sizeof tests / sizeof *tests, arguments[1]);
}
