#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "prunex/program/operations.h"

namespace prunex::program {
namespace {

bool is_flag(const std::string& argument) {
  return argument == "train" || argument == "training" || argument == "use_input_stats";
}

// Normalisation without running statistics uses those of the batch in both modes.
bool normalises_by_batch_only(const Node& node) {
  if (!may_keep_statistics(node)) return false;
  const auto* mean = node.find("running_mean");
  return !mean || mean->kind != Argument::Kind::kValue;
}

/// "valid" or "same" as numbers of positions, which is how the other convolutions have it. "same" stays where the sides
/// differ; it has no strides.
void set_padding(const Graph& graph, Node& node) {
  const size_t dot = node.target.find('.');
  if (!node.target.starts_with("aten::conv") || node.target.substr(std::min(dot, node.target.size())) != ".padding") {
    return;
  }
  const Argument* padding = node.find("padding");
  const ValueId weight = node.tensor("weight");
  const size_t axes = static_cast<size_t>(node.target[dot - 2] - '0');  // "aten::conv2d"
  if (padding == nullptr || !padding->literal.isString() || weight == kNoValue ||
      graph.values[weight].shape.size() != axes + 2) {
    return;
  }
  std::vector<int64_t> sides(axes, 0), dilation = node.integers("dilation");
  dilation.resize(axes, dilation.empty() ? 1 : dilation[0]);
  for (size_t axis = 0; axis < axes && padding->literal.toStringRef() == "same"; ++axis) {
    const int64_t both = dilation[axis] * (graph.values[weight].shape[2 + axis].factor - 1);
    if (both % 2 != 0) return;
    sides[axis] = both / 2;
  }
  node.target.resize(dot);
  node.set("padding", sides);
}

void set_flags(Node& node, Mode mode) {
  if (normalises_by_batch_only(node)) return;
  if (mode == Mode::kTrain && may_keep_statistics(node)) node.set("momentum", momentum_of(node));
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
      const ValueId factor_of = node.tensor("self");
      redirect(node);
      if (removes(node, factor_of, kept)) continue;
      check_noise(node);
      if (operation_of(node.target).in_eval == InEval::kAverages) stand_for_draws(node);
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

  // `factor_of`: what the node takes first, before nodes were removed; `kept`: the nodes before it.
  bool removes(const Node& node, ValueId factor_of, const std::vector<Node>& kept) {
    if (node.outputs.size() != 1) return false;
    const auto output = node.outputs[0], self = node.tensor("self"), other = node.tensor("other");
    if (output == kNoValue || self == kNoValue) return false;
    const double scale = scale_of(node);
    switch (operation_of(node.target).in_eval) {
      case InEval::kCounts:
        return is_counter(self) && replace(output, self);
      case InEval::kDraws:
        return make_noise(node, mean_of_draws(node));
      case InEval::kMultiplies:
        if (is_noise(other)) return multiply(output, self, noise_.at(other), kept);
        if (is_noise(self) && other != kNoValue) return multiply(output, other, noise_.at(self), kept);
        [[fallthrough]];
      case InEval::kDivides:
        if (is_noise(self)) return make_noise(node, noise_.at(self) * scale);
        if (const auto mean = unscaled_.find(factor_of); mean != unscaled_.end() && is_inverse(scale, mean->second)) {
          return replace(output, self);
        }
        return false;
      default:
        return false;
    }
  }

  // What a product or a quotient with a number multiplies by; 1 for other nodes.
  static double scale_of(const Node& node) {
    const Argument* other = node.find("other");
    if (other == nullptr || !other->literal.isScalar()) return 1;
    const double number = other->literal.toScalar().toDouble();
    const InEval kind = operation_of(node.target).in_eval;
    return kind == InEval::kDivides ? 1 / number : kind == InEval::kMultiplies ? number : 1;
  }

  static double mean_of_draws(const Node& node) {
    const Argument* p = node.find("p");
    return p == nullptr ? 0.5 : p->literal.isScalar() ? p->literal.toScalar().toDouble() : 1;
  }

  static bool is_inverse(double scale, double mean) { return std::abs(scale * mean - 1) < 1e-9; }

  // Noise leaves what it multiplies as it is. If its mean is not 1, the division that makes it so may act on the other
  // factor, and goes, too: it was before, in `kept`, or comes.
  bool multiply(ValueId output, ValueId factor, double mean, const std::vector<Node>& kept) {
    if (is_inverse(1, mean)) return replace(output, factor);
    for (const Node& node : kept) {
      if (node.outputs.size() != 1 || node.outputs[0] != factor || !is_inverse(scale_of(node), mean)) continue;
      if (node.is_in_place()) {
        throw std::invalid_argument(
            fmt::format("node {}: scales noise of training in place: export the network in "
                        "eval mode, without it",
                        describe(graph_, node)));
      }
      return replace(output, node.tensor("self"));
    }
    unscaled_[output] = mean;
    return replace(output, factor);
  }

  // Probabilities, of which a copy stands for the draws: these may be written to.
  static void stand_for_draws(Node& node) {
    node.target = "aten::clone";
    std::erase_if(node.arguments, [](const Argument& argument) { return argument.name != "self"; });
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

  bool make_noise(const Node& node, double mean) {
    noise_[node.outputs[0]] = mean;
    if (node.is_in_place()) noise_[node.tensor("self")] = mean;
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
  std::unordered_map<ValueId, double> noise_;     // and its mean
  std::unordered_map<ValueId, double> unscaled_;  // what stands for products with noise of such a mean
};

}  // namespace

bool may_keep_statistics(const Node& node) {
  return operation_of(node.target).in_eval == InEval::kNormalizes;
}

double momentum_of(const Node& norm) {
  const auto* given = norm.find("momentum");
  const double momentum = given && given->literal.isScalar() ? given->literal.toScalar().toDouble() : 0;
  return momentum > 0 ? momentum : 1;
}

Graph in_mode(const Graph& graph, Mode mode) {
  Graph result = graph;
  for (auto& node : result.nodes) {
    set_padding(graph, node);
    set_flags(node, mode);
  }
  if (mode == Mode::kEval) EvalForm(result).apply();
  return result;
}

}  // namespace prunex::program
