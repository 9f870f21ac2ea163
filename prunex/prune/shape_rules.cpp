#include "prunex/prune/shape_rules.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "prunex/prune/arguments.h"

namespace prunex::prune {
namespace {

using program::kNoValue;
using program::Node;
using program::Shape;
using program::ValueId;

/// Axes of the input whose extents multiply to the same number as those of the output; extents of 1 are left out.
struct Block {
  std::vector<int64_t> in, out;
};

/// A product of extents: factor x batch^images.
struct Product {
  int64_t factor = 1;
  int64_t images = 0;
  bool operator==(const Product&) const = default;
  bool operator<(const Product& other) const {
    return images != other.images ? images < other.images : factor < other.factor;
  }
};

/// Multiplies the next axis of `shape` into `product`; false if there is none left.
bool take(const Shape& shape, size_t& next, Product& product, std::vector<int64_t>& axes) {
  if (next == shape.size()) return false;
  const program::Extent& extent = shape[next];
  if (extent.factor != 1 || extent.per_image) axes.push_back(static_cast<int64_t>(next));
  product.factor *= extent.factor;
  product.images += extent.per_image;
  ++next;
  return true;
}

/// The finest blocks; empty if the extents do not match.
std::vector<Block> blocks(const Shape& in, const Shape& out) {
  std::vector<Block> blocks;
  size_t i = 0, o = 0;
  while (i < in.size() || o < out.size()) {
    Block block;
    Product a, b;
    take(in, i, a, block.in);
    take(out, o, b, block.out);
    while (!(a == b)) {
      const bool took = a < b ? take(in, i, a, block.in) : take(out, o, b, block.out);
      if (!took) return {};
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

/// Product of the extents behind `axis` in `axes`.
int64_t stride(const Shape& shape, const std::vector<int64_t>& axes, int64_t axis) {
  int64_t product = 1;
  for (int64_t other : axes) {
    if (other > axis) product *= shape[other].factor;
  }
  return product;
}

bool has_batch(const Shape& shape, const std::vector<int64_t>& axes) {
  return std::any_of(axes.begin(), axes.end(), [&](int64_t axis) { return shape[axis].per_image; });
}

/// One labelled axis among several becomes one axis: each unit owns the positions that its index had.
Labels merge(Axes& axes, ValueId input, const std::vector<int64_t>& merged) {
  int64_t labelled = -1, size = 1;
  for (int64_t axis : merged) {
    size *= axes.shape(input)[axis].factor;
    if (axes.labels(input, axis) == nullptr) continue;
    if (labelled >= 0) return nullptr;
    labelled = axis;
  }
  const Labels labels = axes.labels(input, labelled);
  const int64_t inner = stride(axes.shape(input), merged, labelled);
  auto out = std::make_shared<std::vector<Unit>>(size);
  for (int64_t i = 0; i < size; ++i) (*out)[i] = (*labels)[i / inner % labels->size()];
  return out;
}

/// The labels of a factor of the split axis, if the units depend on that factor alone; else nullptr.
Labels factor(const Axes& axes, const Labels& labels, int64_t extent, int64_t inner) {
  auto out = std::make_shared<std::vector<Unit>>(extent);
  for (int64_t i = 0; i < extent; ++i) (*out)[i] = (*labels)[i * inner];
  const auto root = [&](Unit unit) { return unit == kFixed ? kFixed : axes.units().find(unit); };
  for (size_t i = 0; i < labels->size(); ++i) {
    if (root((*labels)[i]) != root((*out)[i / inner % extent])) return nullptr;
  }
  return out;
}

/// Ties positions that agree on the output axis of the largest extent (the last of them), which then carries the
/// units: the shuffle of channels by view, transpose and view.
void split_by_ties(Axes& axes, const Labels& labels, ValueId output, const std::vector<int64_t>& parts) {
  const Shape& shape = axes.shape(output);
  const auto smaller = [&](int64_t a, int64_t b) { return shape[a].factor < shape[b].factor; };
  const int64_t axis = *std::max_element(parts.rbegin(), parts.rend(), smaller);
  const int64_t inner = stride(shape, parts, axis), extent = shape[axis].factor;
  auto carried = std::make_shared<std::vector<Unit>>(extent);
  for (int64_t i = 0; i < extent; ++i) (*carried)[i] = (*labels)[i * inner];
  for (size_t i = 0; i < labels->size(); ++i) axes.tie((*carried)[i / inner % extent], (*labels)[i]);
  axes.set(output, axis, carried);
}

/// One labelled axis becomes several, one of which carries the units.
void split(Axes& axes, const Labels& labels, ValueId output, const std::vector<int64_t>& parts) {
  const Shape& shape = axes.shape(output);
  for (int64_t axis : parts) {
    const Labels part = factor(axes, labels, shape[axis].factor, stride(shape, parts, axis));
    if (part != nullptr) return axes.set(output, axis, part);
  }
  split_by_ties(axes, labels, output, parts);
}

/// False if the block mixes units in a way that no single axis can carry.
bool reshape_block(Axes& axes, ValueId input, ValueId output, const Block& block) {
  const auto labelled = [&](int64_t axis) { return axes.labels(input, axis) != nullptr; };
  if (std::none_of(block.in.begin(), block.in.end(), labelled)) return true;
  if (block.in.size() == 1 && block.out.size() == 1) {
    axes.set(output, block.out[0], axes.labels(input, block.in[0]));
    return true;
  }
  if (has_batch(axes.shape(input), block.in)) return false;
  if (block.out.size() == 1) {
    Labels merged = merge(axes, input, block.in);
    axes.set(output, block.out[0], merged);
    return merged != nullptr;
  }
  if (block.in.size() != 1) return false;
  split(axes, axes.labels(input, block.in[0]), output, block.out);
  return true;
}

Labels range(const Labels& labels, int64_t start, int64_t length, int64_t step = 1) {
  if (labels == nullptr) return nullptr;
  auto out = std::make_shared<std::vector<Unit>>(length);
  for (int64_t i = 0; i < length; ++i) (*out)[i] = (*labels)[start + i * step];
  return out;
}

/// All axes of the output but `except` carry what the input's carry.
void pass(Axes& axes, ValueId input, ValueId output, int64_t except) {
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    if (axis != except) axes.set(output, axis, axes.labels(input, axis));
  }
}

/// Axis of the argument "dim".
int64_t axis_of(const Axes& axes, const Node& node, ValueId input) {
  return from_front(integer(node, "dim", 0), axes.rank(input));
}

/// Labels of several axes behind one another; nullptr if all are fixed.
Labels join(Axes& axes, const std::vector<ValueId>& values, int64_t axis) {
  auto out = std::make_shared<std::vector<Unit>>();
  bool any = false;
  for (ValueId value : values) {
    const Labels labels = axes.labels(value, axis);
    if (labels == nullptr) {
      out->insert(out->end(), axes.shape(value)[axis].factor, kFixed);
    } else {
      out->insert(out->end(), labels->begin(), labels->end());
      any = true;
    }
  }
  return any ? Labels(out) : nullptr;
}

/// A computed position cannot be rewritten.
bool is_computed(const Node& node, const std::string& argument) {
  const program::Argument* found = node.find(argument);
  return found != nullptr && found->kind != program::Argument::Kind::kLiteral;
}

}  // namespace

Range slice_range(const Node& node, int64_t size) {
  const int64_t start = from_front(integer(node, "start", 0), size);
  return {std::clamp<int64_t>(start, 0, size), integer(node, "step", 1)};
}

std::vector<int64_t> split_sizes(const Node& node, int64_t size) {
  std::vector<int64_t> sizes = integers(node, node.target == "aten::split.Tensor" ? "split_size" : "split_sizes");
  if (node.target == "aten::split_with_sizes") return sizes;
  const int64_t chunks = integer(node, "chunks", 1);
  const int64_t each = node.target == "aten::chunk" ? (size + chunks - 1) / chunks : sizes.at(0);
  sizes.clear();
  for (int64_t start = 0; start < size; start += each) sizes.push_back(std::min(each, size - start));
  return sizes;
}

void reshape_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor_inputs(axes.graph(), node).at(0), output = node.outputs[0];
  const std::vector<Block> parts = blocks(axes.shape(input), axes.shape(output));
  if (parts.empty() && axes.rank(input) > 0) return axes.freeze_inputs(node, "has recorded shapes that do not match");
  for (const Block& block : parts) {
    if (reshape_block(axes, input, output, block)) continue;
    for (int64_t axis : block.in) axes.freeze(input, axis, "mixes this axis with others");
  }
}

void permute_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "self");
  const std::vector<int64_t> order = integers(node, "dims");
  for (size_t axis = 0; axis < order.size(); ++axis) {
    const int64_t from = from_front(order[axis], axes.rank(input));
    axes.set(node.outputs[0], static_cast<int64_t>(axis), axes.labels(input, from));
  }
}

