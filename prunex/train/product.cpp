#include "prunex/train/product.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "prunex/io/files.h"
#include "prunex/io/safetensors.h"
#include "prunex/program/macs.h"
#include "prunex/program/pt2.h"
#include "prunex/text/json.h"
#include "prunex/text/one_line.h"
#include "prunex/text/option.h"

namespace prunex::train {
namespace {

std::string program_file(const std::string& directory) {
  return directory + "/model.pt2";
}

}  // namespace

void write_product(const std::string& directory, const program::Model& model,
                   const std::optional<data::Description>& description) {
  std::map<std::string, std::string> texts;
  if (description) texts.emplace(data::kDescriptionName, data::description_json(*description));
  const program::Program shipped(program::in_mode(model.program.graph(), program::Mode::kEval));
  program::write_pt2(program_file(directory), {shipped, model.weights}, texts);
  TensorDict all = model.weights.params;
  for (const auto& buffer : model.weights.buffers) all.insert(buffer.key(), buffer.value());
  io::write_safetensors(directory + "/model.safetensors", all, texts);
}

program::Model read_product(const std::string& directory) {
  return program::read_pt2(program_file(directory));
}

prune::Size size_of(const program::Graph& graph, const Weights& weights) {
  return {program::parameter_count(weights), program::macs(graph)};
}

namespace {

using Json = nlohmann::ordered_json;
using Positions = std::vector<int64_t>;

Json to_json(const sparsity::TensorCut& tensor) {
  Json kept = Json::object();
  for (const auto& [axis, positions] : tensor.kept) kept[std::to_string(axis)] = positions;
  return {{"shape", tensor.shape}, {"kept", std::move(kept)}};
}

Json to_json(const sparsity::GroupCut& group) {
  Json place{{"tensor", group.place.tensor}, {"axis", group.place.axis}};
  if (!group.place.index.empty()) place["index"] = group.place.index;
  return {{"name", group.name}, {"size", group.size}, {"kept", group.kept}, {"at", std::move(place)}};
}

int64_t parse_axis(const std::string& text, size_t axes) {
  const auto axis = text::number_in<int64_t>(text);
  if (!axis || *axis < 0 || static_cast<size_t>(*axis) >= axes) {
    throw std::invalid_argument(fmt::format("'{}' is no axis", text::one_line(text)));
  }
  return *axis;
}

/// Ascending positions below `size`.
Positions parse_kept(const nlohmann::json& json, int64_t size) {
  auto kept = json.get<Positions>();
  const bool ascend = std::is_sorted(kept.begin(), kept.end(), std::less_equal<>());
  if (!ascend || (!kept.empty() && (kept.front() < 0 || kept.back() >= size))) {
    throw std::invalid_argument(fmt::format("wanted ascending positions below {}", size));
  }
  return kept;
}

sparsity::TensorCut parse_tensor(const nlohmann::json& json) {
  sparsity::TensorCut tensor{json.at("shape").get<Positions>(), {}};
  for (const auto& [text, positions] : json.at("kept").items()) {
    const int64_t axis = parse_axis(text, tensor.shape.size());
    tensor.kept[axis] = parse_kept(positions, tensor.shape[static_cast<size_t>(axis)]);
  }
  return tensor;
}

sparsity::GroupCut parse_group(const nlohmann::json& json) {
  const auto& place = json.at("at");
  const int64_t size = json.at("size");
  return {json.at("name"),
          size,
          parse_kept(json.at("kept"), size),
          {place.at("tensor"), place.at("axis"), place.value("index", Positions{})}};
}

}  // namespace

std::vector<int64_t> input_shape(const program::Graph& graph) {
  return program::sizes_of(graph.values[graph.inputs.front()].shape, 1);
}

std::string structure_json(const Structure& structure) {
  Json tensors = Json::object(), groups = Json::array();
  for (const auto& [name, tensor] : structure.cut.tensors) tensors[name] = to_json(tensor);
  for (const sparsity::GroupCut& group : structure.cut.groups) groups.push_back(to_json(group));
  Json json{{"model", structure.model}, {"input", structure.input}};
  if (structure.groups.heads) json["heads"] = true;
  if (structure.groups.statistics) json["statistics"] = true;
  json["tensors"] = std::move(tensors);
  json["groups"] = std::move(groups);
  return text::json_text(json);
}

Structure parse_structure(const std::string& text) {
  try {
    const auto json = text::parse_json(text);
    Structure structure{json.at("model"), json.at("input").get<Positions>(), {}};
    structure.groups = {.statistics = json.value("statistics", false), .heads = json.value("heads", false)};
    for (const auto& [name, tensor] : json.at("tensors").items()) {
      structure.cut.tensors[name] = parse_tensor(tensor);
    }
    for (const auto& group : json.at("groups")) structure.cut.groups.push_back(parse_group(group));
    return structure;
  } catch (const std::exception& error) {
    throw std::invalid_argument(fmt::format("no structure of a pruned network: {}", text::reason(error)));
  }
}

void write_structure(const std::string& directory, const Structure& structure) {
  io::write_file_atomically(directory + "/structure.json", structure_json(structure) + "\n");
}

namespace {

const char* reason_on(int64_t axis) {
  switch (axis) {
    case sparsity::kRows:
      return "other layers still read these channels";
    case sparsity::kChannels:
      return "other layers read these channels, or they are an input of the network";
    default:
      return "a kernel position has no extent of its own in the weight's shape";
  }
}

/// Positions that the cut removed from the axis of a slice.
int64_t removed(const sparsity::Slice& slice, const sparsity::Cut& cut) {
  if (slice.axis == sparsity::kColumns) return 0;
  const auto& tensor = cut.tensors.at(slice.tensor);
  const auto kept = tensor.kept.find(slice.axis);
  if (kept == tensor.kept.end()) return 0;
  return tensor.shape.at(static_cast<size_t>(slice.axis)) - static_cast<int64_t>(kept->second.size());
}

}  // namespace

std::vector<NotRemoved> not_removed(const std::vector<sparsity::Group>& groups, const sparsity::Masks& masks,
                                    const sparsity::Cut& cut) {
  std::vector<NotRemoved> all;
  for (const auto& group : groups) {
    const auto& slice = group.slices.front();
    const int64_t pruned = group.size - masks[group.name].sum().item<int64_t>();
    const int64_t units = pruned - removed(slice, cut) / slice.positions_per_unit(group.size);
    if (units > 0) all.push_back({group.name, units, reason_on(slice.axis)});
  }
  return all;
}

}  // namespace prunex::train
