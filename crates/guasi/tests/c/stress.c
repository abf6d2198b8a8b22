/*
 * Many submitters, fetchers and cancellers, callbacks that submit, signals: no completion is lost or doubled, every
 * cleanup is called once, and nothing leaks. Arguments: flags, requests.
 */
#include "check.h"
#include <malloc.h>

#define SUBMITTERS 3
#define FETCHERS 2

struct item {
	int fetched, cleaned, ran, nested;
};

static guasi_t h;
static struct item *items;
static long total, done;
static int data_fd;
static int signals_seen;

static void on_signal(int signal)
{
	(void) signal;
	__atomic_store_n(&signals_seen, 1, __ATOMIC_RELAXED);
}

static void clean(void *priv, guasi_param_t const *params)
{
	(void) params;
	__atomic_add_fetch(&((struct item *) priv)->cleaned, 1, __ATOMIC_RELAXED);
}

static guasi_param_t work(void *priv, guasi_param_t const *params)
{
	struct item *item = (struct item *) priv;

	item->ran++; /* plain on purpose: the sanitizer sees whether the hand-over orders it */
	if (params[0] >= 0) {
		/* A callback that submits: the next item, which has no other submitter. */
		struct item *next = item + 1;

		item->nested = 1;
		while (guasi_submit(h, next, next, 1, work, clean, 1, (guasi_param_t) -1) == NULL)
			CHECK(errno == EAGAIN);
	}
	return params[0];
}

/* Items in fours: a function, one that submits the next, (the next), a read of a file. */
static void *submitter(void *argument)
{
	long part = total / SUBMITTERS, first = (intptr_t) argument * part;
	static __thread char buffers[64][512];
	unsigned seed = (unsigned) first + 1;

	for (long i = first; i + 4 <= first + part; i += 4) {
		guasi_req_t request;
		int slot = (int) (i / 4 % 64);

		items[i].ran = 0;
		request = guasi_submit(h, &items[i], &items[i], 0, work, clean, 1, (guasi_param_t) -1);
		CHECK(request != NULL);
		CHECK(guasi_submit(h, &items[i + 1], &items[i + 1], 1, work, clean, 1, (guasi_param_t) 1) != NULL);
		items[i + 3].cleaned = 1;
		items[i + 3].ran = 1;
		CHECK(guasi__pread(h, &items[i + 3], &items[i + 3], 0, data_fd, buffers[slot], 512,
				   (rand_r(&seed) % 256) * 512) != NULL);
		/* Keeps the queue short enough to stay interesting. */
		while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < i - first - 4096)
			sched_yield();
	}
	return NULL;
}

static void *fetcher(void *argument)
{
	guasi_req_t fetched[32];

	(void) argument;
	while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < total) {
		int n = guasi_fetch(h, fetched, 1, 32, 20);

		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			struct guasi_reqinfo info;
			struct item *item;

			CHECK(guasi_req_info(fetched[i], &info) == 0);
			item = (struct item *) info.asid;
			CHECK(__atomic_add_fetch(&item->fetched, 1, __ATOMIC_RELAXED) == 1);
			CHECK(info.status == GUASI_STATUS_COMPLETE);
			CHECK(item->ran == 1 && info.result != 0);
			guasi_req_free(fetched[i]);
		}
		__atomic_add_fetch(&done, n, __ATOMIC_ACQ_REL);
	}
	return NULL;
}

/* A thread of the program that gets the program's signals. */
static void *annoyer(void *argument)
{
	/* Once at least, even if everything is done before it is run. */
	do {
		kill(getpid(), SIGUSR1);
		pthread_kill(*(pthread_t *) argument, SIGUSR2);
		usleep(500);
	} while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < total);
	return NULL;
}