void transpose_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "self");
  std::vector<int64_t> order(axes.rank(input));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[from_front(integer(node, "dim0", 0), axes.rank(input))],
            order[from_front(integer(node, "dim1", 1), axes.rank(input))]);
  for (size_t axis = 0; axis < order.size(); ++axis) {
    axes.set(node.outputs[0], static_cast<int64_t>(axis), axes.labels(input, order[axis]));
  }
}

void cat_rule(Axes& axes, const Node& node) {
  const std::vector<ValueId> values = tensor_inputs(axes.graph(), node);
  const int64_t joined = axis_of(axes, node, values[0]);
  for (int64_t axis = 0; axis < axes.rank(values[0]); ++axis) {
    Labels labels = axis == joined ? join(axes, values, axis) : axes.labels(values[0], axis);
    for (size_t i = 1; i < values.size() && axis != joined; ++i) labels = axes.tie(labels, values[i], axis);
    axes.set(node.outputs[0], axis, labels);
  }
}

void slice_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "self"), output = node.outputs[0];
  const int64_t axis = axis_of(axes, node, input);
  const program::Extent& extent = axes.shape(input)[axis];
  pass(axes, input, output, axis);
  if (extent.per_image) return;
  for (const char* argument : {"start", "end", "length"}) {
    if (is_computed(node, argument)) return axes.freeze(input, axis, "takes a computed range of this axis");
  }
  const Range taken = slice_range(node, extent.factor);
  if (taken.step != 1) axes.freeze(input, axis, "skips positions of this axis");
  axes.set(output, axis, range(axes.labels(input, axis), taken.start, axes.shape(output)[axis].factor, taken.step));
}

