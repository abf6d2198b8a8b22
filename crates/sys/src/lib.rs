//! What the Linux kernel offers, made safe to hold: the io_uring ring, aligned buffers, the clock, facts about files and devices.
