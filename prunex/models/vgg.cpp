#include "prunex/models/vgg.h"

#include <fmt/format.h>

#include "prunex/program/builder.h"

namespace prunex::models {
namespace {

using program::Builder;
using program::ValueId;

/// Names count every layer of the feature sequence: convolution, batch norm, relu, pool.
ValueId features(Builder& net, ValueId x, const std::vector<std::vector<int64_t>>& stages) {
  int index = 0;
  for (const std::vector<int64_t>& stage : stages) {
    for (int64_t channels : stage) {
      x = net.conv2d(fmt::format("features.{}", index), x, {.out = channels, .kernel = 3, .padding = 1, .bias = true});
      x = net.relu_(net.batch_norm(fmt::format("features.{}", index + 1), x));
      index += 3;
    }
    x = net.max_pool2d(x, {});
    index += 1;
  }
  return x;
}

/// Names count the layers of each stage: convolution, batch norm, relu.
ValueId stage(Builder& net, ValueId x, const std::string& name, const std::vector<int64_t>& widths) {
  int index = 0;
  for (int64_t channels : widths) {
    x = net.conv2d(fmt::format("{}.{}", name, index), x, {.out = channels, .kernel = 3, .padding = 1, .bias = true});
    x = net.relu_(net.batch_norm(fmt::format("{}.{}", name, index + 1), x));
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
  x = net.flatten(net.adaptive_avg_pool2d(features(net, x, stages), {7, 7}));
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
    x = stage(net, x, fmt::format("block{}", i), stages[i]);
    const bool pools = i + 2 < stages.size() || (i + 2 == stages.size() && options.height >= kLargeImage);
    if (pools) x = net.max_pool2d(x, {});
  }
  x = net.flatten(net.adaptive_avg_pool2d(x, {1, 1}));
  return std::move(net).finish(net.linear("classifier", x, {.out = options.classes, .normal = kLinearStd}));
}

}  // namespace prunex::models
