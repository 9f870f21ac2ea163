// TOML from files: one reader, errors with file and line.
#pragma once

// Some of its assertions do not hold for every text, "[=" for one; what comes behind them refuses it.
#ifndef TOML_ASSERT
#define TOML_ASSERT(expr) static_assert(true)
#endif
#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace prunex::text {

/// Throws std::invalid_argument, "SOURCE:LINE: what is wrong". A byte order mark is passed over.
toml::table parse_toml(std::string_view text, const std::string& source);

/// A word, a number, true or false as TOML writes it, in one line.
std::string toml_text(const toml::node& value);

}  // namespace prunex::text
