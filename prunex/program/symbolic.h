// Symbolic sizes as torch.export writes them: "Mul(Integer(12), Symbol('s0', positive=True, integer=True))".
#pragma once

#include <optional>
#include <string>

#include "prunex/program/program.h"

namespace prunex::program {

/// The name in "Symbol('s0', …)"; none if `expression` is anything else.
std::optional<std::string> symbol_name(const std::string& expression);

/// The extent that `expression` stands for when the batch is called `batch`; none if it is neither a number nor a
/// multiple of the batch, or holds another symbol or an unknown function.
std::optional<Extent> parse_extent(const std::string& expression, const std::string& batch);

}  // namespace prunex::program
