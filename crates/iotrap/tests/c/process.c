/* Programs that change what belongs to the process and not to one file: limits, tables of descriptors, children, the
 * names by which they call libc. */
#include "check.h"
#include <aio.h>
#include <linux/io_uring.h>

static char *buffer;

/* A file on all lanes; the descriptors of the lanes go to `lanes`. */
static int spread(const char *name, int lanes[8])
{
	int fd = open_direct(at(0, name), O_RDWR);
	CHECK_IS(lane_files_in_use(name, fd, lanes, 8), 3);
	return fd;
}

static int lanes_of(const char *name, int own)
{
	int lanes[8];
	return lane_files(name, own, lanes, 8);
}

/* A vfork child closes and opens descriptors of its own, in its parent's memory. */
static void vfork_child_opens(void)
{
	make_file(at(0, "file"), 'f', 16);
	int lanes[8], status, fd = spread("file", lanes);
	pid_t child = vfork();
	if (child == 0) {
		close(fd);
		_exit(open("/dev/null", O_RDONLY) != fd);
	}
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
	CHECK_IS(lanes_of("file", fd), 3);
	CHECK_IS(close(fd), 0);
	CHECK_IS(lanes_of("file", -1), 0);
}

static atomic_bool over;

static void *opens_and_closes(void *none)
{
	char *block = aligned(BLOCK);
	while (!over) {
		int fd = open_direct(at(0, "file"), O_RDWR);
		CHECK_IS(pread(fd, block, BLOCK, 0), BLOCK);
		CHECK_IS(close(fd), 0);
	}
	return none;
}

/* The library raises the limit of descriptors for moments: no child inherits that, and no call of the program sees it
 * or is undone by it. */
static void limits_are_the_programs(void)
{
	make_file(at(0, "file"), 'f', 16);
	struct rlimit own = {1024, 2048}, found;
	CHECK_IS(setrlimit(RLIMIT_NOFILE, &own), 0);
	pthread_t thread;
	CHECK_IS(pthread_create(&thread, NULL, opens_and_closes, NULL), 0);
	for (int round = 0; round < 1000; round++) {
		int status;
		pid_t child = fork();
		if (child == 0) {
			long asked = inline6(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)&found, 0, 0);
			_exit(asked != 0 || found.rlim_cur != own.rlim_cur || found.rlim_max != own.rlim_max);
		}
		CHECK_IS(waitpid(child, &status, 0), child);
		CHECK_IS(status, 0);
		own.rlim_cur = 1000 + round % 7;
		switch (round % 3) {
		case 0: CHECK_IS(setrlimit(RLIMIT_NOFILE, &own), 0); break;
		case 1: CHECK_IS(prlimit(0, RLIMIT_NOFILE, &own, NULL), 0); break;
		case 2: CHECK_IS(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &own, NULL), 0); break;
		}
		sched_yield();
		CHECK_IS(round % 2 ? getrlimit(RLIMIT_NOFILE, &found) : (int)syscall(SYS_getrlimit, RLIMIT_NOFILE, &found), 0);
		CHECK_IS(found.rlim_cur, own.rlim_cur);
	}
	over = 1;
	CHECK_IS(pthread_join(thread, NULL), 0);
}

/* The program that is executed: it has the limit of the one before it, and blocks as few signals. */
static void has_the_limit(void)
{
	struct rlimit found;
	sigset_t blocked;
	CHECK_IS(getrlimit(RLIMIT_NOFILE, &found), 0);
	CHECK_IS(found.rlim_cur, 1024);
	CHECK_IS(found.rlim_max, 2048);
	CHECK_IS(sigprocmask(SIG_BLOCK, NULL, &blocked), 0);
	CHECK(!sigismember(&blocked, SIGTERM) && !sigismember(&blocked, SIGUSR1));
}

