/*
 * pthread_cancel of a thread in guasi_fetch: the thread ends, no request is lost, and others go on.
 * Argument: flags of guasi_create_flags.
 */
#include "check.h"
#include <pthread.h>
#include <signal.h>

static int cleanups;

static void count(void *given)
{
	(void) given;
	__atomic_add_fetch(&cleanups, 1, __ATOMIC_SEQ_CST);
}

static void count_and_free(void *given)
{
	count(NULL);
	guasi_free((guasi_t) given);
}

struct wait {
	guasi_t h;
	int min;
	long timeo;
};

static void *fetches(void *given)
{
	struct wait *wait = (struct wait *) given;
	guasi_req_t fetched[8];
	int got;

	pthread_cleanup_push(count, NULL);
	got = guasi_fetch(wait->h, fetched, wait->min, 8, wait->timeo);
	pthread_cleanup_pop(0);
	return (void *) (long) (1000 + got);
}

/* Threads that wait for more than there is are cancelled; what is there stays, and one that waits for it gets it. */
static void cancels(guasi_t h)
{
	struct wait many = {h, 5, -1}, limited = {h, 5, 3600000}, two = {h, 2, -1};
	pthread_t threads[16], one;
	char buffer[8];
	int ends[2];
	void *result;
	guasi_req_t fetched[8], first, second;
	static struct stat status;

	CHECK(pipe(ends) == 0);
	first = guasi__fstat(h, NULL, NULL, 0, ends[0], &status);
	second = guasi__read(h, NULL, NULL, 0, ends[0], buffer, sizeof buffer);
	CHECK(first != NULL && second != NULL);
	for (int i = 0; i < 16; i++)
		CHECK(pthread_create(&threads[i], NULL, fetches, i % 2 ? &many : &limited) == 0);
	CHECK(pthread_create(&one, NULL, fetches, &two) == 0);
	for (int i = 0; i < 16; i++)
		CHECK(pthread_cancel(threads[i]) == 0);
	for (int i = 0; i < 16; i++)
		CHECK(pthread_join(threads[i], &result) == 0 && result == PTHREAD_CANCELED);
	CHECK(cleanups == 16);
	CHECK(write(ends[1], "late", 4) == 4);
	CHECK(pthread_join(one, &result) == 0 && result == (void *) 1002L);
	CHECK(guasi_fetch(h, fetched, 1, 8, 10) == 0);
	guasi_req_free(first);
	guasi_req_free(second);
	close(ends[0]);
	close(ends[1]);
}

/* A thread that is to be cancelled already ends in guasi_fetch, before it waits. */
static void *ends_itself(void *given)
{
	guasi_t h = guasi_create_flags(0, 0, 1, *(unsigned int *) given);
	guasi_req_t fetched;

	CHECK(h != NULL);
	CHECK(pthread_cancel(pthread_self()) == 0);
	guasi_fetch(h, &fetched, 0, 1, -1);     /* does not wait: not a cancellation point */
	pthread_cleanup_push(count_and_free, h);
	guasi_fetch(h, &fetched, 1, 1, -1);
	CHECK(!"reached");
	pthread_cleanup_pop(0);
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned int flags = FLAGS_FROM_ARGUMENTS(argc, argv);
	pthread_t thread;
	void *result;

	if (!(flags & GUASI_ONE_THREAD)) {
		guasi_t h = guasi_create_flags(0, 0, 1, flags);
		CHECK(h != NULL);
		for (int round = 0; round < 20; round++, cleanups = 0)
			cancels(h);
		guasi_free(h);
	}
	cleanups = 0;
	CHECK(pthread_create(&thread, NULL, ends_itself, &flags) == 0);
	CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && cleanups == 1);
	return 0;
}
