// Post-local SGD (arXiv 1808.07217): gradients averaged in every step at first, weights every H steps later.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "prunex/strategies/strategy.h"

namespace prunex::strategies {

/// `first` until it has reported `switch_after` exchanges, then what `make_second` makes of the weights as they are
/// then; its exchanges must count on from there. Groups, masks and their cut are the second one's. A run that goes on
/// after the switch needs the second one alone.
std::unique_ptr<Strategy> make_post_local(std::unique_ptr<Strategy> first,
                                          std::function<std::unique_ptr<Strategy>(Replica&)> make_second,
                                          Replica& replica, int64_t switch_after);

}  // namespace prunex::strategies