/* Programs that are executed while another thread opens files, by which the library raises the limit for moments. */
static void limits_of_programs(void)
{
	extern char **environ;
	char *arguments[] = {"process", "has_the_limit", NULL};
	int status;
	pid_t child;
	pthread_t thread;
	make_file(at(0, "file"), 'f', 16);
	struct rlimit own = {1024, 2048};
	CHECK_IS(setrlimit(RLIMIT_NOFILE, &own), 0);
	for (int round = 0; round < 40; round++) {
		child = fork();
		if (child == 0) {
			CHECK_IS(pthread_create(&thread, NULL, opens_and_closes, NULL), 0);
			usleep(1000 + 100 * round);
			CHECK_IS(execve("/no/such/program", arguments, environ), -1);
			execve("/proc/self/exe", arguments, environ);
			_exit(1);
		}
		CHECK_IS(waitpid(child, &status, 0), child);
		CHECK_IS(status, 0);
	}
	CHECK_IS(pthread_create(&thread, NULL, opens_and_closes, NULL), 0);
	for (int round = 0; round < 80; round++) {
		CHECK_IS(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
		CHECK_IS(waitpid(child, &status, 0), child);
		CHECK_IS(status, 0);
	}
	over = 1;
	CHECK_IS(pthread_join(thread, NULL), 0);
}

extern int __open(const char *, int, ...), __open64(const char *, int, ...), __close(int), __dup2(int, int);
extern int __fcntl(int, int, ...), __pipe(int[2]);
extern ssize_t __pread64(int, void *, size_t, off_t), __pwrite64(int, const void *, size_t, off_t);
extern ssize_t __write(int, const void *, size_t);
extern FILE *_IO_fopen(const char *, const char *), *_IO_fdopen(int, const char *);
extern int _IO_fclose(FILE *);

/* glibc has some of its functions twice. */
static void second_names(void)
{
	make_file(at(0, "file"), 'f', 16);
	int ends[2], lanes[8], fd = __open(at(0, "file"), O_RDWR | O_DIRECT);
	for (int block = 0; block < 16; block++) {
		CHECK_IS(__pwrite64(fd, buffer, BLOCK, block * BLOCK), BLOCK);
		CHECK_IS(__pread64(fd, buffer, BLOCK, block * BLOCK), BLOCK);
	}
	CHECK_IS(lane_files("file", fd, lanes, 8), 3);
	CHECK_IS(__close(lanes[0]), 0); /* the program does not know it */
	CHECK_IS(lanes_of("file", fd), 3);
	int same = __fcntl(fd, F_DUPFD, 0);
	CHECK_IS(__close(fd), 0);
	CHECK_IS(lanes_of("file", same), 3);
	CHECK_IS(__pipe(ends), 0);
	CHECK_IS(__dup2(ends[0], same), same);
	CHECK_IS(lanes_of("file", -1), 0);
	int cached = __open64(at(0, "file"), O_RDWR);
	CHECK_IS(__write(cached, buffer, BLOCK), BLOCK);
	FILE *stream = _IO_fdopen(cached, "r"), *other = _IO_fopen(at(0, "file"), "r");
	fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(pwrite(fd, buffer, BLOCK, 0), BLOCK); /* stdio has the file: it is not spread */
	CHECK_IS(lanes_of("file", -1), 3); /* the program's own three */
	CHECK_IS(_IO_fclose(stream) | _IO_fclose(other) | close(fd), 0);
}

static void *leaves_the_table(void *own)
{
	CHECK_IS(unshare(CLONE_FILES), 0);
	CHECK_IS(close(*(int *)own), 0);
	CHECK_IS(open("/dev/null", O_RDONLY), *(int *)own);
	return NULL;
}

static void in_a_table_of_its_own(int fd)
{
	pthread_t thread;
	CHECK_IS(pthread_create(&thread, NULL, leaves_the_table, &fd), 0);
	CHECK_IS(pthread_join(thread, NULL), 0);
}

/* A thread closes a descriptor in a table of its own: the descriptor of the others stays, and what it may do. */
static void tables_of_threads(void)
{
	make_file(at(0, "file"), 'f', 16);
	int lanes[8], fd = spread("file", lanes), cached = open(at(0, "file"), O_RDWR);
	in_a_table_of_its_own(cached);
	for (int block = 0; block < 16; block++)
		CHECK_IS(pwrite(fd, buffer, BLOCK, block * BLOCK), BLOCK);
	CHECK_IS(lanes_of("file", fd), 1); /* the buffered one */
	in_a_table_of_its_own(fd);
	CHECK_IS(pread(fd, buffer, BLOCK, 0), BLOCK);
	CHECK_IS(close(fd) | close(cached), 0);
	fd = open_direct(at(1, "file"), O_RDWR);
	CHECK_IS(pread(fd, buffer, BLOCK, 0), BLOCK);
	CHECK_IS(lanes_of("file", fd), 0);
	CHECK_IS(close(fd), 0);
}

static short lock_that_others_see(int lane, const char *name)
{
	struct flock lock = {.l_type = F_WRLCK};
	int status, fd = open(at(lane, name), O_RDWR);
	pid_t child = fork();
	if (child == 0) {
		CHECK_IS(fcntl(fd, F_GETLK, &lock), 0);
		_exit(lock.l_type == F_UNLCK);
	}
	CHECK_IS(waitpid(child, &status, 0), child);
	return status == 0;
}

/* Locks of fcntl(2) survive execve(2), and end with any descriptor of their file that is closed. */
static void locks_over_exec(void)
{
	struct flock lock = {.l_type = F_WRLCK};
	if (getenv("LOCKED") == NULL) {
		make_file(at(0, "file"), 'f', 16);
		int fd = open(at(0, "file"), O_RDWR);
		CHECK_IS(fcntl(fd, F_SETLK, &lock), 0);
		setenv("LOCKED", "1", 1);
		execl("/proc/self/exe", "process", "locks_over_exec", NULL);
	}
	int fd = open_direct(at(0, "file"), O_RDWR);
	for (int block = 0; block < 16; block++)
		CHECK_IS(pread(fd, buffer, BLOCK, block * BLOCK), BLOCK);
	CHECK(lock_that_others_see(0, "file"));
}

/* The same lock, taken where no hook sees it. */
static void locks_unseen(void)
{
	struct flock lock = {.l_type = F_WRLCK};
	make_file(at(0, "file"), 'f', 16);
	int fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(inline6(SYS_fcntl, fd, F_SETLK, (long)&lock, 0, 0, 0), 0);
	for (int block = 0; block < 16; block++)
		CHECK_IS(pread(fd, buffer, BLOCK, block * BLOCK), BLOCK);
	CHECK(lock_that_others_see(0, "file"));
}

/* The lock is taken where no hook sees it, while another descriptor of the file is spread: what the library does when it
 * finds the lock leaves it alone. */
static void locks_unseen_beside_lanes(void)
{
	struct flock lock = {.l_type = F_WRLCK};
	make_file(at(0, "file"), 'f', 16);
	int spread_before = open_direct(at(0, "file"), O_RDWR), locked = open(at(0, "file"), O_RDWR);
	for (int block = 0; block < 16; block++)
		CHECK_IS(pread(spread_before, buffer, BLOCK, block * BLOCK), BLOCK);
	CHECK_IS(inline6(SYS_fcntl, locked, F_SETLK, (long)&lock, 0, 0, 0), 0);
	int fd = open_direct(at(0, "file"), O_RDWR);
	for (int block = 0; block < 16; block++)
		CHECK_IS(pread(fd, buffer, BLOCK, block * BLOCK), BLOCK);
	CHECK(lock_that_others_see(0, "file"));
}

/* A process that holds no lock says which locks it sees: it answers each byte with one. */
static void tells_locks(int asked, int answers, const char *name)
{
	char byte;
	while (read(asked, &byte, 1) == 1) {
		struct flock lock = {.l_type = F_WRLCK};
		int fd = open(name, O_RDWR);
		CHECK_IS(fcntl(fd, F_GETLK, &lock), 0);
		CHECK_IS(close(fd), 0);
		byte = lock.l_type != F_UNLCK;
		CHECK_IS(write(answers, &byte, 1), 1);
	}
	_exit(0);
}

static atomic_int begun;

static void *reads_first(void *opened)
{
	char *block = aligned(BLOCK);
	begun = 1;
	CHECK_IS(pread(*(int *)opened, block, BLOCK, 0), BLOCK);
	free(block);
	return NULL;
}

/* A thread takes a lock while the first request of another thread opens the lanes: the lock stays. */
static void locked_while_lanes_open(void)
{
	enum { ROUNDS = 2000 };
	struct flock lock = {.l_type = F_WRLCK};
	int asked[2], answers[2];
	make_file(at(0, "file"), 'f', 16);
	CHECK_IS(pipe(asked) | pipe(answers), 0);
	if (fork() == 0) {
		CHECK_IS(close(asked[1]) | close(answers[0]), 0);
		tells_locks(asked[0], answers[1], at(0, "file"));
	}
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t reader;
		char held = 1;
		int fd = open_direct(at(0, "file"), O_RDWR);
		begun = 0;
		CHECK_IS(pthread_create(&reader, NULL, reads_first, &fd), 0);
		while (!begun)
			;
		for (volatile int turns = round % 100 * 400; turns > 0; turns--) /* up to some 100 microseconds */
			;
		CHECK_IS(fcntl(fd, F_SETLK, &lock), 0);
		CHECK_IS(pthread_join(reader, NULL), 0);
		CHECK_IS(write(asked[1], &held, 1), 1);
		CHECK_IS(read(answers[0], &held, 1), 1);
		CHECK_IS(held, 1);
		CHECK_IS(close(fd), 0);
	}
}

