// Links and rates that other commands measured; expected values from the formulas that made the files.
#include "plan/measured.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>

#include "plan/plan.h"
#include "tests/plan/recorded_runs.h"
#include "tests/scratch.h"

namespace prunex::plan {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::ThrowsMessage;

class Measured : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(scratch_ / "file") << text;
    return scratch_ / "file";
  }
  /// Of a ring of n nodes: bytes over 10 MB/s and 2(n-1) times 2 ms, a share of `off` more for the largest.
  std::string bench(int n, double off = 0) {
    std::string text;
    for (const double bytes : {1e4, 1e6, 1e8}) {
      const double sent = 2 * (n - 1.0) / n * bytes, seconds = sent / 1e7 + 2 * (n - 1) * 0.002;
      text += fmt::format(R"({}{{"form":"sharded","bytes":{},"node_bytes":{},"seconds":{}}})", text.empty() ? "" : ",",
                          bytes, sent, seconds * (bytes == 1e8 ? 1 + off : 1));
    }
    return write("[" + text + "]");
  }
  void refused(const std::string& text, const std::string& why) {
    const auto path = write(text);
    EXPECT_THAT([&] { read_network(path); },
                ThrowsMessage<std::invalid_argument>(testing::AllOf(HasSubstr("`network`: " + path), HasSubstr(why))));
  }
  const tests::Scratch scratch_;
};

TEST_F(Measured, NetworkIsTheLinkAndLatencyBehindItsSeconds) {
  for (const int nodes : {2, 3, 8}) {
    const MeasuredNetwork network = read_network(bench(nodes));
    EXPECT_NEAR(network.link, 80, 1e-3) << nodes;
    EXPECT_NEAR(network.latency, 2, 1e-3) << nodes;
    EXPECT_NEAR(network.gap, 0, 1e-5) << nodes;
  }
}

TEST_F(Measured, NetworkSaysHowFarItsSecondsAreFromTheFit) {
  EXPECT_GT(read_network(bench(2, 0.2)).gap, 0.01);
}

TEST_F(Measured, NetworkThatIsNoneIsNamed) {
  refused("{}", "wanted an array");
  refused("[]", "two sizes or more");
  refused("[{}]", "entry 1: form: missing");
  refused(R"([{"form":"sharded","bytes":8,"node_bytes":0,"seconds":1}])", "wanted those of two nodes or more");
  refused(R"([{"form":"sharded","bytes":8,"node_bytes":8,"seconds":0}])", "seconds: got 0");
  refused(R"([{"form":"sharded","bytes":8,"node_bytes":8,"seconds":1},
              {"form":"sharded","bytes":9000,"node_bytes":9000,"seconds":0.5}])",
          "do not grow with the bytes");
}

TEST_F(Measured, NetworkTakesThePlaceOfLinkAndLatencyAndWidensRanges) {
  PlanOptions options;
  options.network = bench(2, 0.2);
  const auto fitted = read_network(options.network);
  const Plan plan = make_plan({tests::recorded_run("diloco")}, options);
  const Cluster& cluster = plan.options.cluster;
  ASSERT_EQ(cluster.link.size(), 1);
  EXPECT_DOUBLE_EQ(cluster.link[0] * cluster.goodput, fitted.link);
  const Row& row = plan.rows.front();
  EXPECT_NEAR(row.whole.wire, 4 * (8e6 / (fitted.link / 8 * 1e6) + 2 * fitted.latency / 1e3), 1e-9);
  EXPECT_NEAR(row.range.high - row.whole.seconds, fitted.gap * row.whole.wire, 1e-9);
  EXPECT_THAT(plan.caveats, Contains(HasSubstr("Link and latency were fitted")));
}

