#include "prunex/train/product.h"

#include <ATen/ATen.h>

#include <cmath>

#include "prunex/io/safetensors.h"
#include "prunex/program/macs.h"
#include "prunex/program/mode.h"
#include "prunex/program/pt2.h"
#include "prunex/sparsity/compaction.h"

namespace prunex::train {
namespace {

std::string program_file(const std::string& directory) {
  return directory + "/model.pt2";
}

int64_t alive_entries(const at::Tensor& tensor, const sparsity::Support* support) {
  TensorDict one;
  one.insert("tensor", tensor);
  sparsity::Supports supports;
  if (support != nullptr) supports.insert("tensor", *support);
  return sparsity::Compaction(one, supports).numel();
}

}  // namespace

void write_product(const std::string& directory, const program::Program& program, const Weights& weights) {
  const program::Program shipped(program::in_mode(program.graph(), program::Mode::kEval));
  program::write_pt2(program_file(directory), {shipped, weights});
  TensorDict all = weights.params;
  for (const auto& buffer : weights.buffers) all.insert(buffer.key(), buffer.value());
  io::write_safetensors(directory + "/model.safetensors", all);
}

program::Model read_product(const std::string& directory) {
  return program::read_pt2(program_file(directory));
}

Size dense_size(const program::Graph& graph, const Weights& weights) {
  return {program::parameter_count(weights), program::macs(graph)};
}

Size alive_size(const program::Graph& graph, const Weights& weights, const sparsity::Supports& supports) {
  Size size;
  for (const auto& item : weights.params) size.parameters += alive_entries(item.value(), supports.find(item.key()));
  for (const auto& [weight, macs] : program::macs_by_weight(graph)) {
    const at::Tensor& tensor = weights.params[weight];
    const double share =
        static_cast<double>(alive_entries(tensor, supports.find(weight))) / static_cast<double>(tensor.numel());
    size.macs += std::llround(static_cast<double>(macs) * share);
  }
  return size;
}

}  // namespace prunex::train
