/* The number of descriptors that a program can make: numbers KIND [unprivileged]. The soft limit is the hard one, and
 * some files of a pool are in use, so that lanes may be open. The program prints the number, which has to be the same
 * with the library and without it. */
#include "check.h"
#include <liburing.h>
#include <linux/capability.h>
#include <mntent.h>
#include <mqueue.h>
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/un.h>

enum { LIMIT = 400, BLOCKS = 16, FILES = 30 };

static char *block;

static void use(int fd, int number)
{
	CHECK_IS(pread(fd, block, BLOCK, number % BLOCKS * BLOCK), BLOCK);
	CHECK(holds(block, 'n', number % BLOCKS));
}

static int by_open(void)
{
	return open("/dev/null", O_RDONLY);
}

static int by_direct(void)
{
	int fd = open(at(0, "numbers"), O_RDONLY | O_DIRECT);
	if (fd >= 0)
		use(fd, fd);
	return fd;
}

static int by_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static int listening = -1;
static struct sockaddr_un place = {.sun_family = AF_UNIX, .sun_path = "\0numbers"};

static int by_accept(void)
{
	if (listening < 0) {
		snprintf(place.sun_path + 1, sizeof place.sun_path - 1, "numbers-%d", (int)getpid());
		CHECK((listening = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0);
		CHECK_IS(bind(listening, (struct sockaddr *)&place, sizeof place), 0);
		CHECK_IS(listen(listening, 8), 0);
	}
	int client = socket(AF_UNIX, SOCK_STREAM, 0);
	if (client < 0)
		return -1;
	CHECK_IS(connect(client, (struct sockaddr *)&place, sizeof place), 0);
	CHECK_IS(close(client), 0);
	return accept(listening, NULL, NULL);
}

static int by_pipe(void)
{
	int pair[2];
	return pipe(pair) == 0 ? pair[0] : -1;
}

static int by_socketpair(void)
{
	int pair[2];
	return socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 ? pair[0] : -1;
}

static int by_dup(void)
{
	return dup(0);
}

static int by_fcntl(void)
{
	/* The error for numbers beyond the limit is EINVAL; the lowest free number is asked for. */
	return fcntl(0, F_DUPFD_CLOEXEC, 0);
}

static int by_epoll(void)
{
	return epoll_create1(0);
}

static int by_eventfd(void)
{
	return eventfd(0, 0);
}

static int by_timerfd(void)
{
	return timerfd_create(CLOCK_MONOTONIC, 0);
}

static int by_memfd(void)
{
	return memfd_create("numbers", 0);
}

static int by_inotify(void)
{
	/* One user may have 128 of them, in all programs that run at this time. */
	static int made;
	return made++ < 20 ? inotify_init1(0) : by_dup();
}

static int by_signalfd(void)
{
	sigset_t none;
	sigemptyset(&none);
	return signalfd(-1, &none, 0);
}

static int by_pidfd(void)
{
	return (int)syscall(SYS_pidfd_open, getpid(), 0);
}

static int by_syscall(void)
{
	return (int)syscall(SYS_eventfd2, 0, 0);
}

static int by_ring(void)
{
	static struct io_uring rings[LIMIT];
	static int made;
	int result = io_uring_queue_init(1, &rings[made++], 0);
	errno = -result;
	return result == 0 ? 0 : -1;
}

static int by_mkstemp(void)
{
	char template[PATH_MAX];
	snprintf(template, sizeof template, "%s/XXXXXX", getenv("SCRATCH"));
	int fd = mkstemp(template);
	if (fd >= 0)
		CHECK_IS(unlink(template), 0);
	return fd;
}

static int of_stream(FILE *stream)
{
	return stream == NULL ? -1 : fileno(stream);
}

static int by_fopen(void)
{
	return of_stream(fopen("/dev/null", "r"));
}

static int by_tmpfile(void)
{
	return of_stream(tmpfile());
}

static int by_popen(void)
{
	return of_stream(popen("exec true", "r"));
}

static int by_opendir(void)
{
	DIR *directory = opendir("/");
	return directory == NULL ? -1 : dirfd(directory);
}

static int by_shm_open(void)
{
	char name[64];
	snprintf(name, sizeof name, "/numbers-%d", (int)getpid());
	int fd = shm_open(name, O_CREAT | O_RDWR, 0600);
	if (fd >= 0)
		CHECK_IS(shm_unlink(name), 0);
	return fd;
}

static int by_openpty(void)
{
	/* Some containers have none. */
	if (access("/dev/ptmx", R_OK | W_OK) != 0)
		return by_dup();
	int master, slave;
	return openpty(&master, &slave, NULL, NULL, NULL) == 0 ? master : -1;
}

static int by_forkpty(void)
{
	if (access("/dev/ptmx", R_OK | W_OK) != 0)
		return by_dup();
	int master, status;
	pid_t child = forkpty(&master, NULL, NULL, NULL);
	if (child == 0)
		_exit(0);
	if (child < 0)
		return -1;
	CHECK_IS(waitpid(child, &status, 0), child);
	return master;
}

/* The other end of a terminal, by ioctl(2). */
static int by_ioctl(void)
{
	static int master = -1;
	if (access("/dev/ptmx", R_OK | W_OK) != 0)
		return by_dup();
	if (master < 0) {
		CHECK((master = posix_openpt(O_RDWR | O_NOCTTY)) >= 0);
		CHECK_IS(unlockpt(master), 0);
	}
	return ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
}

static int by_mq_open(void)
{
	static struct mq_attr small = {.mq_maxmsg = 1, .mq_msgsize = 8};
	char name[64];
	snprintf(name, sizeof name, "/numbers-%d", (int)getpid());
	int fd = mq_open(name, O_CREAT | O_RDWR, 0600, &small), error = errno;
	if (fd < 0)
		CHECK_IS(mq_unlink(name), 0);
	errno = error;
	return fd;
}

static int by_setmntent(void)
{
	return of_stream(setmntent("/proc/self/mounts", "r"));
}

static int by_open_tree(void)
{
	return open_tree(AT_FDCWD, "/", 0);
}

/* These take rights: without them, other descriptors take their place. */
static int by_fsopen(void)
{
	int fd = fsopen("tmpfs", 0);
	return fd < 0 && errno == EPERM ? by_dup() : fd;
}

static int by_fspick(void)
{
	int fd = fspick(AT_FDCWD, "/", 0);
	return fd < 0 && errno == EPERM ? by_dup() : fd;
}

static int by_fsmount(void)
{
	int context = fsopen("tmpfs", 0);
	if (context < 0)
		return errno == EPERM ? by_dup() : -1;
	CHECK_IS(fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0), 0);
	int fd = fsmount(context, 0, 0);
	int error = errno;
	CHECK_IS(close(context), 0);
	errno = error;
	return fd;
}

