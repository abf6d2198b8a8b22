/* Every function of both headers does what its manual page says. Argument: flags of guasi_create_flags. */
#include "check.h"
#include <arpa/inet.h>
#include <limits.h>
#include <linux/stat.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/un.h>

#define P (void *) 11, (void *) 22, 0

struct entry {
	unsigned long long inode;
	long long offset;
	unsigned short length;
	unsigned char type;
	char name[];
};

static void files(guasi_t h)
{
	char here[] = "/tmp/guasi-test-XXXXXX", buffer[4096], text[] = "asynchronous";
	struct stat plain;
	struct statx extended;
	struct iovec parts[2] = {{text, 5}, {text + 5, 7}};
	goff_t offset = 2;
	int dir, fd, copy;
	DIR *listing;
	size_t at;
	int entries = 0;

	CHECK(mkdtemp(here) != NULL);
	dir = (int) result_of(h, guasi__open(h, P, here, O_RDONLY | O_DIRECTORY, 0));
	CHECK(dir >= 0);
	CHECK(result_of(h, guasi__open(h, P, "/does/not/exist", O_RDONLY, 0)) == -1 && errno == ENOENT);
	fd = (int) result_of(h, guasi__openat(h, P, dir, "file", O_RDWR | O_CREAT, 0600));
	CHECK(fd >= 0);
	CHECK(result_of(h, guasi__write(h, P, fd, text, 12)) == 12);
	CHECK(lseek(fd, 0, SEEK_CUR) == 12);
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	CHECK(result_of(h, guasi__read(h, P, fd, buffer, 5)) == 5 && memcmp(buffer, "async", 5) == 0);
	CHECK(result_of(h, guasi__read(h, P, fd, buffer, 100)) == 7 && memcmp(buffer, "hronous", 7) == 0);
	CHECK(result_of(h, guasi__read(h, P, fd, buffer, 100)) == 0);
	CHECK(result_of(h, guasi__pwrite(h, P, fd, "A", 1, 0)) == 1);
	CHECK(result_of(h, guasi__pread(h, P, fd, buffer, 100, 0)) == 12 && memcmp(buffer, "Asynchronous", 12) == 0);
	CHECK(result_of(h, guasi__pread(h, P, fd, buffer, 100, -1)) == -1 && errno == EINVAL);
	CHECK(result_of(h, guasi__pread(h, P, fd, buffer, 100, -5)) == -1 && errno == EINVAL);
	CHECK(result_of(h, guasi__pread(h, P, dir, buffer, 100, 0)) == -1 && errno == EISDIR);
	CHECK(result_of(h, guasi__pread(h, P, 12345, buffer, 100, 0)) == -1 && errno == EBADF);
	CHECK(result_of(h, guasi__pwritev2(h, P, fd, parts, 2, 20, 0)) == 12);
	memset(buffer, 0, sizeof(buffer));
	parts[0].iov_base = buffer;
	parts[1].iov_base = buffer + 100;
	CHECK(result_of(h, guasi__preadv2(h, P, fd, parts, 2, 20, 0)) == 12);
	CHECK(memcmp(buffer, "async", 5) == 0 && memcmp(buffer + 100, "hronous", 7) == 0);
	CHECK(result_of(h, guasi__fsync(h, P, fd)) == 0);
	CHECK(result_of(h, guasi__fdatasync(h, P, fd)) == 0);
	CHECK(result_of(h, guasi__fallocate(h, P, fd, 0, 0, 8192)) == 0);
	CHECK(result_of(h, guasi__fstat(h, P, fd, &plain)) == 0 && plain.st_size == 8192);
	CHECK(result_of(h, guasi__statx(h, P, dir, "file", 0, STATX_SIZE, &extended)) == 0);
	CHECK(extended.stx_size == 8192);
	copy = (int) result_of(h, guasi__openat(h, P, dir, "copy", O_RDWR | O_CREAT, 0600));
	CHECK(result_of(h, guasi__sendfile(h, P, copy, fd, &offset, 10)) == 10 && offset == 12);
	CHECK(result_of(h, guasi__pread(h, P, copy, buffer, 100, 0)) == 10 && memcmp(buffer, "ynchronous", 10) == 0);
	CHECK(result_of(h, guasi__close(h, P, copy)) == 0);
	CHECK(result_of(h, guasi__close(h, P, copy)) == -1 && errno == EBADF);
	CHECK(result_of(h, guasi__mkdirat(h, P, dir, "below", 0700)) == 0);
	CHECK(result_of(h, guasi__mkdirat(h, P, dir, "below", 0700)) == -1 && errno == EEXIST);
	CHECK(result_of(h, guasi__renameat2(h, P, dir, "copy", dir, "renamed", 0)) == 0);
	CHECK(result_of(h, guasi__renameat2(h, P, dir, "renamed", dir, "file", 1)) == -1 && errno == EEXIST);
	CHECK(result_of(h, guasi__stat(h, P, here, &plain)) == 0 && S_ISDIR(plain.st_mode));

	listing = (DIR *) result_of(h, guasi__opendir(h, P, here));
	CHECK(listing != NULL);
	while (result_of(h, guasi__readdir(h, P, listing)) != 0)
		entries++;
	CHECK(entries == 5); /* . .. below file renamed */
	CHECK(closedir(listing) == 0);
	entries = 0;
	for (guasi_param_t n; (n = result_of(h, guasi__getdents(h, P, dir, buffer, sizeof(buffer)))) > 0;)
		for (at = 0; at < (size_t) n; entries++)
			at += ((struct entry *) (buffer + at))->length;
	CHECK(entries == 5);

	CHECK(result_of(h, guasi__unlinkat(h, P, dir, "file", 0)) == 0);
	CHECK(result_of(h, guasi__unlinkat(h, P, dir, "renamed", 0)) == 0);
	CHECK(result_of(h, guasi__unlinkat(h, P, dir, "below", AT_REMOVEDIR)) == 0);
	CHECK(close(fd) == 0 && close(dir) == 0 && rmdir(here) == 0);
}

