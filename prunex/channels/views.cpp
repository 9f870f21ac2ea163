#include "prunex/channels/operations.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace prunex::channels {
namespace {

/// A product of extents: factor x batch^images.
struct Factor {
  int64_t factor = 1;
  int64_t images = 0;
  bool operator==(const Factor&) const = default;
  bool operator<(const Factor& other) const {
    return images != other.images ? images < other.images : factor < other.factor;
  }
  bool divides(const Factor& other) const { return images <= other.images && other.factor % factor == 0; }
  Factor over(const Factor& other) const { return {factor / other.factor, images - other.images}; }
};

Factor factor_of(const Extent& extent) {
  return {extent.factor, extent.per_image};
}

/// Axes of the input whose extents multiply to the same number as those of the output; extents of 1 are left out.
struct Block {
  std::vector<int64_t> in, out;
};

/// Multiplies the next axis of `shape` into `total`; false if there is none left.
bool take(const Shape& shape, size_t& next, Factor& total, std::vector<int64_t>& axes) {
  if (next == shape.size()) return false;
  const Extent& extent = shape[next];
  if (extent != Extent{1, false}) axes.push_back(static_cast<int64_t>(next));
  total.factor *= extent.factor;
  total.images += extent.per_image;
  ++next;
  return true;
}

/// The finest blocks; empty if the extents do not match.
std::vector<Block> blocks(const Shape& in, const Shape& out) {
  std::vector<Block> blocks;
  size_t i = 0, o = 0;
  while (i < in.size() || o < out.size()) {
    Block block;
    Factor a, b;
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

/// A factor that an axis of the input and an axis of the output share.
struct Atom {
  Factor size;
  int64_t in = 0, out = 0;
  bool is_batch() const { return size.images > 0; }
};
/// From the outermost to the innermost.
using Atoms = std::vector<Atom>;

/// The factors of a block; empty if the extents are no products of common ones.
Atoms atoms(const Shape& in, const Shape& out, const Block& block) {
  Atoms atoms;
  auto i = block.in.rbegin(), o = block.out.rbegin();
  Factor left, right;
  while (i != block.in.rend() && o != block.out.rend()) {
    if (left == Factor{}) left = factor_of(in[*i]);
    if (right == Factor{}) right = factor_of(out[*o]);
    const Factor size = left.divides(right) ? left : right;
    if (!size.divides(left)) return {};
    atoms.push_back({size, *i, *o});
    left = left.over(size);
    right = right.over(size);
    if (left == Factor{}) ++i;
    if (right == Factor{}) ++o;
  }
  std::reverse(atoms.begin(), atoms.end());
  return atoms;
}

template <typename Predicate>
Atoms select(const Atoms& atoms, Predicate predicate) {
  Atoms selected;
  std::copy_if(atoms.begin(), atoms.end(), std::back_inserter(selected), predicate);
  return selected;
}

/// Labels of an axis repeat from image to image: the batch must be its outermost factor, and alone there.
bool has_units_inside_images(const Atoms& axis) {
  for (size_t i = 0; i < axis.size(); ++i) {
    if (axis[i].is_batch() && (i > 0 || axis[i].size.factor > 1)) return false;
  }
  return true;
}

int64_t count(const Atoms& atoms) {
  int64_t product = 1;
  for (const Atom& atom : atoms) product *= atom.size.factor;
  return product;
}

/// For each position of an axis made of `atoms`: the position that those which `shared` selects make.
template <typename Predicate>
std::vector<int64_t> project(const Atoms& atoms, Predicate shared) {
  std::vector<int64_t> positions(count(atoms), 0);
  int64_t inner = 1, stride = 1;
  for (auto atom = atoms.rbegin(); atom != atoms.rend(); ++atom) {
    const int64_t factor = atom->size.factor;
    if (shared(*atom)) {
      for (size_t p = 0; p < positions.size(); ++p) positions[p] += static_cast<int64_t>(p) / inner % factor * stride;
      stride *= factor;
    }
    inner *= factor;
  }
  return positions;
}

/// The size of an output axis can be rewritten: it is a number, or the only size to be left open by -1.
bool can_resize(const Node& node, int64_t axis) {
  for (const char* name : {"size", "shape", "sizes"}) {
    const Argument* sizes = node.find(name);
    if (sizes == nullptr || sizes->kind != Argument::Kind::kInts) continue;
    if (node.target == "aten::unflatten.int") return false;
    if (sizes->values.at(axis) == kNoValue) continue;
    for (size_t i = 0; i < sizes->values.size(); ++i) {
      if (sizes->values[i] == kNoValue && sizes->ints[i] < 0) return false;
    }
  }
  return true;
}

/// One block of a reshape.
class Reshape {
 public:
  Reshape(Axes& axes, const Node& node, const Block& block)
      : axes_(axes), node_(node), block_(block), input_(tensor_inputs(axes.graph(), node).at(0)) {}

  void apply() {
    const auto unlabelled = [&](int64_t axis) { return axes_.labels(input_, axis) == nullptr; };
    labelled_ = block_.in;
    std::erase_if(labelled_, unlabelled);
    if (labelled_.empty()) return;
    if (block_.in.size() == 1 && block_.out.size() == 1) {
      if (!can_resize(node_, block_.out[0])) {
        return axes_.freeze(input_, block_.in[0], "has a computed size of this axis, and leaves another open");
      }
      return axes_.set(output(), block_.out[0], axes_.labels(input_, block_.in[0]));
    }
    atoms_ = atoms(axes_.shape(input_), axes_.shape(output()), block_);
    for (int64_t axis : labelled_) move(axis);
  }

 private:
  ValueId output() const { return node_.outputs[0]; }

  void freeze(int64_t axis) { axes_.freeze(input_, axis, "mixes this axis with others"); }

  Atoms of_input(int64_t axis) const {
    return select(atoms_, [axis](const Atom& atom) { return atom.in == axis; });
  }
  Atoms of_output(int64_t axis) const {
    return select(atoms_, [axis](const Atom& atom) { return atom.out == axis; });
  }

  void move(int64_t axis) {
    const Atoms own = of_input(axis);
    const std::vector<int64_t> places = candidates(axis, own);
    if (own.empty() || !has_units_inside_images(own) || places.empty()) return freeze(axis);
    const auto independent = [&](int64_t place) { return depends_only_on(axis, own, place); };
    const auto free = std::find_if(places.begin(), places.end(), independent);
    if (free != places.end()) return carry(axis, own, *free);
    carry(axis, own, places[axes_.choose(node_, axis, places.size())]);
    axes_.note_split({&node_, axis, places.size(), carried_});
  }

  /// Output axes that can carry the units, that of most units first; inner ones before outer ones.
  std::vector<int64_t> candidates(int64_t axis, const Atoms& own) const {
    std::vector<int64_t> places;
    for (const Atom& atom : own) {
      const Atoms whole = of_output(atom.out);
      const auto other_units = [&](const Atom& other) {
        return other.in != axis && std::find(labelled_.begin(), labelled_.end(), other.in) != labelled_.end();
      };
      const bool mixed = std::any_of(whole.begin(), whole.end(), other_units);
      const bool known = std::find(places.begin(), places.end(), atom.out) != places.end();
      if (atom.is_batch() || mixed || known || !has_units_inside_images(whole) || !can_resize(node_, atom.out))
        continue;
      places.insert(places.begin(), atom.out);
    }
    const auto units = [&](int64_t place) {
      return count(select(own, [place](const Atom& atom) { return atom.out == place; }));
    };
    std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) { return units(a) > units(b); });
    return places;
  }

  bool depends_only_on(int64_t axis, const Atoms& own, int64_t place) const {
    const auto root = [&](Unit unit) { return unit == kFixed ? kFixed : axes_.units().find(unit); };
    const Labels labels = axes_.peek(input_, axis);
    std::vector<int64_t> first(count(own), -1);
    const auto positions = project(own, [place](const Atom& atom) { return atom.out == place; });
    for (size_t i = 0; i < positions.size(); ++i) {
      int64_t& same = first[positions[i]];
      if (same < 0) same = static_cast<int64_t>(i);
      if (root((*labels)[same]) != root((*labels)[i])) return false;
    }
    return true;
  }

  /// The output axis `place` carries the units of `axis`; positions that agree on it are tied.
  void carry(int64_t axis, const Atoms& own, int64_t place) {
    const Labels labels = axes_.peek(input_, axis);
    const auto positions = project(own, [place](const Atom& atom) { return atom.out == place; });
    std::vector<int64_t> first(count(own), -1);
    for (size_t i = 0; i < positions.size(); ++i) {
      int64_t& same = first[positions[i]];
      if (same < 0) same = static_cast<int64_t>(i);
      axes_.tie((*labels)[same], (*labels)[i]);
    }
    auto out = std::make_shared<std::vector<Unit>>();
    for (int64_t position : project(of_output(place), [axis](const Atom& atom) { return atom.in == axis; })) {
      out->push_back((*labels)[first[position]]);
    }
    carried_ = out;
    axes_.set(output(), place, carried_);
  }

  Axes& axes_;
  const Node& node_;
  Block block_;
  ValueId input_;
  std::vector<int64_t> labelled_;
  Atoms atoms_;
  Labels carried_;
};

void leave_open(Argument& list, size_t entry) {
  list.values[entry] = kNoValue;
  list.ints.at(entry) = -1;
}

/// A computed size of a view becomes -1.
void leave_one_open(Argument& list, size_t entry) {
  for (size_t i = 0; i < list.values.size(); ++i) {
    TORCH_CHECK(list.values[i] != kNoValue || list.ints.at(i) >= 0, "[channels] a computed size cannot be rewritten");
  }
  leave_open(list, entry);
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
      leave_one_open(list, i);
    } else if (list.ints.at(i) >= 0) {
      list.ints[i] = after[first + i].factor;
    }
  }
}

}  // namespace

