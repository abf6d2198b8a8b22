/* Files whose names, mounts and numbers change beside requests that are spread: names NAME. The data go to the file
 * that the program has opened, and come from there. */
#include "check.h"
#include <linux/close_range.h>
#include <sys/mount.h>

enum { BLOCKS = 32 };

static char *block;

static void use(int fd, char before, char after)
{
	for (int number = 0; number < BLOCKS; number++) {
		CHECK_IS(pread(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
		CHECK(holds(block, before, number));
		fill(block, after, number);
		CHECK_IS(pwrite(fd, block, BLOCK, (off_t)number * BLOCK), BLOCK);
	}
}

static void two_files(void)
{
	make_file(at(0, "one"), 'a', BLOCKS);
	make_file(at(0, "two"), 'b', BLOCKS);
}

/* Two names change places, before the first request and between requests. */
static void names_are_exchanged(void)
{
	for (int seen = 0; seen < 2; seen++) {
		two_files();
		int fd = open_direct(at(0, "one"), O_RDWR);
		if (seen)
			use(fd, 'a', 'a');
		CHECK_IS(inline6(SYS_renameat2, AT_FDCWD, (long)at(0, "one"), AT_FDCWD, (long)at(0, "two"), RENAME_EXCHANGE, 0), 0);
		use(fd, 'a', 'A');
		expect_blocks(at(1, "two"), 'A', BLOCKS);
		expect_blocks(at(1, "one"), 'b', BLOCKS);
		int other = open_direct(at(0, "one"), O_RDWR);
		use(other, 'b', 'B');
		use(fd, 'A', 'C');
		expect_blocks(at(2, "one"), 'B', BLOCKS);
		expect_blocks(at(2, "two"), 'C', BLOCKS);
		CHECK_IS(close(fd), 0);
		CHECK_IS(close(other), 0);
	}
}

/* The name becomes a link to another file, while a hard link keeps the opened one. */
static void a_link_takes_the_name(void)
{
	for (int seen = 0; seen < 2; seen++) {
		two_files();
		unlink(at(0, "kept"));
		int fd = open_direct(at(0, "one"), O_RDWR);
		if (seen)
			use(fd, 'a', 'a');
		CHECK_IS(link(at(0, "one"), at(0, "kept")), 0);
		CHECK_IS(unlink(at(0, "one")), 0);
		CHECK_IS(symlink("two", at(0, "one")), 0);
		use(fd, 'a', 'A');
		expect_blocks(at(1, "kept"), 'A', BLOCKS);
		expect_blocks(at(1, "one"), 'b', BLOCKS);
		CHECK_IS(close(fd), 0);
		CHECK_IS(unlink(at(0, "one")), 0);
	}
}

/* A buffered descriptor by a file handle, before the first request. */
static void opened_by_handle(void)
{
	struct {
		struct file_handle handle;
		char room[MAX_HANDLE_SZ];
	} of = {.handle.handle_bytes = MAX_HANDLE_SZ};
	int mount_id, home = open(lane(0), O_RDONLY | O_DIRECTORY);
	two_files();
	int fd = open_direct(at(0, "one"), O_RDWR);
	CHECK_IS(name_to_handle_at(AT_FDCWD, at(0, "one"), &of.handle, &mount_id, 0), 0);
	int other = open_by_handle_at(home, &of.handle, O_RDWR);
	CHECK(other >= 0);
	for (int number = 0; number < BLOCKS; number++) {
		fill(block, 'x', number);
		CHECK_IS(pwrite(other, block, BLOCK, (off_t)number * BLOCK), BLOCK);
	}
	use(fd, 'x', 'y');
	for (int number = 0; number < BLOCKS; number++) {
		CHECK_IS(pread(other, block, BLOCK, (off_t)number * BLOCK), BLOCK);
		CHECK(holds(block, 'y', number));
	}
}

static void *divides(void *argument)
{
	int *numbers = argument;
	CHECK_IS(syscall(SYS_close_range, numbers[0], ~0U, CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC), 0);
	CHECK_IS(close(numbers[0]), 0);
	int other = open_direct(at(0, "two"), O_RDWR);
	CHECK_IS(other, numbers[0]);
	use(other, 'b', 'B');
	return NULL;
}

/* A thread takes a table of descriptors of its own; the number means another file there. */
static void a_thread_divides(void)
{
	two_files();
	pthread_t thread;
	int fd = open_direct(at(0, "one"), O_RDWR);
	use(fd, 'a', 'a');
	CHECK_IS(pthread_create(&thread, NULL, divides, &fd), 0);
	CHECK_IS(pthread_join(thread, NULL), 0);
	use(fd, 'a', 'A');
	expect_blocks(at(1, "one"), 'A', BLOCKS);
	expect_blocks(at(1, "two"), 'B', BLOCKS);
}

/* A child process shares the table, and gives the number another meaning. */
static void a_child_shares_the_table(void)
{
	two_files();
	int status, fd = open_direct(at(0, "one"), O_RDWR);
	use(fd, 'a', 'A');
	pid_t child = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	if (child == 0) {
		CHECK_IS(kernel(SYS_close, fd, 0, 0, 0), 0);
		int other = (int)kernel(SYS_openat, AT_FDCWD, (long)at(0, "two"), O_RDWR | O_DIRECT, 0);
		CHECK_IS(other, fd);
		_exit(0);
	}
	CHECK_IS(waitpid(child, &status, 0), child);
	CHECK_IS(status, 0);
	use(fd, 'b', 'B');
	expect_blocks(at(1, "one"), 'A', BLOCKS);
	expect_blocks(at(1, "two"), 'B', BLOCKS);
}

/* Another directory takes the place of a lane, with other files of the same names. */
static void a_lane_is_replaced(void)
{
	char other[PATH_MAX];
	snprintf(other, sizeof other, "%s/inner", lane(0));
	two_files();
	int fd = open_direct(at(0, "one"), O_RDWR);
	use(fd, 'a', 'A');
	make_file(at(0, "inner/one"), 'i', BLOCKS);
	CHECK_IS(umount2(lane(1), MNT_DETACH), 0);
	CHECK_IS(mount(other, lane(1), NULL, MS_BIND, NULL), 0);
	use(fd, 'A', 'B');
	int again = open_direct(at(0, "one"), O_RDWR);
	use(again, 'B', 'C');
	CHECK_IS(fsync(again), 0);
	expect_blocks(at(0, "one"), 'C', BLOCKS);
	expect_blocks(at(0, "inner/one"), 'i', BLOCKS);
}

/* A lane that was mounted again for reading only: the others carry the writes. */
static void a_lane_is_read_only(void)
{
	two_files();
	CHECK_IS(mount(NULL, lane(1), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
	int fd = open_direct(at(0, "one"), O_RDWR);
	use(fd, 'a', 'A');
	CHECK_IS(fsync(fd), 0);
	CHECK_IS(close(fd), 0);
	expect_blocks(at(0, "one"), 'A', BLOCKS);
}

int main(int count, char **arguments)
{
	static const struct test tests[] = {
		{"names_are_exchanged", names_are_exchanged},
		{"a_link_takes_the_name", a_link_takes_the_name},
		{"opened_by_handle", opened_by_handle},
		{"a_thread_divides", a_thread_divides},
		{"a_child_shares_the_table", a_child_shares_the_table},
		{"a_lane_is_replaced", a_lane_is_replaced},
		{"a_lane_is_read_only", a_lane_is_read_only},
	};
	CHECK(count == 2);
	block = aligned(BLOCK);
	return run_named(tests, sizeof tests / sizeof *tests, arguments[1]);
}
