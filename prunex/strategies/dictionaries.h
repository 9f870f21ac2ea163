// Copies of named tensors, and what is read back from saved ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "prunex/tensors.h"

namespace prunex::strategies {

/// Second names for the tensors, without autograd history.
TensorDict detached(const TensorDict& tensors);
/// Copies; of all, or of those named.
TensorDict clones(const TensorDict& tensors);
TensorDict clones(const TensorDict& tensors, const std::vector<std::string>& names);
TensorDict zeros_like(const TensorDict& tensors);
/// The tensors that `order` names, in its order.
TensorDict in_order_of(const TensorDict& order, const TensorDict& tensors);
/// Those that have a row: a cut may leave none of a shard's rows.
TensorDict with_rows(const TensorDict& tensors);

/// to[name] <- from[name], for every name of `to`.
void copy(TensorDict& to, const TensorDict& from);

/// state["prefix" + name] <- every tensor; and the contents back, through saved().
void store(TensorDict& state, const std::string& prefix, const TensorDict& tensors);
void restore(TensorDict& tensors, const TensorDict& state, const std::string& prefix);

/// The tensor of that name. Throws std::invalid_argument, which names it, if there is none or one of other sizes.
const at::Tensor& saved(const TensorDict& state, const std::string& name, at::IntArrayRef sizes);
/// Likewise, on the CPU and of that type.
at::Tensor saved(const TensorDict& state, const std::string& name, at::IntArrayRef sizes, at::ScalarType type);
/// Likewise, as the N numbers that it holds.
template <typename Number, size_t N>
std::array<Number, N> saved_numbers(const TensorDict& state, const std::string& name) {
  const at::Tensor tensor = saved(state, name, {int64_t{N}}, c10::CppTypeToScalarType<Number>::value);
  std::array<Number, N> numbers;
  std::copy_n(tensor.const_data_ptr<Number>(), N, numbers.begin());
  return numbers;
}

}  // namespace prunex::strategies
