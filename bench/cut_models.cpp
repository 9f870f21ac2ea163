// bench_cut_models FILE.pt2...: what can be pruned of networks that torch.export wrote, and how exactly: half of all
// prunable groups are cut, and the result is compared with the masked network. Prints a row per file, then what cannot
// be pruned, and writes FILE.cut.pt2 and FILE.cut.json (its answers) for bench/cut_models.py.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "prunex/program/macs.h"
#include "prunex/program/program.h"
#include "prunex/program/pt2.h"
#include "tests/channels/case_check.h"

namespace prunex::channels {
namespace {

using program::Model;

constexpr uint64_t kSeed = 7;

struct Halves {
  Analysis analysis;
  sparsity::Masks masks;
  sparsity::Cut cut;
};

Halves halve(const Model& model, GroupOptions options, Mask mask) {
  Halves halves{{model.program, options}, sparsity::Masks(), {}};
  const auto& removable = halves.analysis.removable();
  halves.masks = half(removable, mask, kSeed);
  halves.cut = sparsity::make_cut(removable, halves.masks, sparsity::shapes_of(model.weights));
  return halves;
}

double error(const Model& model, const Halves& halves, Mask mask, at::ScalarType dtype) {
  std::vector<at::Tensor> inputs = make_inputs(model.program.graph());
  for (at::Tensor& input : inputs) {
    if (input.is_floating_point()) input = input.to(dtype);
  }
  return difference(run(cut(model, halves.analysis, halves.cut), inputs),
                    run(masked(model, halves.analysis, halves.masks, mask), inputs));
}

/// The quickest of several.
double milliseconds(const program::Graph& graph, GroupOptions options) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    Analysis{graph, options};
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  return best;
}

void print_refusals(const std::vector<DependencyGroup>& groups) {
  std::map<std::string, int> counts;
  for (const DependencyGroup& group : groups) {
    const bool boundary = group.kind == GroupKind::kInput || group.kind == GroupKind::kOutput;
    if (!group.prunable && !boundary) ++counts[group.reason];
  }
  for (const auto& [reason, count] : counts) fmt::print("  refused {}: {}\n", count, reason);
}

void write_answers(const std::string& stem, const Model& model) {
  const Model small{program::Program(program::in_mode(model.program.graph(), program::Mode::kEval)), model.weights};
  program::write_pt2(stem + ".cut.pt2", small);
  nlohmann::json answers;
  for (const at::Tensor& output : run(small, make_inputs(small.program.graph()))) {
    const at::Tensor flat = output.flatten().to(at::kDouble).contiguous();
    answers.push_back(std::vector<double>(flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()));
  }
  std::ofstream(stem + ".cut.json") << answers;
}

void check(const std::string& file, GroupOptions options) {
  Model model = program::read_pt2(file);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  randomize_norms(model.weights, generator);
  const Mask mask = options.statistics ? Mask::kTwins : Mask::kAll;
  const Halves halves = halve(model, options, mask);
  const auto& groups = halves.analysis.groups();
  const auto prunable = std::count_if(groups.begin(), groups.end(), [](const auto& group) { return group.prunable; });
  const Model small = cut(model, halves.analysis, halves.cut);
  const std::string stem = std::filesystem::path(file).replace_extension().string();
  fmt::print("| {} | {} | {} | {:.2f} | {:.2f} | {:.1f} | {:.1f} | {:.0e} | {:.0e} | {:.1f} |\n",
             std::filesystem::path(stem).filename().string() + (options.statistics ? " *" : ""), groups.size(),
             prunable, static_cast<double>(program::parameter_count(model.weights)) / 1e6,
             static_cast<double>(program::parameter_count(small.weights)) / 1e6,
             static_cast<double>(program::macs(model.program.graph())) / 1e6,
             static_cast<double>(program::macs(small.program.graph())) / 1e6, error(model, halves, mask, at::kFloat),
             error(copy_of(model, at::kDouble), halves, mask, at::kDouble),
             milliseconds(model.program.graph(), options));
  print_refusals(groups);
  write_answers(stem + (options.statistics ? ".statistics" : ""), small);
}

}  // namespace
}  // namespace prunex::channels

int main(int count, char** arguments) {
  at::set_num_threads(1);
  prunex::channels::GroupOptions options;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--statistics") {
      options.statistics = true;
    } else {
      prunex::channels::check(argument, options);
    }
  }
}
