#include "prunex/channels/operations.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace prunex::channels {
namespace {

constexpr const char* kSums = "sums over this axis what does not vanish with its units";

/// What layers without the rows and biases of removed units compute for these units is zero; whether it still is in a
/// value, so that a sum over them is the same without them.
class Vanishing {
 public:
  /// Of the units that may go among these.
  Vanishing(const Axes& axes, const Labels& labels) : axes_(axes) {
    for (Unit unit : *labels) {
      if (unit != kFixed && axes.units().reason(unit) == kFree) units_.insert(axes.units().find(unit));
    }
  }

  /// False, which is always safe, where it would have to look further back than networks are deep.
  bool operator()(ValueId value) {
    const auto [found, added] = known_.emplace(value, false);
    if (!added || depth_ == kMostDepth) return known_[value];
    ++depth_;
    known_[value] = compute(value);
    --depth_;
    return known_[value];
  }

 private:
  bool compute(ValueId value) {
    const Node* node = axes_.producer(value);
    const Operation* operation = node == nullptr ? nullptr : &operation_of(node->target);
    if (axes_.is_overwritten(value)) return false;
    if (operation != nullptr && operation->zero == Zero::kAlways) return true;
    if (!carries(value)) return false;
    if (axes_.is_parameter(value)) return true;
    if (node == nullptr) return false;
    const std::vector<ValueId> inputs = tensor_inputs(axes_.graph(), *node);
    const auto vanishes = [&](ValueId input) { return (*this)(input); };
    const auto fits = [&](ValueId input) { return axes_.shape(input) == axes_.shape(value) && vanishes(input); };
    switch (operation->zero) {
      case Zero::kNever:
      case Zero::kAlways:
        return false;
      case Zero::kMade:
      case Zero::kScaled:
        return made(*node, value, inputs.at(0));
      case Zero::kStates:
        return lie_behind(value, axes_.rank(value) - 1) &&
               std::all_of(node->find("hx")->values.begin(), node->find("hx")->values.end(), vanishes);
      case Zero::kFirst:
        return !inputs.empty() && vanishes(inputs[0]);
      case Zero::kBroadcast:
        return !inputs.empty() && is_copied_along_none(inputs[0], value) && vanishes(inputs[0]);
      case Zero::kJoined:
        return std::all_of(inputs.begin(), inputs.end(),
                           [&](ValueId input) { return !carries(input) || vanishes(input); });
      case Zero::kBoth:
        return inputs.size() == 2 && std::all_of(inputs.begin(), inputs.end(), fits);
      case Zero::kAny:
        return std::any_of(inputs.begin(), inputs.end(), fits);
    }
    return false;
  }

  /// By a layer or a norm: zero on its own axes, since its weight and bias are. On others a bias is added to what may
  /// be zero, or the mean of other images taken off.
  bool made(const Node& node, ValueId value, ValueId input) {
    const WeightKind kind = operation_of(node.target).weights;
    const bool by_axes = node.find("normalized_shape") != nullptr;
    const bool last = kind == WeightKind::kLinear || kind == WeightKind::kEmbedding;
    const int64_t behind = by_axes ? axes_.rank(value) - static_cast<int64_t>(node.integers("normalized_shape").size())
                           : last  ? axes_.rank(value) - 1
                                   : 1;
    const bool own = by_axes || last ? lie_behind(value, behind) : lie_on(value, behind);
    if (own) return is_zero(node, "weight") && (node.tensor("bias") == kNoValue || is_zero(node, "bias"));
    const bool keeps_zero = by_axes || kind == WeightKind::kLinear || kind == WeightKind::kConvolution;
    return keeps_zero && node.tensor("bias") == kNoValue && (*this)(input);
  }

  /// A weight that is computed need not be.
  bool is_zero(const Node& node, const char* weight) {
    const ValueId value = node.tensor(weight);
    return value != kNoValue && (axes_.is_parameter(value) || (*this)(value));
  }

