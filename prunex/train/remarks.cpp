#include "prunex/train/remarks.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "prunex/channels/operations.h"
#include "prunex/prune/training_groups.h"
#include "prunex/text/one_line.h"
#include "prunex/train/device.h"

namespace prunex::train {
namespace {

using program::Argument;
using program::Graph;
using program::Node;
using program::Role;
using program::Value;
using program::ValueId;

using Producers = std::vector<const Node*>;  // channels::producers_of()

bool is_statistic(const Value& value) {
  const bool stored = value.role == Role::kBuffer || value.role == Role::kConstant;
  return stored && (value.weight.ends_with("running_mean") || value.weight.ends_with("running_var"));
}

/// What program::in_mode can switch to training.
bool can_train(const Node& node) {
  return node.find("training") != nullptr || node.find("train") != nullptr || node.find("use_input_stats") != nullptr;
}

/// Statistics that no normalisation updates: layer and operation, in the order of the graph.
std::vector<std::pair<std::string, std::string>> fixed_norms(const Graph& graph) {
  std::vector<std::pair<std::string, std::string>> fixed;
  std::set<std::string> seen;
  for (const Node& node : graph.nodes) {
    if (can_train(node)) continue;
    for (const Argument& argument : node.arguments) {
      for (const ValueId id : argument.values) {
        if (id == program::kNoValue || !is_statistic(graph.values[id])) continue;
        const std::string& name = graph.values[id].weight;
        const std::string layer = name.substr(0, name.rfind('.'));
        if (seen.insert(layer).second) fixed.emplace_back(layer, node.target);
      }
    }
  }
  return fixed;
}

/// Where a tensor comes from, through whatever has one tensor as its first argument.
ValueId source_of(const Producers& producers, ValueId id) {
  while (const Node* node = producers[id]) {
    const auto& arguments = node->arguments;
    if (arguments.empty() || arguments[0].kind != Argument::Kind::kValue) break;
    id = arguments[0].values[0];
  }
  return id;
}

ValueId weight_of(const Node& node) {
  switch (channels::operation_of(node.target).weights) {
    case channels::WeightKind::kConvolution:
    case channels::WeightKind::kLinear:
      return node.tensor("weight");
    case channels::WeightKind::kFactor:
      return node.find("equation") == nullptr ? channels::factors_of(node).right : program::kNoValue;
    default:
      return program::kNoValue;
  }
}

/// The weight of the last layer, which makes the logits; kNoValue where it is not found.
ValueId head_of(const Graph& graph, const Producers& producers) {
  ValueId id = graph.outputs.front();
  while (const Node* node = producers[id]) {
    const ValueId weight = weight_of(*node);
    if (weight != program::kNoValue) return source_of(producers, weight);
    if (node->arguments.empty() || node->arguments[0].kind != Argument::Kind::kValue) break;
    id = node->arguments[0].values[0];
  }
  return program::kNoValue;
}

/// Leaves of autograd over the same memory, and statistics of their own.
Weights leaves_of(const Weights& weights) {
  Weights leaves = weights;
  for (auto& item : leaves.params) item.value() = item.value().detach().set_requires_grad(true);
  for (auto& item : leaves.buffers) item.value() = item.value().clone();
  return leaves;
}

at::Tensor noise(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed));
}

at::Tensor noise_for(const program::Model& model) {
  constexpr int64_t kImages = 2;
  const Value& input = model.program.graph().values[model.program.graph().inputs.front()];
  return noise(program::sizes_of(input.shape, kImages), 0).to(device_of(model.weights));
}

/// Of a loss that no symmetry of the network's output hides, by parameter; undefined where none leads to it.
std::vector<at::Tensor> gradients_of(const program::Model& model, const std::string& source) {
  Weights leaves = leaves_of(model.weights);
  const at::Tensor logits = model.program.run({noise_for(model)}, leaves, program::Mode::kTrain).front();
  if (!logits.requires_grad()) {
    throw std::invalid_argument(
        fmt::format("{}: nothing can train: no gradient leads from its output to any of its {} parameters", source,
                    leaves.params.size()));
  }
  std::vector<at::Tensor> thetas;
  for (const auto& item : leaves.params) thetas.push_back(item.value());
  const at::Tensor directions = noise(logits.sizes(), 1).to(logits.options());
  return torch::autograd::grad({(logits * directions).sum()}, thetas, {}, std::nullopt, false, /*allow_unused=*/true);
}

