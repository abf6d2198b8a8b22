/* Persistent reservations by the kernel's interface (linux/pr.h):
 *
 *   pr_ops DEVICE register OLD NEW | reserve TYPE KEY | release TYPE KEY | preempt TYPE KEY KEY | abort TYPE KEY KEY |
 *                 clear KEY
 *
 * "abort" preempts and aborts. Types and keys are numbers. The status is 0 if the device has done it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/pr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

static unsigned long long number(char **words, int at)
{
	if (words[at] == NULL) {
		fprintf(stderr, "pr_ops: a number is missing\n");
		exit(2);
	}
	return strtoull(words[at], NULL, 0);
}

int main(int count, char **words)
{
	if (count < 4) {
		fprintf(stderr, "pr_ops DEVICE COMMAND NUMBER...\n");
		return 2;
	}
	int fd = open(words[1], O_RDWR);
	if (fd < 0) {
		perror(words[1]);
		return 2;
	}
	const char *command = words[2];
	int result;
	if (strcmp(command, "register") == 0) {
		struct pr_registration it = {.old_key = number(words, 3), .new_key = number(words, 4)};
		result = ioctl(fd, IOC_PR_REGISTER, &it);
	} else if (strcmp(command, "reserve") == 0 || strcmp(command, "release") == 0) {
		struct pr_reservation it = {.type = number(words, 3), .key = number(words, 4)};
		result = ioctl(fd, strcmp(command, "reserve") == 0 ? IOC_PR_RESERVE : IOC_PR_RELEASE, &it);
	} else if (strcmp(command, "preempt") == 0 || strcmp(command, "abort") == 0) {
		struct pr_preempt it = {.type = number(words, 3), .old_key = number(words, 4), .new_key = number(words, 5)};
		result = ioctl(fd, strcmp(command, "preempt") == 0 ? IOC_PR_PREEMPT : IOC_PR_PREEMPT_ABORT, &it);
	} else if (strcmp(command, "clear") == 0) {
		struct pr_clear it = {.key = number(words, 3)};
		result = ioctl(fd, IOC_PR_CLEAR, &it);
	} else {
		fprintf(stderr, "pr_ops: no command %s\n", command);
		return 2;
	}
	/* Linux answers with an error number, or with the device's status. */
	printf("%s: %d, %s\n", command, result, result < 0 ? strerror(errno) : "answered");
	return result == 0 ? 0 : 1;
}
