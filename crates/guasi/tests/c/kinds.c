/*
 * Every call on every kind of descriptor gives what the same system call gives when it is called directly.
 * Argument: flags of guasi_create_flags.
 */
#include "check.h"
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>

static char large[1 << 20];

static int file(int flags)
{
	char name[] = "/tmp/guasi-kinds-XXXXXX";
	int made = mkstemp(name), fd;

	CHECK(made >= 0 && write(made, "0123456789", 10) == 10 && lseek(made, 3, SEEK_SET) == 3);
	fd = flags == O_RDWR ? dup(made) : open(name, flags);
	CHECK(fd >= 0 && unlink(name) == 0 && close(made) == 0);
	return fd;
}

static int regular(void) { return file(O_RDWR); }
static int reading(void) { return file(O_RDONLY); }
static int writing(void) { return file(O_WRONLY); }
static int appending(void) { return file(O_WRONLY | O_APPEND); }
static int by_path(void) { return file(O_PATH); }
static int regular_non_blocking(void) { return file(O_RDWR | O_NONBLOCK); }
static int directory(void) { return open("/proc/sys", O_RDONLY | O_DIRECTORY); }
static int null(void) { return open("/dev/null", O_RDWR); }
static int zero(void) { return open("/dev/zero", O_RDWR | O_NONBLOCK); }
static int full(void) { return open("/dev/full", O_RDWR); }
static int closed(void) { return -1; }
static int never_opened(void) { return 99999; }
static int memory(void) { return memfd_create("kinds", 0); }
static int epoll(void) { return epoll_create1(0); }
static int counter(void) { return eventfd(7, 0); }
static int counter_empty(void) { return eventfd(0, EFD_NONBLOCK); }
static int timer(void) { return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK); }

/* One end of a pipe or a pair of sockets; the other end stays open, or is closed. */
static int end(int *ends, int which, int keep)
{
	if (!keep)
		CHECK(close(ends[!which]) == 0);
	return ends[which];
}

static int pipe_with_data(void)
{
	int ends[2];
	CHECK(pipe(ends) == 0 && write(ends[1], "abc", 3) == 3);
	return end(ends, 0, 1);
}

static int pipe_at_end(void)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	return end(ends, 0, 0);
}

static int pipe_without_reader(void)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	return end(ends, 1, 0);
}

static int pipe_empty(void)
{
	int ends[2];
	CHECK(pipe2(ends, O_NONBLOCK) == 0);
	return end(ends, 0, 1);
}

static int pipe_writable(void)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	return end(ends, 1, 1);
}

static int pipe_full(void)
{
	int ends[2];
	CHECK(pipe2(ends, O_NONBLOCK) == 0);
	while (write(ends[1], large, sizeof large) > 0)
		;
	return end(ends, 1, 1);
}

static int pair(int type, int keep, const char *data, int fill)
{
	int ends[2];
	CHECK(socketpair(AF_UNIX, type, 0, ends) == 0);
	if (data != NULL)
		CHECK(write(ends[1], data, 3) == 3);
	while (fill && write(ends[0], large, 4096) > 0)
		;
	return end(ends, 0, keep);
}

static int stream_with_data(void) { return pair(SOCK_STREAM, 1, "abc", 0); }
static int stream_empty(void) { return pair(SOCK_STREAM | SOCK_NONBLOCK, 1, NULL, 0); }
static int stream_full(void) { return pair(SOCK_STREAM | SOCK_NONBLOCK, 1, NULL, 1); }
static int stream_closed(void) { return pair(SOCK_STREAM, 0, NULL, 0); }
static int datagram_with_data(void) { return pair(SOCK_DGRAM, 1, "abc", 0); }
static int datagram_empty(void) { return pair(SOCK_DGRAM | SOCK_NONBLOCK, 1, NULL, 0); }
static int unconnected(void) { return socket(AF_INET, SOCK_STREAM, 0); }

static int listening(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK(fd >= 0 && listen(fd, 1) == 0);
	return fd;
}

static int terminal(void)
{
	int fd = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
	CHECK(fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0);
	return fd;
}

static const struct { const char *name; int (*make)(void); } kinds[] = {
#define KIND(name) {#name, name}
	KIND(regular), KIND(reading), KIND(writing), KIND(appending), KIND(by_path), KIND(regular_non_blocking),
	KIND(directory), KIND(null), KIND(zero), KIND(full), KIND(closed), KIND(never_opened), KIND(memory), KIND(epoll),
	KIND(counter), KIND(counter_empty), KIND(timer), KIND(pipe_with_data), KIND(pipe_at_end), KIND(pipe_without_reader),
	KIND(pipe_empty), KIND(pipe_writable), KIND(pipe_full), KIND(stream_with_data), KIND(stream_empty), KIND(stream_full),
	KIND(stream_closed), KIND(datagram_with_data), KIND(datagram_empty), KIND(unconnected), KIND(listening), KIND(terminal),
};