void select_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "self");
  const int64_t removed = axis_of(axes, node, input);
  axes.freeze(input, removed, "takes one position of this axis");
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    if (axis != removed) axes.set(node.outputs[0], axis - (axis > removed), axes.labels(input, axis));
  }
}

void split_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "self");
  const int64_t axis = axis_of(axes, node, input);
  const program::Extent& extent = axes.shape(input)[axis];
  const bool computed = extent.per_image || is_computed(node, "split_size") || is_computed(node, "split_sizes");
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
  const ValueId input = tensor(node, "self"), output = node.outputs[0];
  const int64_t added = axes.rank(output) - axes.rank(input);
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    if (axes.shape(input)[axis] == axes.shape(output)[axis + added]) {
      axes.set(output, axis + added, axes.labels(input, axis));
    }
  }
}

void pad_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor(node, "self");
  const std::vector<int64_t> pads = integers(node, "pad");
  for (int64_t axis = 0; axis < axes.rank(input); ++axis) {
    const size_t place = 2 * static_cast<size_t>(axes.rank(input) - 1 - axis);
    const bool padded = place + 1 < pads.size() && (pads[place] != 0 || pads[place + 1] != 0);
    if (padded) {
      axes.freeze(input, axis, "pads this axis");
    } else {
      axes.set(node.outputs[0], axis, axes.labels(input, axis));
    }
  }
}

}  // namespace prunex::prune
