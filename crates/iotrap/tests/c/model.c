/* Random programs beside a model of the contents of their files: model FIRST SECONDS WORKERS (seeds from FIRST on), or
 * model replay SEED TIMES [STEP...] for one program, or for some of its steps.
 *
 * The program of a seed is a list of steps: files are opened, duplicated and closed by every means, read and written by
 * every interface, mapped, cut, renamed, locked; in the program itself, in another thread, or in a forked child. Each step
 * is carried out on the files and on the model; what is read has to be what the model holds. A step draws its numbers from
 * the seed and its own place, so that the list can be shortened: a seed that fails is shrunk, and printed with the steps
 * that are left. Exit status 1 if one failed.
 *
 * The steps leave out two cases in which the library promises nothing (docs/trap.md): two processes that use one file
 * through page cache and lanes at the same time, and truncations that no hook sees. */
#include "unseen.h"
#include <sys/prctl.h>
#include <time.h>

enum { STEPS = 120, FILES = 3, SLOTS = 8, MAPS = 3, BLOCKS = 12, MOST = BLOCKS * BLOCK };

/* ---- the model ---- */

struct file {
	char bytes[MOST];
	long size;
	int links;
};

/* Shared with children. */
static struct model {
	struct file files[STEPS + FILES];
	int made, name[FILES]; /* the file of each name, or -1 */
	int step;
	/* Of a child that is about to be killed: the number of writes that have ended, and for each of its threads the time
	 * at which the write under way has begun. */
	_Atomic long by_killed;
	_Atomic double began[3];
	char what[200];
} *model;

struct slot {
	int fd, file, writes, direct, append;
};

static struct slot slots[SLOTS];
static struct {
	char *memory;
	int file, writes;
} maps[MAPS];

/* A ring that the program makes and drives by syscall(2), and its registered files: each keeps its file when the descriptor
 * is closed. */
static struct {
	int fd, made;
	unsigned *tail, *mask, *array, *cq_head, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	struct slot places[4];
} own;

