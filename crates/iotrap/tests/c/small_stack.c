/* Calls on a stack of the smallest usual size: small_stack CALL.
 *
 * A coroutine makes the call, on 8 KiB (the size of an alternative stack of signal handlers, SIGSTKSZ) below which no
 * memory is mapped. With --measure the program prints how many bytes each call takes. */
#include "check.h"
#include <aio.h>
#include <liburing.h>
#include <ucontext.h>

#define STACK (8 << 10)

static int fd = -1;
static char *buffer;
static const char *path;

static void by_open(void)
{
	fd = open(path, O_RDWR | O_DIRECT);
	CHECK(fd >= 0);
}

static void by_pread(void)
{
	for (int block = 0; block < 8; block++)
		CHECK_IS(pread(fd, buffer, BLOCK, block * BLOCK), BLOCK);
}

static void by_pwritev(void)
{
	struct iovec vectors[] = {{buffer, BLOCK}, {buffer + BLOCK, BLOCK}};
	for (int block = 0; block < 8; block++)
		CHECK_IS(pwritev(fd, vectors, 2, block * BLOCK), 2 * BLOCK);
}

/* Cut into parts. */
static void by_large(void)
{
	CHECK_IS(pwrite(fd, buffer, 16 * BLOCK, 0), 16 * BLOCK);
	CHECK_IS(pread(fd, buffer, 16 * BLOCK, 0), 16 * BLOCK);
}

static void by_libaio(void)
{
	static struct iocb iocbs[8], *list[8];
	static struct io_event events[8];
	static io_context_t context;
	CHECK_IS(io_setup(8, &context), 0);
	for (int index = 0; index < 8; index++) {
		list[index] = &iocbs[index];
		io_prep_pread(list[index], fd, buffer + index * BLOCK, BLOCK, index * BLOCK);
	}
	CHECK_IS(io_submit(context, 8, list), 8);
	CHECK_IS(io_getevents(context, 8, 8, events, NULL), 8);
	CHECK_IS(io_destroy(context), 0);
}

static void by_list(void)
{
	static struct aiocb requests[8], *list[8];
	for (int index = 0; index < 8; index++) {
		requests[index] = (struct aiocb){.aio_fildes = fd, .aio_buf = buffer + index * BLOCK, .aio_nbytes = BLOCK,
			.aio_offset = index * BLOCK, .aio_lio_opcode = LIO_READ};
		list[index] = &requests[index];
	}
	CHECK_IS(lio_listio(LIO_WAIT, list, 8, NULL), 0);
	for (int index = 0; index < 8; index++)
		CHECK_IS(aio_return(list[index]), BLOCK);
}

static void take(struct io_uring *ring)
{
	struct io_uring_cqe *found;
	for (int index = 0; index < 8; index++) {
		CHECK_IS(io_uring_wait_cqe(ring, &found), 0);
		CHECK_IS(found->res, BLOCK);
		io_uring_cqe_seen(ring, found);
	}
}

static void put(struct io_uring *ring)
{
	for (int index = 0; index < 8; index++) {
		struct io_uring_sqe *entry = io_uring_get_sqe(ring);
		io_uring_prep_read(entry, fd, buffer + index * BLOCK, BLOCK, index * BLOCK);
		entry->user_data = index;
	}
}

static void by_liburing(void)
{
	static struct io_uring ring;
	CHECK_IS(io_uring_queue_init(8, &ring, 0), 0);
	put(&ring);
	CHECK_IS(io_uring_submit(&ring), 8);
	take(&ring);
	io_uring_queue_exit(&ring);
}

/* A ring that is driven by syscall(2). */
static void by_ring(void)
{
	static struct io_uring ring;
	struct io_uring_params parameters = {0};
	int number = (int)syscall(SYS_io_uring_setup, 8, &parameters);
	CHECK(number >= 0);
	CHECK_IS(io_uring_queue_mmap(number, &parameters, &ring), 0);
	CHECK_IS(syscall(SYS_io_uring_register, number, IORING_REGISTER_FILES, &fd, 1), 0);
	put(&ring);
	for (unsigned place = 0; place < 8; place++)
		ring.sq.array[place] = place;
	__atomic_store_n(ring.sq.ktail, 8, __ATOMIC_RELEASE);
	CHECK_IS(syscall(SYS_io_uring_enter, number, 8, 8, IORING_ENTER_GETEVENTS, NULL, 0), 8);
	take(&ring);
	io_uring_queue_exit(&ring);
}

static void by_fsync(void)
{
	by_pwritev();
	CHECK_IS(fsync(fd), 0);
}

static void by_ftruncate(void)
{
	CHECK_IS(ftruncate(fd, 32 * BLOCK), 0);
}

static void by_fork(void)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0)
		_exit(pread(fd, buffer, BLOCK, 0) != BLOCK);
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
}

static void by_close(void)
{
	CHECK_IS(close(fd), 0);
}

static const struct test calls[] = {
	{"open", by_open}, {"pread", by_pread}, {"pwritev", by_pwritev}, {"large", by_large}, {"libaio", by_libaio},
	{"list", by_list}, {"liburing", by_liburing}, {"ring", by_ring}, {"fsync", by_fsync}, {"fork", by_fork},
	{"ftruncate", by_ftruncate}, {"close", by_close},
};

static ucontext_t own, coroutine;
static char *stack;

static void on_stack(void (*call)(void), size_t size)
{
	memset(stack, 0x5a, size);
	CHECK_IS(getcontext(&coroutine), 0);
	coroutine.uc_stack.ss_sp = stack;
	coroutine.uc_stack.ss_size = size;
	coroutine.uc_link = &own;
	makecontext(&coroutine, call, 0);
	CHECK_IS(swapcontext(&own, &coroutine), 0);
}

int main(int count, char **arguments)
{
	CHECK(count == 1 || strcmp(arguments[1], "--measure") == 0);
	size_t size = count == 1 ? STACK : 1 << 20;
	char *room = mmap(NULL, size + (64 << 10), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(room != MAP_FAILED);
	stack = room + (64 << 10);
	CHECK_IS(mprotect(stack, size, PROT_READ | PROT_WRITE), 0);
	buffer = aligned(64 * BLOCK);
	path = at(0, "small");
	make_file(path, 's', 64);
	for (size_t at = 0; at < sizeof calls / sizeof *calls; at++) {
		on_stack(calls[at].run, size);
		size_t left = 0;
		while (left < size && stack[left] == 0x5a)
			left++;
		if (count == 2)
			printf("%s: %zu bytes of stack\n", calls[at].name, size - left);
	}
	return 0;
}