static void reads_all(int fd)
{
	for (int number = 0; number < 16; number++)
		CHECK_IS(pread(fd, buffer, BLOCK, number * BLOCK), BLOCK);
}

/* The program opens one file by two lanes, which are two clients: it locks the file on the second lane, and the file of
 * the first one is spread. `when` says how often the file was read before the lock. The lock stays until it is given
 * back, whatever the library opens and closes. */
static void locks_on_another_lane(int when, int lease)
{
	struct flock lock = {.l_type = F_WRLCK};
	int fd = open_direct(at(0, "file"), O_RDONLY);
	if (when > 0)
		reads_all(fd);
	int locked = open(at(1, "file"), O_RDWR);
	CHECK(locked >= 0);
	if (when > 1)
		reads_all(fd);
	if (lease) {
		CHECK_IS(fcntl(locked, F_SETLEASE, F_WRLCK), 0);
		reads_all(fd);
		CHECK_IS(fcntl(locked, F_GETLEASE), F_WRLCK);
		return;
	}
	for (int round = 0; round < 2; round++) {
		CHECK_IS(fcntl(locked, F_SETLK, &lock), 0);
		reads_all(fd);
		CHECK(lock_that_others_see(1, "file"));
		CHECK_IS(close(fd), 0);
		CHECK(lock_that_others_see(1, "file"));
		fd = open_direct(at(0, "file"), O_RDONLY);
		reads_all(fd);
		CHECK(lock_that_others_see(1, "file"));
		CHECK_IS(fcntl(locked, F_SETLK, &(struct flock){.l_type = F_UNLCK}), 0);
		CHECK_IS(close(fd), 0);
		fd = open_direct(at(0, "file"), O_RDONLY);
		reads_all(fd); /* spread again: no lock is held */
	}
}