static int by_ring_call(void)
{
	struct io_uring_params parameters = {0};
	int fd = io_uring_setup(1, &parameters);
	errno = -fd;
	return fd;
}

static int by_ring_number(void)
{
	struct io_uring_params parameters = {0};
	return (int)syscall(SYS_io_uring_setup, 1, &parameters);
}

/* Descriptors come over a socket, this many with each message. */
static int by_message(int each)
{
	static int pair[2] = {-1, -1};
	static union {
		struct cmsghdr header;
		char room[CMSG_SPACE(253 * sizeof(int))];
	} control;
	char byte = 0;
	struct iovec vector = {&byte, 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control};
	if (pair[0] < 0)
		CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	message.msg_controllen = CMSG_SPACE(each * sizeof(int));
	control.header = (struct cmsghdr){CMSG_LEN(each * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memset(CMSG_DATA(&control.header), 0, each * sizeof(int));
	CHECK_IS(sendmsg(pair[0], &message, 0), 1);
	CHECK_IS(recvmsg(pair[1], &message, 0), 1);
	errno = message.msg_flags & MSG_CTRUNC ? EMFILE : 0;
	return message.msg_flags & MSG_CTRUNC ? -1 : 0;
}

static int by_messages(void)
{
	return by_message(8);
}

static int by_large_messages(void)
{
	return by_message(100);
}

/* Past the library, as often as is promised between two calls that it sees. */
static int by_inline(void)
{
	static int made;
	errno = EMFILE;
	return made++ < 24 ? (int)kernel(SYS_eventfd2, 0, 0, 0, 0) : -1;
}

static const struct kind {
	const char *name;
	int (*make)(void);
} KINDS[] = {
	{"open", by_open},         {"direct", by_direct},   {"socket", by_socket},     {"accept", by_accept},
	{"pipe", by_pipe},         {"dup", by_dup},         {"fcntl", by_fcntl},       {"socketpair", by_socketpair},
	{"epoll", by_epoll},       {"eventfd", by_eventfd}, {"timerfd", by_timerfd},   {"memfd", by_memfd},
	{"inotify", by_inotify},   {"pidfd", by_pidfd},     {"signalfd", by_signalfd}, {"syscall", by_syscall},
	{"ring", by_ring},         {"fopen", by_fopen},     {"mkstemp", by_mkstemp},   {"tmpfile", by_tmpfile},
	{"popen", by_popen},       {"inline", by_inline},   {"opendir", by_opendir},   {"messages", by_messages},
	{"large_messages", by_large_messages},            {"shm_open", by_shm_open},  {"openpty", by_openpty},
	{"forkpty", by_forkpty},   {"ioctl", by_ioctl},     {"mq_open", by_mq_open},   {"setmntent", by_setmntent},
	{"open_tree", by_open_tree}, {"fsopen", by_fsopen}, {"fspick", by_fspick},     {"fsmount", by_fsmount},
	{"ring_call", by_ring_call}, {"ring_number", by_ring_number},
};

/* Without CAP_SYS_RESOURCE nobody can raise the hard limit. */
static void give_up_rights(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0}};
	CHECK_IS(kernel(SYS_capset, (long)&header, (long)none, 0, 0), 0);
}

int main(int count, char **arguments)
{
	CHECK(count >= 2);
	block = aligned(BLOCK);
	struct rlimit limit = {LIMIT, LIMIT};
	make_file(at(0, "numbers"), 'n', BLOCKS);
	CHECK_IS(setrlimit(RLIMIT_NOFILE, &limit), 0);
	if (count > 2)
		give_up_rights();
	int fds[FILES], lanes[8];
	for (int file = 0; file < FILES; file++) {
		fds[file] = open_direct(at(0, "numbers"), O_RDONLY);
		/* A file of which nothing was read has one descriptor. */
		if (file == 0)
			CHECK_IS(lane_files("numbers", fds[0], lanes, 8), 0);
		use(fds[file], file);
	}
	for (size_t at = 0; at < sizeof KINDS / sizeof *KINDS; at++) {
		if (strcmp(KINDS[at].name, arguments[1]) != 0)
			continue;
		int made = 0;
		while (KINDS[at].make() >= 0)
			made++;
		CHECK_IS(errno, EMFILE);
		printf("%s: %d\n", arguments[1], made);
		for (int file = 0; file < FILES; file++)
			use(fds[file], file);
		return 0;
	}
	return 2;
}
