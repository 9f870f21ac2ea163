#!/usr/bin/env bash
# The main job on the built-in images: dense local SGD, then prunex with its defaults, each on 2 nodes with one rank, on
# this machine. Ends in a table. Replaces the runs of the last demo, runs/demo-dense and runs/demo-prunex, no others.
#
#   scripts/demo.sh [OPTION OF prunex train…]     for both runs, such as --epochs 2
#
# PRUNEX=FILE   the command to run (build/release/prunex)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly prunex=${PRUNEX:-build/release/prunex}
readonly job=(--dataset synthetic --model resnet8 --nodes 2 --ranks-per-node 1 --batch-size 32 --epochs 8)
readonly dense=(--groups none --kappa 0 --after-freeze average)

train() {
  local run=runs/demo-$1
  shift
  echo "[demo] prunex train ${job[*]} $*" >&2
  rm -rf "$run"
  "$prunex" train "${job[@]}" "$@" --run-dir "$run" >/dev/null
}

# value RUN KEY [FORMAT [DIVISOR]]: a number of the run's summary, one key per line.
value() {
  sed -n "s/^  \"$2\": \([^,]*\),\{0,1\}\$/\1/p" "runs/demo-$1/summary.json" |
    awk -v format="${3:-%s}" -v divisor="${4:-1}" '{ printf format, $1 / divisor }'
}

row() { printf '%-34s %9s %11s %8s %14s %12s %7s\n' "$@"; }

# row_of TITLE RUN
row_of() {
  local fewer
  fewer=$(awk -v ddp="$(value "$2" inter_node_bytes_ddp)" -v sent="$(value "$2" inter_node_bytes)" \
    'BEGIN { printf "1/%.0f", ddp / sent }')
  row "$1" "$(value "$2" accuracy '%.1f %%' 0.01)" "$(value "$2" parameters_compact %d)" \
    "$(value "$2" macs_compact '%.1f M' 1e6)" "$(value "$2" inter_node_bytes '%.2f MB' 1e6)" "$fewer" \
    "$(value "$2" wall_seconds '%.0f s')"
}

table() {
  row "2 nodes x 1 rank, same steps" accuracy parameters MACs "between nodes" "share of DDP" time
  row "DDP, every step (computed)" - "$(value dense parameters_dense %d)" "$(value dense macs_dense '%.1f M' 1e6)" \
    "$(value dense inter_node_bytes_ddp '%.2f MB' 1e6)" 1 -
  row_of "dense local SGD" dense
  row_of prunex prunex
}

train dense "${dense[@]}" "$@"
train prunex "$@"
echo
table
echo
echo "accuracy: on the test images; MACs: multiply-accumulates per image; between nodes: what one node sent."
echo "The runs are runs/demo-dense and runs/demo-prunex; the pruned network is runs/demo-prunex/model.pt2."
