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

#include "prunex/channels/units.h"
#include "prunex/program/program.h"

namespace prunex::channels {

using program::Argument;
using program::Extent;
using program::from_front;
using program::Graph;
using program::kNoValue;
using program::Node;
using program::Shape;
using program::ValueId;

/// How an analysis treats what can be treated in several ways.
struct GroupOptions {
  /// Units of axes over which a norm, a mean or a maximum is taken may go, although that changes what the others
  /// become. false: they are frozen, so that a cut equals a mask.
  bool statistics = false;
  /// Attention loses whole heads. false: it loses equal positions of all heads.
  bool heads = false;
};

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
  const Node* node = nullptr;
  int64_t axis = 0;       ///< of the node's input
  size_t candidates = 0;  ///< output axes that could
  Labels labels;          ///< of the one that does
};
/// The candidate that carries the units of a split, by node and axis; 0 if it is not listed.
using Choices = std::map<std::pair<const Node*, int64_t>, size_t>;

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
  Axes(const Graph& graph, GroupOptions options, Choices choices);

  /// Names the operation that the following calls speak for.
  void enter(const Node& node);

  const Graph& graph() const { return graph_; }
  const GroupOptions& options() const { return options_; }
  const Shape& shape(ValueId value) const { return graph_.values.at(value).shape; }
  const Extent& extent(ValueId value, int64_t axis) const { return shape(value).at(axis); }
  int64_t rank(ValueId value) const { return static_cast<int64_t>(shape(value).size()); }
  /// A parameter or a buffer.
  bool is_weight(ValueId value) const;
  /// What masks set to zero.
  bool is_parameter(ValueId value) const { return graph_.values.at(value).role == program::Role::kParameter; }
  /// The node that computes a value; nullptr: it is an input of the graph.
  const Node* producer(ValueId value) const { return producers_.at(value); }
  /// Whether an operation takes the value, or the model gives it out.
  bool is_used(ValueId value) const { return value != kNoValue && used_[value]; }
  /// Whether something that may not keep zeros is written over it later, in place.
  bool is_overwritten(ValueId value) const { return overwritten_.at(value); }

  /// Of an axis; the axis of a weight that nothing has used before begins units, if it has several positions.
  Labels labels(ValueId value, int64_t axis);
  /// The same of an axis where a layer makes channels, were it a single one.
  Labels made(ValueId value, int64_t axis);
  /// Of an axis, but nullptr where the axis of a weight has none yet.
  Labels peek(ValueId value, int64_t axis) const;
  /// The result of an operation carries these labels.
  void set(ValueId value, int64_t axis, Labels labels);

  /// Equal positions live and die together. A labelled axis tied to a fixed one is frozen. Returns the labels of both:
  /// nullptr if one is fixed, so that units can lie on another axis of what is made of them.
  Labels tie(const Labels& a, const Labels& b);
  Labels tie(const Labels& labels, ValueId value, int64_t axis);
  void tie(Unit a, Unit b) { units_.unite(a, b, reason_of_tie()); }
  /// The positions of an axis are all alike: it adopts the labels that it is tied to first.
  void open(ValueId value, int64_t axis);
  bool is_open(ValueId value, int64_t axis) const { return open_.contains({value, axis}); }

  /// The units cannot be removed because of the current operation: "aten::roll (node roll_1) WHY".
  void freeze(const Labels& labels, const std::string& why);
  void freeze(ValueId value, int64_t axis, const std::string& why);
  /// Statistics are taken over the axis: frozen, or noted if the options allow to change them. An operation whose
  /// results nothing takes changes none.
  void take_statistics(const Labels& labels, const std::string& how);
  void mark(const Labels& labels, Mark mark);
  /// Which of several output axes carries the units of `axis`.
  size_t choose(const Node& node, int64_t axis, size_t candidates) const;
  void note_split(Split split) { splits_.push_back(std::move(split)); }
  const std::vector<Split>& splits() const { return splits_; }
  /// All axes of the operation's inputs.
  void freeze_inputs(const Node& node, const std::string& why);
  /// The operation reads nothing of the value but its sizes or type.
  void pass_by(ValueId value);
  /// All axes of the operation's inputs that its rule has not looked at: nobody knows where their units are.
  void freeze_forgotten(const Node& node);
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
    bool seen = false;  // so that it begins no units
    Labels labels;
  };
  struct Weight {
    std::string name;
    std::vector<WeightAxis> axes;
  };

  void add_weight(ValueId value);
  void open_all(ValueId value);
  void note_uses();
  void note_writes();
  void note_kernels();
  WeightAxis& weight_axis(ValueId value, int64_t axis);
  void begin_weight(WeightAxis& place, ValueId value, int64_t axis);
  Labels begin(const std::string& name, int64_t size);
  int32_t reason_index(const std::string& text);
  int32_t reason_of_tie();

  const Graph& graph_;
  GroupOptions options_;
  Choices choices_;
  std::vector<Split> splits_;
  Units units_;
  std::vector<std::string> reasons_;
  std::string operation_;
  bool unused_ = false;      // nothing takes what the operation computes
  bool multiplies_ = false;  // its operands are factors
  int32_t tie_reason_ = kFree;
  std::vector<Origin> origins_;
  std::vector<std::vector<Labels>> labels_;  // of values that are no weights
  std::set<std::pair<ValueId, int64_t>> open_;
  std::vector<Weight> weights_;
  std::vector<int32_t> weight_of_;  // value -> weights_, -1: no weight
  std::unordered_map<std::string, int32_t> weight_by_name_;
  std::vector<const Node*> producers_;
  std::vector<bool> used_, overwritten_;
  std::set<std::pair<ValueId, int64_t>> seen_;  // by the rule of the current operation
};

/// By value: the node that computes it; nullptr: none does.
std::vector<const Node*> producers_of(const Graph& graph);

/// The tensors among a node's arguments, None left out.
std::vector<ValueId> tensor_inputs(const Graph& graph, const Node& node);

/// Position p of every block of `block` positions lives and dies with position p of the first.
void tie_equal_positions(Axes& axes, const Labels& labels, int64_t block);

/// Ties what broadcasting joins on one axis of the result, counted from the back; operands of extent 1 are copied and
/// tie nothing. Returns the labels of the result.
Labels broadcast(Axes& axes, const std::vector<ValueId>& operands, ValueId output, int64_t axis);

/// `length` positions from `start`, every `step`-th.
Labels range(const Labels& labels, int64_t start, int64_t length, int64_t step = 1);

}  // namespace prunex::channels