std::string gradient_remark(const program::Model& model, const std::string& source) {
  const auto gradients = gradients_of(model, source);
  std::vector<std::string> without;
  bool all_zero = true;
  for (size_t p = 0; p < gradients.size(); ++p) {
    if (!gradients[p].defined()) {
      without.push_back(model.weights.params[p].key());
    } else {
      all_zero = all_zero && gradients[p].eq(0).all().item<bool>();
    }
  }
  if (all_zero) return fmt::format("{}: all gradients are 0 on two images of noise: nothing may train", source);
  if (without.empty()) return "";
  return fmt::format("{}: no gradient leads to {}: {} as in the file", source, some_of(without),
                     without.size() == 1 ? "it stays" : "they stay");
}

std::string norm_remark(const Graph& graph, const std::string& source) {
  const auto fixed = fixed_norms(graph);
  if (fixed.empty()) return "";
  std::vector<std::string> layers;
  for (const auto& [layer, operation] : fixed) layers.push_back(layer);
  return fmt::format(
      "{}: batch norm of {} keeps the statistics of the file ({}, as decomposed in eval mode): export without "
      "run_decompositions() to train them",
      source, some_of(layers), fixed[0].second);
}

std::string head_remark(const Graph& graph, const std::string& source) {
  const ValueId head = head_of(graph, channels::producers_of(graph));
  if (head == program::kNoValue) return "";
  const auto& [role, name] = std::pair{graph.values[head].role, graph.values[head].weight};
  if (role != Role::kBuffer && role != Role::kConstant) return "";
  return fmt::format("{}: its last layer does not train: '{}' is a {}, not a parameter", source, name,
                     role == Role::kBuffer ? "buffer" : "constant");
}

}  // namespace

std::string some_of(const std::vector<std::string>& all) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> names;  // from files of strangers
  std::transform(all.begin(), all.end(), std::back_inserter(names),
                 [](const auto& name) { return text::one_line(name); });
  const size_t named = names.size() <= kNamed + 1 ? names.size() - 1 : kNamed;
  const std::string first = fmt::format("{}", fmt::join(names.begin(), names.begin() + named, ", "));
  if (named == 0) return names[0];
  if (named == names.size() - 1) return fmt::format("{} and {}", first, names.back());
  return fmt::format("{} and {} others", first, names.size() - named);
}

std::vector<std::string> training_remarks(const program::Model& model, const std::string& source) {
  const Graph& graph = model.program.graph();
  std::vector<std::string> remarks{norm_remark(graph, source), head_remark(graph, source),
                                   gradient_remark(model, source)};
  std::erase(remarks, "");
  return remarks;
}

namespace {

bool has_effect(bool channels::GroupOptions::*option, const channels::Analysis& analysis) {
  channels::GroupOptions without = analysis.options();
  without.*option = false;
  return analysis.removable() != channels::Analysis(analysis.graph(), without).removable();
}

}  // namespace

void expect_heads(const channels::Analysis& analysis, const std::string& source) {
  if (has_effect(&channels::GroupOptions::heads, analysis)) return;
  throw std::invalid_argument(
      fmt::format("`heads`: {} has no attention of several heads that could go, or loses whole heads without", source));
}

void expect_statistics(const channels::Analysis& analysis, const std::string& source) {
  if (has_effect(&channels::GroupOptions::statistics, analysis)) return;
  throw std::invalid_argument(fmt::format(
      "`statistics`: {} has no units that stay because a norm, mean or maximum is taken over them", source));
}

std::string nothing_to_cut(const channels::Analysis& analysis, const std::string& source) {
  const auto& groups = analysis.groups();
  if (std::any_of(groups.begin(), groups.end(), [](const auto& group) { return group.prunable; })) return "";
  for (const auto& group : groups) {
    const bool hidden = group.kind != channels::GroupKind::kInput && group.kind != channels::GroupKind::kOutput;
    if (hidden) return fmt::format("{}: nothing can be cut: {}: {}", source, group.name, group.reason);
  }
  return fmt::format("{}: nothing can be cut: all its channels are the input's or the output's", source);
}

std::string mask_remark(const channels::Analysis& analysis, const std::string& words, const std::string& source) {
  std::vector<std::string> left_out;
  const auto groups = prune::unmaskable_groups(analysis, words);
  for (const auto& [name, why] : groups) left_out.push_back(name);
  if (groups.empty()) return "";
  return fmt::format("{}: masks leave out {}: {}", source, some_of(left_out), groups.front().second);
}

std::vector<std::string> transport_remarks(const comm::Hierarchy& ranks) {
  std::vector<std::string> remarks;
  if (!ranks.no_shared_memory.empty()) {
    remarks.push_back(fmt::format("no shared memory inside a node ({}): using loopback", ranks.no_shared_memory));
  }
  if (!ranks.staged.empty()) remarks.push_back(fmt::format("{}: they exchange by way of the CPU", ranks.staged));
  return remarks;
}

}  // namespace prunex::train