static void locked_before_it_is_spread(void) { locks_on_another_lane(0, 0); }
static void locked_after_it_was_spread(void) { locks_on_another_lane(1, 0); }
static void locked_while_it_is_spread(void) { locks_on_another_lane(2, 0); }
static void leased_while_it_is_spread(void) { locks_on_another_lane(2, 1); }

/* POSIX: requests complete as if close(2) had waited for them. Nothing of the library is left. */
static void closed_before_its_requests_end(void)
{
	enum { REQUESTS = 64 };
	static struct aiocb requests[REQUESTS];
	make_file(at(0, "file"), 'f', 16);
	char *block = aligned(BLOCK);
	for (int round = 0; round < 8; round++) {
		int fd = open_direct(at(0, "file"), O_RDWR);
		for (int at = 0; at < REQUESTS; at++) {
			requests[at] = (struct aiocb){.aio_fildes = fd, .aio_buf = block, .aio_nbytes = BLOCK, .aio_offset = at % 16 * BLOCK};
			CHECK_IS(aio_write(&requests[at]), 0);
		}
		switch (round % 4) {
		case 0: CHECK_IS(close(fd), 0); break;
		case 1: CHECK_IS(close_range(fd, fd, 0), 0); break;
		case 2: CHECK_IS(dup2(0, fd), fd); break;
		case 3: CHECK_IS(fclose(fdopen(fd, "r")), 0); break;
		}
		CHECK_IS(lanes_of("file", -1), 0);
		if (round % 2)
			for (int at = 0; at < REQUESTS; at++)
				CHECK_IS(aio_return(&requests[at]), BLOCK);
	}
}

