/* A file whose descriptor is 2: nobody else's messages belong into it. */
#include "check.h"

int main(void)
{
	CHECK_IS(close(2), 0);
	int fd = open(at(0, "database"), O_RDWR | O_CREAT | O_DIRECT, 0644);
	if (fd != 2)
		return 3;
	char *block = aligned(BLOCK);
	memset(block, 'd', BLOCK);
	for (int number = 0; number < 64; number++)
		if (pwrite(fd, block, BLOCK, number * BLOCK) != BLOCK || pread(fd, block, BLOCK, number * BLOCK) != BLOCK)
			return 4;
	return fsync(fd) != 0;
}
