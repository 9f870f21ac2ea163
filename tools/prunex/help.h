// --help: what people use, and examples; --help-all: every option, by topic.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace prunex::tools {

inline constexpr size_t kTerminalWidth = 100;

/// Breaks between words so that lines fit; later lines begin with `indent` spaces, the first one has `used` columns
/// taken already. Without a newline at the end.
std::string wrap(std::string_view text, size_t used, size_t indent, size_t width = kTerminalWidth);

/// At most `width` characters, with "…" where the middle of a longer text was.
std::string shorten(const std::string& text, size_t width);

/// Gives the application, and the commands that are added later, both flags and lines that fit a terminal.
void use_help(CLI::App& app);

/// Lets --help of the command show these options only, which --help-all shows with the others.
void show_first(CLI::App& command, const std::vector<std::string>& options);

/// An option as help and the manual page write it.
struct OptionText {
  std::string heading;  ///< "--lr FLOAT=0.1", "-n,--iterations INT=10"
  std::string description;
};
OptionText text_of(const CLI::Option& option);

/// Words that the option may be, as one_of() was told; "FILE…" stands for a file.
std::vector<std::string> words_of(const CLI::Option& option);

}  // namespace prunex::tools
