/*
 * The system calls of `plimsoll files --op create,symlink,rename,delete-renamed` with one thread, and nothing else:
 * the limit that the file system sets. Names are those of `plimsoll files`.
 *
 *     calls DIRECTORY FILES FILES_PER_DIRECTORY BYTES
 *
 * Prints as JSON, of each operation, the files a second and the microseconds of processor time a file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char base[3000], content[1 << 20];
static long per_directory, bytes;

static const char *path(char *place, const char *kind, long file, const char *end)
{
	sprintf(place, "%s/thrd000-d%04ld/f%s.%07ld%s", base, file / per_directory, kind, file, end);
	return place;
}

static void must(int result, const char *what, const char *name)
{
	if (result < 0) {
		fprintf(stderr, "calls: %s %s: %s\n", what, name, strerror(errno));
		exit(1);
	}
}

static void create(long file)
{
	char name[4096];
	int fd = open(path(name, "", file, ""), O_WRONLY | O_CREAT | O_EXCL, 0666);

	must(fd, "create", name);
	if (bytes > 0)
		must(write(fd, content, bytes) == bytes ? 0 : -1, "write", name);
	must(close(fd), "close", name);
}

static void make_link(long file)
{
	char name[4096], target[4096];

	must(symlink(path(target, "", file, ""), path(name, "-symlink", file, "")), "symlink", name);
}

static void make_new_name(long file)
{
	char old[4096], new[4096];

	must(rename(path(old, "", file, ""), path(new, "", file, ".renamed")), "rename", old);
}

static void delete_renamed(long file)
{
	char name[4096];

	must(unlink(path(name, "", file, ".renamed")), "unlink", name);
}

static const struct { const char *name; void (*one)(long); } operations[] = {
	{"create", create}, {"symlink", make_link}, {"rename", make_new_name}, {"delete-renamed", delete_renamed},
};

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	char name[4096];
	long files;

	if (argc != 5 || strlen(argv[1]) >= sizeof base)
		return fprintf(stderr, "calls DIRECTORY FILES FILES_PER_DIRECTORY BYTES\n"), 2;
	strcpy(base, argv[1]);
	files = atol(argv[2]), per_directory = atol(argv[3]), bytes = atol(argv[4]);
	if (files < 1 || per_directory < 1 || bytes < 0 || bytes > (long) sizeof content)
		return fprintf(stderr, "calls: a number is out of range\n"), 2;
	memset(content, 'x', sizeof content);
	for (long directory = 0; directory * per_directory < files; directory++) {
		sprintf(name, "%s/thrd000-d%04ld", base, directory);
		must(mkdir(name, 0755), "mkdir", name);
	}
	for (size_t which = 0; which < sizeof operations / sizeof *operations; which++) {
		double began = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);

		for (long file = 0; file < files; file++)
			operations[which].one(file);
		used = now(CLOCK_PROCESS_CPUTIME_ID) - used;
		printf("%s\"%s\": [%.1f, %.3f]", which ? ", " : "{", operations[which].name,
		       files / (now(CLOCK_MONOTONIC) - began), used * 1e6 / files);
	}
	puts("}");
	return 0;
}
