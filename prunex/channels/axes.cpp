#include "prunex/channels/axes.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "prunex/channels/operations.h"
#include "prunex/channels/roles.h"

namespace prunex::channels {
namespace {

using program::Role;

std::string name_of_call(const Graph& graph, const Node& node) {
  for (ValueId output : node.outputs) {
    if (output != kNoValue) return fmt::format("{} (node {})", node.target, graph.values[output].name);
  }
  return node.target;
}

bool holds_weight(Role role) {
  return role == Role::kParameter || role == Role::kBuffer;
}

}  // namespace

Axes::Axes(const Graph& graph, GroupOptions options, Choices choices)
    : graph_(graph),
      options_(options),
      choices_(std::move(choices)),
      reasons_{"the model's input", "the model's output"},
      labels_(graph.values.size()),
      weight_of_(graph.values.size(), -1),
      producers_(producers_of(graph)),
      used_(graph.values.size(), false),
      overwritten_(graph.values.size(), false) {
  note_uses();
  note_writes();
  for (size_t value = 0; value < graph.values.size(); ++value) {
    const auto id = static_cast<ValueId>(value);
    if (holds_weight(graph.values[value].role)) {
      add_weight(id);
    } else {
      labels_[value].resize(graph.values[value].shape.size());
      if (graph.values[value].role == Role::kConstant) open_all(id);
    }
  }
  note_kernels();
  for (ValueId input : graph.inputs) {
    if (rank(input) < 2 || shape(input)[1].per_image || shape(input)[1].factor == 0) continue;
    labels_[input][1] = begin(graph.values[input].name, shape(input)[1].factor);
    for (Unit unit : *labels_[input][1]) units_.freeze(unit, kIsInput);
  }
}

void Axes::add_weight(ValueId value) {
  const std::string& name = graph_.owner(graph_.values[value].weight);
  const auto [place, added] = weight_by_name_.emplace(name, static_cast<int32_t>(weights_.size()));
  if (added) weights_.push_back({.name = name, .axes = std::vector<WeightAxis>(shape(value).size())});
  weight_of_[value] = place->second;
}

void Axes::note_uses() {
  for (const Node& node : graph_.nodes) {
    for (const Argument& argument : node.arguments) {
      for (ValueId value : argument.values) {
        if (value != kNoValue) used_[value] = true;
      }
    }
  }
  for (ValueId output : graph_.outputs) used_[output] = true;
}

/// What shows the storage that is written to. An operation in place reads its operand before it writes: that counts as
/// overwritten only for those who look at it later, or through another view.
void Axes::note_writes() {
  std::vector<std::vector<size_t>> users(graph_.values.size());
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    for (ValueId value : tensor_inputs(graph_, graph_.nodes[i])) users[value].push_back(i);
  }
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    const Zero zero = operation_of(node.target).zero;
    const auto inputs = tensor_inputs(graph_, node);
    if (!node.is_in_place() || inputs.empty() || zero == Zero::kFirst || zero == Zero::kAny || zero == Zero::kAlways)
      continue;
    ValueId value = inputs[0];
    const auto sees = [&](size_t user) {
      return user > i || (user < i && operation_of(graph_.nodes[user].target).views);
    };
    if (std::any_of(users[value].begin(), users[value].end(), sees)) overwritten_[value] = true;
    while (const Node* maker = producers_[value]) {
      const auto operands = tensor_inputs(graph_, *maker);
      const bool views = operation_of(maker->target).views;
      if (!(views || maker->is_in_place()) || operands.empty()) break;
      value = operands[0];
      if (views || std::any_of(users[value].begin(), users[value].end(), sees)) overwritten_[value] = true;
    }
  }
}

/// Positions of a kernel begin no units, nor do those of what it is computed of, in its shape: a weight that is
/// standardized, a mask.
void Axes::note_kernels() {
  for (const Node& node : graph_.nodes) {
    if (operation_of(node.target).rule != convolution_rule) continue;
    const ValueId kernel = node.tensor("weight");
    std::unordered_set<ValueId> known{kernel};
    for (std::vector<ValueId> open{kernel}; !open.empty();) {
      const ValueId value = open.back();
      open.pop_back();
      const bool is_like_kernel = is_weight(value) && shape(value) == shape(kernel);
      for (int64_t axis = 2; is_like_kernel && axis < rank(value); ++axis) weight_axis(value, axis).seen = true;
      if (producers_[value] == nullptr) continue;
      for (const ValueId operand : tensor_inputs(graph_, *producers_[value])) {
        if (known.insert(operand).second) open.push_back(operand);
      }
    }
  }
}

void Axes::open_all(ValueId value) {
  for (int64_t axis = 0; axis < rank(value); ++axis) open(value, axis);
}

void Axes::open(ValueId value, int64_t axis) {
  const Extent& extent = shape(value).at(axis);
  if (extent.factor > 1 && !extent.per_image) open_.emplace(value, axis);
}

