#include "prunex/models/residual.h"

namespace prunex::models {
namespace {

using program::Builder;
using program::ValueId;

ValueId shortcut(Builder& net, const std::string& name, ValueId x, const BlockShape& block) {
  if (block.stride == 1 && net.shape(x)[1].factor == block.out) return x;
  x = net.conv2d(name + ".downsample.0", x, {.out = block.out, .kernel = 1, .stride = block.stride});
  return net.batch_norm(name + ".downsample.1", x);
}

}  // namespace

ValueId basic_block(Builder& net, const std::string& name, ValueId x, const BlockShape& block) {
  ValueId y = net.conv2d(name + ".conv1", x, {.out = block.out, .kernel = 3, .stride = block.stride, .padding = 1});
  y = net.relu_(net.batch_norm(name + ".bn1", y));
  y = net.conv2d(name + ".conv2", y, {.out = block.out, .kernel = 3, .padding = 1});
  y = net.batch_norm(name + ".bn2", y);
  return net.relu_(net.add_(y, shortcut(net, name, x, block)));
}

ValueId bottleneck(Builder& net, const std::string& name, ValueId x, const BlockShape& block) {
  ValueId y = net.conv2d(name + ".conv1", x, {.out = block.middle, .kernel = 1});
  y = net.relu_(net.batch_norm(name + ".bn1", y));
  y = net.conv2d(name + ".conv2", y, {.out = block.middle, .kernel = 3, .stride = block.stride, .padding = 1});
  y = net.relu_(net.batch_norm(name + ".bn2", y));
  y = net.conv2d(name + ".conv3", y, {.out = block.out, .kernel = 1});
  y = net.batch_norm(name + ".bn3", y);
  return net.relu_(net.add_(y, shortcut(net, name, x, block)));
}

}  // namespace prunex::models
