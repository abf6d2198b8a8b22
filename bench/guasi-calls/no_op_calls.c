/*
 * Measures the cost of a call that does nothing: one thread keeps `depth` calls in flight. It fetches the calls that
 * have ended and submits as many again. Argument: guasi or naive.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "guasi.h"
#include "naive_pool.h"

/* A shallow queue takes its time: fewer calls give the same figure. */
static long calls;

static guasi_param_t nothing(void *priv, guasi_param_t const *params)
{
	(void) priv;
	return params[0];
}

static long naive_nothing(long argument)
{
	return argument;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static long with_guasi(guasi_t h, int depth)
{
	guasi_req_t fetched[1024];
	long submitted = 0, done = 0, sum = 0;

	while (done < calls) {
		int n;

		for (; submitted < calls && submitted - done < depth; submitted++)
			if (!guasi_submit(h, NULL, NULL, 0, nothing, NULL, 1, (guasi_param_t) submitted))
				abort();
		n = guasi_fetch(h, fetched, 1, depth, -1);
		for (int i = 0; i < n; i++) {
			struct guasi_reqinfo info;

			guasi_req_info(fetched[i], &info);
			sum += info.result;
			guasi_req_free(fetched[i]);
		}
		done += n;
	}
	return sum;
}

static long with_naive(int depth)
{
	long results[1024], submitted = 0, done = 0, sum = 0;

	while (done < calls) {
		int n;

		for (; submitted < calls && submitted - done < depth; submitted++)
			naive_submit(naive_nothing, submitted);
		n = naive_fetch(results, depth);
		for (int i = 0; i < n; i++)
			sum += results[i];
		done += n;
	}
	return sum;
}

int main(int argc, char **argv)
{
	static const int depths[] = {1, 8, 64, 1024};
	int guasi = argc < 2 || strcmp(argv[1], "naive") != 0;
	guasi_t h = guasi_create(0, 0, 1);

	naive_start((int) sysconf(_SC_NPROCESSORS_ONLN));
	for (unsigned i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
		double start;
		long sum;

		calls = depths[i] < 64 ? 30000L * depths[i] : 1000000L;
		start = seconds();
		sum = guasi ? with_guasi(h, depths[i]) : with_naive(depths[i]);

		if (sum != calls * (calls - 1) / 2)
			abort();
		printf("depth %d: %.0f ns\n", depths[i], (seconds() - start) / calls * 1e9);
	}
	naive_stop();
	guasi_free(h);
	return 0;
}
