#include "tests/readme/known_blocks.h"

namespace prunex::readme {
namespace {

const std::string kShort = " --exchanges 4 --local-steps 2 --batch-size 8 --precision fp32";
const std::string kFewImages = " --samples 80";

std::vector<KnownBlock> blocks_of_readme() {
  return {
      {.file = "README.md",
       .start = "make demo",
       .changes = {{"make demo ", "scripts/demo.sh" + kShort + kFewImages + " "},
                   {"make test ", "true "}},  // it is among them
       .prints = {"accuracy", "parameters", "DDP, every step (computed)", "dense local SGD"}},
      {.file = "README.md",
       .start = "prunex train --preset slow-link",
       .changes = {{"--preset slow-link ", "--preset slow-link --groups coupled-inner "},  // for all files
                   {"--batch-size 64 --warmup-epochs 1",
                    kShort + " --checkpoint-every 2 --trace --tensorboard --run-dir runs/whole"}}},
      {.file = "README.md",
       .start = "torchrun",
       .changes = {{"HOST0", "127.0.0.1 --master-port $PORT"},
                   {"eth0\n", "lo" + kShort + kFewImages + " --model resnet8 --run-dir runs/two-machines\n"}}},
      {.file = "docs/use.md",
       .start = "import torch\nfrom safetensors.torch import save_file",
       .changes = {{"import torch\n", "import torch\nimages, labels = torch.load('images.pt').values()\n"},
                   {"\"train.safetensors\")\n",
                    "\"train.safetensors\")\n"
                    "save_file({'images': images[:20], 'labels': labels[:20]}, 'test.safetensors')\n"}}},
      {.file = "docs/use.md",
       .start = "prunex train --dataset train.safetensors",
       .changes = {{"resnet18\n", "resnet18" + kShort + " --run-dir runs/own\n"}}},
      {.file = "docs/use.md", .start = "import torch, torchvision"},
      {.file = "docs/use.md",
       .start = "prunex graph --model net.pt2",
       .changes = {{"train --model net.pt2", "train --model net.pt2" + kShort + kFewImages}},
       .prints = {"layer4.1.conv1", "11181642 parameters", "accuracy "}},
      {.file = "docs/use.md",
       .start = "import json, torch",
       .changes = {{"import json, torch\n", "import json, torch\npixels = torch.load('images.pt')['images'][:3]\n"},
                   {"std)", "std)\nassert logits.shape == (3, 10) and logits.isfinite().all()"}}},
      {.file = "docs/use.md",
       .start = "prunex prune --model net.pt2",
       .changes = {{"--epochs 20", kShort}},
       .prints = {"parameters", "MACs", "1/2.", "accuracy "}},
      {.file = "docs/use.md",
       .start = "prunex train --config examples/cifar10_resnet56_group_norm.toml",
       .changes = {{"--data-dir data",
                    "--data-dir data --epochs 0.4 --sparse-epochs 0.4 --finetune-epochs 0.4 "
                    "--local-steps 2 --batch-size 8 --validation 20 --prune-steps 2"}}},
      {.file = "README.md", .start = "import prunex", .why_not = "python/tests/test_docs.py"},
      {.file = "docs/use.md", .start = "make install", .why_not = "compiles for minutes: a step of .ci/run"},
      {.file = "docs/use.md", .start = "find_package(prunex", .why_not = "examples/CMakeLists.txt, a step of .ci/run"},
  };
}

std::vector<KnownBlock> blocks_of_pages() {
  return {
      {.file = "docs/pruning.md",
       .start = "prunex prune --model net.pt2",
       .changes = {{"--output small", "--output small-again"},
                   {"--weights resnet56.safetensors ", ""},
                   {"data --output small-again", "data --output small-resnet56"}}},
      {.file = "docs/pruning.md", .start = "prunex train --config", .why_not = "docs/use.md's"},
      {.file = "docs/pruning.md",
       .start = "prunex eval --model trained.pt2",
       .changes = {{"--model trained.pt2 --dataset", "--model runs/whole/model.pt2 --dataset"},
                   {"--model trained.pt2 --data-dir", "--model runs/whole/model.pt2 --data-dir"},
                   {"--run-dir runs/halved",
                    "--run-dir runs/halved --finetune-epochs 0.4 --local-steps 2 --batch-size 8 --precision fp32"}},
       .prints = {"accuracy ", "MACs "}},
      {.file = "docs/data.md", .start = "photos/train/cat/1.jpg", .why_not = "a folder, not a command"},
      {.file = "docs/data.md", .start = "prunex train --dataset photos", .why_not = "tests/cli/folders_test.cpp"},
      {.file = "docs/data.md", .start = "prunex train --dataset cifar", .why_not = "tests/cli/folders_test.cpp"},
      {.file = "docs/data.md", .start = "prunex data index", .why_not = "tests/cli/folders_test.cpp"},
      {.file = "docs/data.md", .start = "prunex data check", .why_not = "tests/cli/folders_test.cpp"},
      {.file = "docs/data.md", .start = "(ulimit -v", .why_not = "gigabytes; tests/cli/folders_test.cpp has a limit"},
      {.file = "docs/data.md",
       .start = "python examples/cifar_jpegs.py",
       .changes = {{"--train 20000 --val 4000", "--train 200 --val 20"},
                   {"--batch-size 32 --epochs 6 --warmup-epochs 0.5 --eval-every 10", kShort + " --exchanges 12"},
                   {"sleep 60", "until [ -s runs/lights/metrics.jsonl ]; do sleep 0.1; done"}},
       .prints = {"accuracy ", "MACs"}},
      {.file = "docs/data.md", .start = "import json, pathlib, torch", .changes = {}, .prints = {"of 20 images"}},
      {.file = "docs/data.md", .start = "python examples/export_torchvision.py vit_s_16", .why_not = "an hour"},
      {.file = "docs/report.md",
       .start = "prunex compare compare/quick.toml",
       .changes = {{"prunex compare compare/quick.toml", "prunex compare --dirty compare/quick.toml"},
                   {"prunex compare compare/cifar10.toml", "true"}}},  // days
      {.file = "docs/report.md",
       .start = "prunex report runs/demo-dense",
       .changes = {},
       .prints = {"report.html: 2 runs"}},
      {.file = "docs/running.md", .start = "torchrun", .why_not = "README's; srun and mpirun want a cluster"},
      {.file = "docs/communication.md", .start = "bench/cluster.sh", .why_not = "wants network namespaces: tests/cli"},
      {.file = "docs/gpu.md", .start = "scripts/setup.sh", .why_not = "compiles: a step of .ci/run"},
      {.file = "docs/elastic.md", .start = "prunex train --join RUN_DIR", .why_not = "tests/cli/elastic_test.cpp"},
      {.file = "docs/elastic.md",
       .start = "prunex train --join 10.0.0.1",
       .why_not = "other machines: tests/cli/entrances_test.cpp"},
      {.file = "docs/pruning-models.md", .start = "cmake", .why_not = "compiles and measures for minutes"},
      {.file = "docs/python.md", .start = "scripts/setup.sh", .why_not = "compiles for minutes: a step of .ci/run"},
      {.file = "docs/python.md", .start = "pip install", .why_not = "compiles for minutes"},
      {.file = "docs/python.md", .start = "make wheel", .why_not = "compiles for minutes: a step of .ci/run"},
      {.file = "docs/python.md", .start = "PYTHONPATH=", .why_not = "the test `python` of ctest"},
  };
}

std::vector<KnownBlock> blocks_of_measurements() {
  return {
      {.file = "docs/performance.md", .start = "python bench/", .why_not = "measures for minutes"},
      {.file = "docs/performance.md", .start = "bench/time_to_accuracy", .why_not = "hours; tests/cli has its sums"},
      {.file = "docs/results.md", .start = "prunex compare", .why_not = "days"},
      {.file = "docs/results.md", .start = "bench/sparse_training.py", .why_not = "hours"},
      {.file = "docs/results.md",
       .start = "prunex train",
       .changes = {{"--dataset cifar10 --data-dir data --model resnet20", "--samples 640 --model resnet8"},
                   {"--epochs 15", "--epochs 2"},
                   {"--validation 10000", "--validation 128"}}},
      {.file = "docs/paper.md", .start = "prunex compare", .why_not = "hours"},
      {.file = "docs/paper.md", .start = "prunex report", .why_not = "wants those runs; tests/cli draws a figure"},
      {.file = "docs/plan.md",
       .start = "prunex plan --from compare/results/cifar10 --only 'r8-*'",
       .changes = {},
       .prints = {"r8-diloco-int2", "is the first at", "Strong scaling"}},
      {.file = "docs/plan.md",
       .start = "prunex plan --from compare/results/cifar10 --only 'r20-*'",
       .changes = {},
       .prints = {"r20-diloco-int2 is the first at 71.72 %: 148 s (135 s to 180 s)", "ddp takes 7.17 min",
                  "2 nodes are 1.98 times as fast", "fp32 waits for 4.7 %"}},
      {.file = "docs/plan.md",
       .start = "prunex plan --nodes 32",
       .changes = {},
       .prints = {"32 nodes are 31.9 times as fast", "An exchange every 3 steps", "29.8"}},
      {.file = "docs/plan.md",
       .start = "prunex plan --sites 4",
       .changes = {},
       .prints = {"38.4 s (35.1 s to 46.5 s)", "11.5 times as long", "18 %"}},
      {.file = "docs/plan.md", .start = "prunex plan --nodes 128", .changes = {}, .prints = {"127", "121"}},
      {.file = "docs/plan.md", .start = "bench/plan_against_runs", .why_not = "wants network namespaces, and minutes"},
  };
}

std::vector<KnownBlock> joined(std::vector<KnownBlock> first, const std::vector<KnownBlock>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

const std::vector<KnownBlock>& known_blocks() {
  static const std::vector<KnownBlock> blocks =
      joined(joined(blocks_of_readme(), blocks_of_pages()), blocks_of_measurements());
  return blocks;
}

const std::vector<KnownBlock>& known_spans() {
  static const std::vector<KnownBlock> spans{
      {.file = "README.md", .start = "prunex train --help", .changes = {}, .prints = {"--config", "--strategy"}},
      {.file = "README.md", .start = "build/release/prunex", .why_not = "where the command is"},
      {.file = "docs/use.md",
       .start = "prunex bench all_reduce --line-rate MBIT",
       .changes = {{"MBIT", "1000 --nodes 2 -b 4K -e 4K"}},
       .prints = {"bound"}},
      {.file = "docs/use.md",
       .start = "prunex report runs/…",
       .changes = {{"runs/…", "runs/whole --output whole.html"}}},
      {.file = "docs/use.md",
       .start = "prunex plan --from runs/…",
       .changes = {{"runs/…", "runs/whole"}},
       .prints = {"is the first at", "Weak scaling"}},
      {.file = "docs/use.md", .start = "prunex compare compare/quick.toml", .why_not = "docs/report.md's"},
      {.file = "docs/use.md",
       .start = "prunex eval --model FILE.pt2",
       .changes = {{"FILE.pt2", "runs/own/model.pt2 --test test.safetensors"}},
       .prints = {"accuracy ", "loss ", "ms per batch of"}},
      {.file = "docs/use.md",
       .start = "prunex train --model model.pt2",
       .changes = {{"model.pt2", "runs/own/model.pt2"},
                   {"--dataset …", "--dataset train.safetensors --test test.safetensors" + kShort}},
       .prints = {"accuracy "}},
      {.file = "docs/use.md",
       .start = "prunex predict",
       .changes = {{"prunex predict",
                    "prunex predict --model runs/own/model.pt2 --input pixels.safetensors --output o.safetensors"}}},
      {.file = "docs/use.md",
       .start = "prunex train --config",
       .changes = {{"--config", "--config again.toml --check"}}},
      {.file = "README.md",
       .start = "prunex train --resume RUN_DIR",
       .changes = {{"RUN_DIR", "runs/whole --resume-exchange 2"}}},
      {.file = "docs/use.md", .start = "prunex train --help", .why_not = "README's"},
      {.file = "docs/use.md", .start = "prunex train --resume RUN_DIR", .why_not = "README's"},
      {.file = "README.md", .start = "prunex prune", .why_not = "named in the list of pages"},
      {.file = "README.md", .start = "prunex train --config", .why_not = "docs/pruning.md's"},
  };
  return spans;
}

}  // namespace prunex::readme