void reshape_rule(Axes& axes, const Node& node) {
  const ValueId input = tensor_inputs(axes.graph(), node).at(0), output = node.outputs[0];
  const auto is_empty = [&](ValueId value) {
    const Shape& shape = axes.shape(value);
    return std::any_of(shape.begin(), shape.end(), [](const Extent& extent) { return extent.factor < 1; });
  };
  if (is_empty(input) || is_empty(output)) return axes.freeze_inputs(node, "of no elements has no rule");
  const std::vector<Block> parts = blocks(axes.shape(input), axes.shape(output));
  if (parts.empty() && axes.rank(input) > 0) return axes.freeze_inputs(node, "has recorded shapes that do not match");
  for (const Block& block : parts) Reshape(axes, node, block).apply();
}

void reshape_as_rule(Axes& axes, const Node& node) {
  const ValueId output = node.outputs[0];
  reshape_rule(axes, node);
  for (int64_t axis = 0; axis < axes.rank(output); ++axis) {
    axes.set(output, axis, axes.tie(axes.labels(output, axis), node.tensor("other"), axis));
  }
}

void rewrite_sizes(Node& node, const Remains& remains) {
  const ValueId output = node.outputs[0];
  for (Argument& argument : node.arguments) {
    if (argument.name == "size" || argument.name == "shape") {
      rewrite_extents(argument, remains.before(output), remains.after(output), 0);
    }
  }
}

