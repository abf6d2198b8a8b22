/* The pool that everybody writes first: one mutex, one condition for work, one for results. */
#ifndef NAIVE_POOL_H
#define NAIVE_POOL_H

void naive_start(int threads);
void naive_submit(long (*function)(long), long argument);
/* Waits for at least one result; how many were there, at most `max`. */
int naive_fetch(long *results, int max);
void naive_stop(void);

#endif
