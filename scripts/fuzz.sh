#!/usr/bin/env bash
# Builds the fuzzers and runs them, as many at once as there are cores: what they read are files and messages of strangers.
#
#   scripts/fuzz.sh [SECONDS] [FUZZER…]     default: 3600 seconds each, all of tests/fuzz
#
# A finding (a crash, a sanitizer's report, an error that is not one line, 20 s for one input, or more memory than 64 times
# the input and 32 MiB) is left in build/fuzz/found-FUZZER-*; build/fuzz/fuzz_FUZZER FILE shows it. Inputs that reached new
# code are kept in build/fuzz/corpus/FUZZER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { echo "fuzz.sh: $*" >&2; exit 2; }

jobs=$(env -u OMP_NUM_THREADS nproc)
seconds=${1:-3600}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "got '$seconds', wanted seconds"
shift || true
mapfile -t known < <(sed -n 's/^prunex_fuzzer(\([a-z0-9_]*\).*/\1/p' tests/fuzz/CMakeLists.txt)
fuzzers=("$@")
[[ $# -gt 0 ]] || fuzzers=("${known[@]}")
for name in "${fuzzers[@]}"; do
  [[ " ${known[*]} " == *" $name "* ]] || die "got '$name', wanted ${known[*]}"
done

cmake --preset fuzz >/dev/null
cmake --build build/fuzz -j "$jobs" --target "${fuzzers[@]/#/fuzz_}"

export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=1
TMPDIR=$(mktemp -d "$([[ -w /dev/shm ]] && echo /dev/shm || echo /tmp)/prunex-fuzz-XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

row() { printf '%-12s %12s %10s %8s  %s\n' "$@"; }
number() { sed -n "s/^stat::$1: *//p" "$2"; }
coverage() { sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$1" | tail -n 1; }

# Prints a row of the table; fails if there is a finding.
fuzz() {
  local name=$1 corpus=build/fuzz/corpus/$1 log=build/fuzz/$1.log found=none
  build/fuzz/fuzz_"$name" --seeds "$corpus"
  if ! build/fuzz/fuzz_"$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=65536 -seed=1 \
    -print_final_stats=1 -artifact_prefix=build/fuzz/found-"$name"- "$corpus" >"$log" 2>&1; then
    found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    found=${found:-see $log}
  fi
  row "$name" "$(number number_of_executed_units "$log")" "$(coverage "$log")" "$(number peak_rss_mb "$log")" "$found"
  [[ $found == none ]] || { grep -m 3 -E 'ERROR|runtime error|SUMMARY|not one line|holds' "$log"; return 1; }
}

row fuzzer executions coverage MiB found
status=0
running=0
for name in "${fuzzers[@]}"; do
  if ((running == jobs)); then
    wait -n || status=1
    running=$((running - 1))
  fi
  fuzz "$name" &
  running=$((running + 1))
done
while ((running > 0)); do
  wait -n || status=1
  running=$((running - 1))
done
exit "$status"
