#include "prunex/models/resnet.h"

#include <fmt/format.h>

#include "prunex/models/residual.h"

namespace prunex::models {
namespace {

using program::Builder;
using program::ValueId;

constexpr int64_t kExpansion = 4;  // of a bottleneck's output over 64 << stage

ValueId stem(Builder& net, ValueId x, bool small) {
  const program::ConvOptions large{.out = 64, .kernel = 7, .stride = 2, .padding = 3};
  x = net.conv2d("conv1", x, small ? program::ConvOptions{.out = 64, .kernel = 3, .padding = 1} : large);
  x = net.relu_(net.batch_norm("bn1", x));
  return small ? x : net.max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1});
}

}  // namespace

program::Model resnet(const ResnetShape& shape, const ModelOptions& options) {
  Builder net(options.seed);
  ValueId x = net.input("x", {options.channels, options.height, options.width});
  x = stem(net, x, options.height <= 32 && options.width <= 32);
  for (int64_t stage = 0; stage < 4; ++stage) {
    for (int64_t block = 0; block < shape.blocks[stage]; ++block) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, block);
      const int64_t out = (shape.bottleneck ? kExpansion : 1) * (64 << stage);
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      const auto make = shape.bottleneck ? bottleneck : basic_block;
      x = make(net, name, x, {.out = out, .middle = shape.base_width << stage, .stride = stride});
    }
  }
  x = net.flatten(net.adaptive_avg_pool2d(x, {1, 1}));
  return std::move(net).finish(net.linear("fc", x, {.out = options.classes}));
}

}  // namespace prunex::models
