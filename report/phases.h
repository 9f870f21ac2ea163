// The phases of an exchange in words.
#pragma once

#include <array>
#include <string_view>

namespace prunex::report {

/// A phase as the files of runs call it, and as a reader is told.
struct Phase {
  std::string_view name, words;
};

/// In the order in which they follow each other; a colour each. What has no row of its own is the last.
inline constexpr std::array<Phase, 7> kPhases{{{"local", "local steps"},
                                               {"intra", "sum in the node"},
                                               {"project", "node update and masks"},
                                               {"inter", "between nodes"},
                                               {"dual", "duals and residuals"},
                                               {"evaluate", "evaluation"},
                                               {"cut", "cut of the network, other"}}};

}  // namespace prunex::report
