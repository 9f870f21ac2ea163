// The fenced blocks of a Markdown file.
#pragma once

#include <string>
#include <vector>

namespace prunex::readme {

struct Block {
  std::string language;  ///< behind the opening fence; empty: commands
  std::string text;
};

/// In the order of the file.
std::vector<Block> blocks_of(const std::string& markdown);

/// What stands between single backticks outside the blocks.
std::vector<std::string> code_spans_of(const std::string& markdown);

/// The first cells of the table under a heading, without backticks.
std::vector<std::string> first_column(const std::string& markdown, const std::string& heading);

/// `text` with every `from` replaced; std::runtime_error if there is none.
std::string replaced(std::string text, const std::string& from, const std::string& to);

}  // namespace prunex::readme