/* io_uring_register(2) with addresses that lead nowhere. */
static void addresses_of_files(void)
{
	struct io_uring_params parameters = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 4, &parameters);
	CHECK(ring >= 0);
	void *bad[] = {NULL, (void *)-64, (void *)0xffffffff81000000, (void *)4096};
	for (size_t each = 0; each < sizeof bad / sizeof *bad; each++) {
		struct io_uring_rsrc_register files = {.nr = 4, .data = (uintptr_t)bad[each]};
		struct io_uring_files_update update = {.fds = (uintptr_t)bad[each]};
		CHECK_IS(syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, bad[each], 4), -1);
		CHECK_IS(syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES2, bad[each], sizeof files), -1);
		if (each > 0) /* places without files */
			CHECK_IS(syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES2, &files, sizeof files), -1);
		CHECK_IS(syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES_UPDATE, &update, 4), -1);
	}
	CHECK_IS(close(ring), 0);
}

static int table_size(void)
{
	char line[128];
	int size = 0;
	FILE *status = fopen("/proc/self/status", "r");
	CHECK(status != NULL);
	while (size == 0 && fgets(line, sizeof line, status) != NULL)
		sscanf(line, "FDSize: %d", &size);
	CHECK_IS(fclose(status), 0);
	CHECK(size > 0);
	return size;
}

/* The kernel's table of descriptors does not grow with the first request: in a program of several threads that takes a
 * grace period of RCU. */
static void table_is_large_enough(void)
{
	make_file(at(0, "file"), 'f', 16);
	int before = table_size(), fd = open_direct(at(0, "file"), O_RDWR), found[8];
	CHECK_IS(lane_files_in_use("file", fd, found, 8), 3);
	CHECK_IS(table_size(), before);
	CHECK_IS(close(fd), 0);
}

