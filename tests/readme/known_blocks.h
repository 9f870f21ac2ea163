// Every block of commands in README and docs, and what is changed in it to run in seconds on one machine.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace prunex::readme {

struct KnownBlock {
  std::string file;   ///< README.md, docs/use.md
  std::string start;  ///< what the block begins with
  std::vector<std::pair<std::string, std::string>> changes{};
  std::vector<std::string> prints{};  ///< in standard output, among other things
  std::string why_not{};              ///< the block is not run
};

/// In the order in which they are run, in one folder, each with what those before have left.
const std::vector<KnownBlock>& known_blocks();

/// Commands within sentences of README and docs/use.md, by what they begin with; nothing else there begins with
/// "prunex ".
const std::vector<KnownBlock>& known_spans();

}  // namespace prunex::readme
