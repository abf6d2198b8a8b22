/* Ways to send the data of reads over TCP: bytes a second, and processor time of the sender for each piece.
 *
 *     cc -O2 -pthread -o sends bench/sends.c && ./sends WAY BYTES MILLISECONDS [ADDRESS NETNS]
 *
 * One thread sends pieces of BYTES bytes behind headers of 24, as a target answers reads; another one takes them in as
 * an initiator does. They run on the first two processors, and look again instead of sleeping. The receiver enters the network namespace NETNS (a path) if
 * there is one. Prints: GB a second, microseconds of the sender's processor time for each piece. bench/sends.py runs all
 * ways in turns. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 24, MOST = 1 << 20, POOL = 64 << 20, CHUNK = 256 << 10 };

static struct sockaddr_in place = {.sin_family = AF_INET};
static const char *netns;

static void check(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static void on_processor(int number) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(number, &set);
    check(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void *receive(void *unused) {
    (void)unused;
    on_processor(1);
    if (netns) {
        int space = open(netns, O_RDONLY | O_CLOEXEC);
        check(space >= 0 && setns(space, CLONE_NEWNET) == 0, "setns");
    }
    int link = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(link, (struct sockaddr *)&place, sizeof place) == 0, "connect");
    char *room = malloc(CHUNK);
    ssize_t got;
    do {
        got = recv(link, room, CHUNK, MSG_DONTWAIT);
    } while (got > 0 || (got < 0 && errno == EAGAIN));
    close(link);
    return room;
}

/* A file of zeros in memory: `is_hole` tells that nobody has written it. */
static int file_of(size_t bytes, int is_hole) {
    int file = memfd_create("sends", MFD_CLOEXEC);
    check(file >= 0 && ftruncate(file, bytes) == 0, "memfd_create");
    for (size_t at = 0; at < bytes && !is_hole; at += 4096) {
        static const char page[4096];
        check(pwrite(file, page, sizeof page, at) == sizeof page, "pwrite");
    }
    return file;
}

/* Looks until the socket takes bytes again, without the lock of the socket: a send that fails would hold it. */
static void until_there_is_room(int link) {
    struct pollfd event = {.fd = link, .events = POLLOUT};
    while (poll(&event, 1, 0) == 0) {
    }
}

/* Sends all pieces, and returns the number of calls that have sent something. */
static uint32_t send_all(int link, struct iovec *pieces, int count, int flags) {
    uint32_t calls = 0;
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
    for (;;) {
        ssize_t sent = sendmsg(link, &message, MSG_NOSIGNAL | MSG_DONTWAIT | flags);
        if (sent < 0 && (errno == ENOBUFS || errno == EAGAIN)) {
            until_there_is_room(link);
            continue;
        }
        check(sent >= 0, "sendmsg");
        calls++;
        while (message.msg_iovlen > 0 && (size_t)sent >= message.msg_iov->iov_len) {
            sent -= message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen == 0) {
            return calls;
        }
        message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
        message.msg_iov->iov_len -= sent;
    }
}

/* Takes notices of MSG_ZEROCOPY until at most `left` calls are under way: the kernel numbers calls. */
static void reap(int link, uint32_t *done, uint32_t begun, uint32_t left) {
    while (begun - *done > left) {
        char room[128];
        struct msghdr notice = {.msg_control = room, .msg_controllen = sizeof room};
        if (recvmsg(link, &notice, MSG_ERRQUEUE) < 0) {
            check(errno == EAGAIN, "recvmsg");
            struct pollfd event = {.fd = link};
            poll(&event, 1, 10);
            continue;
        }
        struct cmsghdr *first = CMSG_FIRSTHDR(&notice);
        if (first) {
            uint32_t upto; /* struct sock_extended_err: ee_data, the last number that has ended */
            memcpy(&upto, CMSG_DATA(first) + 12, sizeof upto);
            *done = upto + 1;
        }
    }
}

