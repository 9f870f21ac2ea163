#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "prunex/models/models.h"
#include "prunex/program/builder.h"

namespace prunex::models {
namespace {

using program::Builder;
using program::ValueId;

/// A block with torchvision's names: two 3x3 convolutions, or 1x1, 3x3 (which carries the stride), 1x1, around a
/// shortcut; a 1x1 convolution with a norm where the shapes differ.
struct BlockShape {
  int64_t out = 0;     ///< channels of the residual stream behind the block
  int64_t middle = 0;  ///< channels between a bottleneck's convolutions
  int64_t stride = 1;
  Norm norm = Norm::kBatch;
};

ValueId shortcut(Builder& net, const std::string& name, ValueId x, const BlockShape& block) {
  if (block.stride == 1 && net.shape(x)[1].factor == block.out) return x;
  x = net.conv2d(name + ".downsample.0", x, {.out = block.out, .kernel = 1, .stride = block.stride});
  return norm(net, name + ".downsample.1", x, block.norm);
}

ValueId basic_block(Builder& net, const std::string& name, ValueId x, const BlockShape& block) {
  ValueId y = net.conv2d(name + ".conv1", x, {.out = block.out, .kernel = 3, .stride = block.stride, .padding = 1});
  y = net.relu_(norm(net, name + ".bn1", y, block.norm));
  y = net.conv2d(name + ".conv2", y, {.out = block.out, .kernel = 3, .padding = 1});
  y = norm(net, name + ".bn2", y, block.norm);
  return net.relu_(net.add_(y, shortcut(net, name, x, block)));
}

ValueId bottleneck(Builder& net, const std::string& name, ValueId x, const BlockShape& block) {
  ValueId y = net.conv2d(name + ".conv1", x, {.out = block.middle, .kernel = 1});
  y = net.relu_(norm(net, name + ".bn1", y, block.norm));
  y = net.conv2d(name + ".conv2", y, {.out = block.middle, .kernel = 3, .stride = block.stride, .padding = 1});
  y = net.relu_(norm(net, name + ".bn2", y, block.norm));
  y = net.conv2d(name + ".conv3", y, {.out = block.out, .kernel = 1});
  y = norm(net, name + ".bn3", y, block.norm);
  return net.relu_(net.add_(y, shortcut(net, name, x, block)));
}

constexpr int64_t kExpansion = 4;  // of a bottleneck's output over 64 << stage

ValueId stem(Builder& net, ValueId x, bool small, Norm kind) {
  const program::ConvOptions large{.out = 64, .kernel = 7, .stride = 2, .padding = 3};
  x = net.conv2d("conv1", x, small ? program::ConvOptions{.out = 64, .kernel = 3, .padding = 1} : large);
  x = net.relu_(norm(net, "bn1", x, kind));
  return small ? x : net.max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1});
}

}  // namespace

program::Model cifar_resnet(int64_t blocks, const ModelOptions& options) {
  Builder net(options.seed);
  const auto scaled = [&](int64_t channels) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(channels) * options.multiplier));
  };
  ValueId x = net.input("x", {options.channels, options.height, options.width});
  x = net.conv2d("conv1", x, {.out = scaled(16), .kernel = 3, .padding = 1});
  x = net.relu_(norm(net, "bn1", x, options.norm));
  for (int64_t stage = 0; stage < 3; ++stage) {
    for (int64_t block = 0; block < blocks; ++block) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, block);
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      x = basic_block(net, name, x, {.out = scaled(16 << stage), .stride = stride, .norm = options.norm});
    }
  }
  x = net.flatten(net.adaptive_avg_pool2d(x, {1, 1}));
  return std::move(net).finish(net.linear("fc", x, {.out = options.classes}));
}

program::Model resnet(const ResnetShape& shape, const ModelOptions& options) {
  Builder net(options.seed);
  ValueId x = net.input("x", {options.channels, options.height, options.width});
  x = stem(net, x, options.height <= 32 && options.width <= 32, options.norm);
  for (int64_t stage = 0; stage < 4; ++stage) {
    for (int64_t block = 0; block < shape.blocks[stage]; ++block) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, block);
      const int64_t out = (shape.bottleneck ? kExpansion : 1) * (64 << stage);
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      const auto make = shape.bottleneck ? bottleneck : basic_block;
      x = make(net, name, x, {.out = out, .middle = shape.base_width << stage, .stride = stride, .norm = options.norm});
    }
  }
  x = net.flatten(net.adaptive_avg_pool2d(x, {1, 1}));
  return std::move(net).finish(net.linear("fc", x, {.out = options.classes}));
}

}  // namespace prunex::models
