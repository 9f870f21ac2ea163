// Which units lie on which axis of a program's values: the state that the rules of the operations work on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "prunex/program/program.h"
#include "prunex/prune/group_options.h"
#include "prunex/prune/units.h"

namespace prunex::prune {

/// The unit at each position of an axis. nullptr: every position is fixed (batch, height, width, constants).
using Labels = std::shared_ptr<const std::vector<Unit>>;

/// An axis whose units begin there: of a weight, or of the model's input.
struct Origin {
  std::string name;  ///< the layer, or the input's name
  Labels labels;
  bool layer = false;  ///< a layer makes these channels
};

/// An axis that became several, of which only one can carry its units.
struct Split {
  const program::Node* node = nullptr;
  int64_t axis = 0;       ///< of the node's input
  size_t candidates = 0;  ///< output axes that could
  Labels labels;          ///< of the one that does
};
/// The candidate that carries the units of a split, by node and axis; 0 if it is not listed.
using Choices = std::map<std::pair<const program::Node*, int64_t>, size_t>;

/// An axis of a parameter or buffer that carries units.
struct Member {
  std::string tensor;
  int64_t axis = 0;
  Labels labels;
};

/// Reasons that every analysis starts with; other reasons follow in the order of the nodes.
enum : int32_t { kIsInput = 0, kIsOutput = 1 };

/// Axes of weights have no labels until an operation uses them: they adopt the labels they are tied to, or begin units
/// of their own. Tied weights are one tensor. Open axes (of constants, and of values whose positions are all alike,
/// such as zeros) adopt labels likewise, but begin none.
class Axes {
 public:
  /// The channel axes (axis 1) of the inputs begin units that cannot be removed.
  Axes(const program::Graph& graph, GroupOptions options, Choices choices);

  /// Names the operation that the following calls speak for.
  void enter(const program::Node& node);

  const program::Graph& graph() const { return graph_; }
  const GroupOptions& options() const { return options_; }
  const program::Shape& shape(program::ValueId value) const { return graph_.values.at(value).shape; }
  const program::Extent& extent(program::ValueId value, int64_t axis) const { return shape(value).at(axis); }
  int64_t rank(program::ValueId value) const { return static_cast<int64_t>(shape(value).size()); }
  bool is_weight(program::ValueId value) const;
  /// The node that computes a value; nullptr: it is an input of the graph.
  const program::Node* producer(program::ValueId value) const { return producers_.at(value); }

  /// Of an axis; the axis of a weight that nothing has used before begins units, if it has several positions.
  Labels labels(program::ValueId value, int64_t axis);
  /// The same of an axis where a layer makes channels, were it a single one.
  Labels made(program::ValueId value, int64_t axis);
  /// Of an axis, but nullptr where the axis of a weight has none yet.
  Labels peek(program::ValueId value, int64_t axis) const;
  /// The result of an operation carries these labels.
  void set(program::ValueId value, int64_t axis, Labels labels);

  /// Equal positions live and die together. A labelled axis tied to a fixed one is frozen. Returns the labels of both.
  Labels tie(const Labels& a, const Labels& b);
  Labels tie(const Labels& labels, program::ValueId value, int64_t axis);
  void tie(Unit a, Unit b) { units_.unite(a, b, reason_of_tie()); }
  /// The positions of an axis are all alike: it adopts the labels that it is tied to first.
  void open(program::ValueId value, int64_t axis);
  bool is_open(program::ValueId value, int64_t axis) const { return open_.contains({value, axis}); }

  /// The units cannot be removed because of the current operation: "aten::roll (node roll_1) WHY".
  void freeze(const Labels& labels, const std::string& why);
  void freeze(program::ValueId value, int64_t axis, const std::string& why);
  /// Statistics are taken over the axis: frozen, or noted if the options allow to change them. An operation whose
  /// results nothing takes changes none.
  void take_statistics(const Labels& labels, const std::string& how);
  void mark_heads(const Labels& labels);
  /// Which of several output axes carries the units of `axis`.
  size_t choose(const program::Node& node, int64_t axis, size_t candidates) const;
  void note_split(Split split) { splits_.push_back(std::move(split)); }
  const std::vector<Split>& splits() const { return splits_; }
  /// All axes of the operation's inputs.
  void freeze_inputs(const program::Node& node, const std::string& why);
  /// What the model gives out cannot be removed.
  void freeze_outputs();

  const Units& units() const { return units_; }
  const std::string& reason(int32_t index) const { return reasons_[index]; }
  const std::vector<Origin>& origins() const { return origins_; }
  /// Labelled axes of parameters and buffers, by the name that owns the storage.
  std::vector<Member> members() const;
  /// The labels of every axis of every value, each vector once.
  std::vector<Labels> all_labels() const;

 private:
  struct WeightAxis {
    bool seen = false;
    Labels labels;
  };
  struct Weight {
    std::string name;
    std::vector<WeightAxis> axes;
  };

  void add_weight(program::ValueId value);
  void open_all(program::ValueId value);
  void note_uses();
  WeightAxis& weight_axis(program::ValueId value, int64_t axis);
  void begin_weight(WeightAxis& place, program::ValueId value, int64_t axis);
  Labels begin(const std::string& name, int64_t size);
  int32_t reason_index(const std::string& text);
  int32_t reason_of_tie();

  const program::Graph& graph_;
  GroupOptions options_;
  Choices choices_;
  std::vector<Split> splits_;
  Units units_;
  std::vector<std::string> reasons_;
  std::string operation_;
  bool unused_ = false;  // nothing takes what the operation computes
  int32_t tie_reason_ = kFree;
  std::vector<Origin> origins_;
  std::vector<std::vector<Labels>> labels_;  // of values that are no weights
  std::set<std::pair<program::ValueId, int64_t>> open_;
  std::vector<Weight> weights_;
  std::vector<int32_t> weight_of_;  // value -> weights_, -1: no weight
  std::unordered_map<std::string, int32_t> weight_by_name_;
  std::vector<const program::Node*> producers_;
  std::vector<bool> used_;
};

/// The tensors among a node's arguments, None left out.
std::vector<program::ValueId> tensor_inputs(const program::Graph& graph, const program::Node& node);

}  // namespace prunex::prune
