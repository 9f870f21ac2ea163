#include "prunex/channels/operations.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace prunex::channels {

std::vector<int64_t> in_order(int64_t rank) {
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

namespace {

/// All axes of the output but `except` carry what the input's carry.
void pass(Axes& axes, ValueId input, ValueId output, int64_t except) {
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    if (axis != except) axes.set(output, axis, axes.labels(input, axis));
  }
}

/// Axis of the argument "dim".
int64_t axis_of(const Axes& axes, const Node& node, ValueId input) {
  return from_front(node.integer("dim", 0), axes.rank(input));
}

/// The outputs lack the axis, whose positions cannot go.
void take_apart(Axes& axes, const Node& node, const char* why) {
  const ValueId input = node.tensor("self");
  const int64_t removed = axis_of(axes, node, input);
  axes.freeze(input, removed, why);
  for (ValueId output : node.outputs) {
    for (int64_t axis = 0; axis < axes.rank(input) && output != kNoValue; ++axis) {
      if (axis != removed) axes.set(output, axis - (axis > removed), axes.labels(input, axis));
    }
  }
}

/// Those that movedim names go where it says, the others stay in their order.
std::vector<int64_t> moved_order(const Node& node, int64_t rank) {
  const std::vector<int64_t> from = node.integers("source"), to = node.integers("destination");
  std::vector<int64_t> order(rank, -1), others = in_order(rank);
  for (size_t i = 0; i < from.size(); ++i) {
    order.at(from_front(to.at(i), rank)) = from_front(from[i], rank);
    std::erase(others, from_front(from[i], rank));
  }
  size_t other = 0;
  for (int64_t& axis : order) {
    if (axis < 0) axis = others.at(other++);
  }
  return order;
}

/// Labels of several axes behind one another; nullptr if all are fixed.
Labels join(Axes& axes, const std::vector<ValueId>& values, int64_t axis) {
  auto out = std::make_shared<std::vector<Unit>>();
  bool any = false;
  for (ValueId value : values) {
    const Labels labels = axes.labels(value, axis);
    if (labels == nullptr) {
      out->insert(out->end(), axes.extent(value, axis).factor, kFixed);
    } else {
      out->insert(out->end(), labels->begin(), labels->end());
      any = true;
    }
  }
  return any ? Labels(out) : nullptr;
}

/// Each position several times, one after the other.
Labels spread(const Labels& labels, int64_t size) {
  const auto positions = static_cast<int64_t>(labels->size());
  TORCH_CHECK(positions > 0 && size > 0 && size % positions == 0, "[channels] ", size, " positions are no multiple of ",
              positions);
  const int64_t times = size / positions;
  auto out = std::make_shared<std::vector<Unit>>(size);
  for (int64_t i = 0; i < size; ++i) (*out)[i] = (*labels)[i / times];
  return out;
}

Labels padded(const Labels& labels, int64_t before, int64_t after) {
  auto out = std::make_shared<std::vector<Unit>>(before, kFixed);
  out->insert(out->end(), labels->begin(), labels->end());
  out->insert(out->end(), after, kFixed);
  return out;
}

/// Channels and the two axes behind them are mixed, all before them pass.
void pass_images(Axes& axes, ValueId input, ValueId output, int64_t channels) {
  for (int64_t axis = 0; axis < channels; ++axis) axes.set(output, axis, axes.labels(input, axis));
  for (int64_t axis = channels + 1; axis < axes.rank(input); ++axis) axes.freeze(input, axis, "mixes it with channels");
}

/// The size of an axis of the result is written in the node as a number.
bool has_literal_size(const Node& node, int64_t axis) {
  const std::vector<int64_t> sizes = node.integers("size");
  return axis < static_cast<int64_t>(sizes.size()) && sizes[axis] >= 0;
}

/// What slice or narrow takes of an axis with `size` positions.
struct Range {
  int64_t start = 0;
  int64_t step = 1;
};

Range slice_range(const Node& node, int64_t size) {
  const int64_t start = from_front(node.integer("start", 0), size);
  return {std::clamp<int64_t>(start, 0, size), node.integer("step", 1)};
}

/// Parts of an axis with `size` positions, of which the first ones have one position more.
std::vector<int64_t> even_parts(int64_t size, int64_t parts) {
  TORCH_CHECK(parts > 0, "[channels] ", parts, " parts");
  std::vector<int64_t> sizes;
  for (int64_t part = 0; part < parts; ++part) sizes.push_back(size / parts + (part < size % parts));
  return sizes;
}

/// Parts that begin at these positions; none where they are not in order.
std::vector<int64_t> parts_between(int64_t size, std::vector<int64_t> positions) {
  std::vector<int64_t> sizes;
  int64_t begin = 0;
  positions.push_back(size);
  for (int64_t end : positions) {
    end = std::clamp<int64_t>(end < 0 ? end + size : end, 0, size);
    if (end < begin) return {};
    sizes.push_back(end - begin);
    begin = end;
  }
  return sizes;
}

/// Extents of the outputs of chunk, split and tensor_split of an axis with `size` positions; none if they overlap.
std::vector<int64_t> split_sizes(const Node& node, int64_t size) {
  if (node.target == "aten::tensor_split.sections") return even_parts(size, node.integer("sections", 1));
  if (node.target == "aten::tensor_split.indices") return parts_between(size, node.integers("indices"));
  std::vector<int64_t> sizes = node.integers(node.target == "aten::split.Tensor" ? "split_size" : "split_sizes");
  if (node.target == "aten::split_with_sizes") return sizes;
  const int64_t chunks = node.integer("chunks", 1);
  const int64_t each = node.target == "aten::chunk" ? (size + chunks - 1) / chunks : sizes.at(0);
  sizes.clear();
  TORCH_CHECK(size == 0 || each > 0, "[channels] parts of ", each, " positions");
  for (int64_t start = 0; start < size; start += each) sizes.push_back(std::min(each, size - start));
  return sizes;
}

}  // namespace

