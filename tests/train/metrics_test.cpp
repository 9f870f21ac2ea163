// The records that scripts read: their keys in the documented order, and volumes by hand.
#include "prunex/train/run/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace prunex::train {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::IsSubsetOf;

std::vector<std::string> keys_of(const ordered_json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

Metrics some_metrics() {
  Metrics metrics{.step = 12, .samples = 384, .epoch = 0.25, .loss = 1.5, .learning_rate = 0.1, .accuracy = 0.75};
  metrics.parameters = 100;
  metrics.macs = 1000;
  metrics.exchange = {.exchanged = true, .index = 3, .frozen = true, .keep = 0.5, .mask_changes = 7};
  metrics.exchange.residuals = {{"a", {3, 1, 0, 2}}, {"b", {4, 1, 0, 0}}};
  metrics.residuals_by_rank = {{3, 0, 0, 0}, {4, 0, 0, 0}};
  metrics.exchange.rho1 = 0.01;
  metrics.exchange.rho2 = 0.02;
  metrics.seconds = {.local = 1, .exchange = {2, 3, 4, 5}, .evaluate = 6, .total = 21};
  metrics.bytes = {.inter_node = 500, .inter_node_bound = 400, .intra_node = 300};
  return metrics;
}

TEST(MetricsLine, HasItsKeysInTheirOrder) {
  const std::string line = to_json(some_metrics());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = ordered_json::parse(line);
  EXPECT_THAT(keys_of(json),
              ElementsAre("exchange", "phase", "epoch", "step", "samples", "loss", "lr", "accuracy", "keep",
                          "mask_changes", "frozen", "parameters", "macs", "residuals", "rho1", "rho2", "seconds",
                          "inter_node_bytes", "inter_node_bytes_bound", "intra_node_bytes"));
  EXPECT_THAT(keys_of(json["residuals"]),
              ElementsAre("r_intra", "s_intra", "r_inter", "s_inter", "by_tensor", "by_rank"));
  EXPECT_THAT(keys_of(json["seconds"]), ElementsAre("local", "intra", "project", "inter", "dual", "evaluate", "total"));
}

TEST(MetricsLine, HoldsTheNumbers) {
  const auto json = ordered_json::parse(to_json(some_metrics()));
  EXPECT_EQ(json["exchange"], 3);
  EXPECT_EQ(json["step"], 12);
  EXPECT_EQ(json["accuracy"], 0.75);
  EXPECT_EQ(json["frozen"], true);
  EXPECT_EQ(json["residuals"]["r_intra"], 5);  // the root of 3^2 + 4^2
  EXPECT_DOUBLE_EQ(json["residuals"]["s_intra"], std::sqrt(2.0));
  EXPECT_EQ(json["residuals"]["r_inter"], 0);
  EXPECT_EQ(json["residuals"]["s_inter"], 2);
  EXPECT_EQ(json["residuals"]["by_tensor"]["b"]["r_intra"], 4);
  EXPECT_EQ(json["residuals"]["by_rank"][0]["r_intra"], 3);
  EXPECT_EQ(json["seconds"]["project"], 3);
  EXPECT_EQ(json["inter_node_bytes_bound"], 400);
}

TEST(MetricsLine, HasAnAccuracyOnlyWhereItWasMeasured) {
  Metrics metrics = some_metrics();
  metrics.accuracy.reset();
  EXPECT_FALSE(ordered_json::parse(to_json(metrics)).contains("accuracy"));
}

Summary some_summary() {
  return {.strategy = "hsadmm",
          .model = "resnet8",
          .dataset = "synthetic",
          .seed = 3,
          .shape = comm::Layout::even(2, 3),
          .exchanges = 4,
          .local_steps = 5,
          .steps = 18,
          .samples = 100,
          .parameters_dense = 1000,
          .averaged_buffers = 60};
}

TEST(SummaryFile, HasTheDocumentedKeys) {
  Summary summary = some_summary();
  summary.validation_accuracy = 0.5;
  const auto json = ordered_json::parse(to_json(summary));
  const std::vector<std::string> documented{"version",
                                            "strategy",
                                            "model",
                                            "dataset",
                                            "seed",
                                            "precision",
                                            "nodes",
                                            "ranks_per_node",
                                            "exchanges",
                                            "local_steps",
                                            "samples",
                                            "frozen",
                                            "loss",
                                            "accuracy",
                                            "accuracy_compact",
                                            "validation_accuracy",
                                            "parameters_dense",
                                            "parameters_compact",
                                            "macs_dense",
                                            "macs_compact",
                                            "inter_node_bytes",
                                            "inter_node_bytes_dense",
                                            "inter_node_bytes_ddp",
                                            "inter_node_bytes_ddp_flat",
                                            "wall_seconds",
                                            "seconds",
                                            "samples_per_second"};
  EXPECT_THAT(documented, IsSubsetOf(keys_of(json)));
  EXPECT_THAT(keys_of(json["samples_per_second"]), ElementsAre("before_cut", "after_cut"));
  summary.validation_accuracy.reset();
  EXPECT_FALSE(ordered_json::parse(to_json(summary)).contains("validation_accuracy"));
}

TEST(SummaryFile, ListsTheBucketsOfGradientsWhereTheyWereMeasured) {
  Summary summary = some_summary();
  EXPECT_FALSE(ordered_json::parse(to_json(summary)).contains("buckets"));
  summary.buckets = {{400, 0.75}, {8, 1}};
  EXPECT_EQ(ordered_json::parse(to_json(summary))["buckets"],
            ordered_json::parse(R"([{"bytes": 400, "ready": 0.75}, {"bytes": 8, "ready": 1.0}])"));
}

TEST(SummaryFile, NamesTheGpusOfARunThatHadSome) {
  Summary summary = some_summary();
  EXPECT_FALSE(ordered_json::parse(to_json(summary)).contains("gpus"));
  summary.gpus = {"NVIDIA H100 80GB HBM3"};
  EXPECT_EQ(ordered_json::parse(to_json(summary))["gpus"], ordered_json({"NVIDIA H100 80GB HBM3"}));
}

TEST(SummaryFile, ComparesWithDenseExchangesAndWithPerStepGradients) {
  // 2 nodes x 3 ranks, 4 exchanges, 18 steps, 1000 parameters and 60 statistics of 4 bytes each
  const Summary summary = some_summary();
  const auto json = ordered_json::parse(to_json(summary));
  EXPECT_EQ(json["inter_node_bytes_dense"], 4 * (1 * 4 * 1060));  // 2(M-1)/M = 1
  EXPECT_EQ(json["inter_node_bytes_ddp"], 18 * (1 * 4 * 1000));
  EXPECT_EQ(json["inter_node_bytes_ddp_flat"], 18 * (10 * 4 * 1000 / 6));  // 2(MP-1)/(MP) = 10/6
}

TEST(SummaryFile, ListsTheRanksOfUnequalNodes) {
  Summary summary = some_summary();
  EXPECT_EQ(ordered_json::parse(to_json(summary))["ranks_per_node"], 3);
  summary.shape = {.node_sizes = {2, 1, 1, 2}, .sites = 2};
  const auto json = ordered_json::parse(to_json(summary));
  EXPECT_EQ(json["nodes"], 4);
  EXPECT_EQ(json["ranks_per_node"], ordered_json({2, 1, 1, 2}));
  EXPECT_EQ(json["sites"], 2);
  EXPECT_EQ(json["inter_node_bytes_ddp_flat"], 18 * (10 * 4 * 1000 / 6));  // six ranks, as 2 x 3 has
}

TEST(SummaryFile, SendsNothingFromASingleNode) {
  Summary summary = some_summary();
  summary.shape = comm::Layout::even(1, 3);
  EXPECT_EQ(dense_exchange_bytes(summary), 0);
  EXPECT_EQ(ddp_bytes(summary), 0);
  EXPECT_EQ(ddp_flat_bytes(summary), 0);
}

TEST(SummaryFile, CountsBytesBeyondTwoToTheThirtyOne) {
  Summary summary = some_summary();
  summary.parameters_dense = 143'678'248;  // vgg19_bn
  summary.steps = 1'000'000;
  EXPECT_EQ(ddp_bytes(summary), 1'000'000LL * 4 * 143'678'248);
}

/// Of everything that progress keeps something else.
Summary counted_summary() {
  Summary summary;
  summary.exchanges = 1;
  summary.steps = 2;
  summary.samples = 3;
  summary.overlapped_steps = 4;
  summary.nodes_lost = 5;
  summary.nodes_joined = 6;
  summary.images_lost = 7;
  summary.frozen = summary.converged = true;
  summary.bytes = {8, 9, 10};
  summary.samples_per_second_before_cut = 11.5;
  summary.seconds = {.local = 12.5, .exchange = {13.5, 14.5, 15.5, 16.5}, .evaluate = 17.5, .total = 18.5};
  summary.wall_seconds = 19.5;
  summary.interface_bytes["eth0"] = {{20, 21}, {22, 23}};
  summary.traffic["rail"].by_operation["all_reduce"] = {
      .count = 24, .payload_bytes = 25, .sent_bytes = 26, .seconds = {27.5F, 28.5F}};
  summary.buckets = {{37, 0.25}, {38, 1}};
  summary.best = {.exchange = 29, .validation_accuracy = 0.25, .accuracy = 0.5};
  summary.pruned = {30, 31, 32, 33, 34, 0.125, 0.375, 0.625, 35.5, 36.5};
  return summary;
}

TEST(Progress, ComesBackFieldByField) {
  const Summary summary = counted_summary();
  Summary restored;
  restore_progress(restored, progress_json(summary));
  EXPECT_EQ(restored.exchanges, 1);
  EXPECT_EQ(restored.steps, 2);
  EXPECT_EQ(restored.samples, 3);
  EXPECT_EQ(restored.overlapped_steps, 4);
  EXPECT_EQ(restored.nodes_lost, 5);
  EXPECT_EQ(restored.nodes_joined, 6);
  EXPECT_EQ(restored.images_lost, 7);
  EXPECT_TRUE(restored.frozen);
  EXPECT_TRUE(restored.converged);
  EXPECT_EQ(restored.bytes.inter_node, 8);
  EXPECT_EQ(restored.bytes.inter_node_bound, 9);
  EXPECT_EQ(restored.bytes.intra_node, 10);
  EXPECT_EQ(restored.samples_per_second_before_cut, 11.5);
  const auto& [local, exchange, evaluate, total] = restored.seconds;
  EXPECT_THAT((std::vector{local, exchange.intra, exchange.project, exchange.inter, exchange.dual, evaluate, total}),
              ElementsAre(12.5, 13.5, 14.5, 15.5, 16.5, 17.5, 18.5));
  EXPECT_EQ(restored.wall_seconds, 19.5);
  const auto& node = restored.interface_bytes.at("eth0").at(1);
  EXPECT_THAT((std::vector{node.sent, node.received}), ElementsAre(22, 23));
  const auto& reduced = restored.traffic.at("rail").by_operation.at("all_reduce");
  EXPECT_THAT((std::vector{reduced.count, reduced.payload_bytes, reduced.sent_bytes}), ElementsAre(24, 25, 26));
  EXPECT_THAT(reduced.seconds, ElementsAre(27.5F, 28.5F));
  ASSERT_EQ(restored.buckets.size(), 2u);
  EXPECT_EQ(restored.buckets[0].bytes, 37);
  EXPECT_EQ(restored.buckets[0].ready, 0.25);
  EXPECT_EQ(restored.best->exchange, 29);
  EXPECT_EQ(restored.best->validation_accuracy, 0.25);
  EXPECT_EQ(restored.best->accuracy, 0.5);
  EXPECT_EQ(restored.pruned->parameters_after, 32);
  EXPECT_EQ(restored.pruned->accuracy_after, 0.375);
  EXPECT_EQ(restored.pruned->milliseconds_after, 36.5);
  EXPECT_EQ(progress_json(restored), progress_json(summary));
}

TEST(Progress, OfAnOlderRecordHasNothingOfWhatThatLacks) {
  auto json = ordered_json::parse(progress_json(counted_summary()));
  for (const char* newer : {"nodes_lost", "nodes_joined", "images_lost", "converged", "best", "pruned"}) {
    json.erase(newer);
  }
  Summary restored{.converged = true, .nodes_lost = 1};
  restore_progress(restored, json.dump());
  EXPECT_EQ(restored.nodes_lost, 0);
  EXPECT_FALSE(restored.converged);
  EXPECT_FALSE(restored.best);
  EXPECT_EQ(restored.steps, 2);
  json.erase("steps");
  EXPECT_THAT([&] { restore_progress(restored, json.dump()); },
              testing::ThrowsMessage<std::invalid_argument>(testing::HasSubstr("no progress of a run: ")));
}

TEST(Sums, AddFieldByField) {
  Seconds seconds{.local = 1, .exchange = {1, 2, 3, 4}, .evaluate = 5, .total = 6};
  seconds += seconds;
  EXPECT_EQ(seconds.local, 2);
  EXPECT_EQ(seconds.exchange.intra, 2);
  EXPECT_EQ(seconds.exchange.project, 4);
  EXPECT_EQ(seconds.exchange.inter, 6);
  EXPECT_EQ(seconds.exchange.dual, 8);
  EXPECT_EQ(seconds.evaluate, 10);
  EXPECT_EQ(seconds.total, 12);
  Bytes bytes{1, 2, 3};
  bytes += bytes;
  EXPECT_EQ(bytes.inter_node, 2);
  EXPECT_EQ(bytes.inter_node_bound, 4);
  EXPECT_EQ(bytes.intra_node, 6);
}

}  // namespace
}  // namespace prunex::train
