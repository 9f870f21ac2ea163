#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <stdexcept>

#include "prunex/program/program.h"
#include "prunex/program/pt2.h"
#include "prunex/program/pt2/format.h"
#include "prunex/text/json.h"

namespace prunex::program {
namespace {

using nlohmann::json;

constexpr const char* kDocument = "models/model.json";

// Positions in the storage that a tensor covers, at most: [begin, end).
struct Span {
  int64_t begin = 0, end = 0;
};

struct Meta {
  at::ScalarType dtype;
  std::vector<int64_t> sizes, strides;
  int64_t offset;
  bool requires_grad;
  Span span{};
};

std::vector<int64_t> read_sizes(const json& list) {
  std::vector<int64_t> sizes;
  for (const auto& item : list) sizes.push_back(to_size(item.at("as_int")));
  return sizes;
}

Span span_of(const Meta& meta) {
  Span span{meta.offset, meta.offset};
  if (std::find(meta.sizes.begin(), meta.sizes.end(), 0) != meta.sizes.end()) return span;
  bool overflows = __builtin_add_overflow(span.end, 1, &span.end);
  for (size_t axis = 0; axis < meta.sizes.size(); ++axis) {
    int64_t reach = 0;
    overflows |= __builtin_mul_overflow(meta.sizes[axis] - 1, meta.strides[axis], &reach);
    overflows |= __builtin_add_overflow(span.end, reach, &span.end);
  }
  if (overflows) throw std::invalid_argument("reaches beyond any memory");
  return span;
}

// Every element has a place of its own: each stride goes over what the axes with smaller ones cover.
bool has_own_places(const Meta& meta) {
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, steps
  for (size_t axis = 0; axis < meta.sizes.size(); ++axis) {
    if (meta.sizes[axis] == 0) return true;
    if (meta.sizes[axis] > 1) axes.emplace_back(meta.strides[axis], meta.sizes[axis] - 1);
  }
  std::sort(axes.begin(), axes.end());
  int64_t covered = 0;
  for (const auto& [stride, steps] : axes) {
    if (stride <= covered) return false;
    covered += stride * steps;  // less than the span, which did not overflow
  }
  return true;
}

Meta read_meta(const json& meta) {
  if (to_integer(meta.at("layout")) != kStridedLayout) {
    throw std::invalid_argument("is not strided: only strided tensors are supported");
  }
  Meta read{.dtype = dtype_of_code(to_integer(meta.at("dtype"))),
            .sizes = read_sizes(meta.at("sizes")),
            .strides = read_sizes(meta.at("strides")),
            .offset = to_size(meta.at("storage_offset").at("as_int")),
            .requires_grad = meta.at("requires_grad").get<bool>()};
  if (read.sizes.size() != read.strides.size()) throw std::invalid_argument("has sizes and strides of different axes");
  read.span = span_of(read);
  if (!has_own_places(read)) throw std::invalid_argument("has strides by which its elements overlap");
  return read;
}

bool fits(const Shape& shape, const std::vector<int64_t>& sizes) {
  if (shape.size() != sizes.size()) return false;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    if (shape[axis].per_image || shape[axis].factor != sizes[axis]) return false;
  }
  return true;
}

// Records of one folder, each read once, and no more bytes than the archive may have.
class Storages {
 public:
  explicit Storages(const ArchiveReader& archive) : archive_(archive), left_(archive.limit()) {}

  struct Stored {
    c10::Storage storage;
    bool taken = false;  // is a tensor's own
  };
  Stored& find(const std::string& record) {
    const auto known = stored_.find(record);
    if (known != stored_.end()) return known->second;
    auto storage = archive_.storage(record);
    return stored_.emplace(record, Stored{std::move(storage)}).first->second;
  }

  /// Many tensors may lie on one record.
  at::Tensor copy(const at::Tensor& view) {
    left_ -= static_cast<int64_t>(view.nbytes());
    if (left_ < 0) throw std::invalid_argument("and those before it are larger than the archive may be");
    return view.clone(at::MemoryFormat::Contiguous);
  }

