#include "prunex/strategies/start.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/digest.h"

namespace prunex::strategies {
namespace {

/// Strides of axes of one entry say nothing.
std::string layout_of(const at::Tensor& tensor) {
  std::vector<int64_t> strides = tensor.strides().vec();
  for (int64_t axis = 0; axis < tensor.dim(); ++axis) {
    if (tensor.size(axis) == 1) strides[static_cast<size_t>(axis)] = 1;
  }
  return fmt::format("{} {} {}", at::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ","),
                     fmt::join(strides, ","));
}

/// The same number on ranks whose tensors are laid out alike, and hardly on others.
int64_t checksum_of(const Weights& weights) {
  Digest digest;
  for (const TensorDict* tensors : {&weights.params, &weights.buffers}) {
    for (const auto& item : *tensors) {
      digest.add_text(item.key());
      digest.add_text(layout_of(item.value()));
    }
  }
  return static_cast<int64_t>(digest.value());
}

}  // namespace

void expect_usable(const TensorDict& params, Payload payload) {
  std::map<const void*, std::string> names;
  for (const auto& item : params) {
    const at::Tensor& theta = item.value();
    const auto type = theta.scalar_type();
    if (type != at::kFloat && type != at::kDouble) {
      throw std::invalid_argument(
          fmt::format("parameter {}: got {}, wanted Float or Double: autocast may compute in less", item.key(),
                      at::toString(type)));
    }
    const auto& first = *params.begin();
    if (type != first.value().scalar_type()) {
      throw std::invalid_argument(
          fmt::format("parameter {}: got {}, wanted {}, which {} is: they are exchanged together", item.key(),
                      at::toString(type), at::toString(first.value().scalar_type()), first.key()));
    }
    if (type == at::kDouble && payload != Payload::kFp32) {
      throw std::invalid_argument(fmt::format("`payload`: got {}; parameter {} is of float64, which goes in fp32 alone",
                                              name_of(payload), item.key()));
    }
    if (theta.numel() == 0 || theta.is_meta()) continue;
    const auto [before, is_new] = names.emplace(theta.const_data_ptr(), item.key());
    if (is_new) continue;
    throw std::invalid_argument(
        fmt::format("parameters {} and {} are one tensor: wanted it once", before->second, item.key()));
  }
}

void expect_rows(const TensorDict& params) {
  for (const auto& item : params) {
    const at::Tensor& theta = item.value();
    if (theta.numel() == 0 || theta.dim() == 0) continue;
    const bool lies_in_rows = theta.size(0) == 1 || theta.stride(0) * theta.size(0) == theta.numel();
    if (theta.is_non_overlapping_and_dense() && lies_in_rows) continue;
    throw std::invalid_argument(
        fmt::format("parameter {}: its rows do not lie behind each other in memory, as those of a transposed or sliced "
                    "view: wanted contiguous()",
                    item.key()));
  }
}

void start_equal(Weights& weights, comm::Communicator& world) {
  expect_usable(weights.params);
  if (const auto other = comm::first_other(checksum_of(weights), world)) {
    throw std::invalid_argument(fmt::format(
        "the weights of ranks 0 and {} differ in names, sizes, types or memory layout: wanted one network on all ranks",
        *other));
  }
  at::NoGradGuard no_grad;
  for (TensorDict* tensors : {&weights.params, &weights.buffers}) {
    for (auto& item : *tensors) world.broadcast(item.value());
  }
}

}  // namespace prunex::strategies
