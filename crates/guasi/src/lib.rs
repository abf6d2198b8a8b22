//! Asynchronous calls: io_uring for what the kernel does asynchronously, a thread pool for the rest.
