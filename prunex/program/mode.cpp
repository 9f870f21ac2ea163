#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <unordered_set>

#include "prunex/program/operations.h"

namespace prunex::program {
namespace {

bool is_flag(const std::string& argument) {
  return argument == "train" || argument == "training" || argument == "use_input_stats";
}

// Normalisation without running statistics uses those of the batch in both modes.
bool normalises_by_batch_only(const Node& node) {
  if (operation_of(node.target).in_eval != InEval::kNormalizes) return false;
  const auto* mean = node.find("running_mean");
  return !mean || mean->kind != Argument::Kind::kValue;
}

void set_flags(Node& node, Mode mode) {
  if (normalises_by_batch_only(node)) return;
  if (mode == Mode::kTrain && node.target == "aten::batch_norm") node.set("momentum", momentum_of(node));
  for (auto& argument : node.arguments) {
    if (is_flag(argument.name) && argument.literal.isBool()) argument.literal = mode == Mode::kTrain;
    if (argument.name == "dropout_p" && mode == Mode::kEval) argument.literal = 0.0;
  }
}

// Removes from the nodes, in order, what only training does; later uses of a removed node's result take another value.
class EvalForm {
 public:
  explicit EvalForm(Graph& graph) : graph_(graph), stands_for_(graph.values.size()) {
    std::iota(stands_for_.begin(), stands_for_.end(), 0);
  }

  void apply() {
    std::vector<Node> kept;
    for (auto& node : graph_.nodes) {
      redirect(node);
      if (removes(node)) continue;
      check_noise(node);
      kept.push_back(std::move(node));
    }
    for (auto& output : graph_.outputs) output = stands_for_.at(output);
    graph_.nodes = without_unused(std::move(kept));
  }

 private:
  void redirect(Node& node) const {
    for (auto& argument : node.arguments) {
      for (auto& value : argument.values) {
        if (value != kNoValue) value = stands_for_.at(value);
      }
    }
  }

  bool removes(const Node& node) {
    if (node.outputs.size() != 1) return false;
    const auto output = node.outputs[0], self = node.tensor("self"), other = node.tensor("other");
    if (output == kNoValue || self == kNoValue) return false;
    switch (operation_of(node.target).in_eval) {
      case InEval::kCounts:
        return is_counter(self) && replace(output, self);
      case InEval::kDraws:
        return make_noise(output, self);
      case InEval::kAverages:
        return replace(output, self);
      case InEval::kMultiplies:
        if (is_noise(other)) return replace(output, self);
        if (is_noise(self) && other != kNoValue) return replace(output, other);
        return is_noise(self) && make_noise(output, self);
      case InEval::kDivides:
        return is_noise(self) && make_noise(output, self);
      default:
        return false;
    }
  }

  // num_batches_tracked
  bool is_counter(ValueId id) const {
    const auto& value = graph_.values[id];
    return value.role == Role::kBuffer && value.dtype == at::kLong && value.shape.empty();
  }

  void check_noise(const Node& node) const {
    if (operation_of(node.target).in_eval == InEval::kMakes) return;
    for (const auto& argument : node.arguments) {
      for (const auto id : argument.values) {
        if (!is_noise(id)) continue;
        throw std::invalid_argument(fmt::format(
            "node {}: takes noise of training other than as a factor: export the network in eval mode, without it",
            describe(graph_, node)));
      }
    }
  }

  bool is_noise(ValueId id) const { return noise_.contains(id); }

  bool make_noise(ValueId output, ValueId self) {
    noise_.insert({output, self});
    return true;
  }

  bool replace(ValueId output, ValueId by) {
    stands_for_[output] = by;
    return true;
  }

  // What led to the noise (its empty tensor, its sizes) has lost its users.
  std::vector<Node> without_unused(std::vector<Node> nodes) const {
    if (noise_.empty()) return nodes;
    std::unordered_set<ValueId> used(graph_.outputs.begin(), graph_.outputs.end());
    std::vector<Node> kept;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      const auto makes = [&](ValueId id) { return used.contains(id); };
      const bool creates = operation_of(node->target).in_eval == InEval::kMakes;
      if (creates && std::none_of(node->outputs.begin(), node->outputs.end(), makes)) continue;
      for (const auto& argument : node->arguments) used.insert(argument.values.begin(), argument.values.end());
      kept.push_back(std::move(*node));
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

  Graph& graph_;
  std::vector<ValueId> stands_for_;
  std::unordered_set<ValueId> noise_;
};

}  // namespace

double momentum_of(const Node& batch_norm) {
  const auto* given = batch_norm.find("momentum");
  const double momentum = given && given->literal.isScalar() ? given->literal.toScalar().toDouble() : 0;
  return momentum > 0 ? momentum : 1;
}

Graph in_mode(const Graph& graph, Mode mode) {
  Graph result = graph;
  for (auto& node : result.nodes) set_flags(node, mode);
  if (mode == Mode::kEval) EvalForm(result).apply();
  return result;
}

}  // namespace prunex::program