static char buffer[64], out[8] = "writing";
static struct iovec in_parts[2] = {{buffer, 2}, {buffer + 32, 30}}, out_parts[2] = {{out, 3}, {out + 3, 5}};
static struct stat status;
static struct statx extended;
static struct sockaddr_in address;
static socklen_t address_length;
static int sink;

#define P NULL, NULL, 0
#define LIMIT 30

/* Each call in both forms. Socket calls wait, up to their limit, where the plain ones say EAGAIN. */
#define CALLS(CALL)                                                                                                   \
	CALL(read, read(fd, buffer, 64), guasi__read(h, P, fd, buffer, 64), 0)                                         \
	CALL(read_nothing, read(fd, buffer, 0), guasi__read(h, P, fd, buffer, 0), 0)                                   \
	CALL(write, write(fd, out, 8), guasi__write(h, P, fd, out, 8), 0)                                              \
	CALL(pread, pread(fd, buffer, 64, 2), guasi__pread(h, P, fd, buffer, 64, 2), 0)                                \
	CALL(pread_before, pread(fd, buffer, 64, -1), guasi__pread(h, P, fd, buffer, 64, -1), 0)                       \
	CALL(pwrite, pwrite(fd, out, 8, 2), guasi__pwrite(h, P, fd, out, 8, 2), 0)                                     \
	CALL(preadv2, preadv2(fd, in_parts, 2, 1, 0), guasi__preadv2(h, P, fd, in_parts, 2, 1, 0), 0)                  \
	CALL(preadv2_here, preadv2(fd, in_parts, 2, -1, 0), guasi__preadv2(h, P, fd, in_parts, 2, -1, 0), 0)           \
	CALL(pwritev2, pwritev2(fd, out_parts, 2, 1, 0), guasi__pwritev2(h, P, fd, out_parts, 2, 1, 0), 0)             \
	CALL(pwritev2_here, pwritev2(fd, out_parts, 2, -1, 0), guasi__pwritev2(h, P, fd, out_parts, 2, -1, 0), 0)      \
	CALL(preadv2_unknown, preadv2(fd, in_parts, 2, 1, 1 << 30), guasi__preadv2(h, P, fd, in_parts, 2, 1, 1 << 30), 0) \
	CALL(preadv2_at_once, preadv2(fd, in_parts, 2, -1, RWF_NOWAIT), guasi__preadv2(h, P, fd, in_parts, 2, -1, RWF_NOWAIT), 0) \
	CALL(preadv2_polled, preadv2(fd, in_parts, 2, 1, RWF_HIPRI), guasi__preadv2(h, P, fd, in_parts, 2, 1, RWF_HIPRI), 0) \
	CALL(pwritev2_polled, pwritev2(fd, out_parts, 2, 1, RWF_HIPRI), guasi__pwritev2(h, P, fd, out_parts, 2, 1, RWF_HIPRI), 0) \
	CALL(pwritev2_append, pwritev2(fd, out_parts, 2, 1, RWF_APPEND), guasi__pwritev2(h, P, fd, out_parts, 2, 1, RWF_APPEND), 0) \
	CALL(fsync, fsync(fd), guasi__fsync(h, P, fd), 0)                                                              \
	CALL(fdatasync, fdatasync(fd), guasi__fdatasync(h, P, fd), 0)                                                  \
	CALL(fallocate, fallocate(fd, 0, 0, 4096), guasi__fallocate(h, P, fd, 0, 0, 4096), 0)                          \
	CALL(fstat, fstat(fd, &status), guasi__fstat(h, P, fd, &status), 0)                                            \
	CALL(statx, statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &extended),                                               \
	     guasi__statx(h, P, fd, "", AT_EMPTY_PATH, STATX_SIZE, &extended), 0)                                      \
	CALL(getdents, syscall(SYS_getdents64, fd, large, sizeof large), guasi__getdents(h, P, fd, large, sizeof large), 0) \
	CALL(sendfile, sendfile(sink, fd, NULL, 2), guasi__sendfile(h, P, sink, fd, NULL, 2), 0)                       \
	CALL(openat, openat(fd, "kernel", O_PATH) >= 0 ? 0 : -1, guasi__openat(h, P, fd, "kernel", O_PATH, 0), 2)      \
	CALL(unlinkat, unlinkat(fd, "nothing", 0), guasi__unlinkat(h, P, fd, "nothing", 0), 0)                         \
	CALL(mkdirat, mkdirat(fd, "kernel", 0), guasi__mkdirat(h, P, fd, "kernel", 0), 0)                              \
	CALL(renameat2, renameat2(fd, "a", fd, "b", 0), guasi__renameat2(h, P, fd, "a", fd, "b", 0), 0)                \
	CALL(close, close(fd), guasi__close(h, P, fd), 0)                                                              \
	CALL(recv, recv(fd, buffer, 64, 0), guasi__recv(h, P, fd, buffer, 64, 0, LIMIT), 1)                            \
	CALL(recvfrom, recvfrom(fd, buffer, 64, 0, (struct sockaddr *) &address, &address_length),                     \
	     guasi__recvfrom(h, P, fd, buffer, 64, 0, (struct sockaddr *) &address, &address_length, LIMIT), 1)        \
	CALL(send, send(fd, out, 8, MSG_NOSIGNAL), guasi__send(h, P, fd, out, 8, 0, LIMIT), 1)                         \
	CALL(sendto, sendto(fd, out, 8, MSG_NOSIGNAL, NULL, 0), guasi__sendto(h, P, fd, out, 8, 0, NULL, 0, LIMIT), 1) \
	CALL(accept, accept(fd, NULL, NULL), guasi__accept(h, P, fd, NULL, NULL, LIMIT), 1)                            \
	CALL(connect, connect(fd, (struct sockaddr *) &address, 1), guasi__connect(h, P, fd, (struct sockaddr *) &address, 1, LIMIT), 1)

