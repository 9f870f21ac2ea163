// Files of prunex compare for tiny runs, and what it makes of them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/command.h"
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

/// What is said of a file that is refused before its first run begins.
inline std::string refusal(const tests::Scratch& scratch, const std::string& file, const std::string& first_run,
                           std::vector<std::string> more = {}) {
  write(scratch / "c.toml", file);
  const auto refused = compare(scratch, std::move(more));
  EXPECT_EQ(refused.status, 2);
  EXPECT_FALSE(std::filesystem::exists(scratch / ("out/" + first_run)));
  return refused.errors;
}

}  // namespace prunex::cli