bool is_computed(const Node& node, const std::string& argument) {
  const Argument* found = node.find(argument);
  return found != nullptr && found->kind != Argument::Kind::kLiteral;
}

std::vector<int64_t> order_of(const Node& node, int64_t rank) {
  if (node.find("source") != nullptr) return moved_order(node, rank);
  std::vector<int64_t> order = in_order(rank);
  if (node.find("dims") != nullptr) {
    order = node.integers("dims");
    for (int64_t& axis : order) axis = from_front(axis, rank);
  } else if (node.target == "aten::t" || node.target == "aten::numpy_T") {
    std::reverse(order.begin(), order.end());
  } else {
    const int64_t first = node.integer("dim0", node.integer("axis0", -2)),
                  second = node.integer("dim1", node.integer("axis1", -1));
    std::swap(order.at(from_front(first, rank)), order.at(from_front(second, rank)));
  }
  return order;
}

void reorder_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self");
  const std::vector<int64_t> order = order_of(node, axes.rank(input));
  for (size_t axis = 0; axis < order.size(); ++axis) {
    axes.set(node.outputs[0], static_cast<int64_t>(axis), axes.labels(input, order[axis]));
  }
}

void cat_rule(Axes& axes, const Node& node) {
  std::vector<ValueId> values = tensor_inputs(axes.graph(), node);
  const auto is_nothing = [&](ValueId value) { return axes.rank(value) != axes.rank(node.outputs[0]); };
  std::erase_if(values, is_nothing);  // tensors of shape [0], which join anything
  const int64_t joined = axis_of(axes, node, values.at(0));
  for (int64_t axis = 0; axis < axes.rank(values.at(0)); ++axis) {
    Labels labels = axis == joined ? join(axes, values, axis) : axes.labels(values.at(0), axis);
    for (size_t i = 1; i < values.size() && axis != joined; ++i) labels = axes.tie(labels, values[i], axis);
    axes.set(node.outputs[0], axis, labels);
  }
}

void slice_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self"), output = node.outputs[0];
  const int64_t axis = axis_of(axes, node, input);
  const Extent& extent = axes.extent(input, axis);
  pass(axes, input, output, axis);
  if (extent.per_image) return axes.freeze(input, axis, "takes a range of this axis");
  for (const char* argument : {"start", "end", "length"}) {
    if (is_computed(node, argument)) return axes.freeze(input, axis, "takes a computed range of this axis");
  }
  const Range taken = slice_range(node, extent.factor);
  if (taken.step != 1) axes.freeze(input, axis, "skips positions of this axis");
  axes.set(output, axis, range(axes.labels(input, axis), taken.start, axes.extent(output, axis).factor, taken.step));
}

void select_rule(Axes& axes, const Node& node) {
  take_apart(axes, node, "takes one position of this axis");
}

void unbind_rule(Axes& axes, const Node& node) {
  take_apart(axes, node, "takes single positions of this axis");
}

void stack_rule(Axes& axes, const Node& node) {
  const std::vector<ValueId> values = tensor_inputs(axes.graph(), node);
  const int64_t added = from_front(node.integer("dim", 0), axes.rank(node.outputs[0]));
  for (int64_t axis = 0; axis < axes.rank(values.at(0)); ++axis) {
    Labels labels = axes.labels(values.at(0), axis);
    for (size_t i = 1; i < values.size(); ++i) labels = axes.tie(labels, values[i], axis);
    axes.set(node.outputs[0], axis + (axis >= added), labels);
  }
}

