// Times of pruning one network, for bench/pruning.py: bench_pruning FILE.pt2 SPEED_UP STEPS writes a JSON object.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "prunex/channels/analysis.h"
#include "prunex/program/pt2.h"
#include "prunex/prune/pruner.h"
#include "prunex/prune/regularizer.h"

namespace prunex::prune {
namespace {

/// Least of several, in milliseconds.
double milliseconds(int runs, const std::function<void()>& work) {
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    work();
    least =
        std::min(least, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

/// Group-norm sparse training, once per step and once per exchange; next to them forward and backward of 128 images.
void measure_regularizer(const program::Model& model, nlohmann::ordered_json& times) {
  constexpr int kRuns = 5, kImages = 128;
  const program::Graph& graph = model.program.graph();
  std::vector<int64_t> shape{kImages};
  for (const auto& extent : graph.values[graph.inputs.front()].shape) shape.push_back(extent.factor);
  shape.erase(shape.begin() + 1);  // the batch of the graph
  const at::Tensor images = at::randn(shape);
  Weights weights = model.weights;
  for (auto& item : weights.params) item.value() = item.value().detach().clone().set_requires_grad(true);
  const at::AutoGradMode with_grad(true);
  times["training step"] = milliseconds(3, [&] {
    for (auto& item : weights.params) item.value().mutable_grad().reset();
    model.program.run({images}, weights, program::Mode::kTrain).front().square().sum().backward();
  });
  Regularizer regularizer({.penalty = Penalty::kGroupNorm}, graph);
  times["refresh"] = milliseconds(kRuns, [&] { regularizer.refresh(weights, 0); });
  times["regularize"] = milliseconds(kRuns, [&] { regularizer.add_to_gradients(weights.params, 1); });
}

/// As Torch-Pruning's defaults: magnitude with p = 2, means.
nlohmann::ordered_json measure(const program::Model& model, double speed_up, int64_t steps) {
  constexpr int kRuns = 5;
  const program::Graph& graph = model.program.graph();
  ImportanceOptions options = importance_named("l2");
  options.tp_compat = true;
  const auto importance = make_importance(options, graph);
  const PlanOptions local{.tp_compat = true}, global{.scope = Scope::kGlobal, .tp_compat = true};
  const auto groups = channels::Analysis(graph).removable();
  const Pruner whole(model, local);
  const auto& cost = whole.planner().cost();
  const std::vector<int64_t> all = all_units(groups);
  const Target faster{.kind = Target::Kind::kMacs,
                      .count = static_cast<int64_t>(static_cast<double>(cost.macs(all)) / speed_up)};

  nlohmann::ordered_json times;
  times["grouping"] = milliseconds(kRuns, [&] { channels::Analysis{graph}; });
  times["importance"] = milliseconds(kRuns, [&] { importance->score(groups, model.weights); });
  times["init"] = milliseconds(kRuns, [&] { Pruner(model, local); });
  times["plan"] = milliseconds(kRuns, [&] {
    Pruner pruner = whole;
    pruner.prune(*importance, faster);
  });
  const auto halve = [&] {
    Pruner pruner = whole;
    pruner.prune(*importance, {.kind = Target::Kind::kRatio, .share = 0.5});
    return pruner;
  };
  times["step"] = milliseconds(kRuns, [&] {
    const sparsity::Cut cut = halve().cut();
    Weights weights = model.weights;
    sparsity::apply_cut(weights, cut);
    program::Program small(channels::cut_graph(graph, cut));
  });
  times["checked step"] = milliseconds(kRuns, [&] { halve().result(); });
  times["count"] = milliseconds(kRuns, [&] { cost.macs(all); });
  Size size;
  times["progressive"] = milliseconds(1, [&] {
    Pruner pruner(model, global);
    pruner.prune(*importance, faster, steps);
    size = pruner.result().after;
  });
  measure_regularizer(model, times);
  times["macs"] = size.macs;
  times["parameters"] = size.parameters;
  return times;
}

}  // namespace
}  // namespace prunex::prune

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "bench_pruning FILE.pt2 SPEED_UP STEPS\n");
    return 2;
  }
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  const auto model = prunex::program::read_pt2(argv[1]);
  fmt::print("{}\n", prunex::prune::measure(model, std::stod(argv[2]), std::stoll(argv[3])).dump());
}