static void pipes(guasi_t h)
{
	char buffer[10];
	int ends[2];
	guasi_req_t reading;
	struct guasi_reqinfo info;

	CHECK(pipe(ends) == 0);
	reading = guasi__read(h, P, ends[0], buffer, 10);
	CHECK(reading != NULL && guasi_fetch(h, &reading, 0, 1, 0) == 0);
	CHECK(write(ends[1], "late", 4) == 4);
	info = finish(h, reading);
	CHECK(info.status == GUASI_STATUS_COMPLETE && info.result == 4 && memcmp(buffer, "late", 4) == 0);
	CHECK(info.priv == (void *) 11 && info.asid == (void *) 22 && info.error == 0);
	CHECK(result_of(h, guasi__pread(h, P, ends[0], buffer, 10, 0)) == -1 && errno == ESPIPE);
	close(ends[0]);
	signal(SIGPIPE, SIG_IGN);
	CHECK(result_of(h, guasi__write(h, P, ends[1], "x", 1)) == -1 && errno == EPIPE);
	close(ends[1]);
}

static void sockets(guasi_t h, int extra)
{
	int listener, client, server, pair[2];
	struct sockaddr_in address, peer;
	socklen_t length = sizeof(address);
	char buffer[100];
	static char large[1 << 20];
	guasi_req_t accepting, fetched[2];
	struct guasi_reqinfo info;

	memset(&address, 0, sizeof(address));
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | extra, 0);
	CHECK(bind(listener, (struct sockaddr *) &address, sizeof(address)) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *) &address, &length) == 0);
	length = sizeof(peer);
	CHECK(result_of(h, guasi__accept(h, P, listener, (struct sockaddr *) &peer, &length, 20)) == -1);
	CHECK(errno == ETIMEDOUT);

	accepting = guasi__accept(h, (void *) 1, NULL, 0, listener, (struct sockaddr *) &peer, &length, -1);
	client = socket(AF_INET, SOCK_STREAM | extra, 0);
	CHECK(accepting != NULL);
	CHECK(guasi__connect(h, (void *) 2, NULL, 0, client, (struct sockaddr *) &address, sizeof(address), 60000) != NULL);
	CHECK(guasi_fetch(h, fetched, 2, 2, -1) == 2);
	server = -1;
	for (int i = 0; i < 2; i++) {
		CHECK(guasi_req_info(fetched[i], &info) == 0);
		CHECK(info.status == GUASI_STATUS_COMPLETE && info.result >= 0);
		if (info.priv == (void *) 1)
			server = (int) info.result;
		else
			CHECK(info.result == 0);
		guasi_req_free(fetched[i]);
	}
	CHECK(server >= 0 && peer.sin_family == AF_INET);

	CHECK(result_of(h, guasi__recv(h, P, client, buffer, 100, 0, 10)) == -1 && errno == ETIMEDOUT);
	CHECK(result_of(h, guasi__send(h, P, server, "hello", 5, 0, -1)) == 5);
	CHECK(result_of(h, guasi__recv(h, P, client, buffer, 100, MSG_PEEK, -1)) == 5);
	CHECK(result_of(h, guasi__recv(h, P, client, buffer, 100, 0, 0)) == 5 && memcmp(buffer, "hello", 5) == 0);
	/* A peer that does not read: the send runs into its limit, or returns what it could send. */
	for (;;) {
		guasi_param_t sent = result_of(h, guasi__send(h, P, server, large, sizeof(large), 0, 20));

		if (sent < 0) {
			CHECK(errno == ETIMEDOUT);
			break;
		}
	}
	close(client);
	close(server);
	close(listener);
	/* A port that is taken, so that nobody else listens there, and at which nobody listens. */
	listener = socket(AF_INET, SOCK_STREAM | extra, 0);
	address.sin_port = 0;
	length = sizeof(address);
	CHECK(bind(listener, (struct sockaddr *) &address, sizeof(address)) == 0);
	CHECK(getsockname(listener, (struct sockaddr *) &address, &length) == 0);
	client = socket(AF_INET, SOCK_STREAM | extra, 0);
	CHECK(result_of(h, guasi__connect(h, P, client, (struct sockaddr *) &address, sizeof(address), 60000)) == -1);
	CHECK(errno == ECONNREFUSED);
	close(client);
	close(listener);

	/* Datagrams carry addresses. */
	pair[0] = socket(AF_INET, SOCK_DGRAM | extra, 0);
	pair[1] = socket(AF_INET, SOCK_DGRAM | extra, 0);
	address.sin_port = 0;
	CHECK(bind(pair[0], (struct sockaddr *) &address, sizeof(address)) == 0);
	length = sizeof(address);
	CHECK(getsockname(pair[0], (struct sockaddr *) &address, &length) == 0);
	length = sizeof(peer);
	memset(&peer, 0, sizeof(peer));
	CHECK(result_of(h, guasi__sendto(h, P, pair[1], "datagram", 8, 0, (struct sockaddr *) &address, sizeof(address),
					 60000)) == 8);
	CHECK(result_of(h, guasi__recvfrom(h, P, pair[0], buffer, 100, 0, (struct sockaddr *) &peer, &length, 60000)) == 8);
	CHECK(length == sizeof(peer) && peer.sin_family == AF_INET && peer.sin_port != 0);
	CHECK(result_of(h, guasi__recvfrom(h, P, pair[0], buffer, 100, 0, (struct sockaddr *) &peer, &length, 0)) == -1);
	CHECK(errno == ETIMEDOUT);
	close(pair[0]);
	close(pair[1]);
}

