#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each, one after the
# other (go test fuzzes one target per call), and stops at the first failure.
#
# usage: scripts/fuzz.sh TIME      TIME as for -fuzztime: 3s, 10m, 5000x
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ $# -ne 1 ]; then
  echo "usage: scripts/fuzz.sh TIME" >&2
  exit 2
fi
time=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz PACKAGE TARGET. Go's fuzzer now and then reports the end of its own time
# as a failure that has no input and says only "context deadline exceeded". That
# is tried again, aloud; a target that hangs says so every time and so fails.
fuzz() {
  local try
  for try in 1 2 3; do
    echo "fuzz $1 $2"
    if go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" </dev/null 2>&1 | tee "$log"; then
      return 0
    fi
    if ! grep -q '^ *context deadline exceeded$' "$log" || grep -q 'Failing input' "$log"; then
      return 1
    fi
    echo "fuzz $1 $2: try $try ended in the fuzzer's own deadline"
  done
  return 1
}

# For each package go test -list prints the names, then a line "ok <package> <time>".
list=$(go test -list '^Fuzz' ./...)
names=()
while read -r word package _; do
  case $word in
    Fuzz*) names+=("$word") ;;
    ok)
      for name in ${names[@]+"${names[@]}"}; do
        fuzz "$package" "$name" || exit 1
      done
      names=()
      ;;
  esac
done <<<"$list"