  /// Whether an operand that is broadcast to `value` has all the axes that the units lie on.
  bool is_copied_along_none(ValueId operand, ValueId value) const {
    const int64_t added = axes_.rank(value) - axes_.rank(operand);
    for (int64_t axis = 0; axis < axes_.rank(value); ++axis) {
      if (carries(value, axis) && (axis < added || !carries(operand, axis - added))) return false;
    }
    return true;
  }

  bool carries(ValueId value, int64_t axis) const {
    const Labels labels = axes_.peek(value, axis);
    const auto is_one = [&](Unit unit) { return unit != kFixed && units_.contains(axes_.units().find(unit)); };
    return labels != nullptr && std::any_of(labels->begin(), labels->end(), is_one);
  }

  /// The units are on axes [first, last) alone.
  bool lie_between(ValueId value, int64_t first, int64_t last) const {
    for (int64_t axis = 0; axis < axes_.rank(value); ++axis) {
      if ((axis < first || axis >= last) && carries(value, axis)) return false;
    }
    return true;
  }
  bool lie_on(ValueId value, int64_t axis) const { return lie_between(value, axis, axis + 1); }
  bool lie_behind(ValueId value, int64_t first) const { return lie_between(value, first, axes_.rank(value)); }
  bool carries(ValueId value) const { return !lie_between(value, 0, 0); }

  static constexpr int kMostDepth = 2000;
  const Axes& axes_;
  std::unordered_set<Unit> units_;  // roots of their sets
  int depth_ = 0;
  std::unordered_map<ValueId, bool> known_;
};

}  // namespace

bool vanishes(const Axes& axes, ValueId value, const Labels& labels) {
  return Vanishing(axes, labels)(value);
}

void expect_zeros(Axes& axes, const Labels& labels, ValueId a, ValueId b) {
  if (labels != nullptr && !vanishes(axes, a, labels) && !vanishes(axes, b, labels))
    axes.take_statistics(labels, kSums);
}

namespace {

/// Ties two axes that are contracted.
void contract(Axes& axes, ValueId a, int64_t axis_a, ValueId b, int64_t axis_b) {
  if (axes.is_weight(a) && !axes.is_weight(b)) return contract(axes, b, axis_b, a, axis_a);
  const Labels labels = axes.tie(axes.labels(a, axis_a), b, axis_b);
  if (!axes.is_weight(a) && !axes.is_weight(b)) axes.mark(labels, Mark::kSummed);
  expect_zeros(axes, labels, a, b);
}

/// The axes before the last two are those of independent products.
void pass_heads(Axes& axes, const std::vector<ValueId>& factors, ValueId output) {
  for (int64_t axis = 0; axis < axes.rank(output) - 2; ++axis) {
    const Labels labels = broadcast(axes, factors, output, axis);
    axes.mark(labels, Mark::kHead);
    axes.set(output, axis, labels);
  }
}

/// What is added to a product.
void tie_added(Axes& axes, ValueId added, ValueId output) {
  for (int64_t axis = 0; axis < axes.rank(added); ++axis) {
    const int64_t to = axis + axes.rank(output) - axes.rank(added);
    if (axes.extent(added, axis) == axes.extent(output, to)) axes.tie(axes.labels(output, to), added, axis);
  }
}

using Places = std::vector<std::pair<ValueId, int64_t>>;

/// Where each letter of "ab,bc" stands: operands and axes.
std::map<char, Places> places(const std::string& terms, const std::vector<ValueId>& operands) {
  std::map<char, Places> letters;
  size_t operand = 0;
  int64_t axis = 0;
  for (char letter : terms) {
    if (letter == ',') {
      ++operand;
      axis = 0;
    } else {
      letters[letter].emplace_back(operands.at(operand), axis++);
    }
  }
  return letters;
}

void tie_letter(Axes& axes, const Places::value_type& a, const Places::value_type& b, bool summed) {
  if (summed) return contract(axes, a.first, a.second, b.first, b.second);
  const auto& [known, adopts] = axes.is_weight(a.first) ? std::pair(b, a) : std::pair(a, b);
  axes.tie(axes.labels(known.first, known.second), adopts.first, adopts.second);
}

}  // namespace