static char *buffer;
static uint64_t state;
static int worker;
/* Where the program of a seed tells its steps: what it told is shown if it fails. */
static int told = -1;
/* glibc's aio does not work in a forked child. */
static int in_a_child;

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static uint64_t drawn(void)
{
	state += 0x9e3779b97f4a7c15ULL;
	uint64_t z = state;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static int below(int limit)
{
	return (int)(drawn() % (unsigned)limit);
}

#define SAY(...)                                                                              \
	do {                                                                                      \
		snprintf(model->what, sizeof model->what, __VA_ARGS__);                                \
		dprintf(2, "  %d %s\n", model->step, model->what);                                     \
	} while (0)
#define FAIL(...)                                                                             \
	do {                                                                                      \
		dprintf(2, "  there: ");                                                               \
		dprintf(2, __VA_ARGS__);                                                               \
		dprintf(2, "\n");                                                                      \
		_exit(1);                                                                              \
	} while (0)
#define HOLDS(expression, value)                                                              \
	do {                                                                                      \
		long long is_ = (long long)(expression), should_ = (long long)(value);                 \
		if (is_ != should_)                                                                    \
			FAIL("%s is %lld, not %lld (%s)", #expression, is_, should_, strerror(errno));      \
	} while (0)
#define MUST_BE HOLDS
#include "interfaces.h"

static const char *name_of(int name)
{
	static char names[FILES][16];
	snprintf(names[name], sizeof names[name], "m%d.%d", worker, name);
	return at(0, names[name]);
}

static void same(const struct file *file, const char *found, long offset, long bytes)
{
	for (long at = 0; at < bytes; at++)
		if (found[at] != file->bytes[offset + at])
			FAIL("byte %ld is %d, not %d", offset + at, found[at], file->bytes[offset + at]);
}

/* ---- descriptors ---- */

/* How many files and descriptors the program of a seed has: few of them meet more often. */
/* Of a program that `registers`, all files are in use through the places of its ring; it has one thread, without which
 * requests on registered files are not spread. */
static int files_used, slots_used, rings, out_of_sight, registers;

static int any_slot(int used)
{
	int found[SLOTS], count = 0, open = 0;
	for (int at = 0; at < SLOTS; at++)
		open += slots[at].fd >= 0;
	if (!used && open >= slots_used)
		return -1;
	for (int at = 0; at < SLOTS; at++)
		if ((slots[at].fd >= 0) == used)
			found[count++] = at;
	return count == 0 ? -1 : found[below(count)];
}

static int is_mapped(int file)
{
	for (int at = 0; at < MAPS; at++)
		if (maps[at].memory != NULL && maps[at].file == file)
			return 1;
	return 0;
}

static int is_registered(int file)
{
	for (int at = 0; at < 4; at++)
		if (own.places[at].fd >= 0 && own.places[at].file == file)
			return 1;
	return 0;
}

static int is_cached(int file)
{
	for (int at = 0; at < 4; at++)
		if (own.places[at].fd >= 0 && own.places[at].file == file && !own.places[at].direct)
			return 1;
	for (int at = 0; at < SLOTS; at++)
		if (slots[at].fd >= 0 && slots[at].file == file && !slots[at].direct)
			return 1;
	return is_mapped(file);
}

/* An unseen descriptor with a page cache of its own must not come while the file is spread: see docs/trap.md. */
static int is_in_use(int file)
{
	for (int at = 0; at < SLOTS; at++)
		if (slots[at].fd >= 0 && slots[at].file == file)
			return 1;
	return is_registered(file);
}

static void step_open(void)
{
	int at = any_slot(0), name = below(files_used), way = below(13), flags, fd, pair[2];
	if (at < 0)
		return;
	int file = model->name[name], writes = below(4) != 0, direct = below(3) != 0;
	if (out_of_sight && (direct = below(2)) == 0)
		way = below(3) == 0 ? 5 : 1 + below(2);
	int cut = file >= 0 && writes && below(12) == 0;
	if (file >= 0 && (cut && is_mapped(file)))
		cut = 0;
	if (file < 0)
		writes = 1;
	if (way == 4 && !rings) /* a file that was opened so is not spread any more */
		way = 7;
	int unseen = way == 1 || way == 2;
	if (unseen && (cut || (!direct && file >= 0 && is_in_use(file))))
		way = 0;
	flags = (writes ? O_RDWR : O_RDONLY) | (direct ? O_DIRECT : 0) | (file < 0 ? O_CREAT : 0) | (cut ? O_TRUNC : 0);
	const char *path = name_of(name);
	SAY("open %s as %d, way %d, flags %o", path, at, way, flags);
	switch (way) {
	case 1: fd = (int)kernel(SYS_openat, AT_FDCWD, (long)path, flags, 0600); break;
	case 2:
		if (has_ring()) {
			fd = by_ring(&(struct io_uring_sqe){.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = (uintptr_t)path, .len = 0600, .open_flags = flags});
			break;
		} /* fall through */
	case 3: fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600); break;
	case 4:
		if (liburing.ring_fd >= 0) {
			fd = liburing_open(path, flags);
			break;
		} /* fall through */
	case 5: {
		int high = (int)kernel(SYS_openat, AT_FDCWD, (long)path, flags, 0600);
		CHECK(high >= 0);
		HOLDS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		send_file(pair[0], high);
		kernel(SYS_close, high, 0, 0, 0);
		fd = receive_file(pair[1]);
		close(pair[0]);
		close(pair[1]);
		break;
	}
	case 6:
		if (file >= 0 && !direct && !cut) {
			FILE *stream = fopen(path, writes ? "r+" : "r");
			CHECK(stream != NULL);
			fd = fileno(stream); /* closed by number: the stream is never used */
			break;
		} /* fall through */
	default: fd = open(path, flags, 0600);
	}
	if (fd < 0)
		FAIL("no descriptor: %d, errno %d", fd, errno);
	if (file < 0) {
		file = model->name[name] = model->made++;
		model->files[file] = (struct file){.links = 1};
	}
	if (cut)
		model->files[file].size = 0;
	slots[at] = (struct slot){fd, file, writes, direct, 0};
}

static void step_close(void)
{
	int at = any_slot(1), way = below(6);
	if (at < 0)
		return;
	int fd = slots[at].fd;
	SAY("close %d (%d), way %d", at, fd, way);
	slots[at].fd = -1;
	switch (way) {
	case 0: HOLDS(kernel(SYS_close, fd, 0, 0, 0), 0); break;
	case 1:
		if (has_ring()) {
			HOLDS(by_ring(&(struct io_uring_sqe){.opcode = IORING_OP_CLOSE, .fd = fd}), 0);
			break;
		} /* fall through */
	case 2: HOLDS(close_range(fd, fd, 0), 0); break;
	case 3: HOLDS(kernel(SYS_close_range, fd, fd, 0, 0), 0); break;
	case 4: HOLDS(syscall(SYS_close, fd), 0); break;
	default: HOLDS(close(fd), 0);
	}
}

static void step_duplicate(void)
{
	int from = any_slot(1), to = any_slot(0), over = any_slot(1), way = below(5), fd;
	if (from < 0 || to < 0)
		return;
	SAY("duplicate %d, way %d", from, way);
	struct slot is = slots[from];
	switch (way) {
	case 0: fd = dup(is.fd); break;
	case 1: fd = fcntl(is.fd, F_DUPFD_CLOEXEC, 0); break;
	case 2:
		if (over == from)
			return;
		fd = dup2(is.fd, slots[over].fd);
		to = over;
		break;
	case 3:
		if (over == from)
			return;
		fd = (int)kernel(SYS_dup3, is.fd, slots[over].fd, 0, 0);
		to = over;
		break;
	default: fd = (int)kernel(SYS_dup, is.fd, 0, 0, 0);
	}
	if (fd < 0)
		FAIL("no descriptor: errno %d", errno);
	is.fd = fd;
	slots[to] = is;
}

/* ---- reads and writes ---- */

/* Makes the ring; false if the kernel refuses. */
static int has_own_ring(void)
{
	struct io_uring_params params = {.flags = state & 1 ? IORING_SETUP_COOP_TASKRUN : 0};
	int none[4] = {-1, -1, -1, -1};
	if (own.made)
		return own.fd >= 0;
	own.made = 1;
	own.fd = (int)syscall(SYS_io_uring_setup, 8, &params);
	if (own.fd < 0)
		return 0;
	size_t sq = params.sq_off.array + params.sq_entries * 4, cq = params.cq_off.cqes + params.cq_entries * sizeof *own.cqes;
	char *rings = mmap(NULL, sq > cq ? sq : cq, PROT_READ | PROT_WRITE, MAP_SHARED, own.fd, IORING_OFF_SQ_RING);
	own.sqes = mmap(NULL, params.sq_entries * sizeof *own.sqes, PROT_READ | PROT_WRITE, MAP_SHARED, own.fd, IORING_OFF_SQES);
	CHECK(rings != MAP_FAILED && (void *)own.sqes != MAP_FAILED);
	own.tail = (unsigned *)(rings + params.sq_off.tail);
	own.mask = (unsigned *)(rings + params.sq_off.ring_mask);
	own.array = (unsigned *)(rings + params.sq_off.array);
	own.cq_head = (unsigned *)(rings + params.cq_off.head);
	own.cq_mask = (unsigned *)(rings + params.cq_off.ring_mask);
	own.cqes = (struct io_uring_cqe *)(rings + params.cq_off.cqes);
	HOLDS(syscall(SYS_io_uring_register, own.fd, IORING_REGISTER_FILES, none, 4), 0);
	return 1;
}

/* A place of the table with the slot's file: one that has it already, or one that gets it, by a call that is seen or not. */
static int registered_place(const struct slot *slot, int write)
{
	for (int at = 0; at < 4 && below(registers ? 8 : 2); at++)
		if (own.places[at].fd >= 0 && own.places[at].file == slot->file && own.places[at].writes >= write && own.places[at].direct <= slot->direct)
			return at;
	int place = below(4), fd = slot->fd;
	struct io_uring_files_update update = {.offset = (unsigned)place, .fds = (uintptr_t)&fd};
	if (slot->direct && below(3) == 0)
		HOLDS(kernel(SYS_io_uring_register, own.fd, IORING_REGISTER_FILES_UPDATE, (long)&update, 1), 1);
	else
		HOLDS(syscall(SYS_io_uring_register, own.fd, IORING_REGISTER_FILES_UPDATE, &update, 1), 1);
	own.places[place] = *slot;
	return place;
}

/* Gives an entry to the ring, and returns the result. */
static ssize_t of_own_ring(const struct io_uring_sqe *entry, int unseen)
{
	unsigned at = *own.tail & *own.mask;
	own.sqes[at] = *entry;
	own.array[at] = at;
	__atomic_store_n(own.tail, *own.tail + 1, __ATOMIC_RELEASE);
	HOLDS(unseen ? inline6(SYS_io_uring_enter, own.fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0)
	             : syscall(SYS_io_uring_enter, own.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0), 1);
	ssize_t result = own.cqes[*own.cq_head & *own.cq_mask].res;
	__atomic_store_n(own.cq_head, *own.cq_head + 1, __ATOMIC_RELEASE);
	return result;
}

/* Changes some places of the table: files come, go, and stay; by a call, by a request, or by a new table. */
static void step_places(void)
{
	if (!has_own_ring())
		return;
	int way = below(4), first = way == 3 ? 0 : below(4), count = way == 3 ? 4 : 1 + below(4 - first), files[4];
	int direct = 1;
	for (int at = 0; at < count; at++) {
		int what = below(8), slot = any_slot(1);
		struct slot *place = &own.places[first + at];
		if (what == 0 && way != 3) {
			files[at] = -2; /* IORING_REGISTER_FILES_SKIP */
			continue;
		}
		files[at] = what == 1 || slot < 0 ? -1 : slots[slot].fd;
		if (files[at] < 0) {
			place->fd = -1;
		} else {
			*place = slots[slot];
			direct &= place->direct;
		}
	}
	SAY("places %d to %d, way %d: %d %d %d %d", first, first + count - 1, way, files[0], files[1], files[2], files[3]);
	struct io_uring_files_update update = {.offset = (unsigned)first, .fds = (uintptr_t)files};
	struct io_uring_sqe entry = {.opcode = IORING_OP_FILES_UPDATE, .off = (uint64_t)first, .addr = (uintptr_t)files, .len = (unsigned)count};
	switch (way) {
	case 0: HOLDS(syscall(SYS_io_uring_register, own.fd, IORING_REGISTER_FILES_UPDATE, &update, count), count); break;
	case 1:
		HOLDS(direct ? kernel(SYS_io_uring_register, own.fd, IORING_REGISTER_FILES_UPDATE, (long)&update, count)
		             : syscall(SYS_io_uring_register, own.fd, IORING_REGISTER_FILES_UPDATE, &update, count), count);
		break;
	case 2: HOLDS(of_own_ring(&entry, 0), count); break;
	default:
		HOLDS(syscall(SYS_io_uring_register, own.fd, IORING_UNREGISTER_FILES, NULL, 0), 0);
		HOLDS(syscall(SYS_io_uring_register, own.fd, IORING_REGISTER_FILES, files, 4), 0);
	}
	int empty = below(4);
	entry = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = empty, .flags = IOSQE_FIXED_FILE, .addr = (uintptr_t)buffer, .len = BLOCK};
	if (own.places[empty].fd < 0)
		HOLDS(of_own_ring(&entry, 0), -EBADF);
}

