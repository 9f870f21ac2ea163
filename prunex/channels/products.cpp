#include "prunex/channels/operations.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <unordered_map>

namespace prunex::channels {
namespace {

constexpr const char* kSums = "sums over this axis what does not vanish with its units";

class Vanishing {
 public:
  explicit Vanishing(const Axes& axes) : axes_(axes) {}

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
    if (axes_.is_weight(value)) return true;
    const Node* node = axes_.producer(value);
    if (node == nullptr) return false;
    const std::vector<ValueId> inputs = tensor_inputs(axes_.graph(), *node);
    const auto vanishes = [&](ValueId input) { return (*this)(input); };
    const auto fits = [&](ValueId input) { return axes_.shape(input) == axes_.shape(value) && vanishes(input); };
    switch (operation_of(node->target).zero) {
      case Zero::kNever:
        return false;
      case Zero::kAlways:
        return true;
      case Zero::kMade:
        return labelled_axes(value) <= 1;
      case Zero::kStates:
        return labelled_axes(value) <= 1 &&
               std::all_of(node->find("hx")->values.begin(), node->find("hx")->values.end(), vanishes);
      case Zero::kScaled:
        return node->tensor("weight") != kNoValue;
      case Zero::kFirst:
        return !inputs.empty() && vanishes(inputs[0]);
      case Zero::kJoined:
        return std::all_of(inputs.begin(), inputs.end(), vanishes);
      case Zero::kBoth:
        return inputs.size() == 2 && std::all_of(inputs.begin(), inputs.end(), fits);
      case Zero::kAny:
        return std::any_of(inputs.begin(), inputs.end(), fits);
    }
    return false;
  }

  /// A bias is added to removed positions of axes other than the layer's own.
  int64_t labelled_axes(ValueId value) const {
    const auto may_go = [&](Unit unit) { return unit != kFixed && axes_.units().reason(unit) == kFree; };
    int64_t count = 0;
    for (int64_t axis = 0; axis < axes_.rank(value); ++axis) {
      const Labels labels = axes_.peek(value, axis);
      count += labels != nullptr && std::any_of(labels->begin(), labels->end(), may_go);
    }
    return count;
  }

  static constexpr int kMostDepth = 2000;
  const Axes& axes_;
  int depth_ = 0;
  std::unordered_map<ValueId, bool> known_;
};

/// What layers without the removed units' rows and biases compute for these units is zero, and nothing up to `value`
/// makes it something else: a sum over them is the same without them.
bool vanishes(const Axes& axes, ValueId value) {
  return Vanishing(axes)(value);
}

/// Ties two axes that are contracted.
void contract(Axes& axes, ValueId a, int64_t axis_a, ValueId b, int64_t axis_b) {
  if (axes.is_weight(a) && !axes.is_weight(b)) return contract(axes, b, axis_b, a, axis_a);
  const Labels labels = axes.tie(axes.labels(a, axis_a), b, axis_b);
  if (labels != nullptr && !vanishes(axes, a) && !vanishes(axes, b)) axes.take_statistics(labels, kSums);
}

/// The axes before the last two are those of independent products.
void pass_heads(Axes& axes, const std::vector<ValueId>& factors, ValueId output) {
  for (int64_t axis = 0; axis < axes.rank(output) - 2; ++axis) {
    const Labels labels = broadcast(axes, factors, output, axis);
    axes.mark_heads(labels);
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

Product product_of(const Node& node) {
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
  if (labels != nullptr && !vanishes(axes, value)) axes.take_statistics(labels, kSums);
}

void matmul_rule(Axes& axes, const Node& node) {
  const auto [a, b, added] = product_of(node);
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
  for (const auto& [letter, places] : letters) {
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
