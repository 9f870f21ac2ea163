// Evaluations on the device: the CPU's scores and statistics, which the host waits for once.
#include "prunex/train/batch_statistics.h"
#include "prunex/train/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "prunex/data/partition.h"
#include "prunex/train/device.h"
#include "prunex/train/images/answers.h"
#include "tests/device/pretend_device.h"
#include "tests/device/same_bits.h"
#include "tests/train/small_network.h"

namespace prunex::train {
namespace {

class EvaluationOnDevice : public testing::Test {
 protected:
  EvaluationOnDevice() { at::set_num_threads(1); }

  const data::Dataset images_ = noise_images(600);  // more than two batches
  const program::Model here_ = small_network(), there_ = on_device(small_network(), tests::pretend_device());
};

TEST_F(EvaluationOnDevice, HasTheCpusScoreAndReadsItOnce) {
  const Evaluation here = evaluate(here_.program, here_.weights, images_);
  const tests::HostTraffic before = tests::host_traffic();
  const Evaluation there = evaluate(there_.program, there_.weights, images_);
  EXPECT_EQ((tests::host_traffic() - before).reads, 1);
  EXPECT_EQ(there.accuracy, here.accuracy);
  EXPECT_EQ(there.loss, here.loss);
  EXPECT_EQ(there.correct_by_class, here.correct_by_class);
  EXPECT_EQ(there.images_by_class, here.images_by_class);
  for (size_t label = 0; label < here.images_by_class.size(); ++label) {
    EXPECT_EQ(here.images_by_class[label], data::class_counts(images_)[label]);
  }
}

TEST_F(EvaluationOnDevice, HasTheCpusAnswers) {
  const Answers here = answers(here_.program, here_.weights, images_);
  const Answers there = answers(there_.program, there_.weights, images_);
  EXPECT_EQ(answers_json(there, images_), answers_json(here, images_));
}

TEST_F(EvaluationOnDevice, IsTimedUntilTheResultIsThere) {
  const tests::HostTraffic before = tests::host_traffic();
  EXPECT_GT(milliseconds_per_batch(there_, 8), 0);
  EXPECT_GE((tests::host_traffic() - before).reads, 9) << "one per run that is timed";
}

TEST_F(EvaluationOnDevice, HasTheCpusStatisticsAndReadsNothing) {
  const auto world = comm::make_solo("world");
  const Weights here = with_estimated_statistics(here_.program, here_.weights, images_, *world);
  const tests::HostTraffic before = tests::host_traffic();
  const Weights there = with_estimated_statistics(there_.program, there_.weights, images_, *world);
  EXPECT_EQ((tests::host_traffic() - before).reads, 0);
  tests::expect_same_bits(here.buffers, there.buffers);
}

}  // namespace
}  // namespace prunex::train
