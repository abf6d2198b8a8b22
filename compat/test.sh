#!/usr/bin/env bash
# The driver of the I/O pacing prototype's tests: load from one or more hosts on an NVMe/TCP target, and its tables.
#
#   compat/test.sh                    one load, a line for each host and one for all
#   compat/test.sh basic_test         one line for each depth of QD_LIST, REPEAT times
#   compat/test.sh test_1|2|4|11|14   the prototype's tests on null devices, target included (what each is: --help)
#   compat/test.sh test_3|5           the same on 16 files
#
#   TEST_TIME=30 RW=randread QD=32 IO_SIZE=128k compat/test.sh
#   CONFIG=configs/null_16_auto.json QD_LIST="32 256 2048" compat/test.sh basic_test
#
# Without CONFIG a target must be running; with it, one is started for the test and ended after it.
# Needs bash, awk, ip and plimsoll; perf for the L3 hit rate of a target on this machine, ssh for other hosts.
set -euo pipefail
cd "$(dirname "$0")/.."

TEST_TIME=${TEST_TIME-60} RW=${RW-randread} QD=${QD-32} IO_SIZE=${IO_SIZE-128k}
FIO_RAMP_TIME=${FIO_RAMP_TIME-5} FIO_JOB=${FIO_JOB-fio-16ns}
QD_LIST=${QD_LIST-"32 64 128 256 1024 2048"} REPEAT=${REPEAT-1} BUFFER_SIZE=${BUFFER_SIZE-131072}
HOSTS=${HOSTS-localhost}                    # where the load runs: localhost, or names for ssh
TARGET_ADDRS=${TARGET_ADDRS-127.0.0.1}      # several: hosts take them in turn
TARGET_PORT=${TARGET_PORT-4420} SUBNQN=${SUBNQN-nqn.2016-06.io.spdk:cnode1}
RPC_SOCKET=${RPC_SOCKET-/var/tmp/spdk.sock} CONFIG=${CONFIG-} SERVE_ARGS=${SERVE_ARGS-}
PLIMSOLL=${PLIMSOLL-}                       # the program; on other hosts it must be at the same path
out=${OUT_PATH-}

fail() { echo "test.sh: $*" >&2; exit 2; }
number() { [[ $2 =~ ^[0-9]+$ ]] && [ "$2" -ge "$3" ] || fail "$1=$2: give a whole number of at least $3"; }
number TEST_TIME "$TEST_TIME" 1; number FIO_RAMP_TIME "$FIO_RAMP_TIME" 0; number REPEAT "$REPEAT" 1
number BUFFER_SIZE "$BUFFER_SIZE" 1
for qd in $QD $QD_LIST; do number QD "$qd" 1; done
[ -n "$HOSTS" ] && [ -n "$TARGET_ADDRS" ] || fail "HOSTS and TARGET_ADDRS must name at least one each"