static void compare(guasi_t h)
{
	int differ = 0, compared = 0;

	for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
#define CALL(call, plain, asynchronous, how)                                                                          \
	{                                                                                                             \
		int fd = kinds[kind].make();                                                                          \
		char before[64], direct[64];                                                                          \
		address_length = sizeof address;                                                                      \
		memset(before, 'x', 64);                                                                              \
		memset(buffer, 'x', 64);                                                                              \
		errno = 0;                                                                                            \
		long wanted = (long) (plain);                                                                         \
		int wanted_errno = wanted < 0 ? errno : 0;                                                            \
		memcpy(direct, buffer, 64);                                                                           \
		fd = kinds[kind].make();                                                                              \
		address_length = sizeof address;                                                                      \
		memcpy(buffer, before, 64);                                                                           \
		guasi_param_t found = result_of(h, asynchronous);                                                     \
		int found_errno = found < 0 ? errno : 0;                                                              \
		if ((how) == 1 && wanted_errno == EAGAIN)                                                             \
			wanted_errno = ETIMEDOUT;                                                                     \
		if ((how) == 2 && found > 0)                                                                          \
			found = 0;                                                                                    \
		if (found != wanted || found_errno != wanted_errno || memcmp(direct, buffer, 64) != 0) {              \
			fprintf(stderr, "%s of %s: %ld %s, not %ld %s\n", #call, kinds[kind].name, (long) found,       \
				strerrorname_np(found_errno), wanted, strerrorname_np(wanted_errno));                 \
			differ++;                                                                                     \
		}                                                                                                     \
		compared++;                                                                                           \
	}
		CALLS(CALL)
	}
	CHECK(differ == 0);
	CHECK(compared > 800);
}

/* Blocking descriptors that have nothing to read: the call is still active when data comes, and gives it. */
static void waits(guasi_t h)
{
	int ends[2][2];
	struct guasi_reqinfo info;

	CHECK(pipe(ends[0]) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends[1]) == 0);
	for (int which = 0; which < 2; which++) {
		guasi_req_t request = guasi__read(h, P, ends[which][0], buffer, 64), fetched;
		CHECK(guasi_fetch(h, &fetched, 1, 1, LIMIT) == 0);
		CHECK(guasi_req_info(request, &info) == 0 && info.status == GUASI_STATUS_ACTIVE);
		CHECK(info.result == -1 && info.error == -1); /* as GUASI 0.25 */
		CHECK(write(ends[which][1], "late", 4) == 4);
		CHECK(finish(h, request).result == 4);
	}
}

static guasi_param_t forks(void *priv, guasi_param_t const *params)
{
	pid_t child = fork();

	(void) priv;
	(void) params;
	if (child == 0) {
		execlp("sleep", "sleep", "1000", NULL);
		_exit(1);
	}
	return child;
}

