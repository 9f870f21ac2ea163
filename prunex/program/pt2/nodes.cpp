#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "prunex/program/operations.h"
#include "prunex/program/pt2/format.h"

namespace prunex::program {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_target(const std::string& why) {
  throw std::invalid_argument(why);
}

// Checks of what tracing assumed; run() checks its inputs itself.
bool is_assertion(const std::string& target) {
  return target.starts_with("torch.ops.aten._assert_") || target.starts_with("torch.ops.aten.sym_constrain_range");
}

// Arithmetic on sizes: may be left out when nothing needs it.
bool is_symbolic(const std::string& target) {
  return target.starts_with("_operator.") || target.starts_with("torch.sym_") || target.starts_with("math.") ||
         target.starts_with("torch.ops.aten.sym_");
}

void collect_names(const json& item, std::unordered_set<std::string>& names) {
  if (item.is_object()) {
    for (const auto* key : {"name", "as_name"}) {
      if (item.contains(key) && item[key].is_string()) names.insert(item[key].get<std::string>());
    }
  }
  if (!item.is_structured()) return;
  for (const auto& child : item) collect_names(child, names);
}

}  // namespace

std::vector<const json*> needed_nodes(const json& graph) {
  std::unordered_set<std::string> needed;
  collect_names(graph.at("outputs"), needed);
  std::vector<const json*> kept;
  const auto& nodes = graph.at("nodes");
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const auto target = node->at("target").get<std::string>();
    if (is_assertion(target)) continue;
    std::unordered_set<std::string> outputs;
    collect_names(node->at("outputs"), outputs);
    const auto is_needed = [&](const std::string& name) { return needed.contains(name); };
    if (is_symbolic(target) && std::none_of(outputs.begin(), outputs.end(), is_needed)) continue;
    for (const auto& input : node->at("inputs")) collect_names(input.at("arg"), needed);
    kept.push_back(&*node);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

std::string read_target(const std::string& target) {
  constexpr std::string_view kOperations = "torch.ops.", kHigherOrder = "torch.ops.higher_order.";
  static const std::unordered_map<std::string, std::string> on_sizes{{"_operator.mul", "sym::mul"},
                                                                     {"_operator.add", "sym::add"},
                                                                     {"_operator.sub", "sym::sub"},
                                                                     {"_operator.floordiv", "sym::floordiv"}};
  if (const auto known = on_sizes.find(target); known != on_sizes.end()) return known->second;
  if (target.starts_with(kHigherOrder)) {
    refuse_target(fmt::format("node '{}' holds a graph of its own: control flow is not supported", target));
  }
  if (!target.starts_with(kOperations)) refuse_target(fmt::format("node '{}' is not supported", target));
  const auto name = target.substr(kOperations.size());
  const auto space = name.find('.'), overload = name.rfind('.');
  if (space == overload) refuse_target(fmt::format("node '{}' has no overload", target));
  auto result = name.substr(0, space) + "::" + name.substr(space + 1, overload - space - 1);
  const auto suffix = name.substr(overload + 1);
  return name_of_row(suffix == "default" ? result : result + "." + suffix);
}

}  // namespace prunex::program
