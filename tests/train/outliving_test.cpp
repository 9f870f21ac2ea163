// Runs that go on when nodes are lost, as long as none is: tests/cli/elastic_test.cpp kills them.
#include "prunex/train/outliving.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/scratch.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class ElasticRunOf : public testing::TestWithParam<const char*> {};

TEST_P(ElasticRunOf, WeightsIsTheSameRunWhileNobodyIsLost) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "plain");
  options.strategy = GetParam();
  const Summary plain = run_to_end(options);
  options.run_dir = scratch / "elastic";
  options.elastic = true;
  const Summary elastic = run_to_end(options);
  EXPECT_EQ(plain.accuracy, elastic.accuracy);
  EXPECT_EQ(elastic.nodes_lost, 0);
  auto lines = lines_without_seconds(options.run_dir);
  std::set<std::string> hashes;
  for (auto& line : lines) {
    hashes.insert(line.at("z_hash").get<std::string>());
    line.erase("z_hash");
  }
  EXPECT_EQ(lines, lines_without_seconds(scratch / "plain"));
  EXPECT_EQ(hashes.size(), 6U);
  EXPECT_FALSE(std::filesystem::exists(scratch / "elastic/membership.jsonl"));
}

INSTANTIATE_TEST_SUITE_P(Strategies, ElasticRunOf, testing::Values("hsadmm", "scaffold"));

TEST(ElasticRun, OfGradientsIsTheSameRunToo) {
  for (const char* strategy : {"ddp", "top_k", "powersgd"}) {
    const tests::Scratch scratch;
    TrainOptions options = two_node_run(scratch / "plain");
    options.strategy = strategy;
    run_to_end(options);
    options.run_dir = scratch / "elastic";
    options.elastic = true;
    options.checkpoint_every = 2;
    EXPECT_EQ(run_to_end(options).images_lost, 0);
    const auto whole = lines_without_seconds(options.run_dir);
    auto lines = whole;
    for (auto& line : lines) line.erase("z_hash");
    EXPECT_EQ(lines, lines_without_seconds(scratch / "plain")) << strategy;
    options.resume = options.run_dir;
    options.resume_exchange = 4;
    run_to_end(options);
    EXPECT_EQ(lines_without_seconds(options.run_dir), whole) << strategy;
  }
}

TEST(ElasticRun, GoesOnFromItsCheckpoint) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "run");
  options.elastic = true;
  options.checkpoint_every = 2;
  run_to_end(options);
  const auto whole = lines_without_seconds(options.run_dir);
  options.resume = options.run_dir;
  options.resume_exchange = 4;
  run_to_end(options);
  EXPECT_EQ(lines_without_seconds(options.run_dir), whole);
}

TEST(ElasticRun, RefusesWhatNeedsAllRanks) {
  const auto refuses = [](const std::function<void(TrainOptions&)>& change, const std::string& what) {
    TrainOptions options = two_node_run("");
    options.elastic = true;
    EXPECT_NO_THROW(validate(options));
    change(options);
    EXPECT_THAT([&] { validate(options); }, ThrowsMessage<std::invalid_argument>(HasSubstr(what)));
  };
  refuses([](TrainOptions& o) { o.strategy = "hsadmm_flat"; }, "`elastic`: hsadmm_flat does not go on without a node");
  refuses(
      [](TrainOptions& o) {
        o.strategy = "ddp";
        o.max_nodes = 4;
      },
      "`max_nodes`: no node joins a run of ddp");
  refuses([](TrainOptions& o) { o.overlap = 1; }, "`overlap`");
  refuses([](TrainOptions& o) { o.local_after = 2; }, "`local_after`");
  refuses(
      [](TrainOptions& o) {
        o.sites = 2;
        o.max_nodes = 4;
      },
      "`max_nodes`: no node joins a run on sites");
  refuses([](TrainOptions& o) { o.ranks.heartbeat_timeout = 0; }, "`heartbeat_timeout` 0");
  refuses([](TrainOptions& o) { o.min_nodes = 3; }, "got `min_nodes` 3, more than the 2 of `nodes`");
  refuses([](TrainOptions& o) { o.pruning.target = "ratio=0.5"; }, "cuts by `prune_to`");
}

TEST(HashOfZ, SeesEveryBitAndTheOrder) {
  const auto hash = [](const at::Tensor& a, const at::Tensor& b) {
    TensorDict params, masks;
    params.insert("a", a);
    params.insert("b", b);
    return hash_of(params, masks);
  };
  const at::Tensor a = at::arange(7, at::kFloat), b = at::arange(7, 12, at::kFloat);
  const uint64_t first = hash(a, b);
  EXPECT_EQ(hash(a.clone(), b.clone()), first);
  EXPECT_NE(hash(b, a), first);
  for (int64_t i = 0; i < a.numel(); ++i) {
    at::Tensor other = a.clone();
    other[i] = std::nextafter(other[i].item<float>(), 100.0F);
    EXPECT_NE(hash(other, b), first) << i;
  }
  const at::Tensor image = at::randn({2, 3, 4, 5});
  EXPECT_EQ(hash(image.contiguous(at::MemoryFormat::ChannelsLast), b), hash(image, b)) << "layout is no content";
}

}  // namespace
}  // namespace prunex::train