static ssize_t by_own_ring(const struct slot *slot, int write, long bytes, long offset)
{
	int fixed = below(registers ? 8 : 2) != 0, unseen = rings && below(6) == 0, vectors = below(3) == 0;
	struct iovec vector = {buffer, bytes};
	struct io_uring_sqe entry = {
		.opcode = vectors ? (write ? IORING_OP_WRITEV : IORING_OP_READV) : write ? IORING_OP_WRITE : IORING_OP_READ,
		.fd = fixed ? registered_place(slot, write) : slot->fd,
		.flags = fixed ? IOSQE_FIXED_FILE : 0,
		.addr = vectors ? (uintptr_t)&vector : (uintptr_t)buffer,
		.len = vectors ? 1 : (unsigned)bytes,
		.off = (uint64_t)offset,
		.user_data = drawn() % 3,
	};
	return of_own_ring(&entry, unseen);
}

static ssize_t transfer(int way, const struct slot *slot, int write_it, long bytes, long offset)
{
	int fd = slot->fd;
	struct iovec vector = {buffer, bytes};
	switch (way) {
	case 0: return by_libaio(fd, write_it, buffer, bytes, offset);
	case 1:
		if (!in_a_child && !registers) /* glibc makes threads */
			return by_aio(fd, write_it, buffer, bytes, offset);
		/* fall through */
	case 2:
		if (liburing.ring_fd >= 0)
			return by_liburing(fd, write_it, buffer, bytes, offset);
		/* fall through */
	case 3: return write_it ? pwritev2(fd, &vector, 1, offset, 0) : preadv2(fd, &vector, 1, offset, 0);
	case 4:
		CHECK_IS(lseek(fd, offset, SEEK_SET), offset);
		return write_it ? write(fd, buffer, bytes) : read(fd, buffer, bytes);
	case 5: /* unseen, as the number is */
		return write_it ? kernel(SYS_pwrite64, fd, (long)buffer, bytes, offset) : kernel(SYS_pread64, fd, (long)buffer, bytes, offset);
	case 6:
	case 7:
		if (has_own_ring())
			return by_own_ring(slot, write_it, bytes, offset);
		/* fall through */
	default: return write_it ? pwrite(fd, buffer, bytes, offset) : pread(fd, buffer, bytes, offset);
	}
}

