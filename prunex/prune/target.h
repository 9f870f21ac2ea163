// Targets by name: what commands and training runs are told.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prunex/prune/plan.h"

namespace prunex::prune {

/// "ratio": a share of the units; "macs", "parameters": a share up to 1 of what there is, or a count; "speed-up":
/// multiply-accumulates before over those after. Another name or a value out of range is a std::invalid_argument that
/// begins with `option`, as in "--macs".
Target target_named(const std::string& option, const std::string& name, double value, const Planner& planner);

/// OutOfReach as std::invalid_argument that begins with `option`, if even equal scores, 1 for units that may go, cannot
/// meet the target: said before training, not after it.
void expect_in_reach(const std::string& option, const Planner& planner, const std::vector<UnitScores>& scores,
                     const Target& target);

/// NAME=NUMBER, at the last '='; nothing if the text is not that.
std::optional<std::pair<std::string, double>> parse_assignment(const std::string& text);

}  // namespace prunex::prune
