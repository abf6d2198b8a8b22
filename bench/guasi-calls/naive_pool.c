#include "naive_pool.h"

#include <pthread.h>
#include <stdlib.h>

struct node {
	struct node *next;
	long (*function)(long);
	long argument, result;
};

struct list {
	struct node *first, **last;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static struct list waiting, finished;
static pthread_t *workers;
static int nr_workers, stopping;

static void append(struct list *list, struct node *node)
{
	node->next = NULL;
	*list->last = node;
	list->last = &node->next;
}

static struct node *take(struct list *list)
{
	struct node *node = list->first;

	if (node && !(list->first = node->next))
		list->last = &list->first;
	return node;
}

static void *worker(void *unused)
{
	(void) unused;
	pthread_mutex_lock(&mutex);
	for (;;) {
		struct node *node = take(&waiting);

		if (!node) {
			if (stopping)
				break;
			pthread_cond_wait(&work, &mutex);
			continue;
		}
		pthread_mutex_unlock(&mutex);
		node->result = node->function(node->argument);
		pthread_mutex_lock(&mutex);
		append(&finished, node);
		pthread_cond_signal(&done);
	}
	pthread_mutex_unlock(&mutex);
	return NULL;
}

void naive_start(int threads)
{
	waiting.last = &waiting.first;
	finished.last = &finished.first;
	nr_workers = threads;
	workers = calloc(threads, sizeof(*workers));
	for (int i = 0; i < threads; i++)
		pthread_create(&workers[i], NULL, worker, NULL);
}

void naive_submit(long (*function)(long), long argument)
{
	struct node *node = malloc(sizeof(*node));

	node->function = function;
	node->argument = argument;
	pthread_mutex_lock(&mutex);
	append(&waiting, node);
	pthread_cond_signal(&work);
	pthread_mutex_unlock(&mutex);
}

int naive_fetch(long *results, int max)
{
	int n = 0;
	struct node *node;

	pthread_mutex_lock(&mutex);
	while (!finished.first)
		pthread_cond_wait(&done, &mutex);
	while (n < max && (node = take(&finished))) {
		results[n++] = node->result;
		free(node);
	}
	pthread_mutex_unlock(&mutex);
	return n;
}

void naive_stop(void)
{
	pthread_mutex_lock(&mutex);
	stopping = 1;
	pthread_cond_broadcast(&work);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < nr_workers; i++)
		pthread_join(workers[i], NULL);
	free(workers);
}
