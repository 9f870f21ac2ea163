// What a mistyped word may have stood for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace prunex::tools {

/// The candidate that few typing mistakes lead to `word` from, or the only one that begins with it; "" if there is
/// none. Upper and lower case are the same, and so are '-' and '_'.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);

/// To be appended to an error: "; did you mean 'epochs'?", or "" if no candidate is close.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace prunex::tools
