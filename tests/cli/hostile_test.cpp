// A program that writes to a file of its sender's choice: every command that reads programs refuses it untouched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "tests/cli/command.h"
#include "tests/scratch.h"

namespace prunex::cli {
namespace {

const std::string kModel = PRUNEX_TEST_DATA "/pt2/from_file.pt2";
const std::string kVictim(64, 'v');

class Guest : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Guest, IsRefusedBeforeItWrites) {
  const tests::Scratch scratch;
  std::ofstream(scratch / "victim") << kVictim;
  auto words = GetParam();
  words.insert(words.end(), {"--model", kModel});
  const Result result = run(scratch.path(), words);
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
  EXPECT_THAT(result.errors,
              testing::HasSubstr(kModel + ": node opened (torch.ops.aten.from_file.default): is not among"));
  std::ifstream victim(scratch / "victim");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(victim), {}), kVictim);
}

INSTANTIATE_TEST_SUITE_P(Commands, Guest,
                         testing::Values(std::vector<std::string>{"predict", "--input", "victim", "--output", "out"},
                                         std::vector<std::string>{"eval", "--samples", "40"},
                                         std::vector<std::string>{"graph"},
                                         std::vector<std::string>{"prune", "--ratio", "0.5", "--output", "out"},
                                         std::vector<std::string>{"train", "--quiet", "--samples", "40", "--exchanges",
                                                                  "1", "--local-steps", "1"}),
                         [](const auto& info) { return info.param[0]; });

}  // namespace
}  // namespace prunex::cli
