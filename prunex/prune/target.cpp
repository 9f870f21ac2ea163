#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "prunex/prune/plan.h"
#include "prunex/sparsity/projection.h"

namespace prunex::prune {
namespace {

void require(bool fine, const std::string& option, double value, const char* wanted) {
  if (!fine) throw std::invalid_argument(fmt::format("{} {}: wanted {}", option, value, wanted));
}

/// A share up to 1 of what there is, else a count below that.
int64_t count_of(const std::string& option, double value, int64_t whole) {
  require(value > 0 && value < 1e18, option, value, "a share in (0, 1] of what there is, or a count");
  if (value > 1 && value >= static_cast<double>(whole)) {
    throw std::invalid_argument(
        fmt::format("{} {}: the network has {} and meets it as it is: wanted fewer", option, value, whole));
  }
  return static_cast<int64_t>(value <= 1 ? std::floor(value * static_cast<double>(whole)) : value);
}

}  // namespace

Target target_named(const std::string& option, const std::string& name, double value, const Planner& planner) {
  const Cost& cost = planner.cost();
  const auto all = all_units(planner.groups());
  if (name == "ratio") {
    require(value >= 0 && value <= 1, option, value, "a share of units in [0, 1]");
    return {.kind = Target::Kind::kRatio, .share = value};
  }
  if (name == "parameters") {
    return {.kind = Target::Kind::kParameters, .count = count_of(option, value, cost.parameters(all))};
  }
  const bool of_macs = name == "macs" || name == "speed-up";
  if (of_macs && cost.macs(all) == 0) {
    throw std::invalid_argument(fmt::format("{}: the network has no multiply-accumulates with parameters", option));
  }
  if (name == "macs") return {.kind = Target::Kind::kMacs, .count = count_of(option, value, cost.macs(all))};
  if (name != "speed-up") {
    throw std::invalid_argument(fmt::format("{}: got '{}', wanted ratio, macs, parameters or speed-up", option, name));
  }
  require(value >= 1, option, value, "1 or more");
  return {.kind = Target::Kind::kMacs, .count = static_cast<int64_t>(static_cast<double>(cost.macs(all)) / value)};
}

void expect_in_reach(const std::string& option, const Planner& planner, const std::vector<UnitScores>& scores,
                     const Target& target) {
  try {
    planner.plan(sparsity::full_masks(planner.groups()), scores, target);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", option, error.what()));
  }
}

}  // namespace prunex::prune
