#!/usr/bin/env bash
# Group-norm sparse training against l1, both from one trained ResNet-20, both pruned to 2.11 times fewer
# multiply-accumulates and given the same number of epochs after the training. A shortened schedule: 6 epochs of training,
# then 5 sparse and 3 of fine-tuning, or 8 of fine-tuning; the penalty is ten times the usual, because it has a twentieth
# of the usual time. Results: docs/results.md.
#
#   bench/sparse_training.sh build/release/prunex DATA_DIR OUTPUT [SEED]
set -euo pipefail
prunex=$1 data=$2 output=$3 seed=${4:-0}
mkdir -p "$output"

# Shared by all runs; the validation images are held out of every phase.
common=(--dataset cifar10 --data-dir "$data" --validation 5000 --model resnet20 --strategy ddp --nodes 2 --batch-size 64
        --local-steps 50 --eval-every 20 --checkpoint-every 20 --seed "$seed" --quiet)
cut=(--prune-to speed-up=2.11 --prune-steps 100 --prune-every 0 --scope global)
after=(--epochs 0 --weights "$output/trained/model.safetensors" --finetune-lr 0.01)

run() {  # NAME OPTION…
  local name=$1
  shift
  [[ -f $output/$name/summary.json ]] || "$prunex" train "${common[@]}" "$@" --run-dir "$output/$name"
}

run trained --epochs 6 --lr 0.1 --warmup-epochs 0.5
run group_norm "${after[@]}" "${cut[@]}" --sparse group_norm --sparse-reg 0.005 --sparse-epochs 5 --sparse-lr 0.01 \
  --sparse-lr-schedule constant --importance group_norm --normalizer max --finetune-epochs 3
run l1 "${after[@]}" "${cut[@]}" --importance l1 --finetune-epochs 8

for name in group_norm l1; do
  echo "$name: $(grep -o '"pruned": {[^}]*}\|"accuracy": [0-9.]*\|"validation_accuracy": [0-9.]*' "$output/$name/summary.json" | tr -d '\n ')"
done
