#!/usr/bin/env bash
# Go: goroutines write and read files past the page cache and through it, cut, rename and map them. Linked
# statically, linked dynamically (cgo), and with C code that uses the same descriptors through libc. Prints the sums of
# all contents.
set -euo pipefail
case $1 in packages) echo golang-go gcc; exit ;; sources | build) exit ;; esac
export GO111MODULE=off GOFLAGS='' HOME="${HOME:-$(realpath ..)}"
mkdir -p ../go
cat > ../go/c.go <<'GO'
//go:build cgo

package main

/*
#define _GNU_SOURCE
#include <unistd.h>
static long put(int fd, void *data, unsigned long count, long offset) { return pwrite(fd, data, count, offset); }
static long get(int fd, void *data, unsigned long count, long offset) { return pread(fd, data, count, offset); }
*/
import "C"
import "unsafe"

const kind = "cgo"

func put(fd int, data []byte, offset int64) int {
	return int(C.put(C.int(fd), unsafe.Pointer(&data[0]), C.ulong(len(data)), C.long(offset)))
}

func get(fd int, data []byte, offset int64) int {
	return int(C.get(C.int(fd), unsafe.Pointer(&data[0]), C.ulong(len(data)), C.long(offset)))
}
GO
cat > ../go/plain.go <<'GO'
//go:build !cgo

package main

import "syscall"

const kind = "static"

func put(fd int, data []byte, offset int64) int { n, _ := syscall.Pwrite(fd, data, offset); return n }
func get(fd int, data []byte, offset int64) int { n, _ := syscall.Pread(fd, data, offset); return n }
GO
cat > ../go/main.go <<'GO'
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"unsafe"
)

const (
	block   = 4096
	blocks  = 1024
	workers = 4
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func aligned() []byte {
	all := make([]byte, 2*block)
	skip := block - int(uintptr(unsafe.Pointer(&all[0]))%block)
	return all[skip : skip+block]
}

func fill(to []byte, number, round int) {
	for at := 0; at < block; at += 8 {
		binary.LittleEndian.PutUint32(to[at:], uint32(number))
		binary.LittleEndian.PutUint32(to[at+4:], uint32(round))
	}
}

func sum(name string) {
	data, err := os.ReadFile(name)
	must(err)
	fmt.Printf("%s %s %d %x\n", kind, name, len(data), sha256.Sum256(data))
}

func each(work func(number int, room []byte)) {
	var all sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		all.Add(1)
		go func(worker int) {
			defer all.Done()
			room := aligned()
			for number := worker; number < blocks; number += workers {
				work(number, room)
			}
		}(worker)
	}
	all.Wait()
}

func rounds(name string, flags int) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|flags, 0o644)
	must(err)
	for round := 0; round < 4; round++ {
		each(func(number int, room []byte) {
			fill(room, number, round)
			if round%2 == 0 {
				_, err := file.WriteAt(room, int64(number)*block)
				must(err)
			} else if put(int(file.Fd()), room, int64(number)*block) != block {
				panic("short write")
			}
		})
		each(func(number int, room []byte) {
			wanted := make([]byte, block)
			fill(wanted, number, round)
			if number%2 == 0 {
				_, err := file.ReadAt(room, int64(number)*block)
				must(err)
			} else if get(int(file.Fd()), room, int64(number)*block) != block {
				panic("short read")
			}
			if !bytes.Equal(room, wanted) {
				panic(fmt.Sprintf("block %d of round %d", number, round))
			}
		})
		must(file.Sync())
	}
	sum(name)
	must(file.Truncate(blocks / 2 * block))
	sum(name)
	must(file.Close())
}

func main() {
	rounds("buffered", 0)
	rounds("direct", syscall.O_DIRECT)
	// The number of a file that C code has used means another file afterwards.
	first, err := syscall.Open("direct", syscall.O_RDWR|syscall.O_DIRECT, 0)
	must(err)
	room := aligned()
	fill(room, 0, 77)
	for number := 0; number < 16; number++ {
		put(first, room, int64(number)*block)
	}
	must(syscall.Close(first))
	second, err := syscall.Open("other", syscall.O_CREAT|syscall.O_RDWR|syscall.O_DIRECT, 0o644)
	must(err)
	must(syscall.Ftruncate(second, blocks*block))
	for number := 0; number < 64; number++ {
		fill(room, number, 78)
		put(second, room, int64(number)*block)
	}
	memory, err := syscall.Mmap(second, 0, 64*block, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(err)
	memory[5] = 9
	fill(room, 3, 79)
	put(second, room, 3*block)
	if memory[3*block+4] != 79 {
		panic("an old page")
	}
	must(syscall.Munmap(memory))
	must(syscall.Close(second))
	sum("direct")
	sum("other")
	must(os.Rename("other", "direct"))
	sum("direct")
	out, err := exec.Command("cksum", "direct", "buffered").Output()
	must(err)
	fmt.Print(string(out))
}
GO
for cgo in 0 1; do
  (cd ../go && CGO_ENABLED=$cgo go build -o "../program$cgo" . 2> ../build) || { cat ../build >&2; exit 1; }
  "../program$cgo"
  rm -f direct buffered other
done
