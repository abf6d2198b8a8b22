/*
 * An external engine for fio: guasi(3).
 *
 *	fio --ioengine=external:target/guasi/fio-guasi.so --iodepth=1000 ...
 *
 * Built by `make fio-engine` against the headers of the fio that is installed: fio's structures are its ABI, and
 * FIO_IOOPS_VERSION only guards the table of functions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fio.h"
#include "optgroup.h"

#include "guasi.h"
#include "guasi_syscalls.h"

/* The context of one job, used by the job's thread alone. */
struct guasi_data {
	guasi_t hctx;
	guasi_req_t *fetched;
	struct io_u **queued;
	unsigned int nr_queued, in_flight;
};

struct guasi_options {
	void *pad; /* fio does not allow an option at offset 0 */
	unsigned int flags;
};

static struct fio_option options[] = {
	{
		.name	  = "guasi_flags",
		.lname	  = "Flags of guasi_create_flags",
		.type	  = FIO_OPT_INT,
		.off1	  = offsetof(struct guasi_options, flags),
		.def	  = "1",
		.help	  = "1: the job's thread drives the ring (0: a thread of the library); 2: without io_uring",
		.category = FIO_OPT_C_ENGINE,
		.group	  = FIO_OPT_G_INVALID,
	},
	{
		.name = NULL,
	},
};

static guasi_req_t start(struct guasi_data *data, struct io_u *io_u)
{
	int fd = io_u->file->fd;

	switch (io_u->ddir) {
	case DDIR_READ:
		return guasi__pread(data->hctx, NULL, io_u, 0, fd, io_u->xfer_buf, io_u->xfer_buflen,
				    (goff_t) io_u->offset);
	case DDIR_WRITE:
		return guasi__pwrite(data->hctx, NULL, io_u, 0, fd, io_u->xfer_buf, io_u->xfer_buflen,
				     (goff_t) io_u->offset);
	case DDIR_DATASYNC:
		return guasi__fdatasync(data->hctx, NULL, io_u, 0, fd);
	default:
		return guasi__fsync(data->hctx, NULL, io_u, 0, fd);
	}
}

static enum fio_q_status fio_guasi_queue(struct thread_data *td, struct io_u *io_u)
{
	struct guasi_data *data = td->io_ops_data;

	fio_ro_check(td, io_u);

	if (data->nr_queued == td->o.iodepth)
		return FIO_Q_BUSY;

	if (io_u->ddir == DDIR_TRIM || io_u->ddir == DDIR_SYNC_FILE_RANGE) {
		if (data->nr_queued)
			return FIO_Q_BUSY;
		if (io_u->ddir == DDIR_TRIM)
			do_io_u_trim(td, io_u);
		else
			do_io_u_sync(td, io_u);
		io_u_mark_submit(td, 1);
		io_u_mark_complete(td, 1);
		return FIO_Q_COMPLETED;
	}

	data->queued[data->nr_queued++] = io_u;
	return FIO_Q_QUEUED;
}

static int fio_guasi_commit(struct thread_data *td)
{
	struct guasi_data *data = td->io_ops_data;
	unsigned int i, nr = data->nr_queued;
	struct timespec now;

	if (!nr)
		return 0;
	for (i = 0; i < nr; i++) {
		if (!start(data, data->queued[i])) {
			int error = errno;

			if (error == EAGAIN && (i || data->in_flight))
				break; /* no thread to be had right now: reap first */
			td_verror(td, error, "guasi_submit");
			return -error;
		}
	}
	data->in_flight += i;
	if (guasi_flush(data->hctx) < 0) {
		td_verror(td, errno, "guasi_flush");
		return -errno;
	}
	if (fio_fill_issue_time(td)) {
		fio_gettime(&now, NULL);
		for (nr = 0; nr < i; nr++) {
			memcpy(&data->queued[nr]->issue_time, &now, sizeof(now));
			io_u_queued(td, data->queued[nr]);
		}
		if (td->o.read_iolog_file)
			memcpy(&td->last_issue, &now, sizeof(now));
	}
	io_u_mark_submit(td, i);
	data->nr_queued -= i;
	memmove(data->queued, data->queued + i, data->nr_queued * sizeof(*data->queued));
	return 0;
}

static int fio_guasi_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct guasi_data *data = td->io_ops_data;
	unsigned int actual_min = td->o.iodepth_batch_complete_min == 0 ? 0 : min;
	long timeo = t ? t->tv_sec * 1000L + t->tv_nsec / 1000000L : -1L;
	unsigned int events = 0;

	if (max > data->in_flight)
		max = data->in_flight;
	if (min > max)
		min = max;
	if (actual_min > max)
		actual_min = max;
	do {
		/* A signal ends the wait early, as it should: fio looks whether it is to stop. */
		int r = guasi_fetch(data->hctx, data->fetched + events,
				    actual_min > events ? (int) (actual_min - events) : 0, (int) (max - events), timeo);

		if (r < 0) {
			td_verror(td, errno, "guasi_fetch");
			return -errno;
		}
		events += (unsigned int) r;
	} while (events < min && !t && !td->terminate);
	data->in_flight -= events;
	return (int) events;
}

static struct io_u *fio_guasi_event(struct thread_data *td, int event)
{
	struct guasi_data *data = td->io_ops_data;
	struct guasi_reqinfo info;
	struct io_u *io_u;

	guasi_req_info(data->fetched[event], &info);
	guasi_req_free(data->fetched[event]);
	io_u = info.asid;
	io_u->error = 0;
	io_u->resid = 0;
	if (info.status != GUASI_STATUS_COMPLETE)
		io_u->error = ECANCELED;
	else if (info.result < 0)
		io_u->error = (unsigned int) info.error;
	else if (!ddir_sync(io_u->ddir))
		io_u->resid = io_u->xfer_buflen - (unsigned long long) info.result;
	return io_u;
}

static void fio_guasi_cleanup(struct thread_data *td)
{
	struct guasi_data *data = td->io_ops_data;

	if (!data)
		return;
	guasi_free(data->hctx);
	free(data->fetched);
	free(data->queued);
	free(data);
	td->io_ops_data = NULL;
}

static int fio_guasi_init(struct thread_data *td)
{
	struct guasi_options *o = td->eo;
	struct guasi_data *data = calloc(1, sizeof(*data));

	if (!data)
		return 1;
	data->fetched = calloc(td->o.iodepth, sizeof(*data->fetched));
	data->queued = calloc(td->o.iodepth, sizeof(*data->queued));
	data->hctx = guasi_create_flags(0, 0, 1, o->flags);
	if (!data->fetched || !data->queued || !data->hctx) {
		td_verror(td, data->hctx ? ENOMEM : errno, "guasi_create_flags");
		free(data->fetched);
		free(data->queued);
		guasi_free(data->hctx);
		free(data);
		return 1;
	}
	td->io_ops_data = data;
	return 0;
}

/* fio finds an external engine by this name. */
struct ioengine_ops ioengine = {
	.name			= "guasi",
	.version		= FIO_IOOPS_VERSION,
	.init			= fio_guasi_init,
	.queue			= fio_guasi_queue,
	.commit			= fio_guasi_commit,
	.getevents		= fio_guasi_getevents,
	.event			= fio_guasi_event,
	.cleanup		= fio_guasi_cleanup,
	.open_file		= generic_open_file,
	.close_file		= generic_close_file,
	.get_file_size		= generic_get_file_size,
	.options		= options,
	.option_struct_size	= sizeof(struct guasi_options),
};