/* Requests are cancelled by the thread that submits and fetches them, racing with the workers and the ring. */
static void cancel_race(unsigned flags, long rounds)
{
	int ends[2];
	long cancelled = 0, broken_off = 0, completed = 0, round;
	unsigned seed = 1;
	struct item *few = (struct item *) calloc(16, sizeof(*few));
	static char buffers[16][16];

	CHECK(pipe(ends) == 0);
	h = guasi_create_flags(0, 3, 2, flags);
	/* At least this number of rounds, and until every outcome of the race has been seen. */
	for (round = 0; round < rounds || !cancelled || !broken_off || !completed; round++) {
		guasi_req_t requests[16], fetched[16];
		int got = 0;

		memset(few, 0, 16 * sizeof(*few));
		for (int i = 0; i < 16; i++) {
			if (i % 4 == 3)
				requests[i] = guasi__read(h, NULL, &few[i], 0, ends[0], buffers[i], 1);
			else if (i % 4 == 2)
				requests[i] = guasi__pread(h, NULL, &few[i], 0, data_fd, buffers[i], 16, 0);
			else
				requests[i] = guasi_submit(h, &few[i], &few[i], i % 2, work, clean, 1, (guasi_param_t) -1);
			CHECK(requests[i] != NULL);
		}
		guasi_flush(h);
		for (int i = 0; i < 16; i++)
			if (i % 4 == 3 || rand_r(&seed) % 2)
				CHECK(guasi_req_cancel(requests[i]) >= 0);
		while (got < 16) {
			int n = guasi_fetch(h, fetched, 1, 16, -1);

			CHECK(n > 0);
			for (int k = 0; k < n; k++) {
				struct guasi_reqinfo info;
				struct item *item;

				guasi_req_info(fetched[k], &info);
				item = (struct item *) info.asid;
				CHECK(++item->fetched == 1);
				if (info.status == GUASI_STATUS_CANCELED)
					cancelled++;
				else if (info.error == EINTR && info.result == -1 && !item->ran)
					broken_off++;
				else
					completed++;
				if ((item - few) % 4 < 2) {
					CHECK(item->cleaned == 1);
					CHECK(item->ran == (info.status == GUASI_STATUS_COMPLETE));
				}
				guasi_req_free(fetched[k]);
			}
			got += n;
		}
	}
	guasi_free(h);
	CHECK(cancelled + broken_off + completed == 16 * round);
	free(few);
	close(ends[0]);
	close(ends[1]);
}

static void one_round(unsigned flags)
{
	pthread_t submitters[SUBMITTERS], fetchers[FETCHERS], annoying;
	struct guasi_stats stats;

	memset(items, 0, (size_t) total * sizeof(*items));
	done = 0;
	h = guasi_create_flags(1, 8, 2, flags);
	for (long i = 0; i < SUBMITTERS; i++)
		CHECK(pthread_create(&submitters[i], NULL, submitter, (void *) i) == 0);
	for (int i = 0; i < FETCHERS; i++)
		CHECK(pthread_create(&fetchers[i], NULL, fetcher, NULL) == 0);
	CHECK(pthread_create(&annoying, NULL, annoyer, &fetchers[0]) == 0);
	for (int i = 0; i < SUBMITTERS; i++)
		pthread_join(submitters[i], NULL);
	pthread_join(annoying, NULL);
	for (int i = 0; i < FETCHERS; i++)
		pthread_join(fetchers[i], NULL);
	CHECK(guasi_get_stats(h, &stats, sizeof(stats)) == 0);
	CHECK(stats.submitted == (uint64_t) total && stats.finished == stats.submitted);
	guasi_free(h);
	for (long i = 0; i < total; i++)
		CHECK(items[i].fetched == 1 && items[i].cleaned == 1);
}

int main(int argc, char **argv)
{
	unsigned flags = FLAGS_FROM_ARGUMENTS(argc, argv);
	char path[] = "/tmp/guasi-stress-XXXXXX";
	struct sigaction action;
	size_t before;

	total = (argc > 2 ? atol(argv[2]) : 120000) / (4 * SUBMITTERS) * (4 * SUBMITTERS);
	items = (struct item *) calloc((size_t) total, sizeof(*items));
	memset(&action, 0, sizeof(action));
	action.sa_handler = on_signal;
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	data_fd = mkstemp(path);
	unlink(path);
	CHECK(data_fd >= 0 && ftruncate(data_fd, 256 * 512) == 0);

	if (!(flags & GUASI_ONE_THREAD)) {
		/* The second and third round may not need more memory than the first: nothing leaks. The
		 * size of the threads' caches depends on the scheduler; a leak of every request would be tens of megabytes. */
		one_round(flags);
		before = mallinfo2().uordblks;
		one_round(flags);
		one_round(flags);
		CHECK(mallinfo2().uordblks < before + 1024 * 1024);
		CHECK(__atomic_load_n(&signals_seen, __ATOMIC_RELAXED));
	}
	cancel_race(flags, total / 200);
	free(items);
	close(data_fd);
	printf("%ld requests a round\n", total);
	return 0;
}
