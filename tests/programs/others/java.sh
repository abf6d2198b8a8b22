#!/usr/bin/env bash
# Java: threads write and read files past the page cache (FileChannel with DIRECT), through it, by asynchronous channels
# and by mapped memory; they lock, cut, copy and rename files. Prints the sums of all contents.
set -euo pipefail
case $1 in packages) echo default-jdk-headless; exit ;; sources | build) exit ;; esac
cat > Files.java <<'JAVA'
import com.sun.nio.file.ExtendedOpenOption;
import java.io.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;
import java.security.*;
import java.util.*;
import java.util.concurrent.*;
import static java.nio.file.StandardOpenOption.*;

class Files {
    static final int BLOCK = 4096, BLOCKS = 1024, THREADS = 4;

    static ByteBuffer block(int number, int round) {
        ByteBuffer all = ByteBuffer.allocateDirect(2 * BLOCK).alignedSlice(BLOCK).limit(BLOCK).slice().alignedSlice(BLOCK);
        while (all.remaining() >= 8) all.putInt(number).putInt(round);
        return all.flip();
    }

    static void sum(String name) throws Exception {
        MessageDigest sum = MessageDigest.getInstance("SHA-256");
        byte[] part = new byte[65536];
        long size = 0;
        try (InputStream in = new FileInputStream(name)) {
            for (int got; (got = in.read(part)) > 0; size += got) sum.update(part, 0, got);
        }
        System.out.println(name + " " + size + " " + new java.math.BigInteger(1, sum.digest()).toString(16));
    }

    interface Work { void at(int thread) throws Exception; }

    static void inThreads(Work work) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        List<Future<?>> all = new ArrayList<>();
        for (int at = 0; at < THREADS; at++) {
            int thread = at;
            all.add(threads.submit(() -> { work.at(thread); return null; }));
        }
        for (Future<?> one : all) one.get();
        threads.shutdown();
    }

    static void expect(ByteBuffer found, int number, int round) {
        if (!found.flip().equals(block(number, round))) throw new IllegalStateException("block " + number + " of round " + round);
    }

    public static void main(String[] arguments) throws Exception {
        for (boolean direct : new boolean[] {true, false}) {
            String name = direct ? "direct" : "buffered";
            Set<OpenOption> options = new HashSet<>(List.of(CREATE, READ, WRITE));
            if (direct) options.add(ExtendedOpenOption.DIRECT);
            try (FileChannel file = FileChannel.open(Path.of(name), options)) {
                for (int round = 0; round < 3; round++) {
                    int now = round;
                    inThreads(thread -> {
                        for (int number = thread; number < BLOCKS; number += THREADS)
                            if (file.write(block(number, now), (long) number * BLOCK) != BLOCK) throw new IOException("short");
                    });
                    if (round == 1) file.force(true);
                    inThreads(thread -> {
                        for (int number = thread; number < BLOCKS; number += THREADS) {
                            ByteBuffer found = block(0, 0);
                            file.read(found.clear(), (long) number * BLOCK);
                            expect(found, number, now);
                        }
                    });
                }
                sum(name);
                file.truncate((long) BLOCKS / 2 * BLOCK);
                file.write(block(7, 7), (long) BLOCKS * BLOCK);
                sum(name);
            }
        }
        try (AsynchronousFileChannel file = AsynchronousFileChannel.open(Path.of("asynchronous"), CREATE, READ, WRITE)) {
            List<Future<Integer>> all = new ArrayList<>();
            for (int number = 0; number < BLOCKS; number++) all.add(file.write(block(number, 9), (long) number * BLOCK));
            for (Future<Integer> one : all) if (one.get() != BLOCK) throw new IOException("short");
            try (FileLock lock = file.lock().get()) {
                file.force(false);
                file.write(block(1, 1), 0).get();
            }
        }
        sum("asynchronous");
        // A mapping lives on when its channel is closed, beside a channel that passes by the page cache.
        MappedByteBuffer mapped;
        try (FileChannel file = FileChannel.open(Path.of("mapped"), CREATE, READ, WRITE)) {
            for (int number = 0; number < 64; number++) file.write(block(number, 5));
            mapped = file.map(FileChannel.MapMode.READ_WRITE, 0, 64L * BLOCK);
        }
        try (FileChannel file = FileChannel.open(Path.of("mapped"), READ, WRITE, ExtendedOpenOption.DIRECT)) {
            for (int number = 0; number < 64; number += 2) file.write(block(number, 6), (long) number * BLOCK);
            for (int number = 1; number < 64; number += 2) mapped.put(number * BLOCK, (byte) 42);
            mapped.force();
            for (int number = 0; number < 64; number += 2)
                if (mapped.getInt(number * BLOCK + 4) != 6) throw new IllegalStateException("old block " + number);
        }
        sum("mapped");
        try (FileChannel from = FileChannel.open(Path.of("direct"), READ, WRITE, ExtendedOpenOption.DIRECT);
                FileChannel to = FileChannel.open(Path.of("copied"), CREATE, WRITE)) {
            for (int number = 0; number < 64; number++) from.write(block(number, 8), (long) number * BLOCK);
            for (long at = 0; at < from.size();) at += from.transferTo(at, from.size() - at, to);
        }
        sum("copied");
        java.nio.file.Files.move(Path.of("copied"), Path.of("direct"), StandardCopyOption.REPLACE_EXISTING);
        sum("direct");
        Process child = new ProcessBuilder("cksum", "direct", "mapped", "asynchronous").redirectErrorStream(true).start();
        System.out.print(new String(child.getInputStream().readAllBytes()));
        System.out.println(child.waitFor());
    }
}
JAVA
java -Xshare:auto -XX:TieredStopAtLevel=1 Files.java
