/*
 * guasi(3): the calls of POSIX and Linux, made asynchronous.
 *
 * Every function takes the context, priv, asid and prio, then the parameters of the call. Memory to which the parameters
 * point belongs to the library until the request has been fetched.
 */
#ifndef _GUASI_SYSCALLS_H
#define _GUASI_SYSCALLS_H

#include <sys/types.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <stdlib.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <dirent.h>
#include "guasi.h"

/* Offsets do not depend on _FILE_OFFSET_BITS. */
typedef long long goff_t;

/* The interface of GUASI 0.25. */

GAPI guasi_req_t guasi__read(guasi_t hctx, void *priv, void *asid, int prio, int fd, void *buf, size_t size);
GAPI guasi_req_t guasi__write(guasi_t hctx, void *priv, void *asid, int prio, int fd, void const *buf, size_t size);
GAPI guasi_req_t guasi__pread(guasi_t hctx, void *priv, void *asid, int prio, int fd, void *buf, size_t size,
			      goff_t off);
GAPI guasi_req_t guasi__pwrite(guasi_t hctx, void *priv, void *asid, int prio, int fd, void const *buf, size_t size,
			       goff_t off);
GAPI guasi_req_t guasi__sendfile(guasi_t hctx, void *priv, void *asid, int prio, int ofd, int ifd, goff_t *off,
				 size_t cnt);
GAPI guasi_req_t guasi__fsync(guasi_t hctx, void *priv, void *asid, int prio, int fd);

GAPI guasi_req_t guasi__open(guasi_t hctx, void *priv, void *asid, int prio, char const *name, long flags, long mode);
GAPI guasi_req_t guasi__opendir(guasi_t hctx, void *priv, void *asid, int prio, char const *name);
GAPI guasi_req_t guasi__readdir(guasi_t hctx, void *priv, void *asid, int prio, DIR *dir);
GAPI guasi_req_t guasi__stat(guasi_t hctx, void *priv, void *asid, int prio, char const *name, struct stat *sbuf);
GAPI guasi_req_t guasi__fstat(guasi_t hctx, void *priv, void *asid, int prio, int fd, struct stat *sbuf);

/* timeo: milliseconds that the call may take once it has begun, negative without limit; ETIMEDOUT. */
GAPI guasi_req_t guasi__recv(guasi_t hctx, void *priv, void *asid, int prio, int fd, void *buf, size_t size, int flags,
			     long timeo);
GAPI guasi_req_t guasi__recvfrom(guasi_t hctx, void *priv, void *asid, int prio, int fd, void *buf, size_t size,
				 int flags, struct sockaddr *from, socklen_t *fromlen, long timeo);
GAPI guasi_req_t guasi__send(guasi_t hctx, void *priv, void *asid, int prio, int fd, void const *buf, size_t size,
			     int flags, long timeo);
GAPI guasi_req_t guasi__sendto(guasi_t hctx, void *priv, void *asid, int prio, int fd, void const *buf, size_t size,
			       int flags, struct sockaddr const *to, socklen_t tolen, long timeo);
GAPI guasi_req_t guasi__accept(guasi_t hctx, void *priv, void *asid, int prio, int fd, struct sockaddr *addr,
			       socklen_t *addrlen, long timeo);
GAPI guasi_req_t guasi__connect(guasi_t hctx, void *priv, void *asid, int prio, int fd, struct sockaddr const *addr,
				socklen_t addrlen, long timeo);

/* Beyond GUASI 0.25. */

struct statx;

GAPI guasi_req_t guasi__preadv2(guasi_t hctx, void *priv, void *asid, int prio, int fd, struct iovec const *iov,
				int iovcnt, goff_t off, int flags);
GAPI guasi_req_t guasi__pwritev2(guasi_t hctx, void *priv, void *asid, int prio, int fd, struct iovec const *iov,
				 int iovcnt, goff_t off, int flags);
GAPI guasi_req_t guasi__fdatasync(guasi_t hctx, void *priv, void *asid, int prio, int fd);
GAPI guasi_req_t guasi__fallocate(guasi_t hctx, void *priv, void *asid, int prio, int fd, int mode, goff_t off,
				  goff_t len);
GAPI guasi_req_t guasi__openat(guasi_t hctx, void *priv, void *asid, int prio, int dirfd, char const *name, long flags,
			       long mode);
GAPI guasi_req_t guasi__close(guasi_t hctx, void *priv, void *asid, int prio, int fd);
GAPI guasi_req_t guasi__statx(guasi_t hctx, void *priv, void *asid, int prio, int dirfd, char const *name, int flags,
			      unsigned int mask, struct statx *stx);
GAPI guasi_req_t guasi__unlinkat(guasi_t hctx, void *priv, void *asid, int prio, int dirfd, char const *name,
				 int flags);
GAPI guasi_req_t guasi__renameat2(guasi_t hctx, void *priv, void *asid, int prio, int olddirfd, char const *oldname,
				  int newdirfd, char const *newname, unsigned int flags);
GAPI guasi_req_t guasi__mkdirat(guasi_t hctx, void *priv, void *asid, int prio, int dirfd, char const *name,
				mode_t mode);
/* As many entries as fit, as getdents64(2) writes them; the result is their length in bytes, 0 at the end. */
GAPI guasi_req_t guasi__getdents(guasi_t hctx, void *priv, void *asid, int prio, int fd, void *buf, size_t size);

#endif
