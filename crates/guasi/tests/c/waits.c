/* A read that waits, a write, and a function, in two contexts. Argument: flags of guasi_create_flags. */
#include "check.h"

static guasi_param_t twice(void *priv, guasi_param_t const *params)
{
	(void) priv;
	return 2 * params[0];
}

int main(int argc, char **argv)
{
	for (int round = 0; round < 2; round++) {
		guasi_t h = guasi_create_flags(0, 0, 1, FLAGS_FROM_ARGUMENTS(argc, argv));
		guasi_req_t request;
		char buffer[8];
		int ends[2];

		CHECK(h != NULL && pipe(ends) == 0);
		request = guasi__read(h, NULL, NULL, 0, ends[0], buffer, sizeof(buffer));
		CHECK(request != NULL && write(ends[1], "late", 4) == 4);
		CHECK(finish(h, request).result == 4);
		CHECK(result_of(h, guasi__write(h, NULL, NULL, 0, ends[1], "x", 1)) == 1);
		CHECK(result_of(h, guasi_submit(h, NULL, NULL, 0, twice, NULL, 1, (guasi_param_t) 21)) == 42);
		guasi_free(h);
		close(ends[0]);
		close(ends[1]);
	}
	return 0;
}
