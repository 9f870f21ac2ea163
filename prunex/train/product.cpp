#include "prunex/train/product.h"

#include <ATen/ATen.h>

#include "prunex/io/safetensors.h"
#include "prunex/program/macs.h"
#include "prunex/program/pt2.h"

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

Size size_of(const program::Graph& graph, const Weights& weights) {
  return {program::parameter_count(weights), program::macs(graph)};
}

}  // namespace prunex::train