/// What -1 leaves open is as it was before the expansion, however many there are.
void rewrite_expand(Node& node, const Remains& remains) {
  const Shape &before = remains.before(node.outputs[0]), after = remains.after(node.outputs[0]);
  for (Argument& argument : node.arguments) {
    if (argument.name != "size") continue;
    for (size_t i = 0; i < argument.values.size(); ++i) {
      if (argument.values[i] != kNoValue && before.at(i) != after.at(i)) leave_open(argument, i);
    }
  }
  rewrite_sizes(node, remains);
}

void rewrite_unflatten(Node& node, const Remains& remains) {
  const ValueId input = node.tensor("self"), output = node.outputs[0];
  const auto rank = static_cast<int64_t>(remains.before(input).size());
  const auto first = static_cast<size_t>(from_front(node.integer("dim", 0), rank));
  for (Argument& argument : node.arguments) {
    if (argument.name == "sizes") rewrite_extents(argument, remains.before(output), remains.after(output), first);
  }
}

/// The axes that vanish must stay the same if another axis is left with a single position.
void rewrite_squeeze(Node& node, const Remains& remains) {
  const Shape& before = remains.before(node.tensor("self"));
  const auto rank = static_cast<int64_t>(before.size());
  std::vector<int64_t> named = node.integers("dim");
  for (int64_t axis = 0; node.find("dim") == nullptr && axis < rank; ++axis) named.push_back(axis);
  std::vector<int64_t> axes;
  for (const int64_t axis : named) {
    if (before.at(from_front(axis, rank)) == Extent{1, false}) axes.push_back(axis);
  }
  node.target = "aten::squeeze.dims";
  node.set("dim", std::move(axes));
}

void rewrite_normalized_shape(Node& node, const Remains& remains) {
  const ValueId input = node.tensor("input");
  for (Argument& argument : node.arguments) {
    if (argument.name != "normalized_shape") continue;
    const size_t first = remains.before(input).size() - node.integers("normalized_shape").size();
    rewrite_extents(argument, remains.before(input), remains.after(input), first);
  }
}

}  // namespace prunex::channels
