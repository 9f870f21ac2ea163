#include "prunex/prune/training_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "prunex/channels/operations.h"
#include "prunex/sparsity/projection.h"
#include "prunex/text/option.h"

namespace prunex::prune {
namespace {

using channels::DependencyGroup;
using channels::GroupKind;
using channels::WeightKind;
using program::Graph;
using program::kNoValue;
using program::Node;
using program::Role;
using program::ValueId;
using sparsity::Group;
using sparsity::Slice;

struct Choice {
  std::string kind;
  double keep = 0;
};

[[noreturn]] void refuse_words(const std::string& words, const std::string& why) {
  throw std::invalid_argument(
      fmt::format("`groups`: got {}, where {}; wanted none, or coupled-inner, coupled, filter, channel, shape joined "
                  "by +, each with an optional :SHARE in (0, 1]",
                  words, why));
}

double parse_share(const std::string& words, const std::string& text) {
  const auto share = text::number_in<double>(text);
  if (!share || !(*share > 0 && *share <= 1)) refuse_words(words, fmt::format("'{}' is no share", text));
  return *share;
}

bool is_word(const std::string& word) {
  static const std::set<std::string> kinds{"none", "coupled-inner", "coupled", "filter", "channel", "shape"};
  return kinds.count(word) > 0;
}

std::vector<Choice> parse(const std::string& words, double keep) {
  std::vector<Choice> choices;
  std::set<std::string> seen;
  for (const std::string& part : text::parts_of(words, '+')) {
    const size_t colon = part.find(':');
    const std::string kind = part.substr(0, colon);
    if (!is_word(kind)) refuse_words(words, fmt::format("'{}' is no kind", kind));
    if (!seen.insert(kind).second) refuse_words(words, fmt::format("'{}' is named twice", kind));
    if (kind == "none" && colon != std::string::npos) refuse_words(words, "'none' has no share");
    choices.push_back({kind, colon == std::string::npos ? keep : parse_share(words, part.substr(colon + 1))});
  }
  if (seen.count("none") > 0 && seen.size() > 1) refuse_words(words, "'none' stands alone");
  if (seen.count("coupled") > 0 && seen.count("coupled-inner") > 0)
    refuse_words(words, "'coupled' has 'coupled-inner' in it");
  return choices;
}

/// A convolution or linear layer that the independent kinds may prune.
struct Layer {
  std::string name;
  std::string weight;
  bool convolution = false;
  std::vector<int64_t> shape;     ///< of the weight
  std::vector<std::string> rows;  ///< weight, bias, batch norm's weight and bias
};

bool is_kind(const Node& node, WeightKind kind) {
  return channels::operation_of(node.target).weights == kind;
}

/// Of instances or groups: its weight has one number for each channel.
bool is_norm_of_channels(const Node& node) {
  return node.target == "aten::instance_norm" || node.target == "aten::group_norm";
}

/// What may stand between a layer and its norm: a channel of zeros stays one.
bool keeps_zeros(const Node& node) {
  static const std::set<std::string> targets{
      "aten::relu",       "aten::relu_",      "aten::dropout",    "aten::dropout_",   "aten::max_pool1d",
      "aten::max_pool2d", "aten::avg_pool1d", "aten::avg_pool2d", "aten::contiguous", "aten::clone"};
  return targets.contains(node.target);
}

bool is_convolution(const Node& node) {
  return is_kind(node, WeightKind::kConvolution) && !program::is_transposed(node);
}

/// What the independent kinds need to know about a graph.
class Layers {
 public:
  explicit Layers(const channels::Analysis& analysis) : graph_(analysis.graph()) {
    std::map<ValueId, ValueId> same;  // what keeps the zeros of a layer's channels -> the layer's output
    for (const Node& node : graph_.nodes) {
      if (is_kind(node, WeightKind::kBatchNorm) || is_norm_of_channels(node)) {
        const ValueId input = node.tensor("input");
        const auto behind = same.find(input);
        norm_of_[behind == same.end() ? input : behind->second].push_back(&node);
      } else if (keeps_zeros(node)) {
        const ValueId input = node.tensor(node.find("self") != nullptr ? "self" : "input");
        const auto behind = same.find(input);
        same[node.outputs.at(0)] = behind == same.end() ? input : behind->second;
      } else if (is_convolution(node) || is_kind(node, WeightKind::kLinear)) {
        calls_[parameter(node.tensor("weight"))].push_back(node.outputs.at(0));
      }
    }
    for (const DependencyGroup& group : analysis.groups()) {
      if (group.kind != GroupKind::kOutput) continue;
      for (const Slice& slice : group.slices) outputs_.insert(slice.tensor);
    }
  }

  /// In the order of the graph, without the first convolution and the classifier; shared layers once.
  std::vector<Layer> hidden() const {
    std::vector<Layer> layers;
    std::set<std::string> seen;
    bool first = true;
    for (const Node& node : graph_.nodes) {
      const bool convolution = is_convolution(node);
      if (!convolution && !is_kind(node, WeightKind::kLinear)) continue;
      const std::string weight = parameter(node.tensor("weight"));
      const bool dense = (convolution && first) || outputs_.count(weight) > 0;
      first = first && !convolution;
      if (!weight.empty() && seen.insert(weight).second && !dense) layers.push_back(describe(node, weight));
    }
    return layers;
  }

 private:
  /// The state-dict name of a parameter; empty for anything else.
  std::string parameter(ValueId value) const {
    if (value == kNoValue || graph_.values[value].role != Role::kParameter) return "";
    return graph_.owner(graph_.values[value].weight);
  }

