#include <fmt/format.h>

#include "prunex/models/models.h"
#include "prunex/program/builder.h"

namespace prunex::models {
namespace {

using program::Builder;
using program::ValueId;

/// 3x3 convolutions with a norm and relu. Names count every layer of a sequence, from `index` on.
ValueId stage(Builder& net, ValueId x, const std::string& name, const std::vector<int64_t>& widths, Norm kind,
              int index = 0) {
  for (int64_t channels : widths) {
    x = net.conv2d(fmt::format("{}.{}", name, index), x, {.out = channels, .kernel = 3, .padding = 1, .bias = true});
    x = net.relu_(norm(net, fmt::format("{}.{}", name, index + 1), x, kind));
    index += 3;
  }
  return x;
}

constexpr int64_t kHidden = 4096;
constexpr double kLinearStd = 0.01;
constexpr double kDropout = 0.5;

}  // namespace

program::Model vgg(const std::vector<std::vector<int64_t>>& stages, const ModelOptions& options) {
  Builder net(options.seed);
  ValueId x = net.input("x", {options.channels, options.height, options.width});
  int index = 0;
  for (const auto& widths : stages) {
    x = net.max_pool2d(stage(net, x, "features", widths, options.norm, index), {});
    index += 3 * static_cast<int>(widths.size()) + 1;
  }
  x = net.flatten(net.adaptive_avg_pool2d(x, {7, 7}));
  for (const char* name : {"classifier.0", "classifier.3"}) {
    x = net.relu_(net.linear(name, x, {.out = kHidden, .normal = kLinearStd}));
    x = net.dropout(x, kDropout);
  }
  return std::move(net).finish(net.linear("classifier.6", x, {.out = options.classes, .normal = kLinearStd}));
}

program::Model cifar_vgg(const std::vector<std::vector<int64_t>>& stages, const ModelOptions& options) {
  constexpr int64_t kLargeImage = 64;
  Builder net(options.seed);
  ValueId x = net.input("x", {options.channels, options.height, options.width});
  for (size_t i = 0; i < stages.size(); ++i) {
    x = stage(net, x, fmt::format("block{}", i), stages[i], options.norm);
    const bool pools = i + 2 < stages.size() || (i + 2 == stages.size() && options.height >= kLargeImage);
    if (pools) x = net.max_pool2d(x, {});
  }
  x = net.flatten(net.adaptive_avg_pool2d(x, {1, 1}));
  return std::move(net).finish(net.linear("classifier", x, {.out = options.classes, .normal = kLinearStd}));
}

}  // namespace prunex::models