Factors factors_of(const Node& node) {
  const auto first_of = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (node.find(name) != nullptr) return node.tensor(name);
    }
    return kNoValue;
  };
  const ValueId first = first_of({"mat1", "batch1"});
  if (first == kNoValue) return {node.tensor("self"), first_of({"other", "mat2"}), kNoValue};
  return {first, first_of({"mat2", "batch2"}), node.tensor("self")};
}

void sum_over(Axes& axes, ValueId value, int64_t axis) {
  const Labels labels = axes.labels(value, axis);
  axes.mark(labels, Mark::kSummed);
  if (labels != nullptr && !vanishes(axes, value, labels)) axes.take_statistics(labels, kSums);
}

void matmul_rule(Axes& axes, const Node& node) {
  const auto [a, b, added] = factors_of(node);
  const ValueId output = node.outputs[0];
  if (axes.rank(a) < 2 || axes.rank(b) < 2) return axes.freeze_inputs(node, "with a vector has no rule");
  contract(axes, a, axes.rank(a) - 1, b, axes.rank(b) - 2);
  pass_heads(axes, {a, b}, output);
  axes.set(output, axes.rank(output) - 2, axes.made(a, axes.rank(a) - 2));
  axes.set(output, axes.rank(output) - 1, axes.made(b, axes.rank(b) - 1));
  if (added != kNoValue) tie_added(axes, added, output);
}

void attention_rule(Axes& axes, const Node& node) {
  const ValueId query = node.tensor("query"), key = node.tensor("key"), value = node.tensor("value");
  const ValueId mask = node.tensor("attn_mask"), output = node.outputs[0];
  if (node.boolean("enable_gqa", false)) return axes.freeze_inputs(node, "with shared heads has no rule");
  std::vector<ValueId> all{query, key, value};
  if (mask != kNoValue) all.push_back(mask);
  for (ValueId factor : all) axes.freeze(factor, axes.rank(factor) - 2, "attends over this axis");
  if (mask != kNoValue) axes.freeze(mask, axes.rank(mask) - 1, "attends over this axis");
  contract(axes, query, axes.rank(query) - 1, key, axes.rank(key) - 1);
  pass_heads(axes, all, output);
  axes.set(output, axes.rank(output) - 2, axes.labels(query, axes.rank(query) - 2));
  axes.set(output, axes.rank(output) - 1, axes.labels(value, axes.rank(value) - 1));
}

void einsum_rule(Axes& axes, const Node& node) {
  std::string equation = node.find("equation")->literal.toStringRef();
  std::erase(equation, ' ');
  const size_t arrow = equation.find("->");
  if (arrow == std::string::npos || equation.find('.') != std::string::npos) {
    return axes.freeze_inputs(node, "without all its axes has no rule");
  }
  const std::string result = equation.substr(arrow + 2);
  std::map<char, Places> letters = places(equation.substr(0, arrow), tensor_inputs(axes.graph(), node));
  for (auto& [letter, places] : letters) {
    const auto is_whole = [&](const Places::value_type& place) {
      return axes.extent(place.first, place.second) != program::Extent{1};
    };
    const auto copied = std::stable_partition(places.begin(), places.end(), is_whole);  // of extent 1, beside others
    if (copied != places.begin()) places.erase(copied, places.end());
    const bool summed = result.find(letter) == std::string::npos;
    if (summed && places.size() == 1) sum_over(axes, places[0].first, places[0].second);
    for (size_t i = 1; i < places.size(); ++i) tie_letter(axes, places[0], places[i], summed);
  }
  for (size_t i = 0; i < result.size(); ++i) {
    const auto [value, axis] = letters.at(result[i])[0];
    axes.set(node.outputs[0], static_cast<int64_t>(i), axes.made(value, axis));
  }
}

/// Attention divides by the root of the number of features that there was.
void rewrite_scale(Node& node, const Remains& remains) {
  const ValueId query = node.tensor("query");
  const Argument* scale = node.find("scale");
  const bool given = scale != nullptr && !scale->literal.isNone();
  if (given || remains.before(query).back() == remains.after(query).back()) return;
  node.set("scale", 1 / std::sqrt(static_cast<double>(remains.before(query).back().factor)));
}

}  // namespace prunex::channels
