/* Requests that the kernel refuses, on a file of a pool: refused NAME FILE prints what the program sees. */
#include "check.h"

#include <libaio.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <ucontext.h>

#define BLOCKS 1024 /* 4 MiB */

static char *buffer;

static void tell(const char *what, long long result)
{
	printf("%s: %lld %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
}

/* The letter of each block: which of them were written. */
static void tell_content(const char *path)
{
	char *block = aligned(BLOCK);
	int fd = open(path, O_RDONLY), last = 0, count = 0;
	CHECK(fd >= 0);
	for (int number = 0; pread(fd, block, BLOCK, (off_t)number * BLOCK) > 0; number++) {
		if (block[0] != last && count > 0)
			printf("%d of %c, ", count, last);
		count = block[0] == last ? count + 1 : 1;
		last = block[0];
	}
	printf("%d of %c\n", count, last);
	CHECK_IS(close(fd), 0);
	free(block);
}

/* The mode of the descriptor forbids the request: EBADF, on each lane that it would go to. */
static void by_the_mode(const char *path)
{
	int reads = open(path, O_RDONLY | O_DIRECT), writes = open(path, O_WRONLY | O_DIRECT);
	int neither = open(path, O_ACCMODE | O_DIRECT);
	CHECK(reads >= 0 && writes >= 0 && neither >= 0);
	io_context_t aio = 0;
	CHECK_IS(io_setup(8, &aio), 0);
	for (int number = 0; number < 8; number++) {
		off_t at = (off_t)number * BLOCK;
		struct iocb iocb, *one = &iocb;
		struct iovec vector = {buffer, BLOCK};
		tell("a read", pread(reads, buffer, BLOCK, at));
		tell("a write to read", pwrite(reads, buffer, BLOCK, at));
		tell("vectors to read", pwritev(reads, &vector, 1, at));
		tell("a write", pwrite(writes, buffer, BLOCK, at));
		tell("a read of what is written", pread(writes, buffer, BLOCK, at));
		io_prep_pwrite(&iocb, reads, buffer, BLOCK, at);
		printf("by libaio: %d\n", io_submit(aio, 1, &one));
		tell("a read of neither", pread(neither, buffer, BLOCK, at));
		tell("a write to neither", pwrite(neither, buffer, BLOCK, at));
		io_prep_pread(&iocb, neither, buffer, BLOCK, at);
		printf("neither, by libaio: %d\n", io_submit(aio, 1, &one));
		io_prep_pread(&iocb, reads, buffer, BLOCK, at);
		io_set_eventfd(&iocb, 9999);
		printf("told to no eventfd: %d\n", io_submit(aio, 1, &one));
		io_set_eventfd(&iocb, writes);
		printf("told to a file: %d\n", io_submit(aio, 1, &one));
	}
	CHECK_IS(io_destroy(aio), 0);
}

/* Offsets and addresses that O_DIRECT or the kernel does not take. */
static void by_the_arguments(const char *path)
{
	int fd = open(path, O_RDWR | O_DIRECT);
	CHECK(fd >= 0);
	for (int number = 0; number < 8; number++) {
		off_t at = (off_t)number * BLOCK;
		tell("an odd offset", pread(fd, buffer, BLOCK, at + 100));
		tell("an odd length", pwrite(fd, buffer, BLOCK + 100, at));
		tell("no memory to read to", pread(fd, (void *)4096, BLOCK, at));
		tell("no memory to write", pwrite(fd, (void *)4096, BLOCK, at));
		tell("before the file", pread(fd, buffer, BLOCK, -1));
		tell("no lock", fcntl(fd, number % 2 ? F_SETLK : F_OFD_SETLK, (struct flock *)8));
	}
	tell_content(path);
}

/* Sets of signals: of the kernel's size at the end of the memory, and at addresses that lead nowhere. */
static void by_the_set(const char *path)
{
	(void)path;
	char *pages = mmap(NULL, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED);
	CHECK_IS(mprotect(pages + BLOCK, BLOCK, PROT_NONE), 0);
	sigset_t *last = (sigset_t *)(pages + BLOCK - sizeof(uint64_t));
	const struct timespec now = {0, 0};
	struct epoll_event event;
	sigaddset(last, SIGUSR1);
	tell("a set at the end", sigprocmask(SIG_BLOCK, last, NULL));
	tell("to wait with", ppoll(NULL, 0, &now, last));
	sigset_t *const nowhere[] = {(sigset_t *)8, (sigset_t *)(pages + BLOCK), (sigset_t *)-8L};
	for (size_t which = 0; which < sizeof nowhere / sizeof *nowhere; which++) {
		tell("a set", syscall(SYS_rt_sigprocmask, SIG_BLOCK, nowhere[which], NULL, 8L));
		tell("to wait", ppoll(NULL, 0, &now, nowhere[which]));
		tell("of a poll", epoll_pwait(-1, &event, 1, 0, nowhere[which]));
		tell("of a context", setcontext((ucontext_t *)nowhere[which]));
	}
}

/* A request that the pool's split would cut is refused whole, or carried out as far as the kernel does it. */
static void as_a_whole(const char *path)
{
	int fd = open(path, O_RDWR | O_DIRECT);
	CHECK(fd >= 0);
	memset(buffer, 'w', BLOCKS * BLOCK);
	tell("an odd length", pwrite(fd, buffer, (1 << 20) + 100, 0));
	tell("an odd offset", pwrite(fd, buffer, 1 << 20, 100));
	tell("an odd address", pwrite(fd, buffer + 1, 1 << 20, 0));
	tell_content(path);
	/* A hole in the memory, in the second half. */
	CHECK_IS(mprotect(buffer + 600 * BLOCK, BLOCK, PROT_NONE), 0);
	tell("a hole to write", pwrite(fd, buffer, BLOCKS * BLOCK, 0));
	tell("a hole to read to", pread(fd, buffer, BLOCKS * BLOCK, 0));
	CHECK_IS(mprotect(buffer + 600 * BLOCK, BLOCK, PROT_READ | PROT_WRITE), 0);
	/* More than the kernel carries out at a time, of a file that has less. */
	size_t much = 3UL << 30;
	char *large = mmap(NULL, much, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(large != MAP_FAILED);
	CHECK_IS(ftruncate(fd, (off_t)much), 0);
	tell("much", pread(fd, large, much, 0));
	CHECK_IS(munmap(large, much), 0);
}

int main(int count, char **arguments)
{
	CHECK(count == 2);
	const char *path = at(0, "file");
	buffer = mmap(NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(buffer != MAP_FAILED);
	memset(buffer, 'a', BLOCKS * BLOCK);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	CHECK(fd >= 0);
	CHECK_IS(write(fd, buffer, BLOCKS * BLOCK), BLOCKS * BLOCK);
	CHECK_IS(fsync(fd), 0);
	CHECK_IS(close(fd), 0);
	if (strcmp(arguments[1], "by_the_mode") == 0)
		by_the_mode(path);
	else if (strcmp(arguments[1], "by_the_arguments") == 0)
		by_the_arguments(path);
	else if (strcmp(arguments[1], "by_the_set") == 0)
		by_the_set(path);
	else
		as_a_whole(path);
	return 0;
}