static guasi_param_t sum(void *priv, guasi_param_t const *params)
{
	guasi_param_t total = 0;

	for (int i = 0; i < (int) (intptr_t) priv; i++)
		total = total * 3 + params[i];
	errno = 77;
	return total;
}

static int cleanups;
static void count_cleanup(void *priv, guasi_param_t const *params)
{
	(void) priv;
	__atomic_add_fetch(&cleanups, (int) params[0], __ATOMIC_SEQ_CST);
}

static guasi_param_t until_written(void *priv, guasi_param_t const *params)
{
	char byte;

	(void) priv;
	return read((int) params[0], &byte, 1);
}

static void functions(guasi_t h)
{
	struct guasi_reqinfo info;
	guasi_param_t params[16], expected = 0;

	for (int i = 0; i < 16; i++) {
		params[i] = i + 1;
		expected = expected * 3 + i + 1;
	}
	info = finish(h, guasi_submit(h, (void *) 16, (void *) 5, 0, sum, count_cleanup, 16, params[0], params[1],
				      params[2], params[3], params[4], params[5], params[6], params[7], params[8],
				      params[9], params[10], params[11], params[12], params[13], params[14],
				      params[15]));
	CHECK(info.status == GUASI_STATUS_COMPLETE && info.result == expected && info.error == 77);
	CHECK(info.priv == (void *) 16 && info.asid == (void *) 5);
	CHECK(__atomic_load_n(&cleanups, __ATOMIC_SEQ_CST) == 1);
	CHECK(result_of(h, guasi_submitv(h, (void *) 16, NULL, 0, sum, NULL, 16, params)) == expected);
	CHECK(result_of(h, guasi_submit(h, (void *) 0, NULL, 0, sum, NULL, 0)) == 0);
	/* Negative numbers of parameters count as 0. */
	CHECK(result_of(h, guasi_submit(h, (void *) 0, NULL, 0, sum, NULL, -1)) == 0);
	CHECK(result_of(h, guasi_submitv(h, (void *) 0, NULL, 0, sum, NULL, INT_MIN, NULL)) == 0);
	CHECK(guasi_submit(h, NULL, NULL, 0, sum, NULL, 17) == NULL && errno == EINVAL);
	CHECK(guasi_submit(h, NULL, NULL, 0, sum, NULL, INT_MAX) == NULL && errno == EINVAL);
	CHECK(guasi_submit(h, NULL, NULL, 2, sum, NULL, 0) == NULL && errno == EINVAL);
	CHECK(guasi_submit(h, NULL, NULL, -1, sum, NULL, 0) == NULL && errno == EINVAL);
	CHECK(guasi_submit(h, NULL, NULL, 0, NULL, NULL, 0) == NULL && errno == EINVAL);
	CHECK(guasi_submit(NULL, NULL, NULL, 0, sum, NULL, 0) == NULL && errno == EINVAL);
}

