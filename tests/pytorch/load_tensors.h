// Tensors that a Python script saved.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace prunex::tests {

/// Reads a file that torch.save wrote from a dict of contiguous tensors.
std::map<std::string, at::Tensor> load_tensors(const std::string& path);

}  // namespace prunex::tests
