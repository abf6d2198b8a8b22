/*
 * The price of a cache line that two processors share, beside that of one of their own (docs/scale.md).
 *     cc -O2 -o /tmp/lines bench/lines.c -lpthread && /tmp/lines
 * Two threads on processors 0 and 1 do the same thing to one line, or each to a line of its own; the median of nine
 * rounds. On a busy machine the threads run one after the other and share nothing: the figures mean something only
 * where both processors are idle.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 9
#define TIMES 2000000L

enum { ADD, STORE, LOAD_BESIDE_STORES };

static struct {
	_Alignas(128) atomic_ulong word;
} lines[2];
static pthread_barrier_t start;
static int kind, shared;

static double run_as(int me)
{
	atomic_ulong *word = &lines[shared ? 0 : me].word;
	struct timespec before, after;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(me, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		exit(1);
	pthread_barrier_wait(&start);
	clock_gettime(CLOCK_MONOTONIC, &before);
	for (long i = 0; i < TIMES; i++) {
		if (kind == ADD)
			atomic_fetch_add_explicit(word, 1, memory_order_relaxed);
		else if (kind == STORE || me == 1)
			atomic_store_explicit(word, i, memory_order_relaxed);
		else
			(void) atomic_load_explicit(word, memory_order_relaxed);
	}
	clock_gettime(CLOCK_MONOTONIC, &after);
	return ((after.tv_sec - before.tv_sec) * 1e9 + (after.tv_nsec - before.tv_nsec)) / TIMES;
}

static void *other(void *unused)
{
	(void) unused;
	run_as(1);
	return NULL;
}

static int ascending(const void *a, const void *b)
{
	return (*(const double *) a > *(const double *) b) - (*(const double *) a < *(const double *) b);
}

static double median(int what, int share)
{
	double took[ROUNDS];

	kind = what;
	shared = share;
	for (int i = 0; i < ROUNDS; i++) {
		pthread_t thread;

		pthread_barrier_init(&start, NULL, 2);
		pthread_create(&thread, NULL, other, NULL);
		took[i] = run_as(0);
		pthread_join(thread, NULL);
	}
	qsort(took, ROUNDS, sizeof(took[0]), ascending);
	return took[ROUNDS / 2];
}

int main(void)
{
	printf("locked add:               own line %5.1f ns, shared line %5.1f ns\n", median(ADD, 0), median(ADD, 1));
	printf("store:                    own line %5.1f ns, shared line %5.1f ns\n", median(STORE, 0), median(STORE, 1));
	printf("load beside the stores:   own line %5.1f ns, shared line %5.1f ns\n", median(LOAD_BESIDE_STORES, 0),
	       median(LOAD_BESIDE_STORES, 1));
	return 0;
}