void Axes::enter(const Node& node) {
  operation_ = name_of_call(graph_, node);
  const auto is_needed = [&](ValueId output) { return is_used(output); };
  unused_ = std::none_of(node.outputs.begin(), node.outputs.end(), is_needed);
  multiplies_ = operation_of(node.target).multiplies;
  tie_reason_ = kFree;
  seen_.clear();
}

bool Axes::is_weight(ValueId value) const {
  return weight_of_.at(value) >= 0;
}

Axes::WeightAxis& Axes::weight_axis(ValueId value, int64_t axis) {
  return weights_[weight_of_[value]].axes.at(axis);
}

Labels Axes::begin(const std::string& name, int64_t size) {
  auto labels = std::make_shared<std::vector<Unit>>(size);
  std::iota(labels->begin(), labels->end(), units_.add(size));
  origins_.push_back({.name = name, .labels = labels});
  return labels;
}

Labels Axes::labels(ValueId value, int64_t axis) {
  if (!is_weight(value)) {
    open_.erase({value, axis});
    seen_.emplace(value, axis);
    return labels_[value].at(axis);
  }
  WeightAxis& place = weight_axis(value, axis);
  if (!place.seen && shape(value)[axis].factor > 1) begin_weight(place, value, axis);
  return place.labels;
}

Labels Axes::made(ValueId value, int64_t axis) {
  if (!is_weight(value)) return labels(value, axis);
  WeightAxis& place = weight_axis(value, axis);
  if (!place.seen) {
    begin_weight(place, value, axis);
    origins_.back().layer = true;
  }
  return place.labels;
}

void Axes::begin_weight(WeightAxis& place, ValueId value, int64_t axis) {
  place.labels = begin(layer_of(weights_[weight_of_[value]].name), shape(value)[axis].factor);
  place.seen = true;
}

Labels Axes::peek(ValueId value, int64_t axis) const {
  return is_weight(value) ? weights_[weight_of_[value]].axes.at(axis).labels : labels_[value].at(axis);
}

void Axes::set(ValueId value, int64_t axis, Labels labels) {
  if (value == kNoValue) return;
  TORCH_CHECK(labels == nullptr || static_cast<int64_t>(labels->size()) == shape(value).at(axis).factor, "[channels] ",
              operation_, ": axis ", axis, " of its result has a recorded extent of ", shape(value)[axis].factor,
              ", wanted ", labels->size());
  labels_[value].at(axis) = std::move(labels);
}

Labels Axes::tie(const Labels& a, const Labels& b) {
  if (a == b) return a;
  if (a == nullptr || b == nullptr) {
    freeze(a == nullptr ? b : a, "joins it with an axis that cannot be cut");
    return nullptr;
  }
  TORCH_CHECK(a->size() == b->size(), "[channels] ", operation_, ": ties axes of extents ", a->size(), " and ",
              b->size());
  for (size_t i = 0; i < a->size(); ++i) tie((*a)[i], (*b)[i]);
  return a;
}

Labels Axes::tie(const Labels& labels, ValueId value, int64_t axis) {
  if (!is_weight(value)) {
    seen_.emplace(value, axis);
    if (!multiplies_) mark(labels, Mark::kJoined);
    if (open_.erase({value, axis}) == 0) return tie(labels, labels_[value].at(axis));
    set(value, axis, labels);
    return labels;
  }
  WeightAxis& place = weight_axis(value, axis);
  if (place.seen) return tie(labels, place.labels);
  place.seen = true;
  TORCH_CHECK(labels == nullptr || static_cast<int64_t>(labels->size()) == shape(value)[axis].factor, "[channels] ",
              operation_, ": axis ", axis, " of ", graph_.values[value].weight, " has a recorded extent of ",
              shape(value)[axis].factor, ", wanted ", labels->size());
  place.labels = labels;
  return labels;
}

int32_t Axes::reason_index(const std::string& text) {
  if (reasons_.back() != text) reasons_.push_back(text);
  return static_cast<int32_t>(reasons_.size() - 1);
}

int32_t Axes::reason_of_tie() {
  if (tie_reason_ == kFree) tie_reason_ = reason_index(operation_ + " joins it with a position that cannot be cut");
  return tie_reason_;
}

void Axes::freeze(const Labels& labels, const std::string& why) {
  if (labels == nullptr) return;
  const int32_t reason = reason_index(fmt::format("{} {}", operation_, why));
  for (Unit unit : *labels) units_.freeze(unit, reason);
}

void Axes::take_statistics(const Labels& labels, const std::string& how) {
  if (labels == nullptr || unused_) return;
  if (!options_.statistics) return freeze(labels, how);
  const int32_t reason = reason_index(fmt::format("{} {}", operation_, how));
  for (Unit unit : *labels) units_.blur(unit, reason);
}

void Axes::mark(const Labels& labels, Mark mark) {
  if (labels == nullptr) return;
  for (Unit unit : *labels) units_.mark(unit, mark);
}

size_t Axes::choose(const Node& node, int64_t axis, size_t candidates) const {
  const auto chosen = choices_.find({&node, axis});
  return chosen == choices_.end() ? 0 : std::min(chosen->second, candidates - 1);
}