static pid_t child_of_cleanup;
static void forks_too(void *priv, guasi_param_t const *params)
{
	child_of_cleanup = (pid_t) forks(priv, params);
}

/* Ends a child by SIGTERM, which the child does not block. */
static void ends_by_sigterm(pid_t child)
{
	char path[64], line[256];
	unsigned long long blocked = ~0ull;
	FILE *status;
	int state;

	CHECK(child > 0);
	snprintf(path, sizeof path, "/proc/%d/status", (int) child);
	CHECK((status = fopen(path, "r")) != NULL);
	while (fgets(line, sizeof line, status))
		sscanf(line, "SigBlk: %llx", &blocked);
	fclose(status);
	CHECK(kill(child, blocked == 0 ? SIGTERM : SIGKILL) == 0);
	CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state) && WTERMSIG(state) == SIGTERM);
}

/* A process that a function or its cleanup starts has the signal mask of the submitting thread: SIGTERM ends it. */
static void children_are_ended_by_signals(guasi_t h)
{
	pid_t child = (pid_t) result_of(h, guasi_submit(h, P, forks, forks_too, 0));

	ends_by_sigterm(child);
	ends_by_sigterm(child_of_cleanup);
}

/* A program that this process starts has no descriptor of the library's. */
static void descriptors_are_closed_at_exec(guasi_t h)
{
	char path[64], name[64];
	int of_library = 0;

	CHECK(guasi_fd(h) >= 0);
	for (int fd = 3; fd < 16384; fd++) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t length = readlink(path, name, sizeof name - 1);
		if (length <= 0)
			continue;
		name[length] = 0;
		if (strstr(name, "io_uring") || fd == guasi_fd(h)) {
			CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
			of_library++;
		}
	}
	CHECK(of_library >= 1);
}

static guasi_param_t writes(void *priv, guasi_param_t const *params)
{
	(void) priv;
	return write((int) params[0], out, 8);
}

/* The SIGPIPE of a call on a worker reaches no function that the same worker carries out later. */
static void no_sigpipe_is_left_behind(unsigned flags)
{
	guasi_t h = guasi_create_flags(0, 1, 1, flags);
	int closed_end = pipe_without_reader();
	sigset_t pipes, before;

	CHECK(h != NULL);
	CHECK(result_of(h, guasi__sendfile(h, P, closed_end, zero(), NULL, 8)) == -1 && errno == EPIPE);
	CHECK(result_of(h, guasi__pwritev2(h, P, closed_end, out_parts, 2, -1, 0)) == -1 && errno == EPIPE);
	sigemptyset(&pipes);
	sigaddset(&pipes, SIGPIPE);
	CHECK(pthread_sigmask(SIG_BLOCK, &pipes, &before) == 0);
	CHECK(result_of(h, guasi_submit(h, P, writes, NULL, 1, (guasi_param_t) closed_end)) == -1 && errno == EPIPE);
	CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	CHECK(result_of(h, guasi_submit(h, P, writes, NULL, 1, (guasi_param_t) sink)) == 8);
	guasi_free(h);
}

int main(int argc, char **argv)
{
	guasi_t h = guasi_create_flags(0, 0, 1, FLAGS_FROM_ARGUMENTS(argc, argv));

	CHECK(h != NULL);
	sink = open("/dev/null", O_WRONLY);
	/* A write to a pipe or socket without reader gives EPIPE; SIGPIPE is raised by the plain calls only. */
	struct sigaction ignored, by_default;
	memset(&ignored, 0, sizeof ignored);
	memset(&by_default, 0, sizeof by_default);
	ignored.sa_handler = SIG_IGN;
	by_default.sa_handler = SIG_DFL;
	CHECK(sigaction(SIGPIPE, &ignored, NULL) == 0);
	compare(h);
	CHECK(sigaction(SIGPIPE, &by_default, NULL) == 0);
	CHECK(result_of(h, guasi__write(h, P, pipe_without_reader(), out, 8)) == -1 && errno == EPIPE);
	CHECK(result_of(h, guasi__send(h, P, stream_closed(), out, 8, 0, LIMIT)) == -1 && errno == EPIPE);
	waits(h);
	children_are_ended_by_signals(h);
	descriptors_are_closed_at_exec(h);
	guasi_free(h);
	no_sigpipe_is_left_behind(FLAGS_FROM_ARGUMENTS(argc, argv));
	return 0;
}
