// Words of strangers in our own lines, and what mistyped ones may have stood for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace prunex::text {

inline constexpr size_t kLongestPath = 4096;

/// As it is, but for control characters, which become \n or \xNN, and what is longer than some `most` bytes, which is
/// cut.
std::string one_line(std::string_view words, size_t most = 100);

/// As one word of a shell's command line, whatever the text holds.
std::string shell_word(std::string_view text);

/// Whether this is UTF-8, as JSON and TOML must be.
bool is_utf8(std::string_view words);

/// The candidate that few typing mistakes lead to `word` from, or the only one that begins with it; "" if there is
/// none. Upper and lower case are the same, and so are '-' and '_'.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);
/// To be appended to an error: "; did you mean 'epochs'?", or "" if no candidate is close.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace prunex::text