  Layer describe(const Node& node, const std::string& weight) const {
    Layer layer{.name = channels::layer_of(weight),
                .weight = weight,
                .convolution = is_convolution(node),
                .shape = {},
                .rows = {weight}};
    for (const program::Extent& extent : graph_.values.at(node.tensor("weight")).shape) {
      layer.shape.push_back(extent.factor);
    }
    add_rows(layer, {node.tensor("bias")});
    for (const ValueId output : calls_.at(weight)) {
      const auto norms = norm_of_.find(output);
      if (norms == norm_of_.end()) continue;
      for (const Node* norm : norms->second) {
        if (has_numbers(*norm, layer.shape[0])) add_rows(layer, {norm->tensor("weight"), norm->tensor("bias")});
      }
    }
    return layer;
  }

  /// One for each of so many rows of a layer: else the norm is of another axis.
  bool has_numbers(const Node& norm, int64_t rows) const {
    const ValueId weight = norm.tensor("weight");
    return weight != kNoValue && graph_.values[weight].shape == program::Shape{{rows}};
  }

  void add_rows(Layer& layer, const std::vector<ValueId>& values) const {
    for (ValueId value : values) {
      const std::string name = parameter(value);
      const bool known = std::find(layer.rows.begin(), layer.rows.end(), name) != layer.rows.end();
      if (!name.empty() && !known) layer.rows.push_back(name);
    }
  }

  const Graph& graph_;
  std::map<std::string, std::vector<ValueId>> calls_;    // of a weight: what its layer gives
  std::map<ValueId, std::vector<const Node*>> norm_of_;  // by what a layer gives
  std::set<std::string> outputs_;
};

Group filter(const Layer& layer, double keep) {
  Group group{.name = "filter:" + layer.name, .slices = {}, .size = layer.shape[0], .keep = keep};
  for (const std::string& tensor : layer.rows) group.slices.push_back({tensor, sparsity::kRows, {}});
  return group;
}

Group columns(const Layer& layer, const Choice& choice) {
  const auto& [kind, keep] = choice;
  int64_t size = layer.shape[1];
  for (size_t axis = 2; kind == "shape" && axis < layer.shape.size(); ++axis) size *= layer.shape[axis];
  const int64_t axis = kind == "shape" ? sparsity::kColumns : sparsity::kChannels;
  return {.name = kind + ":" + layer.name, .slices = {{layer.weight, axis, {}}}, .size = size, .keep = keep};
}

std::vector<Group> independent(const Choice& choice, const std::vector<Layer>& layers) {
  std::vector<Group> groups;
  for (const Layer& layer : layers) {
    if (choice.kind == "filter") {
      groups.push_back(filter(layer, choice.keep));
    } else if (layer.convolution) {
      groups.push_back(columns(layer, choice));
    }
  }
  return groups;
}

/// Directions of weight norm, with the axis that has a length for each: where the length is 0 there is nothing to mask,
/// and a direction of 0 has none.
std::set<std::pair<std::string, int64_t>> directions(const Graph& graph) {
  std::set<std::pair<std::string, int64_t>> all;
  for (const Node& node : graph.nodes) {
    if (node.target != "aten::_weight_norm") continue;
    const program::Value& value = graph.values.at(node.tensor("v"));
    const auto rank = static_cast<int64_t>(value.shape.size());
    const int64_t dim = node.integer("dim", 0);
    if (dim != -1) all.emplace(graph.owner(value.weight), program::from_front(dim, rank));  // -1: one length for all
  }
  return all;
}

bool is_of_kind(const DependencyGroup& group, const std::string& kind) {
  return group.prunable && (group.kind != GroupKind::kStream || kind == "coupled");
}

std::vector<Group> coupled(const channels::Analysis& analysis, const Choice& choice, int64_t round_to) {
  const auto unmasked = directions(analysis.graph());
  std::vector<Group> groups;
  for (const DependencyGroup& dependency : analysis.groups()) {
    if (!is_of_kind(dependency, choice.kind) || !dependency.unmaskable.empty()) continue;
    const int64_t multiple = multiple_of(dependency, analysis, round_to);
    Group group{.name = dependency.name,
                .slices = {},
                .size = dependency.size,
                .keep = sparsity::rounded_share(dependency.size, choice.keep, multiple)};
    std::copy_if(dependency.slices.begin(), dependency.slices.end(), std::back_inserter(group.slices),
                 [&](const Slice& slice) {
                   return analysis.role(slice.tensor) != nullptr && !unmasked.contains({slice.tensor, slice.axis});
                 });
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> unmaskable_groups(const channels::Analysis& analysis,
                                                                   const std::string& words) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Choice& choice : parse(words, 1)) {
    if (!choice.kind.starts_with("coupled")) continue;
    for (const DependencyGroup& dependency : analysis.groups()) {
      if (!is_of_kind(dependency, choice.kind) || dependency.unmaskable.empty()) continue;
      all.emplace_back(dependency.name, dependency.unmaskable);
    }
  }
  return all;
}

std::vector<Group> training_groups(const channels::Analysis& analysis, const std::string& words, double keep,
                                   int64_t round_to) {
  if (!(keep > 0 && keep <= 1)) {
    throw std::invalid_argument(fmt::format("`keep`: got {}, wanted a share of units in (0, 1]", keep));
  }
  const std::vector<Choice> choices = parse(words, keep);
  const std::vector<Layer> layers = Layers(analysis).hidden();
  std::vector<Group> all;
  for (const Choice& choice : choices) {
    if (choice.kind == "none") continue;
    std::vector<Group> groups =
        choice.kind.starts_with("coupled") ? coupled(analysis, choice, round_to) : independent(choice, layers);
    std::copy_if(groups.begin(), groups.end(), std::back_inserter(all),
                 [](const Group& group) { return group.size > 1; });
  }
  return all;
}

}  // namespace prunex::prune
