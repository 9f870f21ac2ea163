#include <gtest/gtest.h>

#include "prunex/text/one_line.h"

namespace prunex::text {
namespace {

const std::vector<std::string> kOptions{"--epochs", "--local-steps", "--lr", "--lr-schedule", "--batch-size"};

TEST(DidYouMean, FindsWhatFewMistakesLeadFrom) {
  EXPECT_EQ(closest("--epoch", kOptions), "--epochs");
  EXPECT_EQ(closest("--ephocs", kOptions), "--epochs");
  EXPECT_EQ(closest("--batchsize", kOptions), "--batch-size");
  EXPECT_EQ(closest("--batch_size", kOptions), "--batch-size");
  EXPECT_EQ(closest("--Lr", kOptions), "--lr");
  EXPECT_EQ(closest("trian", {"train", "eval"}), "train");
}

TEST(DidYouMean, FindsTheOnlyOneThatBeginsSo) {
  EXPECT_EQ(closest("--loc", kOptions), "--local-steps");
  EXPECT_EQ(closest("--l", {"--local-steps", "--long-run"}), "");
}

TEST(DidYouMean, SaysNothingOfWhatIsFar) {
  EXPECT_EQ(closest("--momentum", kOptions), "");
  EXPECT_EQ(closest("", kOptions), "");
  EXPECT_EQ(closest("--", kOptions), "");
  EXPECT_EQ(closest(std::string(100'000, 'x'), kOptions), "");
  EXPECT_EQ(did_you_mean("--momentum", kOptions), "");
  EXPECT_EQ(did_you_mean("--epoch", kOptions), "; did you mean '--epochs'?");
}

TEST(ShellWord, IsOneWhateverItHolds) {
  EXPECT_EQ(shell_word("runs/a-1.pt2"), "runs/a-1.pt2");
  EXPECT_EQ(shell_word("$(touch x)"), "'$(touch x)'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace prunex::text
