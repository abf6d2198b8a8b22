/*
 * The parts that only C can express: a variable number of arguments, and weak references to a sanitizer.
 */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include "guasi.h"

guasi_req_t guasi_submit(guasi_t hctx, void *priv, void *asid, int prio, guasi_syscall_t proc,
			 guasi_cleanup_t free, int nparams, ...)
{
	guasi_param_t params[GUASI_MAX_PARAMS];
	va_list arguments;

	/* A negative number is none, as in GUASI 0.25. */
	if (nparams > GUASI_MAX_PARAMS) {
		errno = EINVAL;
		return NULL;
	}
	va_start(arguments, nparams);
	for (int i = 0; i < nparams; i++)
		params[i] = va_arg(arguments, guasi_param_t);
	va_end(arguments);
	return guasi_submitv(hctx, priv, asid, prio, proc, free, nparams, params);
}

/* Present in programs that were built with -fsanitize=thread. */
extern void __tsan_acquire(void *) __attribute__((weak));
extern void __tsan_release(void *) __attribute__((weak));

void guasi_internal_acquired(void *place);
void guasi_internal_released(void *place);

void guasi_internal_acquired(void *place)
{
	if (__tsan_acquire)
		__tsan_acquire(place);
}

void guasi_internal_released(void *place)
{
	if (__tsan_release)
		__tsan_release(place);
}