/* A lease is given, though the library had the file open on other lanes. */
static void leases(void)
{
	CHECK(signal(SIGIO, SIG_IGN) != SIG_ERR);
	for (int how = 0; how < 3; how++) {
		int lease = how == 1 ? F_RDLCK : F_WRLCK;
		make_file(at(0, "file"), 'f', 16);
		int fd = open_direct(at(0, "file"), how == 1 ? O_RDONLY : O_RDWR);
		for (int number = 0; number < 16; number++)
			CHECK_IS(pread(fd, buffer, BLOCK, number * BLOCK), BLOCK);
		if (how != 1)
			CHECK_IS(pwrite(fd, buffer, BLOCK, 0), BLOCK);
		CHECK_IS(how == 2 ? syscall(SYS_fcntl, fd, F_SETLEASE, lease) : fcntl(fd, F_SETLEASE, lease), 0);
		CHECK_IS(fcntl(fd, F_GETLEASE), lease);
		CHECK_IS(pread(fd, buffer, BLOCK, 0), BLOCK);
		CHECK_IS(fsync(fd), 0);
		CHECK_IS(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
		CHECK_IS(close(fd), 0);
	}
}

static int opens_beside_its_parent(void *path)
{
	for (int round = 0; round < 50; round++) {
		int fd = open(path, O_RDONLY);
		if (fd < 0 || close(fd) != 0)
			return 1;
	}
	return 0;
}

/* A child with its parent's table of descriptors and a memory of its own leaves the parent's lanes alone. */
static void tables_of_children(void)
{
	static char stack[1 << 18] __attribute__((aligned(16)));
	make_file(at(0, "file"), 'f', 16);
	make_file(at(0, "other"), 'o', 16);
	int fd = open_direct(at(0, "file"), O_RDWR), before[8], after[8], status;
	CHECK_IS(lane_files_in_use("file", fd, before, 8), 3);
	pid_t child = clone(opens_beside_its_parent, stack + sizeof stack, CLONE_FILES | SIGCHLD, (void *)at(0, "other"));
	CHECK(child > 0);
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
	CHECK_IS(lane_files("file", fd, after, 8), 3);
	CHECK_IS(memcmp(before, after, 3 * sizeof *before), 0);
	for (int number = 0; number < 16; number++) {
		fill(buffer, 'n', number);
		CHECK_IS(pwrite(fd, buffer, BLOCK, number * BLOCK), BLOCK);
	}
	CHECK_IS(close(fd), 0);
	expect_blocks(at(0, "file"), 'n', 16);
	expect_blocks(at(0, "other"), 'o', 16);
}

/* A transfer that is cut into parts ends at the limit of file sizes, as a whole one does, and without a signal. */
static void parts_end_at_the_limit(void)
{
	make_file(at(0, "file"), 'f', 64);
	int fd = open_direct(at(0, "file"), O_RDWR);
	CHECK_IS(pread(fd, buffer, 16 * BLOCK, 0), 16 * BLOCK);
	CHECK_IS(setrlimit(RLIMIT_FSIZE, &(struct rlimit){4 * BLOCK, RLIM_INFINITY}), 0);
	CHECK_IS(pwrite(fd, buffer, 16 * BLOCK, 0), 4 * BLOCK);
	CHECK_IS(pwrite(fd, buffer + 3 * BLOCK, 13 * BLOCK, 3 * BLOCK), BLOCK);
	CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	CHECK_IS(pwrite(fd, buffer, 16 * BLOCK, 4 * BLOCK), -1);
	CHECK_IS(errno, EFBIG);
	CHECK_IS(close(fd), 0);
	expect_blocks(at(0, "file"), 'f', 64);
}

static const struct test tests[] = {
	{"vfork_child_opens", vfork_child_opens},
	{"limits_are_the_programs", limits_are_the_programs},
	{"limits_of_programs", limits_of_programs},
	{"has_the_limit", has_the_limit},
	{"second_names", second_names},
	{"tables_of_threads", tables_of_threads},
	{"locks_over_exec", locks_over_exec},
	{"locks_unseen", locks_unseen},
	{"locks_unseen_beside_lanes", locks_unseen_beside_lanes},
	{"locked_while_lanes_open", locked_while_lanes_open},
	{"locked_before_it_is_spread", locked_before_it_is_spread},
	{"locked_after_it_was_spread", locked_after_it_was_spread},
	{"locked_while_it_is_spread", locked_while_it_is_spread},
	{"leased_while_it_is_spread", leased_while_it_is_spread},
	{"closed_before_its_requests_end", closed_before_its_requests_end},
	{"addresses_of_files", addresses_of_files},
	{"table_is_large_enough", table_is_large_enough},
	{"leases", leases},
	{"tables_of_children", tables_of_children},
	{"parts_end_at_the_limit", parts_end_at_the_limit},
};

int main(int count, char **arguments)
{
	CHECK_IS(count, 2);
	buffer = aligned(16 * BLOCK);
	return run_named(tests, sizeof tests / sizeof *tests, arguments[1]);
}