void index_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self"), output = node.outputs[0];
  const Argument* indices = node.find("indices");
  const auto given = [](ValueId value) { return value != kNoValue; };
  const auto only = std::find_if(indices->values.begin(), indices->values.end(), given);
  const bool single = std::count_if(indices->values.begin(), indices->values.end(), given) == 1;
  if (!single || axes.rank(output) != axes.rank(input) - 1 + axes.rank(*only)) {
    return axes.freeze_inputs(node, "with several indices has no rule");
  }
  const int64_t picked = only - indices->values.begin(), added = axes.rank(*only) - 1;
  for (int64_t axis = 0; axis < axes.rank(*only); ++axis) axes.freeze(*only, axis, "picks by this axis");
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    if (axis == picked) {
      axes.freeze(input, axis, "picks positions of this axis");
    } else {
      axes.set(output, axis + (axis > picked ? added : 0), axes.labels(input, axis));
    }
  }
}

void roll_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self");
  const std::vector<int64_t> rolled = node.integers("dims");
  if (rolled.empty()) return axes.freeze_inputs(node, "moves positions from axis to axis");
  for (int64_t axis : rolled) axes.freeze(input, from_front(axis, axes.rank(input)), "moves positions of this axis");
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) axes.set(node.outputs[0], axis, axes.labels(input, axis));
}

void split_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self");
  const int64_t axis = axis_of(axes, node, input);
  const Extent& extent = axes.extent(input, axis);
  const bool computed = extent.per_image || is_computed(node, "split_size") || is_computed(node, "split_sizes") ||
                        is_computed(node, "indices") || is_computed(node, "sections") ||
                        split_sizes(node, extent.factor).empty();
  if (computed) axes.freeze(input, axis, "takes computed ranges of this axis");
  const std::vector<int64_t> sizes = computed ? std::vector<int64_t>{} : split_sizes(node, extent.factor);
  int64_t start = 0;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue) pass(axes, input, node.outputs[i], axis);
    if (computed) continue;
    if (node.outputs[i] != kNoValue) {
      axes.set(node.outputs[i], axis, range(axes.labels(input, axis), start, sizes.at(i)));
    }
    start += sizes.at(i);
  }
}

void expand_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self"), output = node.outputs[0];
  const int64_t added = axes.rank(output) - axes.rank(input);
  for (int64_t axis = 0; axis < axes.rank(output); ++axis) {
    if (axis >= added && axes.extent(input, axis - added) == axes.extent(output, axis)) {
      axes.set(output, axis, axes.labels(input, axis - added));
    } else if (has_literal_size(node, axis)) {
      axes.open(output, axis);
    }
  }
}

void repeat_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self"), output = node.outputs[0];
  const int64_t added = axes.rank(output) - axes.rank(input);
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    const Labels labels = axes.labels(input, axis);
    if (labels == nullptr || labels->empty()) continue;
    auto tiled = std::make_shared<std::vector<Unit>>(axes.extent(output, axis + added).factor);
    for (size_t i = 0; i < tiled->size(); ++i) (*tiled)[i] = (*labels)[i % labels->size()];
    axes.set(output, axis + added, tiled);
  }
}

void repeat_interleave_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self"), output = node.outputs[0];
  const int64_t axis = axis_of(axes, node, input);
  if (axes.rank(output) != axes.rank(input)) return axes.freeze_inputs(node, "of all axes has no rule");
  const Argument* size = node.find("output_size");
  if (size != nullptr && !size->literal.isNone()) return axes.freeze_inputs(node, "to a given size has no rule");
  pass(axes, input, output, axis);
  const Labels labels = axes.labels(input, axis);
  if (labels != nullptr) axes.set(output, axis, spread(labels, axes.extent(output, axis).factor));
}

void pad_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self"), output = node.outputs[0];
  const std::vector<int64_t> pads = node.integers("pad");
  const Argument* mode = node.find("mode");
  const bool constant = mode == nullptr || !mode->literal.isString() || mode->literal.toStringRef() == "constant";
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    const size_t place = 2 * static_cast<size_t>(axes.rank(input) - 1 - axis);
    const int64_t before = place + 1 < pads.size() ? pads[place] : 0,
                  after = place + 1 < pads.size() ? pads[place + 1] : 0;
    const Labels labels = axes.labels(input, axis);
    if (labels != nullptr && before == 0 && after == 0) axes.set(output, axis, labels);
    if (labels == nullptr || (before == 0 && after == 0)) continue;
    if (!constant || before < 0 || after < 0) {
      axes.freeze(labels, "pads this axis");
    } else {
      axes.set(output, axis, padded(labels, before, after));
    }
  }
}