TEST_F(Measured, RatesAreThoseOfTheKit) {
  PlanOptions options;
  options.gpu_kit =
      write("torch 2.11\nresnet18: prunex 100 samples/s, 80 without CUDA graphs\nnet: prunex 16 samples/s, 1");
  EXPECT_EQ(read_gpu_rate(options.gpu_kit, "resnet18", "bf16").images, 100);
  EXPECT_THAT([&] { read_gpu_rate(options.gpu_kit, "resnet20", ""); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("no line 'resnet20: prunex N samples/s'")));
  // 8 images in half a second, where 2 s were recorded; a quarter of 60 s
  EXPECT_NEAR(make_plan({tests::recorded_run("diloco")}, options).rows.front().whole.compute, 15, 1e-9);
}

TEST_F(Measured, RatesAreThoseOfTheRecordsPrecisionAndNamed) {
  PlanOptions options;
  options.gpu_kit = write("net at 32, tf32: prunex 16 samples/s, 1\nnet at 224, bf16: prunex 10 samples/s, 1");
  EXPECT_EQ(read_gpu_rate(options.gpu_kit, "net", "bf16").images, 10);
  EXPECT_EQ(read_gpu_rate(options.gpu_kit, "net", "auto").images, 16);
  auto run = tests::recorded_run("diloco");
  run.options["precision"] = "bf16";
  EXPECT_THAT(make_plan({run}, options).caveats,
              Contains(HasSubstr("10 images per second (the kit's net at 224, bf16)")));
}

/// A second run with twice the images in a step.
std::vector<report::Run> of_two_batches() {
  std::vector<report::Run> runs{tests::recorded_run("diloco"), tests::recorded_run("ddp")};
  for (auto& exchange : runs[1].exchanges) exchange.samples *= 2;
  runs[1].summary->samples *= 2;
  return runs;
}

// 8 or 16 images at 16 a second; 40 steps, of which half at half the time
TEST_F(Measured, RatesHoldForEveryBatch) {
  PlanOptions options;
  options.gpu_kit = write("net: prunex 16 samples/s, 1");
  const Plan plan = make_plan(of_two_batches(), options);
  for (const auto& row : plan.rows) {
    EXPECT_NEAR(row.whole.compute, (plan.of(row).strategy == "ddp" ? 1 : 0.5) * (20 + 10), 1e-9);
  }
  EXPECT_THAT(plan.caveats, Contains(HasSubstr("A rank takes 16 images per second")));
}

TEST_F(Measured, SecondsOfAStepAreOfOneBatch) {
  PlanOptions options;
  options.seconds_per_step = 1;
  EXPECT_THAT([&] { make_plan(of_two_batches(), options); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("`seconds_per_step`: got runs of 8 and 16 images per rank and step, wanted `batch_size`")));
  options.batch_size = 16;
  const Plan plan = make_plan(of_two_batches(), options);
  for (const auto& row : plan.rows) {  // 20 or 40 steps
    EXPECT_NEAR(row.whole.compute, (plan.of(row).strategy == "ddp" ? 2 : 1) * (10 * 1 + 10 * 0.5), 1e-9);
  }
}

// The others' 1000 multiply-accumulates take 1 s: what began with 500, or is of 500, takes half.
TEST_F(Measured, SecondsOfAStepAreOfTheWholeNetwork) {
  std::vector<report::Run> runs{tests::recorded_run("cut"), tests::recorded_run("small"), tests::recorded_run("ddp")};
  for (size_t i : {0, 1}) {
    for (auto& exchange : runs[i].exchanges) exchange.macs = 500;
  }
  for (auto& run : runs) run.summary->macs_dense = run.option("strategy") == "small" ? 500 : 1000;
  PlanOptions options;
  options.seconds_per_step = 1;
  const Plan plan = make_plan(runs, options);
  for (const auto& row : plan.rows) {
    EXPECT_NEAR(row.whole.compute, plan.of(row).strategy == "ddp" ? 30 : 20, 1e-9) << plan.of(row).name;
  }
  EXPECT_THAT(plan.caveats, Contains(HasSubstr("since they began with a smaller network: ")));
}

}  // namespace
}  // namespace prunex::plan
