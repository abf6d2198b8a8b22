/* The checks that all tests in C and C++ share. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "guasi.h"
#include "guasi_syscalls.h"

#define CHECK(condition)                                                                                              \
	do {                                                                                                          \
		if (!(condition)) {                                                                                   \
			fprintf(stderr, "%s:%d: failed: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno,   \
				strerror(errno));                                                                     \
			abort();                                                                                      \
		}                                                                                                     \
	} while (0)

/* Waits for the one request that is outstanding. */
static inline struct guasi_reqinfo finish(guasi_t hctx, guasi_req_t request)
{
	guasi_req_t fetched = NULL;
	struct guasi_reqinfo info;

	CHECK(request != NULL);
	CHECK(guasi_fetch(hctx, &fetched, 1, 1, -1) == 1);
	CHECK(fetched == request);
	CHECK(guasi_req_info(fetched, &info) == 0);
	guasi_req_free(fetched);
	return info;
}

/* The result of a call that must succeed, with its errno left as errno if it did not. */
static inline guasi_param_t result_of(guasi_t hctx, guasi_req_t request)
{
	struct guasi_reqinfo info = finish(hctx, request);

	CHECK(info.status == GUASI_STATUS_COMPLETE);
	errno = (int) info.error;
	return info.result;
}

#define FLAGS_FROM_ARGUMENTS(argc, argv) ((argc) > 1 ? (unsigned) atoi((argv)[1]) : 0u)

#endif
