#!/usr/bin/env bash
# liburing's own tests (of its source package), linked statically as they come, and against the library of the system.
# Each by its exit status: 0, 77 for one that this kernel cannot run. A few run at a time, each in a directory of its
# own. A test that fails has two more attempts: some depend on the scheduler (d4ae271dfaae, poll-cancel-all), and fail
# without the interposer too. A test has two minutes, which poll-mshot-update may need on a busy machine; some tests
# never end on some kernels. multicqes_drain ends on them now and then, and is not compared.
set -euo pipefail
case $1 in
  packages) echo liburing-dev gcc g++ make; exit ;;
  sources) echo liburing; exit ;;
  build)
    ./configure > /dev/null
    make -s -C src
    make -s -k -j"$(nproc)" -C test || true # a test of a newer kernel's headers
    mkdir -p dynamic
    for test in test/*.t; do
      name=$(basename "$test" .t)
      [ ! -e "test/$name.c" ] || cc -O2 -w -D_GNU_SOURCE -DLIBURING_BUILD_TEST -include config-host.h -Isrc/include \
        -o "dynamic/$name.t" "test/$name.c" test/helpers.c -luring -lpthread || true
    done
    exit ;;
esac
one() {
  local name status
  name=$(basename "$(dirname "$1")")-$(basename "$1" .t)
  for _ in 1 2 3; do
    mkdir "$name" && cd "$name"
    status=0
    timeout -k 5 120 "$1" > out 2>&1 < /dev/null || status=$?
    cd .. && rm -rf "$name"
    case $status in 0 | 77 | 124) break ;; esac
  done
  echo "$name: $status"
}
export -f one
find "$SOURCES/test" "$SOURCES/dynamic" -name '*.t' ! -name multicqes_drain.t | sort | xargs -P 4 -I {} bash -c 'one {}' | sort
