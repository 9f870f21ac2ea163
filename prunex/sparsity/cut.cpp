#include "prunex/sparsity/cut.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "prunex/digest.h"
#include "prunex/sparsity/projection.h"

namespace prunex::sparsity {
namespace {

std::string to_text(at::IntArrayRef shape) {
  return fmt::format("{}", fmt::join(shape, "x"));
}

std::vector<int64_t> alive_units(const Group& group, const Masks& masks) {
  const at::Tensor* mask = masks.find(group.name);
  TORCH_CHECK(mask != nullptr, "[sparsity] there is no mask for group '", group.name, "'");
  TORCH_CHECK(mask->scalar_type() == at::kBool && mask->numel() == group.size, "[sparsity] the mask of group '",
              group.name, "' has ", mask->numel(), " entries, wanted ", group.size, " bools");
  const at::Tensor units = mask->cpu().flatten().nonzero().flatten();
  TORCH_CHECK(units.numel() > 0, "[sparsity] the mask of group '", group.name, "' keeps no unit");
  return {units.const_data_ptr<int64_t>(), units.const_data_ptr<int64_t>() + units.numel()};
}

/// bool per position of the axes that lose something, by tensor and axis.
using Alive = std::map<std::pair<std::string, int64_t>, std::vector<bool>>;

int64_t extent(const Group& group, const Slice& slice, const Shapes& shapes) {
  const auto shape = shapes.find(slice.tensor);
  TORCH_CHECK(shape != shapes.end(), "[sparsity] group '", group.name, "' lies on '", slice.tensor,
              "', which is no tensor of the model");
  TORCH_CHECK(slice.axis >= 0 && slice.axis < static_cast<int64_t>(shape->second.size()), "[sparsity] group '",
              group.name, "' lies on axis ", slice.axis, " of '", slice.tensor, "' (", to_text(shape->second),
              "), which cannot be cut");
  return shape->second[slice.axis];
}

/// Positions of the slice that belong to no unit of `kept` die.
void remove(const Group& group, const Slice& slice, const std::vector<int64_t>& kept, std::vector<bool>& alive) {
  const int64_t positions = slice.index.empty() ? group.size : static_cast<int64_t>(slice.index.size());
  TORCH_CHECK(positions % group.size == 0, "[sparsity] group '", group.name, "' has ", positions, " positions in '",
              slice.tensor, "' for ", group.size, " units");
  std::vector<bool> survives(group.size, false);
  for (int64_t unit : kept) survives[unit] = true;
  for (int64_t i = 0; i < positions; ++i) {
    if (survives[i / (positions / group.size)]) continue;
    const int64_t position = slice.index.empty() ? i : slice.index[i];
    TORCH_CHECK(position >= 0 && position < static_cast<int64_t>(alive.size()), "[sparsity] group '", group.name,
                "' has position ", position, " in '", slice.tensor, "', which has ", alive.size());
    alive[position] = false;
  }
}

std::vector<int64_t> positions(const std::vector<bool>& alive) {
  std::vector<int64_t> kept;
  for (size_t i = 0; i < alive.size(); ++i) {
    if (alive[i]) kept.push_back(static_cast<int64_t>(i));
  }
  return kept;
}

/// outer[inner[i]]
std::vector<int64_t> chain(const std::vector<int64_t>& outer, const std::vector<int64_t>& inner) {
  std::vector<int64_t> kept;
  for (int64_t position : inner) kept.push_back(outer.at(position));
  return kept;
}

TensorCut compose(const TensorCut& first, const TensorCut& second, const std::string& name) {
  TORCH_CHECK(second.shape == shape_after(first), "[sparsity] the second cut is of a '", name, "' of ",
              to_text(second.shape), ", the first leaves ", to_text(shape_after(first)));
  TensorCut both = first;
  for (const auto& [axis, kept] : second.kept) {
    const auto before = first.kept.find(axis);
    both.kept[axis] = before == first.kept.end() ? kept : chain(before->second, kept);
  }
  return both;
}

/// Says of each of so many units whether its first position on the slice's axis is still kept.
std::function<bool(int64_t)> keeps(const std::map<std::string, TensorCut>& tensors, const Slice& slice, int64_t units) {
  const auto tensor = tensors.find(slice.tensor);
  TORCH_CHECK(tensor != tensors.end(), "[sparsity] the cut knows no tensor '", slice.tensor, "'");
  const auto kept = tensor->second.kept.find(slice.axis);
  if (kept == tensor->second.kept.end()) return [](int64_t) { return true; };
  return [&slice, &positions = kept->second, block = slice.positions_per_unit(units)](int64_t unit) {
    const int64_t position = slice.index.empty() ? unit : slice.index[static_cast<size_t>(unit * block)];
    return std::binary_search(positions.begin(), positions.end(), position);
  };
}

/// Of the surviving units, those that are still there.
GroupCut narrow(const GroupCut& group, const std::map<std::string, TensorCut>& tensors) {
  const auto stays = keeps(tensors, group.place, group.size);
  GroupCut narrowed = group;
  std::erase_if(narrowed.kept, [&](int64_t unit) { return !stays(unit); });
  return narrowed;
}

/// Its length, then its words.
void add_list(Digest& digest, const std::vector<int64_t>& list) {
  digest.add_word(list.size());
  for (int64_t word : list) digest.add_word(static_cast<uint64_t>(word));
}

/// Strides of a dense tensor of `sizes` whose dimensions lie in memory in the order that those of `tensor` do.
std::vector<int64_t> strides_like(const at::Tensor& tensor, at::IntArrayRef sizes) {
  std::vector<int64_t> order(tensor.dim());
  std::iota(order.begin(), order.end(), 0);
  const auto outside = [&](int64_t a, int64_t b) {
    return tensor.stride(a) != tensor.stride(b) ? tensor.stride(a) > tensor.stride(b) : tensor.size(a) > tensor.size(b);
  };
  std::stable_sort(order.begin(), order.end(), outside);
  std::vector<int64_t> strides(tensor.dim());
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = stride;
    stride *= sizes[*dim];
  }
  return strides;
}

void check_shape(const at::Tensor& tensor, const TensorCut& cut, const std::string& name) {
  TORCH_CHECK(tensor.sizes() == at::IntArrayRef(cut.shape), "[sparsity] the cut is of a '", name, "' of ",
              to_text(cut.shape), ", got ", to_text(tensor.sizes()));
}

void check_positions(const TensorCut& cut, const std::string& name) {
  for (const auto& [axis, kept] : cut.kept) {
    TORCH_CHECK(axis >= 0 && axis < static_cast<int64_t>(cut.shape.size()), "[sparsity] '", name, "' has no axis ",
                axis);
    const int64_t size = cut.shape[static_cast<size_t>(axis)];
    const bool within = std::all_of(kept.begin(), kept.end(), [&](int64_t at) { return at >= 0 && at < size; });
    TORCH_CHECK(within, "[sparsity] '", name, "' keeps positions of axis ", axis, " beyond its ", size);
  }
}

bool is_row_major(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() && !tensor.is_conj() &&
         !tensor.is_neg();
}

bool on_rows_and_channels(const TensorCut& cut) {
  return !cut.shape.empty() && (cut.kept.empty() || cut.kept.rbegin()->first <= kChannels);
}

/// Kept positions of an axis; all, if it is not cut.
std::vector<int64_t> positions_of(const TensorCut& cut, int64_t axis) {
  const auto kept = cut.kept.find(axis);
  if (kept != cut.kept.end()) return kept->second;
  std::vector<int64_t> all(cut.shape.at(axis));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Both row-major, cut on rows and channels only: one pass, without a copy per axis. Reads and writes run after run.
void copy_kept(const at::Tensor& tensor, const TensorCut& cut, at::Tensor& result) {
  if (result.numel() == 0) return;
  const bool vector = tensor.dim() < 2;
  const std::vector<int64_t> channels = vector ? std::vector<int64_t>{0} : positions_of(cut, kChannels);
  const int64_t row = static_cast<int64_t>(tensor.nbytes()) / tensor.size(0);
  const int64_t channel = vector ? row : row / tensor.size(1);
  const auto* from = static_cast<const char*>(tensor.const_data_ptr());
  auto* to = static_cast<char*>(result.mutable_data_ptr());
  for (int64_t position : positions_of(cut, kRows)) {
    for (size_t i = 0; i < channels.size();) {
      size_t end = i + 1;
      while (end < channels.size() && channels[end] == channels[end - 1] + 1) ++end;
      const int64_t bytes = static_cast<int64_t>(end - i) * channel;
      std::memcpy(to, from + position * row + channels[i] * channel, bytes);
      to += bytes;
      i = end;
    }
  }
}

void check(const TensorDict& tensors, const Cut& cut) {
  for (const auto& item : tensors) {
    const auto found = cut.tensors.find(item.key());
    TORCH_CHECK(found != cut.tensors.end(), "[sparsity] the cut knows no tensor '", item.key(), "'");
    check_shape(item.value(), found->second, item.key());
  }
}

}  // namespace

Shapes shapes_of(const Weights& weights) {
  Shapes shapes;
  for (const TensorDict* tensors : {&weights.params, &weights.buffers}) {
    for (const auto& item : *tensors) shapes[item.key()] = item.value().sizes().vec();
  }
  return shapes;
}

bool Cut::empty() const {
  return std::all_of(tensors.begin(), tensors.end(), [](const auto& item) { return item.second.kept.empty(); });
}

Cut make_cut(const std::vector<Group>& groups, const Masks& masks, const Shapes& shapes) {
  Cut cut;
  for (const auto& [name, shape] : shapes) cut.tensors[name].shape = shape;
  Alive alive;
  for (const Group& group : groups) {
    TORCH_CHECK(!group.slices.empty(), "[sparsity] group '", group.name, "' lies on no tensor");
    cut.groups.push_back({group.name, group.size, alive_units(group, masks), group.slices[0]});
    if (static_cast<int64_t>(cut.groups.back().kept.size()) == group.size) continue;
    for (const Slice& slice : group.slices) {
      const int64_t length = extent(group, slice, shapes);
      auto& axis = alive.try_emplace({slice.tensor, slice.axis}, length, true).first->second;
      remove(group, slice, cut.groups.back().kept, axis);
    }
  }
  for (const auto& [place, axis] : alive) cut.tensors[place.first].kept[place.second] = positions(axis);
  return cut;
}

Cut compose(const Cut& first, const Cut& second) {
  Cut both;
  TORCH_CHECK(first.tensors.size() == second.tensors.size(), "[sparsity] the first cut has ", first.tensors.size(),
              " tensors, the second ", second.tensors.size());
  for (const auto& [name, tensor] : first.tensors) {
    const auto later = second.tensors.find(name);
    TORCH_CHECK(later != second.tensors.end(), "[sparsity] the second cut lacks '", name, "'");
    both.tensors[name] = compose(tensor, later->second, name);
  }
  for (const GroupCut& group : first.groups) both.groups.push_back(narrow(group, both.tensors));
  return both;
}

Masks units_left(const std::vector<Group>& groups, const Cut& cut) {
  Masks alive = full_masks(groups);
  for (const Group& group : groups) {
    const auto stays = keeps(cut.tensors, group.slices.front(), group.size);
    bool* is_alive = alive[group.name].mutable_data_ptr<bool>();
    for (int64_t unit = 0; unit < group.size; ++unit) is_alive[unit] = stays(unit);
  }
  return alive;
}

uint64_t hash(const Cut& cut) {
  Digest digest;
  digest.add_word(cut.tensors.size());
  for (const auto& [name, tensor] : cut.tensors) {
    digest.add_text(name);
    add_list(digest, tensor.shape);
    digest.add_word(tensor.kept.size());
    for (const auto& [axis, kept] : tensor.kept) {
      digest.add_word(static_cast<uint64_t>(axis));
      add_list(digest, kept);
    }
  }
  for (const GroupCut& group : cut.groups) {
    digest.add_text(group.name);
    digest.add_word(static_cast<uint64_t>(group.size));
    add_list(digest, group.kept);
    digest.add_text(group.place.tensor);
    digest.add_word(static_cast<uint64_t>(group.place.axis));
    add_list(digest, group.place.index);
  }
  return digest.value();
}

std::vector<int64_t> shape_after(const TensorCut& cut) {
  std::vector<int64_t> shape = cut.shape;
  for (const auto& [axis, kept] : cut.kept) shape.at(axis) = static_cast<int64_t>(kept.size());
  return shape;
}

at::Tensor slice(const at::Tensor& tensor, const TensorCut& cut, const std::string& name) {
  check_shape(tensor, cut, name);
  check_positions(cut, name);
  const at::NoGradGuard no_grad;
  const auto shape = shape_after(cut);
  at::Tensor result = at::empty_strided(shape, strides_like(tensor, shape), tensor.options().requires_grad(false));
  if (is_row_major(tensor) && on_rows_and_channels(cut)) {
    copy_kept(tensor, cut, result);
  } else {
    at::Tensor part = tensor.detach();
    for (const auto& [axis, kept] : cut.kept) {
      part = part.index_select(axis, at::tensor(kept, at::kLong).to(tensor.device()));
    }
    result.copy_(part);
  }
  return result.set_requires_grad(tensor.requires_grad());
}

void apply_cut(TensorDict& tensors, const Cut& cut) {
  check(tensors, cut);
  for (auto& item : tensors) {
    const TensorCut& part = cut.tensors.at(item.key());
    if (!part.kept.empty()) item.value() = slice(item.value(), part, item.key());
  }
}

void apply_cut(Weights& weights, const Cut& cut) {
  check(weights.buffers, cut);
  apply_cut(weights.params, cut);
  apply_cut(weights.buffers, cut);
}

Supports apply_cut(const Supports& supports, const Cut& cut) {
  Supports left;
  for (const auto& item : supports) {
    Support support = item.value();
    const auto& kept = cut.tensors.at(item.key()).kept;
    const auto keep = [&kept](at::Tensor& mask, int64_t axis) {
      if (!mask.defined()) return;
      if (const auto found = kept.find(axis); found != kept.end()) {
        mask = mask.index_select(0, at::tensor(found->second, at::kLong));
      }
      if (mask.all().item<bool>()) mask.reset();
    };
    keep(support.rows, kRows);
    keep(support.columns, kChannels);
    if (!support.full()) left.insert(item.key(), support);
  }
  return left;
}

}  // namespace prunex::sparsity
