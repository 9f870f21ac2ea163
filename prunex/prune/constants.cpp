#include "prunex/prune/constants.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "prunex/program/plan.h"
#include "prunex/prune/arguments.h"
#include "prunex/prune/shape_rules.h"

namespace prunex::prune {
namespace {

using program::Argument;
using program::Graph;
using program::kNoValue;
using program::Node;
using program::Shape;
using program::ValueId;

struct Context {
  const Graph& graph;  ///< with the shapes that are left
  const Remains& remains;

  const Shape& before(ValueId value) const { return remains.axes().shape(value); }
  const Shape& after(ValueId value) const { return graph.values.at(value).shape; }
  Labels labels(ValueId value, int64_t axis) const { return remains.axes().peek(value, axis); }
};

void set(Node& node, const std::string& name, c10::IValue literal) {
  Argument argument{.name = name, .literal = std::move(literal)};
  const auto found = std::find_if(node.arguments.begin(), node.arguments.end(),
                                  [&](const Argument& candidate) { return candidate.name == name; });
  if (found == node.arguments.end()) {
    node.arguments.push_back(std::move(argument));
  } else {
    *found = std::move(argument);
  }
}

/// Groups have equal numbers of input channels, before and after.
void rewrite_groups(Node& node, const Context& context) {
  if (integer(node, "groups", 1) == 1) return;
  const bool transposed = node.target.starts_with("aten::conv_transpose") || boolean(node, "transposed", false);
  const int64_t channels = context.after(transposed ? node.outputs[0] : tensor(node, "input")).at(1).factor;
  const int64_t columns = context.after(tensor(node, "weight")).at(1).factor;
  if (columns > 0) set(node, "groups", channels / columns);
}

/// A computed size of a view becomes -1.
void leave_open(Argument& list, size_t entry) {
  for (size_t i = 0; i < list.values.size(); ++i) {
    TORCH_CHECK(list.values[i] != kNoValue || list.ints.at(i) >= 0, "[prune] a computed size cannot be rewritten");
  }
  list.values[entry] = kNoValue;
  list.ints.at(entry) = -1;
}

/// Entry i of a list of extents becomes what is left of axis `first + i`; -1 stays.
void rewrite_extents(Argument& list, const Shape& before, const Shape& after, size_t first) {
  if (list.kind == Argument::Kind::kLiteral) {
    std::vector<int64_t> sizes =
        list.literal.isInt() ? std::vector<int64_t>{list.literal.toInt()} : list.literal.toIntVector();
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (before.at(first + i) != after.at(first + i) && sizes[i] >= 0) sizes[i] = after[first + i].factor;
    }
    list.literal = std::move(sizes);
    return;
  }
  for (size_t i = 0; i < list.values.size(); ++i) {
    if (before.at(first + i) == after.at(first + i)) continue;
    if (list.values[i] != kNoValue) {
      leave_open(list, i);
    } else if (list.ints.at(i) >= 0) {
      list.ints[i] = after[first + i].factor;
    }
  }
}

void rewrite_sizes(Node& node, const Context& context) {
  const ValueId output = node.outputs[0];
  for (Argument& argument : node.arguments) {
    if (argument.name == "size" || argument.name == "shape") {
      rewrite_extents(argument, context.before(output), context.after(output), 0);
    }
  }
}

void rewrite_unflatten(Node& node, const Context& context) {
  const ValueId input = tensor(node, "self"), output = node.outputs[0];
  const auto rank = static_cast<int64_t>(context.before(input).size());
  const auto first = static_cast<size_t>(from_front(integer(node, "dim", 0), rank));
  for (Argument& argument : node.arguments) {
    if (argument.name == "sizes") rewrite_extents(argument, context.before(output), context.after(output), first);
  }
}

void rewrite_normalized_shape(Node& node, const Context& context) {
  const ValueId input = tensor(node, "input");
  for (Argument& argument : node.arguments) {
    if (argument.name != "normalized_shape") continue;
    const size_t first = context.before(input).size() - integers(node, "normalized_shape").size();
    rewrite_extents(argument, context.before(input), context.after(input), first);
  }
}

/// Groups that lost all their channels go.
void rewrite_norm_groups(Node& node, const Context& context) {
  const ValueId input = tensor(node, "input");
  const Labels labels = context.labels(input, 1);
  if (labels == nullptr) return;
  const int64_t groups = integer(node, "num_groups", 1),
                block = context.before(input).at(1).factor / std::max<int64_t>(groups, 1);
  int64_t left = 0;
  for (int64_t group = 0; group < groups; ++group) {
    left += context.remains.count(labels, group * block, (group + 1) * block) > 0;
  }
  set(node, "num_groups", left);
}

/// Attention divides by the root of the number of features that there was.
void rewrite_scale(Node& node, const Context& context) {
  const ValueId query = tensor(node, "query");
  const Argument* scale = node.find("scale");
  const bool given = scale != nullptr && !scale->literal.isNone();
  if (given || context.before(query).back() == context.after(query).back()) return;
  set(node, "scale", 1 / std::sqrt(static_cast<double>(context.before(query).back().factor)));
}

/// The axes that vanish must stay the same if another axis is left with a single position.
void rewrite_squeeze(Node& node, const Context& context) {
  const Shape& before = context.before(tensor(node, "self"));
  std::vector<int64_t> axes;
  for (size_t axis = 0; axis < before.size(); ++axis) {
    if (before[axis] == program::Extent{1, false}) axes.push_back(static_cast<int64_t>(axis));
  }
  node.target = "aten::squeeze.dims";
  set(node, "dim", std::move(axes));
}

void rewrite_slice(Node& node, const Context& context) {
  const ValueId input = tensor(node, "self");
  const Shape& before = context.before(input);
  const int64_t axis = from_front(integer(node, "dim", 0), static_cast<int64_t>(before.size()));
  const Labels labels = context.labels(input, axis);
  if (labels == nullptr || before[axis] == context.after(input)[axis]) return;
  const Range range = slice_range(node, before[axis].factor);
  const int64_t start = context.remains.count(labels, 0, range.start);
  set(node, "start", start);
  if (node.target == "aten::narrow") {
    set(node, "length", context.after(node.outputs[0]).at(axis).factor);
  } else {
    set(node, "end", start + context.after(node.outputs[0]).at(axis).factor);
  }
}

/// Parts that the same operation would not make of what is left are given by their sizes.
void rewrite_split(Node& node, const Context& context) {
  const ValueId input = tensor(node, "self");
  const Shape& before = context.before(input);
  const int64_t axis = from_front(integer(node, "dim", 0), static_cast<int64_t>(before.size()));
  const Labels labels = context.labels(input, axis);
  if (labels == nullptr) return;
  std::vector<int64_t> sizes;
  int64_t start = 0;
  for (int64_t size : split_sizes(node, before[axis].factor)) {
    sizes.push_back(context.remains.count(labels, start, start + size));
    start += size;
  }
  const bool listed = node.target == "aten::split_with_sizes";
  if (!listed && split_sizes(node, context.after(input)[axis].factor) == sizes) return;
  std::erase_if(node.arguments, [](const Argument& a) { return a.name == "chunks" || a.name == "split_size"; });
  node.target = "aten::split_with_sizes";
  set(node, "split_sizes", std::move(sizes));
}

using Rewrite = void (*)(Node&, const Context&);

Rewrite find_rewrite(const std::string& target) {
  static const std::map<std::string, Rewrite> table = {
      {"aten::conv1d", rewrite_groups},
      {"aten::conv2d", rewrite_groups},
      {"aten::conv3d", rewrite_groups},
      {"aten::conv1d.padding", rewrite_groups},
      {"aten::conv2d.padding", rewrite_groups},
      {"aten::conv3d.padding", rewrite_groups},
      {"aten::convolution", rewrite_groups},
      {"aten::conv_transpose1d", rewrite_groups},
      {"aten::conv_transpose2d.input", rewrite_groups},
      {"aten::conv_transpose3d.input", rewrite_groups},
      {"aten::view", rewrite_sizes},
      {"aten::reshape", rewrite_sizes},
      {"aten::expand", rewrite_sizes},
      {"aten::zeros", rewrite_sizes},
      {"aten::ones", rewrite_sizes},
      {"aten::full", rewrite_sizes},
      {"aten::empty.memory_format", rewrite_sizes},
      {"aten::new_zeros", rewrite_sizes},
      {"aten::new_ones", rewrite_sizes},
      {"aten::new_full", rewrite_sizes},
      {"aten::new_empty", rewrite_sizes},
      {"aten::unflatten.int", rewrite_unflatten},
      {"aten::squeeze", rewrite_squeeze},
      {"aten::slice.Tensor", rewrite_slice},
      {"aten::narrow", rewrite_slice},
      {"aten::chunk", rewrite_split},
      {"aten::split.Tensor", rewrite_split},
      {"aten::split_with_sizes", rewrite_split},
      {"aten::layer_norm", rewrite_normalized_shape},
      {"aten::rms_norm", rewrite_normalized_shape},
      {"aten::group_norm", rewrite_norm_groups},
      {"aten::scaled_dot_product_attention", rewrite_scale},
  };
  const auto found = table.find(target);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace

void rewrite_constants(Node& node, const Graph& graph, const Remains& remains) {
  const Rewrite rewrite = find_rewrite(node.target);
  if (rewrite == nullptr || node.outputs.empty() || node.outputs[0] == kNoValue) return;
  try {
    rewrite(node, {graph, remains});
  } catch (c10::Error& error) {
    error.add_context("in node " + graph.values[node.outputs[0]].name + " (" + node.target + ")");
    throw;
  } catch (const std::logic_error&) {
    throw std::invalid_argument("node " + program::describe(graph, node) +
                                ": the shapes that are recorded do not fit its operation");
  }
}

}  // namespace prunex::prune