int main(int count, char **arguments) {
    if (count < 4) {
        fprintf(stderr, "usage: sends WAY BYTES MILLISECONDS [ADDRESS NETNS]\n");
        return 2;
    }
    const char *way = arguments[1];
    size_t bytes = strtoul(arguments[2], NULL, 0);
    double lasts = atof(arguments[3]) / 1e3;
    netns = count > 5 ? arguments[5] : NULL;
    if (bytes < 4096 || bytes > MOST || bytes % 4096) {
        fprintf(stderr, "BYTES is a multiple of 4096, 1 MiB at most\n");
        return 2;
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    place.sin_addr.s_addr = inet_addr(count > 4 ? arguments[4] : "127.0.0.1");
    socklen_t size = sizeof place;
    check(bind(listener, (struct sockaddr *)&place, sizeof place) == 0 && listen(listener, 1) == 0, "listen");
    check(getsockname(listener, (struct sockaddr *)&place, &size) == 0, "getsockname");
    pthread_t receiver;
    check(pthread_create(&receiver, NULL, receive, NULL) == 0, "pthread_create");
    on_processor(0);
    int link = accept(listener, NULL, NULL), on = 1;
    /* As the target's: the half of what the kernel then allows. */
    int room = 256 << 10;
    check(link >= 0 && setsockopt(link, SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0, "accept");
    check(fcntl(link, F_SETFL, O_NONBLOCK) == 0 && setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "accept");

    /* `page`: one page of zeros again and again. `zeros`: memory that nobody wrote. `file-zeros`: zeros of a file, a page
     * of memory each. `buffer`: one buffer. `memory`: buffers of 64 MiB in turn. */
    int is_zero_copy = strcmp(way, "zerocopy") == 0 || strcmp(way, "zerocopy-memory") == 0;
    int is_hole = strcmp(way, "sendfile-hole") == 0;
    int is_sendfile = is_hole || strcmp(way, "sendfile") == 0 || strcmp(way, "sendfile-files") == 0;
    int is_file = strcmp(way, "read") == 0 || strcmp(way, "sendfile-files") == 0;
    int walks = strcmp(way, "memory") == 0 || strcmp(way, "zerocopy-memory") == 0 || is_file;
    int is_page = strcmp(way, "page") == 0;
    int is_file_zeros = strcmp(way, "file-zeros") == 0;
    if (!is_zero_copy && !is_sendfile && !walks && !is_page && !is_file_zeros && strcmp(way, "zeros") != 0 &&
        strcmp(way, "buffer") != 0) {
        fprintf(stderr, "WAY: page, zeros, file-zeros, buffer, memory, sendfile, sendfile-hole, zerocopy, "
                        "zerocopy-memory, read or sendfile-files\n");
        return 2;
    }
    size_t span = walks ? POOL : MOST;
    int file = is_sendfile || is_file || is_file_zeros ? file_of(span, is_hole) : -1;
    char *memory = is_file_zeros ? mmap(NULL, span, PROT_READ, MAP_SHARED, file, 0)
                                 : mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(memory != MAP_FAILED, "mmap");
    if (strcmp(way, "buffer") == 0 || is_zero_copy || walks) {
        memset(memory, 1, span);
    }
    if (is_zero_copy) {
        check(setsockopt(link, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0, "SO_ZEROCOPY");
    }
    char header[HEADER] = {0};
    static struct iovec pieces[1 + MOST / 4096];
    uint32_t done = 0, begun = 0;
    uint64_t sent = 0;
    size_t at = 0;
    double began = seconds(CLOCK_MONOTONIC), took = seconds(CLOCK_THREAD_CPUTIME_ID);
    while (seconds(CLOCK_MONOTONIC) - began < lasts) {
        pieces[0] = (struct iovec){header, HEADER};
        if (is_sendfile) {
            send_all(link, pieces, 1, MSG_MORE);
            off_t from = at;
            for (size_t left = bytes; left > 0;) {
                ssize_t moved = sendfile(link, file, &from, left);
                check(moved > 0 || errno == EAGAIN, "sendfile");
                left -= moved > 0 ? moved : 0;
                if (moved < 0) {
                    until_there_is_room(link);
                }
            }
        } else if (is_page) {
            for (size_t page = 0; page < bytes / 4096; page++) {
                pieces[1 + page] = (struct iovec){memory, 4096};
            }
            send_all(link, pieces, 1 + bytes / 4096, 0);
        } else {
            if (strcmp(way, "read") == 0) {
                check(pread(file, memory, bytes, at) == (ssize_t)bytes, "pread");
            }
            pieces[1] = (struct iovec){memory + (is_file ? 0 : at), bytes};
            begun += send_all(link, pieces, 2, is_zero_copy ? MSG_ZEROCOPY : 0);
            if (is_zero_copy) {
                reap(link, &done, begun, 32);
            }
        }
        sent++;
        at = walks && at + 2 * bytes <= span ? at + bytes : 0;
    }
    if (is_zero_copy) {
        reap(link, &done, begun, 0);
    }
    took = seconds(CLOCK_THREAD_CPUTIME_ID) - took;
    began = seconds(CLOCK_MONOTONIC) - began;
    shutdown(link, SHUT_WR);
    pthread_join(receiver, NULL);
    printf("%.3f %.3f\n", sent * bytes / began / 1e9, took * 1e6 / sent);
    return 0;
}
