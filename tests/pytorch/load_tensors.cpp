#include "tests/pytorch/load_tensors.h"

#include <torch/csrc/jit/serialization/pickle.h>

#include <fstream>
#include <iterator>

namespace prunex::tests {

std::map<std::string, at::Tensor> load_tensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : torch::jit::pickle_load(bytes).toGenericDict()) {
    tensors[item.key().toStringRef()] = item.value().toTensor();
  }
  return tensors;
}

}  // namespace prunex::tests
