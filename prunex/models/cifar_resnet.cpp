#include "prunex/models/cifar_resnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "prunex/models/residual.h"

namespace prunex::models {

program::Model cifar_resnet(int64_t blocks, const ModelOptions& options) {
  program::Builder net(options.seed);
  const auto scaled = [&](int64_t channels) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(channels) * options.multiplier));
  };
  program::ValueId x = net.input("x", {options.channels, options.height, options.width});
  x = net.conv2d("conv1", x, {.out = scaled(16), .kernel = 3, .padding = 1});
  x = net.relu_(net.batch_norm("bn1", x));
  for (int64_t stage = 0; stage < 3; ++stage) {
    for (int64_t block = 0; block < blocks; ++block) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, block);
      x = basic_block(net, name, x, {.out = scaled(16 << stage), .stride = stage > 0 && block == 0 ? 2 : 1});
    }
  }
  x = net.flatten(net.adaptive_avg_pool2d(x, {1, 1}));
  return std::move(net).finish(net.linear("fc", x, {.out = options.classes}));
}

}  // namespace prunex::models