/* One worker: the second request stays pending while the first is active. */
static void cancelling(unsigned flags)
{
	int ends[2], cleaned = cleanups;
	guasi_t h = guasi_create_flags(0, 1, 2, flags);
	guasi_req_t active, pending, urgent, fetched[3];
	struct guasi_reqinfo info;
	struct guasi_stats stats;
	char buffer[1];

	CHECK(h != NULL && pipe(ends) == 0);
	active = guasi_submit(h, NULL, NULL, 1, until_written, count_cleanup, 2, (guasi_param_t) ends[0]);
	do
		CHECK(guasi_req_info(active, &info) == 0);
	while (info.status == GUASI_STATUS_PENDING);
	CHECK(info.status == GUASI_STATUS_ACTIVE);
	pending = guasi_submit(h, NULL, (void *) 1, 1, until_written, count_cleanup, 1, (guasi_param_t) 1);
	CHECK(guasi_req_info(pending, &info) == 0 && info.status == GUASI_STATUS_PENDING);
	CHECK(info.result == -1 && info.error == -1); /* as GUASI 0.25 */
	CHECK(guasi_req_cancel(pending) == GUASI_STATUS_CANCELED);
	CHECK(__atomic_load_n(&cleanups, __ATOMIC_SEQ_CST) == cleaned + 1);
	CHECK(guasi_req_cancel(pending) == GUASI_STATUS_CANCELED);
	CHECK(guasi_fetch(h, fetched, 1, 3, -1) == 1 && fetched[0] == pending);
	CHECK(guasi_req_info(pending, &info) == 0 && info.status == GUASI_STATUS_CANCELED);
	CHECK(info.result == -1 && info.error == ECANCELED);
	guasi_req_free(pending);

	CHECK(guasi_req_cancel(active) >= GUASI_STATUS_ACTIVE); /* COMPLETE if it is quick */
	CHECK(guasi_fetch(h, fetched, 1, 3, -1) == 1 && fetched[0] == active);
	CHECK(guasi_req_info(active, &info) == 0);
	CHECK(info.status == GUASI_STATUS_COMPLETE && info.result == -1 && info.error == EINTR);
	guasi_req_free(active);
	CHECK(guasi_get_stats(h, &stats, sizeof(stats)) == 0);
	CHECK(stats.signal >= SIGRTMIN && stats.signal != SIGUSR1 && stats.canceled == 1);

	/* A read of a pipe is broken off in the ring as well as in the pool. */
	active = guasi__read(h, NULL, NULL, 0, ends[0], buffer, 1);
	guasi_flush(h);
	do
		CHECK(guasi_req_info(active, &info) == 0);
	while (info.status == GUASI_STATUS_PENDING);
	CHECK(guasi_req_cancel(active) >= GUASI_STATUS_ACTIVE); /* COMPLETE if it is quick */
	info = finish(h, active);
	CHECK(info.status == GUASI_STATUS_COMPLETE && info.result == -1 && info.error == EINTR);

	/* Results: the urgent first. */
	pending = guasi_submit(h, (void *) 0, NULL, 1, sum, NULL, 0);
	while (guasi_req_info(pending, &info) == 0 && info.status != GUASI_STATUS_COMPLETE)
		;
	urgent = guasi_submit(h, (void *) 0, NULL, 0, sum, NULL, 0);
	while (guasi_req_info(urgent, &info) == 0 && info.status != GUASI_STATUS_COMPLETE)
		;
	CHECK(guasi_fetch(h, fetched, 2, 3, -1) == 2 && fetched[0] == urgent && fetched[1] == pending);
	guasi_req_free(urgent);
	/* A request that has been fetched may outlive its context. */
	guasi_free(h);
	CHECK(guasi_req_cancel(pending) == GUASI_STATUS_COMPLETE);
	guasi_req_free(pending);
	close(ends[0]);
	close(ends[1]);
}

