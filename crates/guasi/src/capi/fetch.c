/*
 * guasi_fetch. It is in C because it is a cancellation point, as in GUASI 0.25: pthread_cancel(3) of a thread that waits
 * here unwinds the stack, which must not go through functions of Rust. The thread sleeps in sem_wait(3) with no lock
 * held and with no request taken, so that a cancelled fetch leaves everything to others.
 */
#define _GNU_SOURCE
#define GUASI_NO_COMPAT
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include "guasi.h"

#define SLEEPS 1
#define LACKS (-2)

int guasi_internal_how_to_wait(guasi_t hctx, guasi_req_t *reqs, int minreqs, int maxreqs, long timeo);
int guasi_internal_fetch_or_enlist(guasi_t hctx, guasi_req_t *reqs, int minreqs, int maxreqs, sem_t *arrived);
int guasi_internal_fetch(guasi_t hctx, guasi_req_t *reqs, int minreqs, int maxreqs, long timeo);
void guasi_internal_leave(guasi_t hctx, sem_t *arrived);

struct sleeper {
	guasi_t hctx;
	sem_t arrived;
};

static void leave(void *given)
{
	struct sleeper *sleeper = (struct sleeper *) given;

	guasi_internal_leave(sleeper->hctx, &sleeper->arrived);
	sem_destroy(&sleeper->arrived);
}

static struct timespec after(long milliseconds)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += milliseconds / 1000;
	at.tv_nsec += milliseconds % 1000 * 1000000;
	if (at.tv_nsec >= 1000000000) {
		at.tv_sec++;
		at.tv_nsec -= 1000000000;
	}
	return at;
}

int guasi_fetch(guasi_t hctx, guasi_req_t *reqs, int minreqs, int maxreqs, long timeo)
{
	int how = guasi_internal_how_to_wait(hctx, reqs, minreqs, maxreqs, timeo), got, late = 0;
	struct sleeper sleeper;
	struct timespec deadline;

	if (how < 0)
		return -1;
	if (how != SLEEPS) {
		/* A thread that drives the ring waits in the ring: it ends before the wait or after it. */
		if (minreqs > 0 && timeo != 0)
			pthread_testcancel();
		return guasi_internal_fetch(hctx, reqs, minreqs, maxreqs, timeo);
	}
	sleeper.hctx = hctx;
	sem_init(&sleeper.arrived, 0, 0);
	if (timeo > 0)
		deadline = after(timeo);
	pthread_cleanup_push(leave, &sleeper);
	while ((got = guasi_internal_fetch_or_enlist(hctx, reqs, minreqs, maxreqs, &sleeper.arrived)) == LACKS && !late) {
		/* A signal (EINTR) does not end the wait: the loop looks again. */
		if (timeo < 0)
			sem_wait(&sleeper.arrived);
		else
			late = sem_clockwait(&sleeper.arrived, CLOCK_MONOTONIC, &deadline) != 0 && errno == ETIMEDOUT;
	}
	pthread_cleanup_pop(1);
	return got == LACKS ? guasi_internal_fetch(hctx, reqs, 0, maxreqs, 0) : got;
}