void Axes::freeze(ValueId value, int64_t axis, const std::string& why) {
  open_.erase({value, axis});
  seen_.emplace(value, axis);
  if (is_weight(value)) weight_axis(value, axis).seen = true;
  freeze(peek(value, axis), why);
}

void Axes::freeze_inputs(const Node& node, const std::string& why) {
  for (ValueId value : tensor_inputs(graph_, node)) {
    for (int64_t axis = 0; axis < rank(value); ++axis) freeze(value, axis, why);
  }
}

void Axes::pass_by(ValueId value) {
  for (int64_t axis = 0; axis < rank(value); ++axis) seen_.emplace(value, axis);
}

void Axes::freeze_forgotten(const Node& node) {
  for (ValueId value : tensor_inputs(graph_, node)) {
    for (int64_t axis = 0; axis < rank(value) && !is_weight(value); ++axis) {
      const bool forgotten = extent(value, axis).factor > 1 && !seen_.contains({value, axis});
      if (forgotten && peek(value, axis) != nullptr) freeze(value, axis, "has no rule for this axis");
    }
  }
}

void Axes::freeze_outputs() {
  for (ValueId output : graph_.outputs) {
    for (int64_t axis = 0; axis < rank(output); ++axis) {
      const Labels labels = peek(output, axis);
      if (labels == nullptr) continue;
      for (Unit unit : *labels) units_.freeze(unit, kIsOutput);
    }
  }
}

std::vector<Member> Axes::members() const {
  std::vector<Member> members;
  for (const Weight& weight : weights_) {
    for (size_t axis = 0; axis < weight.axes.size(); ++axis) {
      const Labels& labels = weight.axes[axis].labels;
      if (labels != nullptr) members.push_back({weight.name, static_cast<int64_t>(axis), labels});
    }
  }
  return members;
}

std::vector<Labels> Axes::all_labels() const {
  std::vector<Labels> all;
  std::unordered_set<const void*> seen;
  const auto add = [&](const Labels& labels) {
    if (labels != nullptr && seen.insert(labels.get()).second) all.push_back(labels);
  };
  for (const Member& member : members()) add(member.labels);
  for (const auto& axes : labels_) {
    for (const Labels& labels : axes) add(labels);
  }
  return all;
}

std::vector<const Node*> producers_of(const Graph& graph) {
  std::vector<const Node*> producers(graph.values.size(), nullptr);
  for (const Node& node : graph.nodes) {
    for (const ValueId output : node.outputs) {
      if (output != kNoValue) producers[output] = &node;
    }
  }
  return producers;
}

std::vector<ValueId> tensor_inputs(const Graph& graph, const Node& node) {
  std::vector<ValueId> inputs;
  for (const Argument& argument : node.arguments) {
    for (ValueId value : argument.values) {
      if (value != kNoValue && graph.values[value].role != Role::kSymInt) inputs.push_back(value);
    }
  }
  return inputs;
}

void tie_equal_positions(Axes& axes, const Labels& labels, int64_t block) {
  if (labels == nullptr) return;
  TORCH_CHECK(block > 0 && labels->size() % block == 0, "[channels] blocks of ", block, " do not divide an axis of ",
              labels->size());
  for (size_t i = block; i < labels->size(); ++i) axes.tie((*labels)[i % block], (*labels)[i]);
}

Labels broadcast(Axes& axes, const std::vector<ValueId>& operands, ValueId output, int64_t axis) {
  std::vector<std::pair<ValueId, int64_t>> joined;
  for (ValueId value : operands) {
    const int64_t own = axis - (axes.rank(output) - axes.rank(value));
    if (own >= 0 && axes.shape(value)[own] == axes.shape(output)[axis]) joined.emplace_back(value, own);
  }
  if (joined.empty()) return nullptr;
  // What has labels comes first: weights and open axes adopt them.
  const auto adopts = [&](const auto& place) {
    return axes.is_open(place.first, place.second) ? 2 : axes.is_weight(place.first) ? 1 : 0;
  };
  std::stable_sort(joined.begin(), joined.end(), [&](auto& a, auto& b) { return adopts(a) < adopts(b); });
  Labels labels = axes.labels(joined[0].first, joined[0].second);
  for (size_t i = 1; i < joined.size(); ++i) labels = axes.tie(labels, joined[i].first, joined[i].second);
  return labels;
}

Labels range(const Labels& labels, int64_t start, int64_t length, int64_t step) {
  if (labels == nullptr) return nullptr;
  const auto size = static_cast<int64_t>(labels->size());
  TORCH_CHECK(start >= 0 && step > 0 && length >= 0 && length <= size && start + (length - 1) * step < size,
              "[channels] an axis of ", size, " has no ", length, " positions from ", start, " by ", step);
  auto out = std::make_shared<std::vector<Unit>>(length);
  for (int64_t i = 0; i < length; ++i) (*out)[i] = (*labels)[start + i * step];
  return out;
}

}  // namespace prunex::channels