clean='' target_pid='' loads=()
[ -n "$out" ] || { out=$(mktemp -d); clean=$out; }
mkdir -p "$out"
mkfifo "$out/hold.$$" && exec 7<> "$out/hold.$$" && rm "$out/hold.$$" # an input that neither says anything nor ends
finish() {
  local pid
  for pid in "${loads[@]}"; do kill "$pid" 2> /dev/null || true; done
  stop_target
  [ -z "$clean" ] || rm -rf "$clean"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

calc() { awk "BEGIN { printf \"%.1f\", $1 }"; }
is_here() { [ "$1" = localhost ] || [ "$1" = "${HOSTNAME-}" ]; }
on() { # on HOST COMMAND...: there
  local host=$1; shift
  if is_here "$host"; then "$@"; else ssh -n "$host" "$(printf '%q ' "$@")"; fi
}
# The same for a load: ended with this script, or with what connects it to its host.
load_on() {
  local host=$1; shift
  if is_here "$host"; then exec "$@"; fi
  # Standard input of the other side ends when ssh does.
  exec ssh "$host" "exec 3<&0; $(printf '%q ' "$@") < /dev/null 3<&- & load=\$!
    { cat <&3; kill \$load; } > /dev/null 2>&1 & wait \$load" <&7
}
rpc() { "$PLIMSOLL" rpc --socket "$RPC_SOCKET" "$@"; }

start_target() {
  [ -n "$CONFIG" ] || return 0
  [ -r "$CONFIG" ] || fail "CONFIG=$CONFIG cannot be read"
  # shellcheck disable=SC2086 # a list of arguments
  "$PLIMSOLL" serve -c "$CONFIG" --rpc-socket "$RPC_SOCKET" $SERVE_ARGS > "$out/target.log" 2>&1 &
  target_pid=$!
  until grep -q ': ready, process' "$out/target.log"; do
    kill -0 "$target_pid" 2> /dev/null || { target_pid=; fail "the target did not start: $(tail -n 1 "$out/target.log")"; }
    sleep .05
  done
}
stop_target() {
  [ -n "$target_pid" ] || return 0
  kill "$target_pid" 2> /dev/null || true
  wait "$target_pid" 2> /dev/null || true
  target_pid=
}

# The namespaces of a load, as fio-1ns, fio-16ns and fio-48ns of the prototype: a job for each 16, in turn within it.
namespaces() {
  case $FIO_JOB in
    fio-*ns) local count=${FIO_JOB#fio-}; number FIO_JOB "${count%ns}" 1; echo "${count%ns}" ;;
    *) fail "FIO_JOB=$FIO_JOB: give fio-1ns, fio-16ns, fio-48ns, or another number of namespaces" ;;
  esac
}
jobs_for() { # jobs_for ADDRESS: arguments of `plimsoll run`, a line each
  local count nsid names='' nqn=${SUBNQN//:/\\:}
  count=$(namespaces)
  for nsid in $(seq "$count"); do
    names+="${names:+:}trtype=tcp adrfam=ipv4 traddr=$1 trsvcid=$TARGET_PORT subnqn=$nqn ns=$nsid"
    if [ $((nsid % 16)) = 0 ] || [ "$nsid" = "$count" ]; then
      printf '%s\n' "--name=job$(((nsid - 1) / 16))" "--filename=$names"
      names=
    fi
  done
}

wire_bytes() { # wire_bytes HOST ADDRESS: received and sent by the interface towards the target
  local device
  device=$(on "$1" ip -o route get "$2" 2> /dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p') && [ -n "$device" ] || return 0
  on "$1" cat "/sys/class/net/$device/statistics/rx_bytes" "/sys/class/net/$device/statistics/tx_bytes" 2> /dev/null |
    tr '\n' ' ' | sed "s/^/$device /"
}
# The network throughput of a whole load, ramp included, in the load's direction. On lo each byte is sent and received.
wire_gbps() { # wire_gbps BEFORE AFTER
  awk -v before="$1" -v after="$2" -v seconds=$((FIO_RAMP_TIME + TEST_TIME)) -v rw="$RW" 'BEGIN {
    if (split(before, a, " ") < 3 || split(after, b, " ") < 3) { print "-"; exit }
    rx = b[2] - a[2]; tx = b[3] - a[3]
    bytes = a[1] == "lo" ? tx : rw ~ /read$/ ? rx : rw ~ /write$/ ? tx : rx + tx
    printf "%.1f", bytes * 8 / 1e9 / seconds
  }'
}

# The L3 hit rate of the target's process in percent, where this machine counts it.
watch_l3() { # watch_l3 SECONDS
  : > "$out/perf"
  local pid=$target_pid
  [ -n "$pid" ] || pid=$(ss -Hlxp "src $RPC_SOCKET" 2> /dev/null | sed -n 's/.*pid=\([0-9]*\).*/\1/p' | head -n 1)
  command -v perf > /dev/null && [ -n "$pid" ] || return 0
  perf stat -x, -e LLC-loads,LLC-load-misses -p "$pid" -o "$out/perf" -- sleep "$1" > /dev/null 2>&1 &
  loads+=($!)
}
l3_hit_rate() {
  # Processors with several kinds of cores have a line for each; "<not supported>" and "<not counted>" are not numbers.
  awk -F, '$1 !~ /^[0-9]+$/ { next } $3 ~ /LLC-loads/ { loads += $1 } $3 ~ /LLC-load-misses/ { misses += $1; counted = 1 }
    END { if (counted && loads > 0) printf "%.1f", 100 * (1 - misses / loads); else printf "-" }' "$out/perf"
}

sample() { rpc nvmf_get_stats >> "$out/stats" 2>> "$out/rpc.log" || true; }
buffers_in_flight() { # the mean of the samples, all reactors together; in units of the transport's io_unit_size
  awk '/"tick_rate"/ { samples++ } /"buffers_allocated"/ { gsub(/[^0-9]/, ""); sum += $0 }
    END { if (samples) printf "%.1f", sum / samples; else printf "-" }' "$out/stats"
}
pacer_period() { # the mean of the reactors' periods, where the method has one
  awk '/"period_ticks"/ { gsub(/[^0-9]/, ""); sum += $0; n++ }
    END { if (sum) printf "%.2f", sum / n / 1000; else printf "-" }' "$out/stats"
}

# The number of I/O commands that the target has carried out. The script waits until a load has begun, however long that
# takes, and counts the load's time from there. It does not wait for a target that does not answer.
completed() {
  rpc nvmf_get_stats 2>> "$out/rpc.log" |
    awk '/"completed_nvme_io"/ { gsub(/[^0-9]/, ""); sum += $0 } END { print sum + 0 }'
}
await_load() { # await_load COMPLETED-BEFORE
  local pid now
  while now=$(completed) && [ "$now" = "$1" ]; do
    for pid in "${loads[@]}"; do kill -0 "$pid" 2> /dev/null || return 0; done
    sleep .1
  done
}

pause() { local left; for ((left = $1; left > 0; left--)); do sleep 1; echo -n . >&2; done; }

run_test() {
  local host address addresses=() at=0 pid failed='' args before
  read -ra addresses <<< "$TARGET_ADDRS"
  : > "$out/stats"; : > "$out/rpc.log"; loads=()
  for host in $HOSTS; do
    wire_bytes "$host" "${addresses[$((at % ${#addresses[@]}))]}" > "$out/wire-before-$host"; at=$((at + 1))
  done
  before=$(completed) || before=
  at=0
  for host in $HOSTS; do
    address=${addresses[$((at % ${#addresses[@]}))]}; at=$((at + 1))
    mapfile -t args < <(jobs_for "$address")
    load_on "$host" "$PLIMSOLL" run --minimal --eta=never --group_reporting=1 --ioengine=nvme_tcp --thread=1 --direct=1 \
      --norandommap=1 --time_based=1 --runtime="$TEST_TIME" --ramp_time="$FIO_RAMP_TIME" \
      --file_service_type=roundrobin:1 --rw="$RW" --bs="$IO_SIZE" --iodepth="$QD" "${args[@]}" \
      > "$out/fio-$host.terse" 2> "$out/fio-$host.log" &
    loads+=($!)
  done
  await_load "$before"
  pause "$FIO_RAMP_TIME"
  watch_l3 $((TEST_TIME > 2 ? TEST_TIME / 2 : 1))
  local third=$((TEST_TIME / 5)) rest
  for _ in 1 2 3; do pause "$third"; sample; done
  rest=$((TEST_TIME - 3 * third - 1)); pause $((rest > 0 ? rest : 0))
  for pid in "${loads[@]}"; do wait "$pid" || failed=1; done
  loads=() at=0
  for host in $HOSTS; do
    wire_bytes "$host" "${addresses[$((at % ${#addresses[@]}))]}" > "$out/wire-after-$host"; at=$((at + 1))
  done
  echo '!' >&2
  [ -z "$failed" ] || { cat "$out"/fio-*.log >&2; fail "a load failed"; }
}

# kIOPS, Gb/s, latency in us, standard deviation in Gb/s of a host: fio's terse version 3, all groups together.
figures_of() {
  awk -F';' '$1 == 3 { iops += $8 + $49; kb += $7 + $48; lat += $40 * $8 + $81 * $49; dev += $46 ^ 2 + $87 ^ 2 }
    END { if (!iops) exit 1
      printf "%.1f %.1f %.1f %.1f", iops / 1e3, kb * 8192 / 1e9, lat / iops, sqrt(dev) * 8192 / 1e9 }' "$1"
}

# Results of the last run: sets what basic_test prints, and prints the table.
print_report() {
  local host kiops gbps lat dev wire bar
  printf 'Test parameters\nTime        : %s\nRead/write  : %s\nQueue depth : %s\nIO size     : %s\nFio job     : %s\n\nResults\n' \
    "$TEST_TIME" "$RW" "$QD" "$IO_SIZE" "$FIO_JOB"
  local format='%-30s | %-10s | %-10s | %-15s | %-15s\n'
  # shellcheck disable=SC2059 # the format is above
  row() { printf "$format" "$@" | sed 's/ *$//'; }
  bar=$(printf -- '-%.0s' {1..31})'|------------|------------|-----------------|----------------'
  row Host kIOPS BW,Gb/s AVG_LAT,us 'Wire BW,Gb/s'
  echo "$bar"
  total_kiops=0 total_bw=0 total_lat=0 total_dev=0 total_wire=0
  for host in $HOSTS; do
    read -r kiops gbps lat dev <<< "$(figures_of "$out/fio-$host.terse")" || true
    [ -n "$dev" ] || fail "$host did no I/O: $(tail -n 1 "$out/fio-$host.log")"
    wire=$(wire_gbps "$(cat "$out/wire-before-$host")" "$(cat "$out/wire-after-$host")")
    row "$host" "$kiops" "$gbps" "$lat" "$wire"
    total_lat=$(calc "($total_lat * $total_kiops + $lat * $kiops) / ($total_kiops + $kiops + 1e-9)")
    total_kiops=$(calc "$total_kiops + $kiops"); total_bw=$(calc "$total_bw + $gbps")
    total_dev=$(calc "sqrt($total_dev ^ 2 + $dev ^ 2)")
    if [ "$wire" = - ] || [ "$total_wire" = - ]; then total_wire=-; else total_wire=$(calc "$total_wire + $wire"); fi
  done
  echo "$bar"
  row Total "$total_kiops" "$total_bw" "$total_lat" "$total_wire"
}

basic_test() {
  local qd buffers format='| %-10s | %-10s | %-10s | %-15s | %-10s | %-15s | %-20s | %-20s\n'
  # shellcheck disable=SC2059
  line() { printf "$format" "$@" | sed 's/ *$//'; }
  start_target
  line QD BW 'WIRE BW' 'AVG LAT, us' 'BW STDDEV' 'L3 Hit Rate' 'Bufs in-flight (MiB)' 'Pacer period, us'
  for qd in $QD_LIST; do
    for _ in $(seq "$REPEAT"); do
      QD=$qd
      run_test
      print_report > "$out/basic_test.log"
      buffers=$(buffers_in_flight)
      [ "$buffers" = - ] || buffers="$buffers ($(calc "$buffers * $BUFFER_SIZE / 1048576"))"
      line "$qd" "$total_bw" "$total_wire" "$total_lat" "$total_dev" "$(l3_hit_rate)" "$buffers" "$(pacer_period)"
    done
  done
  stop_target
}

# One row of the prototype's list of tests, with its target: CONFIG, namespaces, depths.
test_base() {
  CONFIG=$1 FIO_JOB=$2 QD_LIST=$3
  echo "$CONFIG, $FIO_JOB"
  basic_test
}
test_1() { test_base configs/null_1.json fio-1ns "32 64 128 1024 2048"; }
test_2() { test_base configs/null_16.json fio-16ns "32 64 128 1024 2048"; }
test_3() { test_base configs/files_16.json fio-16ns "32 36 40 44 48 64 128 256 1024 2048"; }
test_4() { test_base configs/null_16_num_buffers.json fio-16ns "32 64 128 1024 2048"; }
test_5() { test_base configs/files_16_num_buffers.json fio-16ns "32 64 128 1024 2048"; }
test_11() { local c; for c in split3_delay split3_delay_num_buffers split3_delay_auto; do test_base "configs/$c.json" fio-48ns "85 341"; done; }
test_14() { local us; for us in 5.6 5.7 5.8 6; do SERVE_ARGS="--pacing rate:$us"; echo "one credit every $us us"; test_base configs/null_16.json fio-16ns "256 2048"; done; }

find_plimsoll() {
  [ -z "$PLIMSOLL" ] || return 0
  for PLIMSOLL in "${CARGO_TARGET_DIR:-target}/release/plimsoll" "$(command -v plimsoll || true)"; do [ -x "$PLIMSOLL" ] && return; done
  fail "there is no plimsoll: cargo build --release, or PLIMSOLL=/path/to/plimsoll"
}

case ${1-} in
  -h | --help) ;;
  *) find_plimsoll ;;
esac
case ${1-} in
  '') start_target; run_test; print_report; stop_target ;;
  basic_test | test_1 | test_2 | test_3 | test_4 | test_5 | test_11 | test_14) "$1" ;;
  -h | --help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
    cat << 'END'
test_1   one null device, unpaced             test_4   as test_2 with 96 buffers
test_2   16 null devices, unpaced             test_5   as test_3 with 96 buffers
test_3   16 files, unpaced                    test_14  16 null devices, a rate set by hand
test_11  48 parts of 16 null devices, 32 of them 1 ms slower: unpaced, 96 buffers, auto
END
    ;;
  *) fail "there is no test $1 (--help lists them)" ;;
esac
