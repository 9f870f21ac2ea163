// A network of a few hundred weights and images for it.
#pragma once

#include <ATen/ATen.h>

#include "prunex/data/dataset.h"
#include "prunex/program/builder.h"

namespace prunex::train {

inline constexpr int64_t kClasses = 5, kSide = 8;

/// conv1 - bn1 - relu - conv2, stride 2 - bn2 - relu - mean - fc; batch norm with weights and biases of its own.
inline program::Model small_network() {
  program::Builder builder(3);
  auto x = builder.input("x", {3, kSide, kSide});
  x = builder.relu(builder.batch_norm("bn1", builder.conv2d("conv1", x, {.out = 6, .kernel = 3, .padding = 1})));
  x = builder.conv2d("conv2", x, {.out = 4, .kernel = 3, .stride = 2, .padding = 1});
  x = builder.relu(builder.batch_norm("bn2", x));
  auto model = std::move(builder).finish(builder.linear("fc", builder.mean(x, {2, 3}), {.out = kClasses}));
  auto generator = at::detail::createCPUGenerator(4);
  for (const char* name : {"bn1.weight", "bn1.bias", "bn2.weight", "bn2.bias"}) {
    model.weights.params[name].detach().add_(at::randn(model.weights.params[name].sizes(), generator), 0.3);
  }
  return model;
}

/// Noise with labels of noise.
inline data::Dataset noise_images(int64_t size) {
  auto generator = at::detail::createCPUGenerator(5);
  return {.name = "noise",
          .images = at::randint(0, 256, {size, 3, kSide, kSide}, generator, at::TensorOptions(at::kLong))
                        .to(at::kByte)
                        .contiguous(at::MemoryFormat::ChannelsLast),
          .labels = at::randint(0, kClasses, {size}, generator, at::TensorOptions(at::kLong)),
          .classes = kClasses,
          .mean = {0.5, 0.4, 0.3},
          .std = {0.2, 0.3, 0.4}};
}

/// What a dataset's images are to a network: (pixel / 255 - mean) / std.
inline at::Tensor normalised(const data::Dataset& dataset, int64_t begin, int64_t end) {
  const at::Tensor mean = at::tensor(dataset.mean, at::kDouble).view({-1, 1, 1});
  const at::Tensor std = at::tensor(dataset.std, at::kDouble).view({-1, 1, 1});
  return ((dataset.images.slice(0, begin, end).to(at::kDouble) / 255 - mean) / std).to(at::kFloat);
}

}  // namespace prunex::train