/* Every way that the program has to the file finds the data that was written. */
static void met_by_all(int wrote, long offset, long bytes)
{
	struct file *file = &model->files[slots[wrote].file];
	long from = offset / BLOCK * BLOCK, to = (offset + bytes + BLOCK - 1) / BLOCK * BLOCK;
	long there = to < file->size ? to - from : file->size - from;
	for (int at = 0; at < SLOTS; at++) {
		if (at == wrote || slots[at].fd < 0 || slots[at].file != slots[wrote].file)
			continue;
		SAY("what %d wrote, by %d (fd %d, direct %d)", wrote, at, slots[at].fd, slots[at].direct);
		HOLDS(pread(slots[at].fd, buffer, to - from, from), there);
		same(file, buffer, from, there);
	}
	for (int at = 0; at < MAPS; at++) {
		if (maps[at].memory == NULL || maps[at].file != slots[wrote].file)
			continue;
		SAY("what %d wrote, by memory %d", wrote, at);
		same(file, maps[at].memory + from, from, there);
	}
}

static void step_transfer(void)
{
	int at = any_slot(1), write_it = below(2), way = registers && below(4) ? 6 : below(10);
	if (at < 0)
		return;
	struct slot *slot = &slots[at];
	struct file *file = &model->files[slot->file];
	write_it &= slot->writes;
	long unit = slot->direct ? BLOCK : 1, offset, bytes;
	do {
		offset = below(MOST) / unit * unit;
		bytes = (1 + below(3 * BLOCK)) / unit * unit;
		if (!slot->direct && below(2))
			offset = offset / BLOCK * BLOCK, bytes = BLOCK;
	} while (bytes == 0 || offset + bytes > MOST);
	SAY("%s %d (fd %d, file %d, direct %d), way %d: %ld at %ld of %ld", write_it ? "write" : "read", at, slot->fd, slot->file,
	    slot->direct, way, bytes, offset, file->size);
	if (write_it) {
		char letter = (char)(1 + below(120));
		memset(buffer, letter, bytes);
		HOLDS(transfer(way, slot, 1, bytes, offset), bytes);
		if (offset > file->size)
			memset(file->bytes + file->size, 0, offset - file->size);
		memset(file->bytes + offset, letter, bytes);
		if (offset + bytes > file->size)
			file->size = offset + bytes;
		met_by_all(at, offset, bytes);
	} else {
		long there = offset >= file->size ? 0 : offset + bytes > file->size ? file->size - offset : bytes;
		/* A size that is not a multiple of the block: O_DIRECT may read to the end, as it does here. */
		memset(buffer, 0, bytes);
		HOLDS(transfer(way, slot, 0, bytes, offset), there);
		same(file, buffer, offset, there);
	}
}

/* ---- memory ---- */

static void step_map(void)
{
	int at = any_slot(1), place = -1, unseen = below(3) == 0;
	for (int map = 0; map < MAPS; map++)
		if (maps[map].memory == NULL)
			place = map;
	if (at < 0 || place < 0)
		return;
	struct slot *slot = &slots[at];
	/* Mapped by an unseen call while it is open: see docs/trap.md. */
	int several = is_registered(slot->file);
	for (int other = 0; other < SLOTS; other++)
		several += slots[other].fd >= 0 && slots[other].file == slot->file;
	if (several > 1 || slot->direct)
		unseen = 0;
	SAY("map %d, unseen %d", at, unseen);
	int protection = PROT_READ | (slot->writes ? PROT_WRITE : 0);
	char *memory = unseen ? (char *)inline6(SYS_mmap, 0, MOST, protection, MAP_SHARED, slot->fd, 0)
	                      : mmap(NULL, MOST, protection, MAP_SHARED, slot->fd, 0);
	CHECK(memory != MAP_FAILED && (uintptr_t)memory < -4096UL);
	maps[place].memory = memory;
	maps[place].file = slot->file;
	maps[place].writes = slot->writes;
	if (unseen || below(2)) { /* unseen: it may not be used any more, because nobody knows that it is mapped */
		HOLDS(close(slot->fd), 0);
		slot->fd = -1;
	}
}

