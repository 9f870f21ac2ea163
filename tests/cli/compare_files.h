// Files of prunex compare for tiny runs, and what it makes of them.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "tests/scratch.h"

namespace prunex::cli {

inline const std::string kTiny = R"([common]
dataset = "synthetic"
samples = 200
test-limit = 40
model = "resnet8"
nodes = 2
batch-size = 10
local-steps = 2
)";
inline const std::string kCommon = kTiny + "groups = \"none\"\nkappa = 0\n";

inline void write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

inline nlohmann::json record(const tests::Scratch& scratch) {
  std::ifstream file(scratch / "out/compare.json");
  return nlohmann::json::parse(file);
}

inline Result compare(const tests::Scratch& scratch, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"compare", "c.toml", "--output", "out", "--dirty"});
  return run(scratch.path(), more);
}

}  // namespace prunex::cli
