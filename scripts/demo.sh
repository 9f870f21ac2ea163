#!/usr/bin/env bash
# The main job on the built-in images: dense local SGD and prunex, each on 2 nodes of one rank, then a table of both.
# About a minute and a half each on two cores.
#
#   scripts/demo.sh [OPTION OF prunex train…]     such as --epochs 2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly runs=build/demo
readonly job=(--dataset synthetic --samples 10000 --model resnet8 --nodes 2 --ranks-per-node 1
  --batch-size 32 --epochs 8 --local-steps 39)

train() {
  local name=$1
  shift
  echo "-- $name: prunex train ${job[*]} $*" >&2
  build/release/prunex train "${job[@]}" --run-dir "$runs/$name" "$@" >/dev/null
}

rm -rf "$runs"
mkdir -p "$runs"
train dense --groups none --kappa 0 --after-freeze average "$@"
train prunex "$@"

python=.venv/bin/python
[[ -x $python ]] || python=python3
"$python" scripts/demo_table.py "$runs/dense" "$runs/prunex"