 private:
  const ArchiveReader& archive_;
  int64_t left_;
  std::map<std::string, Stored> stored_;
};

// The tensors of a program, from one folder of the archive each: weights and constants.
class TensorReader {
 public:
  explicit TensorReader(const ArchiveReader& archive)
      : storages_(archive),
        weights_(archive.json("data/weights/model_weights_config.json").at("config")),
        constants_(archive.json("data/constants/model_constants_config.json").at("config")) {}

  void read(Graph& graph, Weights& weights) {
    for (const auto& value : graph.values) {
      try {
        if (value.role == Role::kConstant) graph.constants.emplace(value.weight, read_constant(value));
        if (value.role == Role::kParameter) read_weight(value, graph, weights.params);
        if (value.role == Role::kBuffer) read_weight(value, graph, weights.buffers);
      } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(fmt::format("tensor '{}' {}", value.weight, error.what()));
      }
    }
  }

  /// Whether a tensor lies in another order in the file.
  bool rearranges() const { return rearranges_; }

 private:
  struct Owner {
    std::string name;
    Role role;
    std::string meta;
    int64_t end;
  };
  using Owners = std::map<int64_t, Owner>;  // by the position where they begin; they do not overlap

  at::Tensor read_constant(const Value& value) {
    const bool among_constants = constants_.contains(value.weight);
    if (!among_constants && !weights_.contains(value.weight)) throw std::invalid_argument("is not in the file");
    const auto& entry = among_constants ? constants_[value.weight] : weights_[value.weight];
    return read_tensor(value, among_constants ? "data/constants/" : "data/weights/", entry);
  }

  void read_weight(const Value& value, Graph& graph, TensorDict& into) {
    if (!weights_.contains(value.weight)) throw std::invalid_argument("is not in the file");
    const auto& entry = weights_[value.weight];
    const auto meta = read_meta(value, entry);
    const Owner self{value.weight, value.role, entry["tensor_meta"].dump(), meta.span.end};
    const bool empty = meta.span.begin == meta.span.end;
    auto& owners = owners_[entry.at("path_name").get<std::string>()];
    if (const auto* owner = empty ? nullptr : find_overlap(owners, meta.span)) {
      if (owner->meta != self.meta || owner->role != self.role) {
        throw std::invalid_argument(fmt::format("overlaps '{}' in memory, but is not the same tensor", owner->name));
      }
      graph.aliases.emplace(value.weight, owner->name);
      return;
    }
    auto tensor = read_tensor(value, "data/weights/", entry);
    into.insert(value.weight, tensor.set_requires_grad(value.role == Role::kParameter && meta.requires_grad));
    if (!empty) owners.emplace(meta.span.begin, self);
  }

  static Meta read_meta(const Value& value, const json& entry) {
    auto meta = program::read_meta(entry.at("tensor_meta"));
    if (fits(value.shape, meta.sizes) && meta.dtype == value.dtype) return meta;
    throw std::invalid_argument("does not have the shape or dtype that the graph records");
  }

  static const Owner* find_overlap(const Owners& owners, const Span& span) {
    const auto next = owners.lower_bound(span.end);  // the first that begins behind the span
    if (next == owners.begin()) return nullptr;
    const auto& last = std::prev(next)->second;
    return last.end > span.begin ? &last : nullptr;
  }

  at::Tensor read_tensor(const Value& value, const std::string& folder, const json& entry) {
    if (entry.value("use_pickle", false)) {
      throw std::invalid_argument("is pickled (a tensor subclass), which is not supported");
    }
    const auto meta = read_meta(value, entry);
    auto& [storage, taken] = storages_.find(folder + entry.at("path_name").get<std::string>());
    const auto bytes = static_cast<int64_t>(storage.nbytes());
    if (meta.span.end > bytes / static_cast<int64_t>(c10::elementSize(meta.dtype))) {
      throw std::invalid_argument(fmt::format("needs more than the {} bytes in the file", bytes));
    }
    auto tensor = at::empty({0}, meta.dtype).set_(storage, meta.offset, meta.sizes, meta.strides);
    const bool owns_all = !taken && tensor.is_contiguous() && static_cast<int64_t>(tensor.nbytes()) == bytes;
    taken |= owns_all;
    rearranges_ |= !tensor.is_contiguous();
    check_truths(tensor);
    return owns_all ? tensor : storages_.copy(tensor);
  }

