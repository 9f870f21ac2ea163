#include "prunex/prune/arguments.h"

#include <ATen/ATen.h>

namespace prunex::prune {

using program::Argument;
using program::kNoValue;
using program::Node;
using program::ValueId;

ValueId tensor(const Node& node, const std::string& argument) {
  const Argument* found = node.find(argument);
  return found == nullptr || found->values.empty() ? kNoValue : found->values[0];
}

int64_t integer(const Node& node, const std::string& argument, int64_t otherwise) {
  const Argument* found = node.find(argument);
  return found != nullptr && found->literal.isInt() ? found->literal.toInt() : otherwise;
}

bool boolean(const Node& node, const std::string& argument, bool otherwise) {
  const Argument* found = node.find(argument);
  return found != nullptr && found->literal.isBool() ? found->literal.toBool() : otherwise;
}

std::vector<int64_t> integers(const Node& node, const std::string& argument) {
  const Argument* found = node.find(argument);
  if (found == nullptr) return {};
  if (found->kind == Argument::Kind::kLiteral) {
    if (found->literal.isInt()) return {found->literal.toInt()};
    return found->literal.isIntList() ? found->literal.toIntVector() : std::vector<int64_t>{};
  }
  std::vector<int64_t> list;
  for (size_t i = 0; i < found->values.size(); ++i) {
    list.push_back(found->values[i] == kNoValue ? found->ints.at(i) : -1);
  }
  return list;
}

}  // namespace prunex::prune
