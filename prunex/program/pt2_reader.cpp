#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "prunex/program/measured_shapes.h"
#include "prunex/program/pt2.h"
#include "prunex/program/pt2_archive.h"
#include "prunex/program/pt2_codes.h"
#include "prunex/program/pt2_graph.h"

namespace prunex::program {
namespace {

using nlohmann::json;

constexpr const char* kDocument = "models/model.json";

struct Meta {
  at::ScalarType dtype;
  std::vector<int64_t> sizes, strides;
  int64_t offset;
  bool requires_grad;
};

std::vector<int64_t> read_ints(const json& list) {
  std::vector<int64_t> ints;
  for (const auto& item : list) ints.push_back(item.at("as_int").get<int64_t>());
  return ints;
}

Meta read_meta(const json& meta) {
  if (meta.at("layout").get<int>() != kStridedLayout) throw std::invalid_argument("only strided tensors are supported");
  return {.dtype = dtype_of_code(meta.at("dtype").get<int>()),
          .sizes = read_ints(meta.at("sizes")),
          .strides = read_ints(meta.at("strides")),
          .offset = meta.at("storage_offset").at("as_int").get<int64_t>(),
          .requires_grad = meta.at("requires_grad").get<bool>()};
}

// Positions in the storage that the tensor covers, at most: [first, second).
std::pair<int64_t, int64_t> span(const Meta& meta) {
  int64_t end = meta.offset + 1;
  for (size_t axis = 0; axis < meta.sizes.size(); ++axis) {
    if (meta.sizes[axis] == 0) return {meta.offset, meta.offset};
    end += (meta.sizes[axis] - 1) * meta.strides.at(axis);
  }
  return {meta.offset, end};
}

bool fits(const Shape& shape, const std::vector<int64_t>& sizes) {
  if (shape.size() != sizes.size()) return false;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    if (shape[axis].per_image || shape[axis].factor != sizes[axis]) return false;
  }
  return true;
}

// The tensors of a program, from one folder of the archive each: weights and constants.
class TensorReader {
 public:
  explicit TensorReader(const ArchiveReader& archive)
      : archive_(archive),
        weights_(archive.json("data/weights/model_weights_config.json").at("config")),
        constants_(archive.json("data/constants/model_constants_config.json").at("config")) {}

  void read(Graph& graph, Weights& weights) {
    for (const auto& value : graph.values) {
      if (value.role == Role::kConstant) graph.constants.emplace(value.weight, read_constant(value));
      if (value.role == Role::kParameter) read_weight(value, graph, weights.params);
      if (value.role == Role::kBuffer) read_weight(value, graph, weights.buffers);
    }
  }

 private:
  struct Owner {
    std::string name;
    Role role;
    std::string meta;
    std::pair<int64_t, int64_t> span;
  };

  at::Tensor read_constant(const Value& value) const {
    const bool among_constants = constants_.contains(value.weight);
    if (!among_constants && !weights_.contains(value.weight)) refuse(value, "is not in the file");
    const auto& entry = among_constants ? constants_[value.weight] : weights_[value.weight];
    return read_tensor(value, among_constants ? "data/constants/" : "data/weights/", entry);
  }

  void read_weight(const Value& value, Graph& graph, TensorDict& into) {
    if (into.contains(value.weight) || graph.aliases.contains(value.weight)) return;
    if (!weights_.contains(value.weight)) refuse(value, "is not in the file");
    const auto& entry = weights_[value.weight];
    const auto record = entry.at("path_name").get<std::string>();
    const Owner self{value.weight, value.role, entry.at("tensor_meta").dump(), span(read_meta(entry["tensor_meta"]))};
    for (const auto& owner : owners_[record]) {
      if (owner.meta == self.meta && owner.role == self.role) {
        graph.aliases.emplace(value.weight, owner.name);
        return;
      }
      if (owner.span.first < self.span.second && self.span.first < owner.span.second) {
        refuse(value, fmt::format("overlaps '{}' in memory, but is not the same tensor", owner.name));
      }
    }
    auto tensor = read_tensor(value, "data/weights/", entry);
    const bool trainable = value.role == Role::kParameter && entry["tensor_meta"].at("requires_grad").get<bool>();
    into.insert(value.weight, tensor.set_requires_grad(trainable));
    owners_[record].push_back(self);
  }

  at::Tensor read_tensor(const Value& value, const std::string& folder, const json& entry) const {
    if (entry.value("use_pickle", false)) refuse(value, "is pickled (a tensor subclass), which is not supported");
    const auto meta = read_meta(entry.at("tensor_meta"));
    if (!fits(value.shape, meta.sizes) || meta.dtype != value.dtype) {
      refuse(value, "does not have the shape or dtype that the graph records");
    }
    const auto storage = archive_.storage(folder + entry.at("path_name").get<std::string>());
    const auto bytes = static_cast<int64_t>(storage.nbytes());
    if (meta.offset < 0 || span(meta).second * static_cast<int64_t>(c10::elementSize(meta.dtype)) > bytes) {
      refuse(value, fmt::format("needs more than the {} bytes in the file", bytes));
    }
    auto tensor = at::empty({0}, meta.dtype).set_(storage, meta.offset, meta.sizes, meta.strides);
    const bool owns_all = tensor.is_contiguous() && static_cast<int64_t>(tensor.nbytes()) == bytes;
    return owns_all ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
  }

  [[noreturn]] static void refuse(const Value& value, const std::string& why) {
    throw std::invalid_argument(fmt::format("tensor '{}' {}", value.weight, why));
  }

  const ArchiveReader& archive_;
  json weights_, constants_;
  std::map<std::string, std::vector<Owner>> owners_;  // by record
};

Model read(const std::string& path) {
  const ArchiveReader archive(path);
  if (!archive.has(kDocument)) {
    throw std::invalid_argument(
        fmt::format("has no {}: it was not saved by torch.export.save of PyTorch 2.8 or later", kDocument));
  }
  auto graph = read_graph(archive.json(kDocument));
  Weights weights;
  TensorReader(archive).read(graph, weights);
  if (records_wrong_shapes(graph)) graph = with_measured_shapes(std::move(graph), weights);
  return {Program(std::move(graph)), std::move(weights)};
}

}  // namespace

Model read_pt2(const std::string& path) {
  try {
    return read(path);
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(
        fmt::format("{}: is not laid out like a file of torch.export.save ({})", path, error.what()));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", path, error.what()));
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    throw std::runtime_error(fmt::format("{}: {}", path, text.substr(0, text.find('\n'))));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace prunex::program