  // Kernels take for granted that a bool is 0 or 1.
  static void check_truths(const at::Tensor& tensor) {
    if (tensor.scalar_type() == at::kBool && tensor.view(at::kByte).gt(1).any().item<bool>()) {
      throw std::invalid_argument("holds bytes that are neither true nor false");
    }
  }

  Storages storages_;
  json weights_, constants_;
  std::map<std::string, Owners> owners_;  // by record
  bool rearranges_ = false;
};

/// Where weights lie in another order than they did, so do the values that they make, and not all can be viewed.
void reshape_instead_of_viewing(Graph& graph) {
  for (auto& node : graph.nodes) {
    if (node.target != "aten::view") continue;
    node.target = "aten::reshape";
    for (auto& argument : node.arguments) {
      if (argument.name == "size") argument.name = "shape";
    }
  }
}

/// Those that had one element in the export, whatever the batch: of one image, the batch is no such axis.
void name_squeezed_axes(Graph& graph) {
  for (auto& node : graph.nodes) {
    if (node.target != "aten::squeeze" || node.outputs[0] == kNoValue) continue;
    const Shape& shape = graph.values[node.tensor("self")].shape;
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == Extent{1, false}) axes.push_back(static_cast<int64_t>(axis));
    }
    if (graph.values[node.outputs[0]].shape.size() + axes.size() != shape.size()) continue;  // a fixed batch of one
    node.target = "aten::squeeze.dims";
    node.set("dim", std::move(axes));
  }
}

Model read(const ArchiveReader& archive, Batch batch, Maker maker) {
  if (!archive.has(kDocument)) {
    throw std::invalid_argument(
        fmt::format("has no {}: it was not saved by torch.export.save of PyTorch 2.8 or later", kDocument));
  }
  auto graph = read_graph(archive.json(kDocument), batch, maker);
  Weights weights;
  TensorReader tensors(archive);
  tensors.read(graph, weights);
  if (tensors.rearranges()) reshape_instead_of_viewing(graph);
  if (records_wrong_shapes(graph)) graph = with_measured_shapes(std::move(graph), weights);
  name_squeezed_axes(graph);
  return {Program(std::move(graph)), std::move(weights)};
}

// The file's own words may be in it, of any length.
std::string one_line(const std::string& path, std::string text) {
  constexpr size_t kMost = 400;
  if (text.size() > kMost) text = text.substr(0, kMost) + " ...";
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  return fmt::format("{}: {}", path, text);
}

template <typename Source>
Model read(const std::string& name, const Source& source, int64_t most_bytes, Batch batch, Maker maker) {
  try {
    return read(ArchiveReader(source, most_bytes), batch, maker);
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(
        one_line(name, fmt::format("is not laid out like a file of torch.export.save ({})", text::reason(error))));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(one_line(name, error.what()));
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    throw std::runtime_error(one_line(name, text.substr(0, text.find('\n'))));
  } catch (const std::bad_alloc&) {
    throw std::runtime_error(one_line(name, "needs more memory than there is"));
  } catch (const std::exception& error) {
    throw std::runtime_error(one_line(name, error.what()));
  }
}

}  // namespace

std::optional<std::string> read_extra_file(const std::string& path, const std::string& name, int64_t most_bytes) {
  constexpr size_t kMostBytes = 1 << 20;
  const std::string record = "extra/" + name;
  try {
    const ArchiveReader archive(path, most_bytes);
    if (!archive.has(record)) return std::nullopt;
    const c10::Storage bytes = archive.storage(record);
    if (bytes.nbytes() <= kMostBytes) return std::string(static_cast<const char*>(bytes.data()), bytes.nbytes());
    throw std::runtime_error(
        fmt::format("record '{}' has {} bytes, at most {} are wanted", record, bytes.nbytes(), kMostBytes));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
  }
}

Model read_pt2(const std::string& path, int64_t most_bytes, Batch batch) {
  return read(path, path, most_bytes, batch, Maker::kStranger);
}

Model parse_pt2(std::string_view bytes, const std::string& name, int64_t most_bytes, Batch batch, Maker maker) {
  return read(name, bytes, most_bytes, batch, maker);
}

}  // namespace prunex::program
