/*
 * Looks up the names of hosts, all at once. getaddrinfo(3) is not a system call, but any
 * function that blocks can be submitted.
 *
 *     cc -O2 resolve.c $(pkg-config --cflags --libs guasi) -o resolve && ./resolve localhost example.org
 */
#include <guasi.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

/* The call that a worker makes: the parameters are those of guasi_submit. */
static guasi_param_t look_up(void *given, guasi_param_t const *parameters)
{
	(void) given;
	return getaddrinfo((char const *) parameters[0], NULL, NULL, (struct addrinfo **) parameters[1]);
}

int main(int count, char **words)
{
	struct addrinfo *found[MOST] = {NULL};
	guasi_req_t requests[MOST];
	guasi_t context;
	int left = 0, failed = 0;

	if (count < 2 || count > MOST) {
		fprintf(stderr, "usage: resolve HOST... (%d at most)\n", MOST - 1);
		return 2;
	}
	context = guasi_create(0, MOST, 1);
	if (!context) {
		fprintf(stderr, "resolve: guasi_create failed\n");
		return 1;
	}
	for (int i = 1; i < count; i++) {
		if (guasi_submit(context, words[i], NULL, 0, look_up, NULL, 2, (guasi_param_t) words[i],
				 (guasi_param_t) &found[i]))
			left++;
		else
			failed = 1;
	}
	while (left > 0) {
		int got = guasi_fetch(context, requests, 1, MOST, -1);

		for (int i = 0; i < got; i++) {
			struct guasi_reqinfo info;

			guasi_req_info(requests[i], &info);
			guasi_req_free(requests[i]);
			left--;
			printf("%s: %s\n", (char *) info.priv, info.result ? gai_strerror((int) info.result) : "found");
			failed |= info.result != 0;
		}
	}
	for (int i = 1; i < count; i++)
		if (found[i])
			freeaddrinfo(found[i]);
	guasi_free(context);
	return failed;
}
