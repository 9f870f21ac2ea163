// Runs whose ranks know a secret.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/command.h"
#include "tests/listening.h"
#include "tests/scratch.h"

namespace prunex::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kSecret = "9f2c1d7e-nobody-guesses-this";

class PrivateLinks : public testing::Test {
 protected:
  static std::vector<std::string> training(std::vector<std::string> more) {
    std::vector<std::string> words = {"train", "--samples",   "80", "--model",       "resnet8", "--batch-size",
                                      "4",     "--exchanges", "2",  "--local-steps", "1",       "--test-limit",
                                      "10",    "--run-dir",   "run"};
    words.insert(words.end(), more.begin(), more.end());
    return prunex(words);
  }

  /// One rank of two, by the variables of a launcher.
  std::vector<std::string> rank(int rank, int port, const std::vector<std::string>& more) {
    auto rest = more;
    rest.insert(rest.begin(), {"--nodes", "2", "--join-timeout", "3"});
    return as_rank(rank, 2, port, training(rest));
  }

  const tests::Scratch scratch_;
};

/// The files below the folder that hold the text.
std::vector<std::string> files_with(const std::string& folder, const std::string& text) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path());
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    if (all.find(text) != std::string::npos) found.push_back(entry.path().filename());
  }
  return found;
}

TEST_F(PrivateLinks, TrainAndLeaveTheSecretNowhereButInItsFile) {
  const auto file = write_secret(scratch_ / "key", kSecret);
  const auto words = training({"--nodes", "2", "--ranks-per-node", "2", "--secret-file", file});
  const Result result = run_program(scratch_.path(), words);
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(files_with(scratch_.path(), kSecret), testing::ElementsAre("key"));
  EXPECT_THAT(result.output + result.errors, Not(HasSubstr(kSecret)));
}

TEST_F(PrivateLinks, OfRanksWithAnotherSecretAreRefused) {
  const int port = tests::free_port(20'000);
  Running first(scratch_.path(), rank(0, port, {"--secret-file", write_secret(scratch_ / "ours", kSecret)}));
  const Result second =
      run_program(scratch_.path(), rank(1, port, {"--secret-file", write_secret(scratch_ / "theirs", kSecret + "!")}));
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.errors, HasSubstr("it has another secret; waiting for "));
  const Result result = first.finish();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors, HasSubstr("1 of 2 ranks joined within 3 s: missing rank 1"));
}

TEST_F(PrivateLinks, TakeTheSecretFromAFileOrFromTheVariable) {
  const int port = tests::free_port(20'000);
  auto second = rank(1, port, {"--join-timeout", "60"});
  second.insert(second.begin() + 1, "PRUNEX_SECRET=" + kSecret);
  const std::string ours = write_secret(scratch_ / "ours", kSecret);
  Running first(scratch_.path(), rank(0, port, {"--join-timeout", "60", "--secret-file", ours}));
  EXPECT_EQ(run_program(scratch_.path(), second).status, 0);
  const Result result = first.finish();
  EXPECT_EQ(result.status, 0) << result.errors;
}

TEST_F(PrivateLinks, GiveTheSameResultEncrypted) {
  const auto file = write_secret(scratch_ / "key", kSecret);
  std::string weights;
  for (const auto& more : {std::vector<std::string>{}, {"--secret-file", file, "--encrypt"}}) {
    auto words = training(more);
    words.insert(words.end(), {"--nodes", "2", "--ranks-per-node", "2", "--no-shared-memory"});
    const Result result = run_program(scratch_.path(), words);
    ASSERT_EQ(result.status, 0) << result.errors;
    std::ifstream product(scratch_ / "run/model.safetensors", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(product), {}};
    EXPECT_FALSE(bytes.empty());
    EXPECT_EQ(bytes, weights.empty() ? bytes : weights);
    weights = bytes;
    std::filesystem::remove_all(scratch_ / "run");
  }
}

TEST_F(PrivateLinks, OutliveALostNode) {
  const auto file = write_secret(scratch_ / "key", kSecret);
  auto words = training({"--strategy", "local_sgd", "--nodes", "3", "--elastic", "--secret-file", file, "--encrypt"});
  words.insert(words.end(), {"--exchanges", "400", "--eval-every", "0"});
  Running training(scratch_.path(), words);
  ASSERT_TRUE(training.wait_for("exchange 3/"));
  kill(training.children().back(), SIGKILL);
  EXPECT_TRUE(training.wait_for("2 go on after"));
  kill(training.pid(), SIGTERM);
  training.finish();
}

TEST_F(PrivateLinks, AreRefusedByNameWhereTheSecretIsNone) {
  const auto refusal = [&](const std::vector<std::string>& more) {
    const Result result = run_program(scratch_.path(), training(more));
    EXPECT_EQ(result.status, 2);
    return result.errors;
  };
  EXPECT_THAT(refusal({"--nodes", "2", "--secret-file", write_secret(scratch_ / "open", kSecret, 0644)}),
              testing::AllOf(HasSubstr("prunex: --secret-file: " + scratch_.path() + "/open: mode 0644 lets others"),
                             Not(HasSubstr(kSecret))));
  EXPECT_THAT(refusal({"--nodes", "2", "--secret-file", write_secret(scratch_ / "short", "12345")}),
              HasSubstr("5 bytes"));
  EXPECT_THAT(refusal({"--nodes", "2", "--secret-file", "nowhere"}), HasSubstr("nowhere: No such file"));
  EXPECT_THAT(refusal({"--secret-file", write_secret(scratch_ / "ours", kSecret)}),
              HasSubstr("--secret-file: a single rank has no connections"));
  const Result elastic = run_program(  // whose other nodes may come later
      scratch_.path(), training({"--elastic", "--encrypt", "--check", "--secret-file", scratch_ / "ours"}));
  EXPECT_EQ(elastic.status, 0) << elastic.errors;
  EXPECT_THAT(refusal({"--nodes", "2", "--encrypt"}),
              HasSubstr("--encrypt: got no secret, wanted --secret-file or PRUNEX_SECRET"));
}

}  // namespace
}  // namespace prunex::cli