static void step_memory(void)
{
	int at = below(MAPS), what = below(4);
	if (maps[at].memory == NULL)
		return;
	struct file *file = &model->files[maps[at].file];
	SAY("memory %d of file %d, %d", at, maps[at].file, what);
	if (what == 0 && below(3) == 0) {
		if (below(2))
			HOLDS(munmap(maps[at].memory, MOST), 0);
		else
			CHECK(mmap(maps[at].memory, MOST, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == maps[at].memory);
		maps[at].memory = NULL;
		return;
	}
	if (file->size == 0)
		return;
	long offset = below((int)file->size), bytes = 1 + below((int)(file->size - offset));
	if (what == 1 && maps[at].writes) {
		char letter = (char)(1 + below(120));
		memset(maps[at].memory + offset, letter, bytes);
		memset(file->bytes + offset, letter, bytes);
		/* Without it, NFS does not promise that other ways to the file meet it. */
		HOLDS(msync(maps[at].memory, MOST, MS_SYNC), 0);
	} else {
		same(file, maps[at].memory + offset, offset, bytes);
	}
}

/* ---- the rest ---- */

static void step_cut(void)
{
	int at = any_slot(1), way = below(3);
	if (at < 0 || !slots[at].writes || is_mapped(slots[at].file))
		return;
	struct file *file = &model->files[slots[at].file];
	long size = below(BLOCKS + 1) * BLOCK;
	SAY("cut %d to %ld, way %d", at, size, way);
	HOLDS(way == 0 ? ftruncate(slots[at].fd, size) : way == 1 ? syscall(SYS_ftruncate, slots[at].fd, size) : ftruncate64(slots[at].fd, size), 0);
	if (size > file->size)
		memset(file->bytes + file->size, 0, size - file->size);
	file->size = size;
}

static void step_names(void)
{
	int from = below(files_used), to = below(files_used);
	if (model->name[from] < 0 || from == to)
		return;
	if (below(3) == 0) {
		SAY("unlink %d", from);
		HOLDS(unlink(name_of(from)), 0);
		model->name[from] = -1;
		return;
	}
	SAY("rename %d to %d", from, to);
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s", name_of(from));
	HOLDS(rename(path, name_of(to)), 0);
	model->name[to] = model->name[from];
	model->name[from] = -1;
}

static void step_sync(void)
{
	int at = any_slot(1);
	if (at < 0)
		return;
	SAY("sync %d", at);
	HOLDS(below(2) ? fsync(slots[at].fd) : fdatasync(slots[at].fd), 0);
}

static void step_lock(void)
{
	int at = any_slot(1);
	if (at < 0 || !slots[at].writes)
		return;
	struct flock lock = {.l_type = below(2) ? F_WRLCK : F_UNLCK, .l_start = below(100), .l_len = 10};
	SAY("lock %d", at);
	(void)!fcntl(slots[at].fd, F_SETLK, &lock); /* a server without locks says so, which is not the matter here */
}

static void step_size(void)
{
	int at = any_slot(1);
	struct stat status;
	if (at < 0)
		return;
	SAY("size of %d (file %d)", at, slots[at].file);
	HOLDS(fstat(slots[at].fd, &status), 0);
	HOLDS(status.st_size, model->files[slots[at].file].size);
}

static void *in_a_thread(void *argument)
{
	(void)argument;
	step_transfer();
	return NULL;
}

static void step_thread(void)
{
	pthread_t thread;
	HOLDS(pthread_create(&thread, NULL, in_a_thread, NULL), 0);
	HOLDS(pthread_join(thread, NULL), 0);
}

/* True if the kernel leaves memory of MADV_DONTFORK to a child, as user-mode Linux 6.1 does: the child's own memory at
 * such a place is its parent's, and with it the ring of --async, which every ring's owner keeps out of children so. */
static int children_write_rings(void)
{
	int status;
	char *memory = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	memory[0] = 1;
	CHECK_IS(madvise(memory, BLOCK, MADV_DONTFORK), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		memory = mmap(memory, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		_exit(memory[0]);
	}
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(munmap(memory, BLOCK), 0);
	return status != 0;
}

/* Children are drawn. */
static int has_children = 1;

/* A child uses the parent's descriptors and memory, and opens files of which the parent has nothing cached. */
static void step_child(void)
{
	if (!has_children)
		return;
	pid_t child = fork();
	int status;
	CHECK(child >= 0);
	if (child == 0) {
		in_a_child = 1;
		context = 0;
		liburing.ring_fd = -1;
		ring.fd = -1;
		own.fd = -1; /* the parent's ring */
		own.made = 1;
		HOLDS(io_setup(4, &context), 0);
		for (int round = 0; round < 4; round++) {
			int at = any_slot(0), name = below(files_used), file = model->name[name];
			if (at >= 0 && file >= 0 && !is_cached(file) && below(2)) {
				SAY("child opens %d", name);
				int fd = open(name_of(name), O_RDWR | O_DIRECT);
				CHECK(fd >= 0);
				slots[at] = (struct slot){fd, file, 1, 1, 0};
			}
			below(4) ? step_transfer() : step_memory();
		}
		_exit(0);
	}
	HOLDS(waitpid(child, &status, 0), child);
	if (status != 0)
		_exit(1);
}

/* Submits writes of all blocks, and does not wait for them: the process ends, or the number comes to mean another file. */
static void submits_and_ends(const char *path, int end)
{
	struct iocb iocbs[BLOCKS], *list[BLOCKS];
	struct io_event events[BLOCKS];
	struct timespec no_time = {0, 0};
	struct stat status;
	char other[PATH_MAX];
	io_context_t aio = 0;
	HOLDS(io_setup(BLOCKS, &aio), 0);
	HOLDS(io_getevents(aio, 0, BLOCKS, events, &no_time), 0); /* --async begins */
	int fd = open(path, O_RDWR);
	CHECK(fd >= 0);
	for (int at = 0; at < BLOCKS; at++) {
		list[at] = &iocbs[at];
		io_prep_pwrite(list[at], fd, buffer + at * BLOCK, BLOCK, at * BLOCK);
	}
	HOLDS(io_submit(aio, BLOCKS, list), BLOCKS);
	switch (end) {
	case 0: _exit(0);
	case 1: syscall(SYS_exit_group, 0); break;
	case 2: quick_exit(0);
	case 3: execl("/bin/true", "true", NULL); break;
	}
	snprintf(other, sizeof other, "%s.other", path);
	HOLDS(kernel(SYS_close, fd, 0, 0, 0), 0);
	HOLDS(kernel(SYS_openat, AT_FDCWD, (long)other, O_RDWR | O_CREAT | O_TRUNC, 0644), fd);
	HOLDS(io_getevents(aio, BLOCKS, BLOCKS, events, NULL), BLOCKS);
	for (int at = 0; at < BLOCKS; at++)
		HOLDS((long)events[at].res, BLOCK);
	HOLDS(kernel(SYS_fstat, fd, (long)&status, 0, 0), 0);
	HOLDS(status.st_size, 0);
	HOLDS(unlink(other), 0);
	_exit(0);
}

/* A child submits writes to a file off the lanes, which --async carries out, and the parent finds the data. */
static void step_submitted(void)
{
	const char *scratch = getenv("SCRATCH");
	int end = below(8), status;
	char letter = (char)(1 + below(120)), path[PATH_MAX - 16];
	if (!has_children || scratch == NULL)
		return;
	SAY("a child submits, end %d", end);
	snprintf(path, sizeof path, "%s/m%d", scratch, worker);
	int fd = unseen_open(path, O_RDWR | O_CREAT | O_TRUNC);
	memset(buffer, letter, MOST);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		submits_and_ends(path, end);
	HOLDS(waitpid(child, &status, 0), child);
	if (status != 0)
		_exit(1);
	HOLDS(kernel(SYS_pread64, fd, (long)buffer, MOST, 0), MOST);
	for (int at = 0; at < MOST; at++)
		HOLDS(buffer[at], letter);
	kernel(SYS_close, fd, 0, 0, 0);
	HOLDS(unlink(path), 0);
}

/* ---- a child that is killed ---- */

/* Milliseconds by which writes on a lane are late at most (LATE_MS): then every program has many such children. */
static int late_ms;
static char *of_killed; /* what it writes */
static int killed_fd, killed_blocks;

static void *writes_without_end(void *argument)
{
	uintptr_t thread = (uintptr_t)argument;
	for (int number = (int)thread % killed_blocks;; number = (number + 1) % killed_blocks) {
		model->began[thread] = now();
		model->by_killed += pwrite(killed_fd, of_killed, BLOCK, (off_t)number * BLOCK) == BLOCK;
	}
	return NULL;
}

/* True if a write of the child does not end: it has gone to the late lane. */
static int is_stuck(void)
{
	for (int thread = 0; thread < 3; thread++)
		if (model->began[thread] != 0 && now() - model->began[thread] > 0.5)
			return 1;
	return 0;
}

static void writes_until_it_is_killed(const char *path, int way)
{
	pthread_t thread;
	struct iocb iocbs[BLOCKS], *list[BLOCKS];
	struct io_event events[BLOCKS];
	io_context_t aio = 0;
	killed_fd = open(path, O_RDWR | O_DIRECT);
	CHECK(killed_fd >= 0);
	if (way < 2) {
		for (uintptr_t other = 1; other <= (uintptr_t)way * 2; other++)
			HOLDS(pthread_create(&thread, NULL, writes_without_end, (void *)other), 0);
		writes_without_end(NULL);
	}
	HOLDS(io_setup(BLOCKS, &aio), 0);
	for (;;) {
		for (int number = 0; number < killed_blocks; number++) {
			list[number] = &iocbs[number];
			io_prep_pwrite(list[number], killed_fd, of_killed, BLOCK, (off_t)number * BLOCK);
		}
		HOLDS(io_submit(aio, killed_blocks, list), killed_blocks);
		HOLDS(io_getevents(aio, killed_blocks, killed_blocks, events, NULL), killed_blocks);
		model->by_killed += killed_blocks;
	}
}

/* A child writes a file past the page cache and is killed at any point, from before its first write on, or when a write has
 * got stuck on a late lane. Then the parent writes all blocks anew, by a descriptor that it opens then or that it has used
 * before. No write of the child may arrive after that, however late a lane is. */
static void step_killed(void)
{
	int name = below(files_used), file = model->name[name], way = below(3), opens = below(2), fd = -1;
	int after_writes = below(4) ? below(40) : 0, after_us = below(20000), until_stuck = late_ms && way < 2 && below(4);
	char letter = (char)(1 + below(120));
	if (!has_children || file < 0 || is_cached(file) || is_registered(file) || model->files[file].size < BLOCK)
		return;
	if (!opens) {
		CHECK((fd = open(name_of(name), O_RDWR | O_DIRECT)) >= 0);
		HOLDS(pread(fd, buffer, BLOCK, 0), BLOCK); /* it has the lanes */
	}
	killed_blocks = (int)(model->files[file].size / BLOCK);
	SAY("a child writes %d, way %d, and is killed after %d writes and %d us%s; %s", name, way, after_writes, after_us,
	    until_stuck ? " when one is stuck" : "", opens ? "opened afterwards" : "open all the time");
	model->by_killed = 0;
	for (int thread = 0; thread < 3; thread++)
		model->began[thread] = 0;
	of_killed = aligned(BLOCK);
	memset(of_killed, 127, BLOCK);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_IS(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
		writes_until_it_is_killed(name_of(name), way);
	}
	int status, alive;
	double begun = now();
	do
		usleep((useconds_t)after_us);
	while ((alive = waitpid(child, &status, WNOHANG) == 0) &&
	       (model->by_killed < after_writes || (until_stuck && !is_stuck() && now() - begun < 10)));
	HOLDS(alive, 1);
	HOLDS(kill(child, SIGKILL), 0);
	HOLDS(waitpid(child, &status, 0), child);
	free(of_killed);
	if (opens)
		CHECK((fd = open(name_of(name), O_RDWR | O_DIRECT)) >= 0);
	memset(buffer, letter, MOST);
	for (int number = 0; number < killed_blocks; number++) {
		int by = below(3);
		off_t from = (off_t)number * BLOCK;
		HOLDS(by == 0 ? by_libaio(fd, 1, buffer, BLOCK, from) : by == 1 ? by_aio(fd, 1, buffer, BLOCK, from) : pwrite(fd, buffer, BLOCK, from), BLOCK);
	}
	memset(model->files[file].bytes, letter, (size_t)killed_blocks * BLOCK);
	if (below(2))
		HOLDS(fsync(fd), 0);
	HOLDS(close(fd), 0);
	if (until_stuck) { /* now, before later steps write the blocks anew */
		usleep((useconds_t)late_ms * 1000);
		fd = unseen_open(name_of(name), O_RDONLY | O_DIRECT);
		HOLDS(kernel(SYS_pread64, fd, (long)buffer, killed_blocks * BLOCK, 0), killed_blocks * BLOCK);
		same(&model->files[file], buffer, 0, killed_blocks * BLOCK);
		kernel(SYS_close, fd, 0, 0, 0);
	}
}

/* ---- appends, syncs at one time, addresses that lead nowhere ---- */

/* Appends by one of the interfaces that ask for the end of the file. */
static long append(int way, int fd, const char *from, long bytes)
{
	struct iovec vector = {(void *)from, (size_t)bytes};
	struct stat status;
	switch (way) {
	case 0: return pwritev2(fd, &vector, 1, 0, RWF_APPEND);
	case 1: return lseek(fd, 0, SEEK_END) < 0 ? -1 : write(fd, from, (size_t)bytes);
	case 2: return lseek(fd, 0, SEEK_END) < 0 ? -1 : writev(fd, &vector, 1);
	case 3: return fstat(fd, &status) != 0 ? -1 : pwrite(fd, from, (size_t)bytes, status.st_size);
	case 4: {
		struct iocb iocb, *list = &iocb;
		struct io_event event;
		io_context_t own_context = 0;
		io_prep_pwrite(&iocb, fd, (void *)from, (size_t)bytes, 0);
		iocb.aio_rw_flags = RWF_APPEND;
		HOLDS(io_setup(1, &own_context), 0);
		HOLDS(io_submit(own_context, 1, &list), 1);
		HOLDS(io_getevents(own_context, 1, 1, &event, NULL), 1);
		HOLDS(io_destroy(own_context), 0);
		return (long)event.res;
	}
	default:
		if (!has_own_ring())
			return pwritev2(fd, &vector, 1, 0, RWF_APPEND);
		return of_own_ring(&(struct io_uring_sqe){.opcode = IORING_OP_WRITE, .fd = fd, .addr = (uintptr_t)from, .len = (unsigned)bytes, .rw_flags = RWF_APPEND}, 0);
	}
}

/* A write of libaio that extends the file is submitted, and a record is appended before anybody has fetched its event. */
static void step_append(void)
{
	int at = any_slot(1), way = below(6);
	long first = 1 + below(BLOCK), second = 1 + below(BLOCK);
	if (at < 0 || !slots[at].writes || slots[at].direct)
		return;
	struct file *file = &model->files[slots[at].file];
	if (file->size + first + second > MOST)
		return;
	SAY("append to %d behind a submitted write, way %d: %ld and %ld at %ld", at, way, first, second, file->size);
	struct iocb iocb, *list = &iocb;
	struct io_event event;
	memset(buffer, 1 + below(60), first);
	memset(buffer + first, 61 + below(60), second);
	memcpy(file->bytes + file->size, buffer, first + second);
	io_prep_pwrite(&iocb, slots[at].fd, buffer, first, file->size);
	HOLDS(io_submit(context, 1, &list), 1);
	HOLDS(append(way, slots[at].fd, buffer + first, second), second);
	HOLDS(io_getevents(context, 1, 1, &event, NULL), 1);
	HOLDS((long)event.res, first);
	long from = file->size;
	file->size += first + second;
	met_by_all(at, from, first + second);
}

static void *syncs_it(void *argument)
{
	int fd = *(int *)argument;
	HOLDS(below(2) ? fsync(fd) : fdatasync(fd), 0);
	return NULL;
}

static void step_syncs(void)
{
	int at = any_slot(1);
	pthread_t threads[2];
	if (at < 0)
		return;
	step_transfer();
	SAY("two syncs of %d at one time", at);
	for (int which = 0; which < 2; which++)
		HOLDS(pthread_create(&threads[which], NULL, syncs_it, &slots[at].fd), 0);
	for (int which = 0; which < 2; which++)
		HOLDS(pthread_join(threads[which], NULL), 0);
}

/* The file keeps its bytes. */
static void step_invalid(void)
{
	int at = any_slot(1), way = below(6);
	if (at < 0 || model->files[slots[at].file].size < 2 * BLOCK)
		return;
	struct slot *slot = &slots[at];
	char *nowhere = mmap(NULL, BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* within the kernel's bounds */
	CHECK(nowhere != MAP_FAILED);
	struct iovec vectors[2] = {{buffer, BLOCK}, {nowhere, BLOCK}}, one = {nowhere, BLOCK};
	SAY("addresses of no memory, %d, way %d", at, way);
	errno = 0;
	switch (way) {
	case 0: HOLDS(pread(slot->fd, nowhere, BLOCK, 0), -1); break;
	case 1: HOLDS(preadv(slot->fd, &one, 1, 0), -1); break;
	case 2: HOLDS(preadv(slot->fd, (struct iovec *)nowhere, 2, 0), -1); break;
	case 3: HOLDS(preadv2(slot->fd, vectors + 1, 1, BLOCK, 0), -1); break;
	case 4: HOLDS(pwrite(slot->fd, nowhere, BLOCK, 0), -1); break;
	default: HOLDS(pwritev(slot->fd, &one, 1, BLOCK), -1);
	}
	HOLDS(errno, way > 3 && !slot->writes ? EBADF : EFAULT);
	HOLDS(munmap(nowhere, BLOCK), 0);
	HOLDS(pread(slot->fd, buffer, BLOCK, -BLOCK), -1);
	HOLDS(errno, EINVAL);
	HOLDS(syscall(SYS_preadv, slot->fd, vectors, -1L, 0L, 0L), -1);
	HOLDS(errno, EINVAL);
}

static void step(uint64_t seed, int number)
{
	state = seed * 1000003 + (uint64_t)number * 7919;
	model->step = number;
	if (seed % 4 == 1 && below(3) == 0) { /* a program that maps its files */
		switch (below(4)) {
		case 0: step_map(); break;
		case 1: step_close(); break;
		default: step_memory();
		}
		return;
	}
	if (seed % 5 == 1 && below(4) == 0) { /* a program that appends, and that makes errors */
		switch (below(4)) {
		case 0:
		case 1: step_append(); break;
		case 2: registers ? step_invalid() : step_syncs(); break;
		default: step_invalid();
		}
		return;
	}
	if ((late_ms || seed % 6 == 0) && below(late_ms ? 8 : 12) == 0) { /* a program with children that are killed */
		step_killed();
		return;
	}
	if (out_of_sight && below(4) == 0) {
		step_open();
		return;
	}
	if (registers && below(2)) {
		below(3) ? step_transfer() : step_places();
		return;
	}
	switch (below(24)) {
	case 0 ... 4: step_open(); break;
	case 5 ... 7: step_close(); break;
	case 8: step_duplicate(); break;
	case 9: step_map(); break;
	case 10 ... 12: step_memory(); break;
	case 13: below(2) ? step_names() : step_cut(); break;
	case 14: step_sync(); break;
	case 15: below(4) == 0 ? step_lock() : step_size(); break;
	case 16: registers ? step_places() : step_thread(); break;
	case 17:
		switch (below(4)) {
		case 0: step_child(); break;
		case 1: step_submitted(); break;
		default: step_size();
		}
		break;
	default: step_transfer();
	}
}

static void whole_program(uint64_t seed, const char *keep)
{
	for (int at = 0; at < SLOTS; at++)
		slots[at].fd = -1;
	for (int at = 0; at < 4; at++)
		own.places[at].fd = -1;
	files_used = 1 + (int)(seed % FILES);
	slots_used = 2 + (int)(seed / FILES % 4);
	rings = seed % 7 == 0;
	out_of_sight = seed % 4 == 2;
	registers = seed % 4 == 3 && seed % 3 != 0; /* with several files */
	for (int name = 0; name < FILES; name++) {
		int fd = unseen_open(name_of(name), O_RDWR | O_CREAT | O_TRUNC);
		struct file *file = &model->files[name];
		*file = (struct file){.size = (BLOCKS - 2) * BLOCK, .links = 1};
		memset(file->bytes, 'a' + name, file->size);
		CHECK_IS(kernel(SYS_pwrite64, fd, (long)file->bytes, file->size, 0), file->size);
		kernel(SYS_fsync, fd, 0, 0, 0);
		kernel(SYS_close, fd, 0, 0, 0);
		model->name[name] = name;
	}
	model->made = FILES;
	for (int number = 0; number < STEPS; number++)
		if (keep[number])
			step(seed, number);
	/* The end: everything is closed, late writes have arrived, and what the files hold is read by nobody's cache. */
	usleep((useconds_t)late_ms * 1000);
	model->step = STEPS;
	SAY("end");
	for (int at = 0; at < SLOTS; at++)
		if (slots[at].fd >= 0)
			HOLDS(close(slots[at].fd), 0);
	for (int at = 0; at < MAPS; at++)
		if (maps[at].memory != NULL)
			HOLDS(munmap(maps[at].memory, MOST), 0);
	for (int name = 0; name < FILES; name++) {
		if (model->name[name] < 0)
			continue;
		struct file *file = &model->files[model->name[name]];
		SAY("end, name %d", name);
		int fd = unseen_open(name_of(name), O_RDONLY | O_DIRECT);
		HOLDS(kernel(SYS_pread64, fd, (long)buffer, MOST, 0), file->size);
		same(file, buffer, 0, file->size);
		kernel(SYS_close, fd, 0, 0, 0);
	}
}

/* Runs the steps in a process of its own, which tells them to `told`. Returns the process's status. */
static int status_of(uint64_t seed, const char *keep)
{
	int status;
	CHECK_IS(ftruncate(told, 0), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		kernel(SYS_dup3, told, 2, 0, 0);
		alarm(600); /* a program that hangs has failed */
		buffer = aligned(MOST);
		HOLDS(io_setup(4, &context), 0);
		if (io_uring_queue_init(4, &liburing, 0) != 0)
			liburing.ring_fd = -1;
		whole_program(seed, keep);
		_exit(0);
	}
	CHECK_IS(waitpid(child, &status, 0), child);
	return status;
}

static void show(uint64_t seed, const char *how, int status)
{
	char text[65536];
	ssize_t length = pread(told, text, sizeof text - 1, 0);
	CHECK(length >= 0);
	text[length] = 0;
	dprintf(2, "seed %llu, %s: status %x\n%s", (unsigned long long)seed, how, status, text);
}

/* A failure that does not come twice is shown as it came; so is one beside a late lane, where fewer steps take other times. */
static void shrink(uint64_t seed, int status)
{
	char keep[STEPS], how[16 * STEPS];
	memset(keep, 1, sizeof keep);
	show(seed, "whole", status);
	if (late_ms)
		return;
	for (int some = STEPS / 4; some > 0; some /= 2) {
		for (int from = 0; from < STEPS; from += some) {
			char less[STEPS];
			memcpy(less, keep, sizeof keep);
			memset(less + from, 0, from + some > STEPS ? STEPS - from : some);
			if (memcmp(less, keep, sizeof keep) != 0 && status_of(seed, less) != 0)
				memcpy(keep, less, sizeof keep);
		}
	}
	int length = snprintf(how, sizeof how, "shrunk to the steps");
	for (int number = 0; number < STEPS; number++)
		if (keep[number])
			length += snprintf(how + length, sizeof how - length, " %d", number);
	status = status_of(seed, keep);
	show(seed, how, status);
}

/* Counts of the programs of all workers. */
static struct total {
	_Atomic long programs, failed;
} *total;

static void prepare(void)
{
	model = mmap(NULL, sizeof *model, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(model != MAP_FAILED);
	CHECK((told = (int)kernel(SYS_memfd_create, (long)"told", MFD_CLOEXEC, 0, 0)) >= 0);
	CHECK_IS(kernel(SYS_fcntl, told, F_SETFL, O_APPEND, 0), 0);
}

static void works(uint64_t seed, uint64_t every, double seconds)
{
	double begun = now();
	char all[STEPS];
	memset(all, 1, sizeof all);
	prepare();
	do {
		int status = status_of(seed, all);
		if (status != 0) {
			total->failed++;
			shrink(seed, status);
		}
		total->programs++;
		seed += every;
	} while (now() - begun < seconds && total->failed < 3);
}

/* Some steps of one seed, again and again. */
static int replay(uint64_t seed, int times, int count, char **steps)
{
	char keep[STEPS];
	int failed = 0;
	prepare();
	memset(keep, count == 0, sizeof keep);
	for (int at = 0; at < count; at++)
		keep[atoi(steps[at]) % STEPS] = 1;
	for (int turn = 0; turn < times; turn++) {
		int status = status_of(seed, keep);
		if (status != 0 && failed++ == 0)
			show(seed, "replayed", status);
	}
	printf("%d of %d failed\n", failed, times);
	return failed != 0;
}

int main(int count, char **arguments)
{
	if (count > 3 && strcmp(arguments[1], "replay") == 0)
		return replay(strtoull(arguments[2], NULL, 10), atoi(arguments[3]), count - 4, arguments + 4);
	if (count != 4)
		return 2;
	uint64_t seed = strtoull(arguments[1], NULL, 10);
	double seconds = atof(arguments[2]);
	int workers = atoi(arguments[3]);
	total = mmap(NULL, sizeof *total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(total != MAP_FAILED);
	const char *late = getenv("LATE_MS");
	late_ms = late != NULL ? atoi(late) : 0;
	const char *asynchronous = getenv("IOTRAP_ASYNC");
	if (asynchronous != NULL && *asynchronous && children_write_rings()) {
		has_children = 0;
		dprintf(1, "this kernel gives children the ring of --async: none are forked\n");
	}
	for (worker = 0; worker < workers; worker++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			works(seed + (uint64_t)worker, (uint64_t)workers, seconds);
			_exit(0);
		}
	}
	int status, ill = 0;
	while (wait(&status) > 0)
		ill |= status;
	printf("%ld programs from seed %llu on, %ld failed\n", (long)total->programs, (unsigned long long)seed, (long)total->failed);
	return total->failed != 0 || ill != 0;
}
