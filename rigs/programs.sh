#!/usr/bin/env bash
# Programs of others under the interposer: each of tests/programs/others/*.sh runs without it and with it, on four lanes
# of one directory (bind mounts in a mount namespace of their own), and has to print the same.
#   rigs/programs.sh [NAME...]
# Prints a line for each program: if both runs agree, and which part of the program's traffic left the opened lane.
# Variables: WAYS="trapped async raw both" (with --async, with --raw, with both), POLICY=round-robin,
# PLIMSOLL=target/release/plimsoll.
# Installs what a program needs from Debian (root), and builds test suites from Debian's sources, below target. A
# program that this machine cannot have is skipped, with its reason.
# Exit status 1: a program did not do the same.
set -euo pipefail
cd "$(dirname "$0")/.."
PLIMSOLL=$(realpath "${PLIMSOLL:-target/release/plimsoll}")
target=$(realpath "${CARGO_TARGET_DIR:-target}")
programs=$(realpath tests/programs/others)
export PLIMSOLL POLICY="${POLICY:-round-robin}"

# Runs one program one way, in the first lane: one_way SCRIPT plain|trapped|async WORK
if [ "${1:-}" = --one-way ]; then
  script=$2 way=$3 work=$4
  for lane in 1 2 3 4; do mount --bind "$work/volume" "$work/lane$lane"; done
  cd "$work/lane1"
  case $way in
    plain) exec "$script" run ;;
    trapped) more=() ;;
    async) more=(--async) ;;
    raw) more=(--raw) ;;
    both) more=(--raw --async) ;;
  esac
  exec "$PLIMSOLL" trap --policy "$POLICY" --pool "v=$work/lane1,$work/lane2,$work/lane3,$work/lane4" "${more[@]}" \
    --stats -- "$script" run 2> "$work/stats"
fi

# The part of the traffic that was not on the opened lane, in per cent, from the table of --stats.
left() { awk '$1 == "v" && $3 ~ /[0-9]/ { if ($2 !~ /lane1$/) sum += $3 } END { printf "%.0f", sum }' "$1"; }

# Fetches the source of a Debian package into a directory: fetch PACKAGE DIRECTORY. The machine's own lists of packages
# stay as they are. A program without a source of Debian has the package `-`.
fetch() {
  [ "$1" != - ] || { mkdir -p "$2"; return; }
  # apt-get clears the directory of its lists: the name of the source lies beside it.
  local lists=$target/sources/lists source=$target/sources/debian.list
  local options=(-o "Dir::Etc::sourcelist=$source" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$lists")
  mkdir -p "$lists/partial"
  if [ ! -e "$source" ]; then
    # shellcheck disable=SC1091 # it is there on every Debian
    echo "deb-src http://deb.debian.org/debian $(. /etc/os-release && echo "$VERSION_CODENAME") main" > "$source"
    apt-get "${options[@]}" update || { rm "$source"; return 1; }
  fi
  rm -rf "$2" "$2.parts" && mkdir -p "$2.parts"
  (cd "$2.parts" && apt-get "${options[@]}" source --download-only "$1" && dpkg-source -x ./*.dsc "$2") || return 1
}

status=0
[ $# -gt 0 ] || set -- "$programs"/*.sh
for name; do
  name=$(basename "$name" .sh)
  script=$programs/$name.sh
  missing=()
  for package in $("$script" packages); do
    dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if [ ${#missing[@]} != 0 ] &&
    ! apt-get install -y --no-install-recommends "${missing[@]}" > "$target/programs-apt.log" 2>&1; then
    echo "$name: skipped: apt-get cannot install ${missing[*]} (see $target/programs-apt.log)"
    continue
  fi
  export SOURCES=
  package=$("$script" sources)
  if [ -n "$package" ]; then
    SOURCES=$target/sources/$name
    if [ ! -e "$SOURCES/.built" ]; then
      fetch "$package" "$SOURCES" > "$target/programs-apt.log" 2>&1 ||
        { echo "$name: skipped: apt-get cannot fetch the source of $package (see $target/programs-apt.log)"; continue; }
      (cd "$SOURCES" && "$script" build && touch .built) > "$target/programs-build.log" 2>&1 ||
        { echo "$name: FAILED to build (see $target/programs-build.log)"; status=1; continue; }
    fi
  fi
  for way in plain ${WAYS:-trapped async raw both}; do
    work=$(mktemp -d "$target/programs.XXXXXX")
    chmod 755 "$work"
    mkdir -m 1777 "$work/volume"
    mkdir "$work"/lane{1,2,3,4}
    done=0
    unshare --mount "$0" --one-way "$script" "$way" "$work" > "$target/programs-$name-$way" || done=$?
    if [ $done != 0 ]; then
      echo "$name, $way: FAILED with status $done"
      tail -5 "$work/stats" "$target/programs-$name-$way" 2> /dev/null || true
      status=1
    elif [ "$way" = plain ]; then
      echo "$name, plain: $(wc -l < "$target/programs-$name-plain") lines of results"
    elif cmp -s "$target/programs-$name-plain" "$target/programs-$name-$way"; then
      echo "$name, $way: the same; $(left "$work/stats") % of its traffic left the opened lane"
    else
      echo "$name, $way: DIFFERENT"
      diff "$target/programs-$name-plain" "$target/programs-$name-$way" | head -10 || true
      status=1
    fi
    grep -E '^ +[0-9]+ ' "$work/stats" 2> /dev/null | head -4 || true
    rm -rf --one-file-system "$work"
  done
done
exit $status
