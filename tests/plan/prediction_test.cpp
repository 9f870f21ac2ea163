// Predictions worked out by hand from the formulas of docs/plan.md.
#include "plan/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "tests/plan/recorded_runs.h"

namespace prunex::plan {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kAll = std::numeric_limits<double>::infinity();

/// 80 Mbit/s, all of it for data: 10 MB/s; 1 ms.
Cluster cluster_of(int nodes, int ranks_per_node = 1) {
  return {.nodes = nodes, .ranks_per_node = ranks_per_node, .link = {80}, .latency = 1, .goodput = 1};
}

struct Taken {
  explicit Taken(report::Run run) : runs{std::move(run)}, recorded(take_apart(tests::variant_of(runs))) {}
  Prediction on(const Cluster& cluster, double images = kAll) const {
    return with(as_recorded(recorded), cluster, images);
  }
  Prediction with(const Setting& setting, const Cluster& cluster, double images = kAll) const {
    return predict(recorded, recorded.seeds.front(), setting, cluster, *make_closed_form(cluster), images);
  }
  std::vector<report::Run> runs;
  Recorded recorded;
};

TEST(Recorded, IsWhatAnExchangeSumsUpAndAStepTakes) {
  const Taken taken(tests::recorded_run("diloco"));
  const auto& recorded = taken.recorded;
  EXPECT_EQ(recorded.batch, 8);
  EXPECT_EQ(recorded.local_steps, 10);
  EXPECT_EQ(recorded.statistics, 500'000);
  EXPECT_EQ(recorded.images_per_epoch, 320);
  ASSERT_EQ(recorded.seeds.front().stretches.size(), 4);
  EXPECT_DOUBLE_EQ(recorded.seeds.front().stretches[0].reduced, 8e6);
  EXPECT_DOUBLE_EQ(recorded.seeds.front().stretches.front().step_seconds, 2);
  EXPECT_DOUBLE_EQ(recorded.seeds.front().stretches.back().step_seconds, 1);
  EXPECT_EQ(images_to(recorded, 0.65), 480);
  EXPECT_EQ(images_to(recorded, 0.9), std::nullopt);
  EXPECT_DOUBLE_EQ(best_accuracy(recorded), 0.8);
}

TEST(Recorded, SeedsOfOtherNumbersOfImagesMeetAtTheirExchangesAndEnds) {
  std::vector<report::Run> runs{tests::recorded_run("diloco"), tests::recorded_run("diloco")};
  for (auto& exchange : runs[1].exchanges) exchange.samples -= 8;  // a node was late
  runs[1].summary->samples -= 16;
  runs[1].summary->accuracy = 0.9;
  runs[1].options["seed"] = "1";
  const Recorded recorded = take_apart(tests::variant_of(runs));
  ASSERT_EQ(recorded.seeds.size(), 2);
  EXPECT_EQ(images_to(recorded, 0.65), 476);
  EXPECT_EQ(images_to(recorded, 0.85), 632);
  EXPECT_DOUBLE_EQ(best_accuracy(recorded), 0.85);
}

TEST(Recorded, EpochsOfAllPhasesAreEpochs) {
  auto run = tests::recorded_run("ddp");
  run.options["sparse-epochs"] = "1";
  run.options["finetune-epochs"] = "1.5";
  EXPECT_DOUBLE_EQ(Taken(run).recorded.images_per_epoch.value(), 640 / 4.5);
  run.options.erase("epochs");  // of a comparison's record, which has no defaults
  EXPECT_EQ(Taken(run).recorded.images_per_epoch, std::nullopt);
}

// 4 nodes: half the steps of 2, so half the exchanges; each sends 2 * 3/4 of 8 MB over 10 MB/s in 6 messages of 1 ms.
TEST(Prediction, OfWeightsIsLocalStepsWorkAndWire) {
  const Taken taken(tests::recorded_run("diloco"));
  const Prediction there = taken.on(cluster_of(4));
  EXPECT_DOUBLE_EQ(there.steps, 20);
  EXPECT_DOUBLE_EQ(there.exchanges, 2);
  EXPECT_NEAR(there.compute, 10 * 2 + 10 * 1, 1e-9);
  EXPECT_NEAR(there.wire, 2 * (1.2 + 0.006), 1e-9);
  EXPECT_NEAR(there.seconds, 30 + 2 * 0.5 + 2 * 1.206, 1e-9);
  EXPECT_NEAR(there.node_bytes, 2 * 12e6, 1e-3);
}

TEST(Prediction, WhereItRanIsItsOwnBytes) {
  const Taken taken(tests::recorded_run("diloco"));
  EXPECT_NEAR(taken.on(cluster_of(2)).node_bytes, static_cast<double>(taken.runs.front().summary->inter_node_bytes),
              1e-3);
}

// Of the first 240 images 160 lie in the first stretch, 80 in the second: 15 steps of 2 s, one exchange and a half.
TEST(Prediction, OfTheBeginningCountsStretchesInPart) {
  const Taken taken(tests::recorded_run("diloco"));
  EXPECT_NEAR(taken.on(cluster_of(2), 240).seconds, 15 * 2 + 1.5 * (0.5 + 0.8 + 0.002), 1e-9);
}

TEST(Prediction, WaitsForTheSlowestNode) {
  const Taken taken(tests::recorded_run("diloco"));
  Cluster cluster = cluster_of(4);
  cluster.straggler = 1.5;
  EXPECT_NEAR(taken.on(cluster).seconds, 45 + 2 * 0.5 + 2 * 1.206, 1e-9);
  EXPECT_NEAR(taken.on(cluster).compute, 30, 1e-9);
  cluster.straggler = 1;
  cluster.link = {40, 80};
  EXPECT_NEAR(taken.on(cluster).wire, 2 * (2.4 + 0.006), 1e-9);
}

// Twice the interval: half the exchanges. Half the batch: twice the steps, each of half the time.
TEST(Prediction, TakesOtherIntervalsAndBatches) {
  const Taken taken(tests::recorded_run("diloco"));
  Setting setting = as_recorded(taken.recorded);
  setting.local_steps = 20;
  EXPECT_NEAR(taken.with(setting, cluster_of(4)).seconds, 30 + 1 * (0.5 + 1.206), 1e-9);
  setting.batch = 4;
  const Prediction there = taken.with(setting, cluster_of(4));
  EXPECT_NEAR(there.steps, 40, 1e-9);
  EXPECT_NEAR(there.seconds, 30 + 2 * (0.5 + 1.206), 1e-9);
}

// int2: 1 million weights in 1/4 + 1/64 byte each, half a million numbers with one dimension in 2 bytes; of 8 MB. From
// everyone to everyone twice, instead of 2(M-1) steps of a ring.
TEST(Prediction, TakesOtherPayloads) {
  const Taken taken(tests::recorded_run("diloco"));
  Setting setting = as_recorded(taken.recorded);
  setting.payload = "int2";
  const double bytes = 1e6 * (0.25 + 1.0 / 64) + 2 * 5e5;
  EXPECT_DOUBLE_EQ(*payload_ratio(taken.recorded, "int2"), bytes / 8e6);
  EXPECT_NEAR(taken.with(setting, cluster_of(4)).wire, 2 * (1.5 * bytes / 1e7 + 0.002), 1e-9);
  EXPECT_DOUBLE_EQ(*payload_ratio(taken.recorded, "bf16"), 3.0 / 8);
  setting.payload = "int3";
  EXPECT_THAT([&] { taken.with(setting, cluster_of(4)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("diloco has no payload int3")));
}

TEST(Prediction, TakesSecondsPerStepFromElsewhere) {
  const Taken taken(tests::recorded_run("diloco"));
  Setting setting = as_recorded(taken.recorded);
  setting.seconds_per_step = 0.2;  // a tenth: after the cut 0.1 s, and 0.05 s of work in an exchange
  EXPECT_NEAR(taken.with(setting, cluster_of(4)).seconds, 3 + 2 * (0.05 + 1.206), 1e-9);
  setting.batch = 16;  // 10 steps and one exchange, as long a step
  EXPECT_NEAR(taken.with(setting, cluster_of(4)).compute, 1.5, 1e-9);
}

/// A machine that was busy with one seed does not tell it from the other.
TEST(Prediction, OfEverySeedTakesSecondsPerStepFromElsewhere) {
  Taken taken(tests::recorded_run("diloco"));
  taken.recorded.seeds.push_back(taken.recorded.seeds.front());
  for (auto& stretch : taken.recorded.seeds.back().stretches) stretch.step_seconds *= 3;
  Setting setting = as_recorded(taken.recorded);
  setting.seconds_per_step = 0.2;
  const auto network = make_closed_form(cluster_of(4));
  for (const auto& seed : taken.recorded.seeds) {
    EXPECT_NEAR(predict(taken.recorded, seed, setting, cluster_of(4), *network, kAll).compute, 3, 1e-9);
  }
}

TEST(Prediction, CountsWhatExchangesTookBesideTheWireIfTold) {
  const Taken taken(tests::recorded_run("diloco"));
  Setting setting = as_recorded(taken.recorded);
  setting.counts_overhead = true;
  EXPECT_NEAR(taken.with(setting, cluster_of(4)).seconds, 30 + 2 * (0.5 + 99 + 1.206), 1e-9);
}

TEST(Prediction, OfGradientsIsAMessageInEveryStep) {
  const Taken taken(tests::recorded_run("ddp", true, 4e6));
  const Prediction there = taken.on(cluster_of(4));
  EXPECT_NEAR(there.wire, 20 * (0.6 + 0.006), 1e-9);
  EXPECT_NEAR(there.node_bytes, 20 * 6e6, 1e-3);
}

// 3 MiB in thirds, whole after 10/3, 14/3 and 6 of 6 s. In bytes per second of one node's link, 2(M-1)/M = 1 for M = 2:
// at 1 MiB/s each takes 1 s.
TEST(OverlappedStep, HidesAllButWhatComesLast) {
  const double mib = 1 << 20;
  const std::vector<report::Bucket> buckets{{1.0 / 3, 5.0 / 9}, {1.0 / 3, 7.0 / 9}, {1.0 / 3, 1}};
  Cluster cluster = cluster_of(2);
  cluster.latency = 0;
  cluster.link = {8 * mib / 1e6};
  EXPECT_NEAR(overlapped_step(6, 3 * mib, buckets, comm::Form::kSharded, *make_closed_form(cluster)), 7, 1e-9);
  // at a quarter of that the first waits for nothing, the others for the link
  cluster.link = {2 * mib / 1e6};
  const auto slow = make_closed_form(cluster);
  EXPECT_NEAR(overlapped_step(6, 3 * mib, buckets, comm::Form::kSharded, *slow), 2 + 4.0 / 3 + 12, 1e-9);
  EXPECT_DOUBLE_EQ(overlapped_step(6, 0, buckets, comm::Form::kSharded, *slow), 6);
}

report::Run recorded_ddp(std::vector<report::Bucket> buckets) {
  auto run = tests::recorded_run("ddp", true, 6e6);
  run.summary->overlap = 1;
  run.summary->buckets = std::move(buckets);
  return run;
}

// 20 steps of 2 s and 20 of 1 s, 6 MB over 10 MB/s: 5 of them leave after 0.7 of a step and travel for 0.5 s, so that
// the last one begins after 1.9 of 2 s, or 1.2 of 1 s, and ends 0.1 s later. It is whole when the step is.
TEST(Prediction, OfOverlappedGradientsWaitsForWhatTheRecordedBucketsLeave) {
  Cluster cluster = cluster_of(2);
  cluster.latency = 0;
  const Taken taken(recorded_ddp({{5e6, 0.7}, {1e6, 1}}));
  EXPECT_NEAR(taken.on(cluster).wire, 20 * 0.1 + 20 * (0.7 + 0.5 + 0.1 - 1), 1e-9);
  cluster.straggler = 2;  // steps of 4 and 2 s: the first bucket is there before the last is whole
  EXPECT_NEAR(taken.on(cluster).wire, 40 * 0.1, 1e-9);
}

// 1.5 million parameters: 1.048576 MB, and the rest in one bucket of up to 25 MiB, whole at the step's end.
TEST(Recorded, GradientsOfOlderRunsAppearEvenlyInTheBucketsOfDdp) {
  const Taken taken(recorded_ddp({}));
  const double first = (1 << 20) / 6e6;
  ASSERT_EQ(taken.recorded.buckets.size(), 2);
  EXPECT_NEAR(taken.recorded.buckets[0].bytes, first, 1e-12);
  EXPECT_NEAR(taken.recorded.buckets[0].ready, 1.0 / 3 + 2.0 / 3 * first, 1e-12);
  EXPECT_NEAR(taken.recorded.buckets[1].bytes, 1 - first, 1e-12);
  EXPECT_NEAR(taken.recorded.buckets[1].ready, 1, 1e-12);
  auto unknown = recorded_ddp({});
  unknown.summary->parameters_dense = 0;
  EXPECT_NEAR(Taken(std::move(unknown)).on(cluster_of(2)).wire, 40 * (0.6 + 0.002), 1e-9);
}

TEST(Prediction, OfOverlappedWeightsHidesTheWireBesideLocalSteps) {
  auto run = tests::recorded_run("diloco");
  run.summary->overlap = 0.05;  // of 10 steps of 2 s: 1 s; of 10 of 1 s: 0.5 s
  const Taken taken(std::move(run));
  EXPECT_NEAR(taken.on(cluster_of(2)).wire, 0 + 0 + 2 * (0.802 - 0.5), 1e-9);
  Setting rarer = as_recorded(taken.recorded);
  rarer.local_steps = 20;  // half as many exchanges, each beside as many steps
  EXPECT_NEAR(taken.with(rarer, cluster_of(2)).wire, 0 + 0 + 2 * (0.802 - 0.5) / 2, 1e-9);
}

// Of what a node of 2 sent, half was gathered: 4 MB of each rank go to all others, 63 times.
TEST(Prediction, OfWhatIsGatheredGrowsWithTheRanks) {
  auto run = tests::recorded_run("top_k", true);
  run.summary->messages.between_nodes = 80;
  run.summary->messages.gathered_bytes = run.summary->inter_node_bytes / 2;
  const Taken taken(std::move(run));
  const Prediction there = taken.on(cluster_of(32, 2));
  EXPECT_NEAR(there.node_bytes / there.steps, 31 * 2 * 4e6 + 2.0 * 31 / 32 * 4e6, 1e-3);
}

TEST(Recorded, SaysWhyNothingCanBeTold) {
  const auto refused = [](report::Run run, const std::string& why) {
    const std::vector<report::Run> runs{std::move(run)};
    EXPECT_THAT([&] { take_apart(tests::variant_of(runs)); }, ThrowsMessage<std::invalid_argument>(HasSubstr(why)));
  };
  auto alone = tests::recorded_run("diloco");
  alone.options["nodes"] = "1";
  refused(alone, "one node");
  auto unfinished = tests::recorded_run("diloco");
  unfinished.summary.reset();
  refused(unfinished, "no run of it is finished");
  auto preset = tests::recorded_run("diloco");
  preset.has_unknown_preset = true;
  refused(preset, "does not say what its preset set");
  auto uneven = tests::recorded_run("diloco");
  uneven.options["ranks-per-node"] = "2,1";
  refused(uneven, "different numbers of ranks");
  uneven.options["ranks-per-node"] = "1,3";
  refused(uneven, "different numbers of ranks");
  auto old = tests::recorded_run("top_k", true);
  old.summary->messages.gathered_bytes.reset();
  refused(old, "which bytes were gathered");
}

TEST(Recorded, NodesMayBeListedOneByOne) {
  auto run = tests::recorded_run("diloco");
  run.options["ranks-per-node"] = "1,1";
  EXPECT_EQ(Taken(run).recorded.ranks, 2);
}

TEST(Prediction, OfPostLocalSgdKeepsItsInterval) {
  auto run = tests::recorded_run("local_sgd");
  run.options["local-after"] = "1";
  const Taken taken(std::move(run));
  Setting setting = as_recorded(taken.recorded);
  setting.local_steps = 20;
  EXPECT_THAT([&] { taken.with(setting, cluster_of(4)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("at another interval")));
}

}  // namespace
}  // namespace prunex::plan