void glu_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self"), output = node.outputs[0];
  const int64_t axis = from_front(node.integer("dim", -1), axes.rank(input));
  const int64_t half = axes.extent(output, axis).factor;
  pass(axes, input, output, axis);
  const Labels labels = axes.labels(input, axis);
  tie_equal_positions(axes, labels, half);
  axes.set(output, axis, range(labels, 0, half));
}

void pixel_shuffle_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self"), output = node.outputs[0];
  const int64_t channels = axes.rank(input) - 3, factor = node.integer("upscale_factor", 1);
  pass_images(axes, input, output, channels);
  const Labels labels = axes.labels(input, channels);
  if (labels == nullptr) return;
  const int64_t block = factor * factor;
  TORCH_CHECK(factor > 0 && factor <= static_cast<int64_t>(labels->size()), "[channels] shuffles by ", factor);
  for (size_t i = 0; i < labels->size(); ++i) axes.tie((*labels)[i - i % block], (*labels)[i]);
  axes.set(output, channels, range(labels, 0, axes.extent(output, channels).factor, block));
}

void pixel_unshuffle_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self"), output = node.outputs[0];
  const int64_t channels = axes.rank(input) - 3;
  pass_images(axes, input, output, channels);
  const Labels labels = axes.labels(input, channels);
  if (labels != nullptr) axes.set(output, channels, spread(labels, axes.extent(output, channels).factor));
}

void channel_shuffle_rule(Axes& axes, const Node& node) {
  const ValueId input = node.tensor("self"), output = node.outputs[0];
  pass(axes, input, output, 1);
  const Labels labels = axes.labels(input, 1);
  if (labels == nullptr) return;
  const auto size = static_cast<int64_t>(labels->size());
  const int64_t groups = node.integer("groups", 1);
  TORCH_CHECK(groups > 0, "[channels] shuffles by ", groups, " groups");
  const int64_t block = size / groups;
  tie_equal_positions(axes, labels, block);
  auto shuffled = std::make_shared<std::vector<Unit>>(size);
  for (int64_t i = 0; i < size; ++i) (*shuffled)[i] = (*labels)[i % groups * block + i / groups];
  axes.set(output, 1, shuffled);
}

void source_rule(Axes& axes, const Node& node) {
  const ValueId output = node.outputs[0];
  for (ValueId value : tensor_inputs(axes.graph(), node)) axes.pass_by(value);
  for (int64_t axis = 0; axis < axes.rank(output); ++axis) {
    if (has_literal_size(node, axis)) axes.open(output, axis);
  }
}

void rewrite_slice(Node& node, const Remains& remains) {
  const ValueId input = node.tensor("self");
  const Shape& before = remains.before(input);
  const int64_t axis = from_front(node.integer("dim", 0), static_cast<int64_t>(before.size()));
  const Labels labels = remains.labels(input, axis);
  if (labels == nullptr || before[axis] == remains.after(input)[axis]) return;
  const Range range = slice_range(node, before[axis].factor);
  const int64_t start = remains.count(labels, 0, range.start);
  node.set("start", start);
  if (node.target == "aten::narrow") {
    node.set("length", remains.after(node.outputs[0]).at(axis).factor);
  } else {
    node.set("end", start + remains.after(node.outputs[0]).at(axis).factor);
  }
}

/// Parts that the same operation would not make of what is left are given by their sizes.
void rewrite_split(Node& node, const Remains& remains) {
  const ValueId input = node.tensor("self");
  const Shape& before = remains.before(input);
  const int64_t axis = from_front(node.integer("dim", 0), static_cast<int64_t>(before.size()));
  const Labels labels = remains.labels(input, axis);
  if (labels == nullptr) return;
  std::vector<int64_t> sizes;
  int64_t start = 0;
  for (int64_t size : split_sizes(node, before[axis].factor)) {
    sizes.push_back(remains.count(labels, start, start + size));
    start += size;
  }
  const bool listed = node.target == "aten::split_with_sizes";
  if (!listed && split_sizes(node, remains.after(input)[axis].factor) == sizes) return;
  std::erase_if(node.arguments, [](const Argument& a) {
    return a.name == "chunks" || a.name == "split_size" || a.name == "sections" || a.name == "indices";
  });
  node.target = "aten::split_with_sizes";
  node.set("split_sizes", std::move(sizes));
}

}  // namespace prunex::channels
