// A table for a terminal.
#pragma once

#include <string>

#include "report/figure.h"

namespace prunex::report {

/// Columns side by side, words to the left, numbers to the right, as wide as their longest cell.
std::string to_text(const Table& table);

}  // namespace prunex::report
