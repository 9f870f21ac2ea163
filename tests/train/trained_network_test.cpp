// Runs that start from what another run left, with a step so small that weights stay: accuracy is the other run's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "prunex/train/prepare.h"
#include "prunex/train/trainer.h"
#include "tests/image_files.h"
#include "tests/scratch.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

constexpr double kStill = 1e-12;

/// 4 steps on two nodes, of images whose brightness tells their class.
class Trained {
 public:
  Trained() {
    tests::write_images(scratch_ / "train.safetensors", 64, 4);
    tests::write_images(scratch_ / "test.safetensors", 32, 4);
    TrainOptions options = run(4, "ddp");
    options.run_dir = *this / "trained";
    accuracy = run_to_end(options).accuracy;
  }
  TrainOptions run(int64_t exchanges, const std::string& strategy) const {
    TrainOptions options = tiny_run(64, exchanges);
    options.data.dataset = *this / "train.safetensors";
    options.data.test = *this / "test.safetensors";
    options.nodes = 2;
    options.strategy = strategy;
    return options;
  }
  std::string operator/(const std::string& name) const { return scratch_ / name; }

  double accuracy = 0;

 private:
  const tests::Scratch scratch_;
};

class FromATrainedNetwork : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { trained_ = std::make_unique<Trained>(); }
  static void TearDownTestSuite() { trained_.reset(); }

  /// Masks begin at the second of six exchanges and are final, and cut, at the fourth.
  TrainOptions pruning() const {
    TrainOptions options = trained_->run(6, GetParam());
    options.groups = "coupled-inner";
    options.budget = "macs=0.5";
    options.pruning.plan.scope = prune::Scope::kGlobal;
    options.eval_every = 1;
    options.learning_rate = kStill;
    options.run_dir = scratch_ / "pruned";
    return options;
  }
  void expect_pruned(const TrainOptions& options) const {
    const Summary summary = run_to_end(options);
    const auto lines = lines_of(options.run_dir);
    EXPECT_EQ(lines.at(0).at("mask_changes"), 0);
    EXPECT_DOUBLE_EQ(lines.at(0).at("accuracy"), trained_->accuracy);
    EXPECT_GT(lines.at(1).at("mask_changes"), 0);
    EXPECT_EQ(lines.at(3).at("frozen"), true);
    EXPECT_LE(2 * summary.macs_compact, summary.macs_dense);
    EXPECT_NEAR(summary.accuracy, summary.accuracy_compact, 2e-4);
  }

  static std::unique_ptr<Trained> trained_;
  const tests::Scratch scratch_;
};
std::unique_ptr<Trained> FromATrainedNetwork::trained_;

TEST_P(FromATrainedNetwork, PruningBeginsAtItsAccuracy) {
  EXPECT_GT(trained_->accuracy, 0.7);  // of four classes
  TrainOptions options = pruning();
  options.model = *trained_ / "trained/model.pt2";
  expect_pruned(options);
}

TEST_P(FromATrainedNetwork, ItsWeightsWillDo) {
  TrainOptions options = pruning();
  options.weights = *trained_ / "trained/model.safetensors";
  expect_pruned(options);
}

TEST_P(FromATrainedNetwork, NothingOfItsFileIsFrozen) {
  TrainOptions options = pruning();
  options.model = *trained_ / "trained/model.pt2";
  EXPECT_THAT(check(options).remarks, testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Strategies, FromATrainedNetwork, testing::Values("hsadmm", "diloco"));

}  // namespace
}  // namespace prunex::train
