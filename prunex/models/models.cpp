#include "prunex/models/models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

namespace prunex::models {
namespace {

struct Maker {
  std::function<program::Model(const ModelOptions&)> make;
  bool is_for_cifar = false;
};
using Stages = std::vector<std::vector<int64_t>>;

Maker cifar(int64_t blocks) {
  return {[blocks](const ModelOptions& options) { return cifar_resnet(blocks, options); }, true};
}

Maker imagenet(const ResnetShape& shape) {
  return {[shape](const ModelOptions& options) { return resnet(shape, options); }};
}

std::vector<std::pair<std::string, Maker>> makers() {
  const Stages vgg16{{64, 64}, {128, 128}, {256, 256, 256}, {512, 512, 512}, {512, 512, 512}};
  const Stages vgg19{{64, 64}, {128, 128}, {256, 256, 256, 256}, {512, 512, 512, 512}, {512, 512, 512, 512}};
  return {
      {"resnet8", cifar(1)},
      {"resnet20", cifar(3)},
      {"resnet56", cifar(9)},
      {"resnet18", imagenet({.blocks = {2, 2, 2, 2}, .bottleneck = false})},
      {"resnet50", imagenet({.blocks = {3, 4, 6, 3}})},
      {"resnet152", imagenet({.blocks = {3, 8, 36, 3}})},
      {"wide_resnet50_2", imagenet({.blocks = {3, 4, 6, 3}, .base_width = 128})},
      {"vgg16_bn", {[=](const ModelOptions& options) { return vgg(vgg16, options); }}},
      {"vgg19_bn", {[=](const ModelOptions& options) { return vgg(vgg19, options); }}},
      {"vgg19", {[=](const ModelOptions& options) { return cifar_vgg(vgg19, options); }, true}},
  };
}

void check(const std::string& name, const ModelOptions& o) {
  const auto require = [&](bool ok, const std::string& message) {
    if (!ok) throw std::invalid_argument(fmt::format("[models] {}: {}", name, message));
  };
  require(o.classes > 0, fmt::format("{} classes, wanted at least 1", o.classes));
  require(o.channels > 0 && o.height > 0 && o.width > 0,
          fmt::format("images of {}x{}x{}, wanted positive extents", o.channels, o.height, o.width));
  require(o.multiplier > 0 && o.multiplier <= 64, fmt::format("`width` {}, wanted a number in (0, 64]", o.multiplier));
  const bool scalable = is_for_cifar(name) && name.starts_with("resnet");
  require(scalable || o.multiplier == 1.0, fmt::format("`width` {} scales the CIFAR ResNets only", o.multiplier));
}

}  // namespace

int64_t norm_groups(int64_t channels) {
  constexpr int64_t kGroups = 32, kFewestChannels = 4;
  int64_t groups = std::clamp<int64_t>(channels / kFewestChannels, 1, kGroups);
  while (channels % groups != 0) --groups;
  return groups;
}

program::ValueId norm(program::Builder& net, const std::string& name, program::ValueId x, Norm kind) {
  return kind == Norm::kBatch ? net.batch_norm(name, x) : net.group_norm(name, x, norm_groups(net.shape(x)[1].factor));
}

program::Model make_model(const std::string& name, const ModelOptions& options) {
  for (const auto& [known, maker] : makers()) {
    if (known != name) continue;
    check(name, options);
    return maker.make(options);
  }
  throw std::invalid_argument(
      fmt::format("`model` {}: neither a .pt2 file nor one of {}", name, fmt::join(model_names(), ", ")));
}

bool is_for_cifar(const std::string& name) {
  const auto all = makers();
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& known) { return known.first == name && known.second.is_for_cifar; });
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : makers()) names.push_back(name);
  return names;
}

}  // namespace prunex::models
