// A table for a terminal.
#pragma once

#include <string>

#include "report/table.h"

namespace prunex::report {

/// Columns side by side, words to the left, numbers to the right, as wide as their longest cell; names of columns are
/// broken at spaces. Empty columns are left out, and so that lines have at most `width` characters: columns that are
/// details, then further ones from the right, at last the ends of the first column's words.
std::string to_text(const Table& table, size_t width);

}  // namespace prunex::report
