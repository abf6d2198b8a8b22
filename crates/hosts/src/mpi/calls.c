/* The calls of MPI that plimsoll makes. All of them are made by one thread, the one that called plimsoll_mpi_init. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static int silence(const char *file, const char *topic, bool header, ...)
{
  (void)file; (void)topic; (void)header;
  return 0;
}

/* 0, or an error class of MPI. */
int plimsoll_mpi_init(int *rank, int *size)
{
  int provided, error;
  /* TCP and shared memory suffice for the messages of ranks. By default Open MPI looks at every network first. That takes
   * most of the start of many ranks on few processors, and may keep a network busy that is to be measured. The tests show
   * that ranks on TCP survive the loss of a rank. A user may choose another way: mpirun --mca pml ucx. */
  setenv("OMPI_MCA_pml", "ob1", 0);
  setenv("OMPI_MCA_btl", "^openib,uct,usnic,ofi", 0);
  if ((error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided)) != MPI_SUCCESS) return error;
  /* A lost rank is news, not the end: without this the first call that touches it ends the program. */
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  /* Open MPI tells of a lost peer through mpirun, and waits until that has taken the message. While mpirun ends the
   * other ranks it takes none: a rank that waits there cannot hand over what it has measured. */
  typedef int (*show_help)(const char *, const char *, bool, ...);
  show_help *say = (show_help *)dlsym(RTLD_DEFAULT, "opal_show_help");
  if (say) *say = silence;
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, size);
  return 0;
}

/* A message on its way; its bytes stay where they are until plimsoll_mpi_sent says so. */
void *plimsoll_mpi_send(int to, const void *bytes, int length)
{
  MPI_Request *request = malloc(sizeof *request);
  if (request && MPI_Isend(bytes, length, MPI_BYTE, to, 0, MPI_COMM_WORLD, request) != MPI_SUCCESS) {
    free(request);
    request = NULL;
  }
  return request;
}

/* True if a message has left, or can never leave. The call has then freed the handle. */
int plimsoll_mpi_sent(void *handle)
{
  MPI_Request *request = handle;
  int done = 0;
  if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) done = 1;
  if (done) free(request);
  return done;
}

/* Bytes of the message that waits, and from whom; -1 if none does. */
int plimsoll_mpi_waiting(int *from)
{
  int there = 0, length = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, &status) != MPI_SUCCESS || !there) return -1;
  MPI_Get_count(&status, MPI_BYTE, &length);
  *from = status.MPI_SOURCE;
  return length;
}

/* 0 when the message that waits from `from` is in `bytes`. */
int plimsoll_mpi_receive(int from, void *bytes, int length)
{
  return MPI_Recv(bytes, length, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void plimsoll_mpi_finalize(void)
{
  MPI_Finalize();
}
