#include "prunex/train/tensor_hash.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace prunex::train {
namespace {

/// Eight bytes at a time; a multiplication by an odd number loses nothing, and the shift brings high bits down.
uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

uint64_t mixed(uint64_t hash, const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().cpu().contiguous();
  const auto* bytes = static_cast<const char*>(dense.const_data_ptr());
  const size_t size = dense.nbytes();
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof(word), size - at));
    hash = mixed(hash, word);
  }
  return mixed(hash, size);
}

}  // namespace

uint64_t hash_of(const TensorDict& first, const TensorDict& second) {
  uint64_t hash = 0;
  for (const TensorDict* tensors : {&first, &second}) {
    for (const auto& item : *tensors) hash = mixed(hash, item.value());
  }
  return hash;
}

}  // namespace prunex::train