static void waiting(guasi_t h)
{
	guasi_req_t request, fetched;
	int ends[2], fd = guasi_fd(h);
	char buffer[1];
	struct pollfd ready = {fd, POLLIN, 0};

	CHECK(fd >= 0 && guasi_fd(h) == fd && pipe(ends) == 0);
	CHECK(guasi_fetch(h, &fetched, 0, 1, -1) == 0);
	CHECK(guasi_fetch(h, &fetched, 1, 1, 1) == 0);
	CHECK(guasi_fetch(h, NULL, 0, 1, 0) == -1 && errno == EINVAL);
	CHECK(guasi_fetch(h, &fetched, 0, -1, 0) == 0); /* as GUASI 0.25 */
	CHECK(guasi_fetch(h, &fetched, -1, 1, -1) == 0);
	/* Readable means that there may be results: a fetch that finds none makes it unreadable. */
	while (poll(&ready, 1, 0) == 1)
		CHECK(guasi_fetch(h, &fetched, 0, 1, 0) == 0);
	request = guasi__read(h, P, ends[0], buffer, 1);
	CHECK(guasi_flush(h) == 0);
	CHECK(write(ends[1], "x", 1) == 1);
	CHECK(poll(&ready, 1, -1) == 1);
	CHECK(finish(h, request).result == 1);
	request = guasi_submit(h, P, sum, NULL, 0);
	(void) request;
	CHECK(poll(&ready, 1, -1) == 1);
	CHECK(guasi_fetch(h, &fetched, 1, -1) == 1); /* the form of 2007 */
	guasi_req_free(fetched);
	CHECK(guasi_fetch(h, &fetched, 0, 1, 0) == 0);
	close(ends[0]);
	close(ends[1]);
}

int main(int argc, char **argv)
{
	unsigned flags = FLAGS_FROM_ARGUMENTS(argc, argv);
	guasi_t h;
	struct guasi_stats stats;

	CHECK(guasi_create(-1, 0, 1) == NULL && errno == EINVAL);
	CHECK(guasi_create(0, -1, 1) == NULL && errno == EINVAL);
	CHECK(guasi_create(0, 0, 0) == NULL && errno == EINVAL);
	CHECK(guasi_create_flags(0, 0, 1, 1u << 31) == NULL && errno == EINVAL);
	guasi_free(NULL);
	h = guasi_create(0, 0, 1);
	CHECK(h != NULL);
	guasi_free(h);

	h = guasi_create_flags(0, 4, 2, flags);
	CHECK(h != NULL);
	functions(h);
	files(h);
	pipes(h);
	sockets(h, 0);
	sockets(h, SOCK_NONBLOCK);
	waiting(h);
	CHECK(guasi_get_stats(h, &stats, sizeof(stats)) == 0);
	CHECK(stats.submitted == stats.finished && stats.queued == 0 && stats.threads_peak <= 4);
	CHECK(stats.backend == GUASI_BACKEND_RING ? stats.ring_requests > 0 && stats.ring_error == 0
						  : stats.ring_requests == 0 && stats.ring_error != 0);
	guasi_free(h);
	cancelling(flags);
	printf("%s\n", stats.backend == GUASI_BACKEND_RING ? "ring" : "pool");
	return 0;
}
