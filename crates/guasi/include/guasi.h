/*
 * guasi(3): makes any call asynchronous.
 *
 * The interface of GUASI 0.25, and what libguasi of Plimsoll adds to it.
 */
#ifndef _GUASI_H
#define _GUASI_H

#include <inttypes.h>
#include <stddef.h>

#ifdef __cplusplus
#define GEXTC extern "C"
#else
#define GEXTC
#endif
#define GAPI GEXTC

#define GUASI_MAX_PARAMS 16

#define GUASI_STATUS_CANCELED 0
#define GUASI_STATUS_PENDING 1
#define GUASI_STATUS_ACTIVE 2
#define GUASI_STATUS_COMPLETE 3

typedef intptr_t guasi_param_t;
typedef guasi_param_t (*guasi_syscall_t)(void *, guasi_param_t const *);
typedef void (*guasi_cleanup_t)(void *, guasi_param_t const *);

typedef struct s_guasi *guasi_t;
typedef struct s_guasi_req *guasi_req_t;

struct guasi_reqinfo {
	void *priv;
	void *asid;
	guasi_param_t result;
	long error;
	int status;
};

/* The interface of GUASI 0.25. */

GAPI guasi_t guasi_create(int min_threads, int max_threads, int max_priority);
GAPI void guasi_free(guasi_t hctx);
GAPI guasi_req_t guasi_submit(guasi_t hctx, void *priv, void *asid, int prio, guasi_syscall_t proc,
			      guasi_cleanup_t free, int nparams, ...);
GAPI int guasi_fetch(guasi_t hctx, guasi_req_t *reqs, int minreqs, int maxreqs, long timeo);
GAPI int guasi_req_cancel(guasi_req_t hreq);
GAPI int guasi_req_info(guasi_req_t hreq, struct guasi_reqinfo *rinf);
GAPI void guasi_req_free(guasi_req_t hreq);

/*
 * The form of guasi_fetch before 0.24, without minreqs, as the fio patch of 2007 calls it: waits for one result.
 * A macro tells the two apart by the number of arguments; define GUASI_NO_COMPAT to do without it.
 */
#if !defined(GUASI_NO_COMPAT) && (!defined(__cplusplus) || __cplusplus >= 201103L || defined(__GNUC__))
#define guasi_fetch(...) GUASI_PICK_FETCH_(__VA_ARGS__, GUASI_FETCH_5_, GUASI_FETCH_4_, ~)(__VA_ARGS__)
#define GUASI_PICK_FETCH_(a, b, c, d, e, picked, ...) picked
#define GUASI_FETCH_5_(hctx, reqs, minreqs, maxreqs, timeo) (guasi_fetch)(hctx, reqs, minreqs, maxreqs, timeo)
#define GUASI_FETCH_4_(hctx, reqs, maxreqs, timeo) (guasi_fetch)(hctx, reqs, 1, maxreqs, timeo)
#endif

/* Beyond GUASI 0.25. */

/* Only one thread uses the context; it drives the ring inside its calls (guasi_flush, guasi_fetch). */
#define GUASI_ONE_THREAD 1u
/* Do without io_uring. */
#define GUASI_NO_RING 2u

#define GUASI_BACKEND_UNUSED 0
#define GUASI_BACKEND_RING 1
#define GUASI_BACKEND_POOL 2

struct guasi_stats {
	uint32_t backend;	/* GUASI_BACKEND_*: what carries reads and writes out */
	int32_t ring_error;	/* errno of io_uring_setup(2) if there is no ring */
	int32_t signal;		/* the signal that breaks calls off, once installed */
	uint32_t threads;	/* workers alive */
	uint32_t threads_idle;	/* workers alive and parked */
	uint32_t threads_peak;	/* the most workers at a time */
	uint64_t submitted;	/* requests submitted */
	uint64_t finished;	/* requests ended, the cancelled ones included */
	uint64_t canceled;	/* requests cancelled before they began */
	uint64_t ring_requests;	/* requests given to the ring */
	uint64_t pool_requests;	/* requests given to the pool */
	uint64_t ring_enters;	/* calls of io_uring_enter(2) */
	uint64_t queued;	/* requests that wait for a worker or a place in the ring */
};

GAPI guasi_t guasi_create_flags(int min_threads, int max_threads, int max_priority, unsigned int flags);
GAPI guasi_req_t guasi_submitv(guasi_t hctx, void *priv, void *asid, int prio, guasi_syscall_t proc,
			       guasi_cleanup_t free, int nparams, guasi_param_t const *params);
GAPI int guasi_flush(guasi_t hctx);
GAPI int guasi_fd(guasi_t hctx);
GAPI int guasi_get_stats(guasi_t hctx, struct guasi_stats *stats, size_t size);

#endif
