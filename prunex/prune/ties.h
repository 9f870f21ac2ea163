// Ties that several rules make.
#pragma once

#include <vector>

#include "prunex/prune/axes.h"

namespace prunex::prune {

/// Position p of every block of `block` positions lives and dies with position p of the first.
void tie_equal_positions(Axes& axes, const Labels& labels, int64_t block);

/// Ties what broadcasting joins on one axis of the result, counted from the back; operands of extent 1 are copied and
/// tie nothing. Returns the labels of the result.
Labels broadcast(Axes& axes, const std::vector<program::ValueId>& operands, program::ValueId output, int64_t axis);

/// `length` positions from `start`, every `step`-th.
Labels range(const Labels& labels, int64_t start, int64_t length, int64_t step = 1);

}  // namespace prunex::prune
