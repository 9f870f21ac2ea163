// Command lines beside what a run was started with: what differs is refused before anything starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prunex/train/options.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/tools/in_process.h"

namespace prunex::tools {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// A folder with the configuration of a short run on few images.
class SavedRun : public testing::Test {
 protected:
  SavedRun() {
    train::TrainOptions options;
    options.model = "resnet8";
    options.data.samples = 40;
    options.batch_size = 10;
    options.exchanges = options.local_steps = 1;
    options.elastic = true;
    std::filesystem::create_directory(run_);
    tests::write_text(run_ + "/config.toml", train::describe(options).configuration());
  }

  const tests::Scratch scratch_;
  const std::string run_ = scratch_ / "run";
};

TEST_F(SavedRun, IsNotGoneOnWithNorJoinedWithOtherOptions) {
  for (const std::string option : {"--resume", "--join"}) {
    refused({"train", option, run_, "--lr", "3"}, {"--lr: got 3, the run in " + run_ + " had auto"});
    refused({"train", option, run_, "--lr", "3", "--check"}, {"--lr: got 3, the run in " + run_ + " had auto"});
  }
}

/// `after-freeze` is hsadmm's, so the run did not say it.
TEST_F(SavedRun, IsNotGoneOnWithByAnotherStrategy) {
  refused({"train", "--resume", run_, "--strategy", "top_k"},
          {"--strategy: got top_k, the run in " + run_ + " had hsadmm"});
}

/// Its configuration says the preset and all that this set.
TEST_F(SavedRun, OfAPresetIsGoneOnWith) {
  for (const std::string preset : {"paper", "slow-link"}) {
    train::TrainOptions options;
    text::OptionList list = train::describe(options);
    options.preset = preset;
    options.nodes = 2;
    options.exchanges = 4;
    options.quiet = true;
    train::apply_preset(list, options);
    tests::write_text(run_ + "/config.toml", list.configuration());
    refused({"train", "--resume", run_, "--check", "--quiet"}, {"--resume: no complete checkpoint in "});
    EXPECT_EQ(run({"train", "--config", run_ + "/config.toml", "--check", "--quiet"}).errors, "");
  }
}

TEST_F(SavedRun, HasItsOwnDirectory) {
  for (const std::string option : {"--resume", "--join"}) {
    refused({"train", option, run_, "--run-dir", scratch_ / "other"}, {"--run-dir: got ", option + " " + run_});
    const Result same = run({"train", option, run_, "--run-dir", run_ + "/", "--lr", "3"});
    EXPECT_NE(same.errors.find("--lr: got 3"), std::string::npos) << same.errors;
  }
}

TEST_F(SavedRun, IsCheckedForSomethingToGoOnFrom) {
  const Words check{"train", "--resume", run_, "--check"};
  refused(check, {"--resume: no complete checkpoint in " + run_ + "/checkpoint"});
  const std::string checkpoint = run_ + "/checkpoint/3";
  std::filesystem::create_directories(checkpoint);
  tests::write_text(checkpoint + "/z.safetensors", "");
  refused(check, {"--resume: no complete checkpoint in "});
  for (const char* name : {"/node-0.safetensors", "/rank-0.safetensors"}) tests::write_text(checkpoint + name, "");
  EXPECT_EQ(run(check).status, 0);
  EXPECT_EQ(run(with(check, {"--resume-exchange", "3"})).status, 0);
  refused(with(check, {"--resume-exchange", "2"}), {"--resume-exchange 2: no complete checkpoint"});
  std::filesystem::remove_all(checkpoint);
  tests::write_text(run_ + "/summary.json", "{}");
  refused(check, {"--resume: got " + run_ + ", a run that is finished"});
}

class Config : public testing::Test {
 protected:
  /// Of train, with a file of that text.
  Result of(const std::string& text, const Words& words = {}) {
    tests::write_text(scratch_ / "c.toml", text);
    return run(with({"train", "--dataset", "synthetic", "--config", scratch_ / "c.toml", "--check"}, words));
  }

 private:
  tests::Scratch scratch_;
};

TEST_F(Config, IsOverruledByWhatTheCommandLineSaysInOtherWords) {
  EXPECT_THAT(of("exchanges = 4\n").output, HasSubstr("200 steps"));
  EXPECT_THAT(of("exchanges = 4\n", {"--epochs", "2"}).output, HasSubstr("156 steps"));
  EXPECT_THAT(of("epochs = 3\n", {"--exchanges", "5"}).output, HasSubstr("250 steps"));
  EXPECT_THAT(of("warmup-epochs = 0.5\n", {"--warmup-steps", "5"}).errors, IsEmpty());
  EXPECT_THAT(of("prune-below = 0.001\n", {"--strategy", "diloco", "--prune-to", "macs=0.5"}).errors, IsEmpty());
}

/// Scripts append what they shorten runs by.
TEST_F(Config, OfEpochsAndExchangesHasTheExchanges) {
  EXPECT_THAT(of("epochs = 3\nexchanges = 4\n").output, HasSubstr("200 steps"));
  EXPECT_THAT(of("", {"--epochs", "10", "--exchanges", "4"}).output, HasSubstr("200 steps"));
}

TEST_F(Config, IsOneFile) {
  refused({"train", "--config", "a.toml", "--config", "b.toml"}, {"--config: got it 2 times, wanted it once"});
}

}  // namespace
}  // namespace prunex::tools
