// Runs that go on when nodes are lost: as long as none is, and when a rank ends at one of its operations. What
// processes do that are killed, tests/cli/elastic_test.cpp asks.
#include "prunex/train/elastic/elastic.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "prunex/train/strategy_choice.h"
#include "prunex/train/tensor_hash.h"
#include "tests/json_lines.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/mortal_ranks.h"
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

/// Nodes that join read it.
TEST(ElasticRun, WritesTheOptionsOfThePartThatBeganLast) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "run");
  options.elastic = true;
  options.checkpoint_every = 4;
  run_to_end(options);
  const std::string file = scratch / "run/config.toml", other = std::string(kConfig) + "eval-every=3\n";
  EXPECT_EQ(tests::text_of(file), kConfig);
  options.resume = options.run_dir;
  const auto go_on = [&](int64_t exchange) {
    options.resume_exchange = exchange;
    comm::run_ranks(shape_of(options), [&](comm::Hierarchy& ranks) { train(options, ranks, other); });
  };
  EXPECT_THAT([&] { go_on(3); }, ThrowsMessage<std::invalid_argument>(HasSubstr("no checkpoint to repeat")));
  EXPECT_EQ(tests::text_of(file), kConfig) << "nothing went on";
  go_on(4);
  EXPECT_EQ(tests::text_of(file), other);
}

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
  refuses([](TrainOptions& o) { o.overlap = 1; }, "`overlap`");
  refuses(
      [](TrainOptions& o) {
        o.local_after = 2;
        o.max_nodes = 4;
      },
      "`max_nodes`: no node joins a run that exchanges gradients first");
  refuses(
      [](TrainOptions& o) {
        o.sites = 2;
        o.max_nodes = 4;
      },
      "`max_nodes`: no node joins a run on sites");
  refuses([](TrainOptions& o) { o.ranks.heartbeat_timeout = 0; }, "`heartbeat_timeout` 0");
  refuses([](TrainOptions& o) { o.min_nodes = 3; }, "got `min_nodes` 3, more than the 2 of `nodes`");
}

/// Three nodes, two cuts by what images say, after exchanges 2 and 3 of 5.
TrainOptions run_with_cuts(const std::string& strategy, const std::string& run_dir) {
  TrainOptions options = tiny_run(320, 5);
  options.nodes = 3;
  options.elastic = true;
  options.strategy = strategy;
  options.groups = "none";
  options.sparse.penalty = "group_norm";
  options.pruning.target = "speed-up=1.5";
  options.pruning.steps = 2;
  options.pruning.importance = "taylor";
  options.pruning.importance_samples = 24;
  options.prune_at = 0.4;
  options.run_dir = run_dir;
  return options;
}

/// What is left of a run that lost a node, all of it as it must be; and when that was.
struct Left {
  std::string when;     // the last exchange before, how many images were trained on, and lost
  std::string weights;  // model.safetensors
};

/// Whoever ends, the other nodes have a whole record.
void expect_whole(const TrainOptions& options, int lost, const std::vector<End>& ends) {
  const int of_node = options.ranks_per_node.front();
  for (size_t i = 0; i < ends.size(); ++i) {
    const int rank = static_cast<int>(i);
    EXPECT_EQ(ends[i].died, rank == lost) << ends[i].error;
    EXPECT_EQ(ends[i].summary.has_value(), rank / of_node != lost / of_node) << ends[i].error;
  }
  const auto lines = lines_of(options.run_dir);
  const auto exchanges = static_cast<size_t>(options.exchanges);
  EXPECT_EQ(lines.size(), exchanges);
  for (size_t k = 0; k < lines.size(); ++k) EXPECT_EQ(lines[k].at("exchange"), k + 1);
  const auto summary = nlohmann::json::parse(tests::text_of(options.run_dir + "/summary.json"));
  EXPECT_EQ(summary.at("nodes_lost"), 1);
  EXPECT_EQ(summary.at("accuracy"), summary.at("accuracy_compact"));
  EXPECT_EQ(summary.at("parameters_compact"), lines.back().at("parameters"));
}

void expect_two_cuts(const TrainOptions& options) {
  const auto lines = lines_of(options.run_dir);
  const auto summary = nlohmann::json::parse(tests::text_of(options.run_dir + "/summary.json"));
  EXPECT_GE(summary.at("macs_dense").get<double>(), 1.5 * summary.at("macs_compact").get<double>());
  EXPECT_EQ(summary.at("pruned").at("exchange"), 3);
  EXPECT_EQ(lines[1].at("parameters"), lines[0].at("parameters"));
  EXPECT_LT(lines[2].at("parameters"), lines[1].at("parameters"));
  EXPECT_LT(lines[3].at("parameters"), lines[2].at("parameters"));
}

Left left_of(const TrainOptions& options, int lost) {
  const auto summary = nlohmann::json::parse(tests::text_of(options.run_dir + "/summary.json"));
  const auto change = nlohmann::json::parse(tests::text_of(options.run_dir + "/membership.jsonl"));
  EXPECT_EQ(change.at("lost"), nlohmann::json{lost / options.ranks_per_node.front()});
  return {fmt::format("after exchange {}, {} images, {} lost", change.at("exchange").dump(),
                      summary.at("samples").dump(), summary.at("images_lost").dump()),
          tests::text_of(options.run_dir + "/model.safetensors")};
}

/// Runs of which a rank ends, at operations all along. Wherever in a transaction that is, what the others make of it
/// without that rank is the same, bit by bit.
void lose_at_operations(TrainOptions options, int lost, const std::function<void(const TrainOptions&)>& expect) {
  const tests::Scratch scratch;
  options.run_dir = scratch / "whole";
  Life whole(options.run_dir, -1);
  for (const End& end : run_mortals(options, 3, {{lost, &whole}})) ASSERT_EQ(end.error, "");
  const int64_t operations = whole.operations();
  std::map<std::string, std::set<std::string>> weights_by;  // when
  for (int64_t i = 0; i < 6; ++i) {
    const int64_t last = operations * (2 * i + 3) / 16;
    options.run_dir = scratch / std::to_string(last);
    Life life(options.run_dir, last);
    SCOPED_TRACE(fmt::format("rank {} ends at operation {} of {}", lost, last, operations));
    expect_whole(options, lost, run_mortals(options, 3, {{lost, &life}}));
    expect(options);
    const Left left = left_of(options, lost);
    weights_by[left.when].insert(left.weights);
  }
  for (const auto& [when, different] : weights_by) EXPECT_EQ(different.size(), 1U) << when;
}

TEST(LosesInCuts, TheOthersCutWithoutIt) {
  lose_at_operations(run_with_cuts("local_sgd", ""), 0, expect_two_cuts);
}

TEST(LosesInCuts, TheOthersCutWithoutItWhereGradientsAreExchanged) {
  lose_at_operations(run_with_cuts("prunetrain", ""), 2, expect_two_cuts);
}

/// Two exchanges of gradients, three of weights; in the one in which these begin, too.
TEST(LosesInPostLocalSgd, TheOthersGoOnFromWhereTheyAre) {
  TrainOptions options = run_with_cuts("diloco", "");
  options.pruning = {};
  options.local_after = 2;
  lose_at_operations(options, 0, [](const TrainOptions&) {});
  lose_at_operations(options, 1, [](const TrainOptions&) {});
}

struct LossAmongWorkers {
  const char* strategy;
  int64_t local_after;
  int rank;
};

using LosesAmongWorkers = testing::TestWithParam<LossAmongWorkers>;

/// Ranks of a node talk in every step. What a node has whole is not made again, wherever the loss finds it.
TEST_P(LosesAmongWorkers, TheOthersGoOnFromWhereTheirNodesAre) {
  TrainOptions options = tiny_run(160, 4);
  options.nodes = 3;
  options.ranks_per_node = {2};
  options.local_steps = 3;
  options.batch_size = 4;
  options.elastic = true;
  options.strategy = GetParam().strategy;
  options.local_after = GetParam().local_after;
  options.in_node = InNode::kGradients;
  lose_at_operations(options, GetParam().rank, [](const TrainOptions& of_run) {
    const auto exchange = tests::json_lines(of_run.run_dir + "/membership.jsonl").at(0).at("exchange");
    const auto summary = nlohmann::json::parse(tests::text_of(of_run.run_dir + "/summary.json"));
    const int steps = exchange < of_run.local_after ? 1 : exchange < of_run.exchanges ? 3 : 0;
    EXPECT_EQ(summary.at("images_lost"), 2 * steps * 4);
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, LosesAmongWorkers,
                         testing::Values(LossAmongWorkers{"diloco", 1, 0}, LossAmongWorkers{"hsadmm", 0, 3}),
                         [](const auto& param) { return param.param.strategy; });

std::vector<nlohmann::json> changes_of(const std::string& directory) {
  return tests::json_lines(directory + "/membership.jsonl");
}

/// Two nodes, 24 exchanges.
TrainOptions run_with_newcomer(const std::string& strategy, const std::string& run_dir) {
  TrainOptions options = tiny_run(320, 24);
  options.nodes = 2;
  options.elastic = true;
  options.strategy = strategy == "dgc" ? "top_k" : strategy;
  options.top_k.dgc = strategy == "dgc";
  options.run_dir = run_dir;
  return options;
}

using JoinRunOfGradients = testing::TestWithParam<const char*>;

/// Its first step is the next one: as if the run had gone on on three nodes from a checkpoint of that exchange.
TEST_P(JoinRunOfGradients, ANodeTakesPartFromTheNextStepOn) {
  const tests::Scratch scratch;
  TrainOptions options = run_with_newcomer(GetParam(), scratch / "joined");
  Life first(options.run_dir, -1, Life::From::kAdmission), newcomer(options.run_dir, -1);
  for (const End& end : run_and_join(options, 2, 10, {{0, &first}}, newcomer)) EXPECT_EQ(end.error, "");
  const auto changes = changes_of(options.run_dir);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].at("joined"), nlohmann::json{2});
  const auto exchange = changes[0].at("exchange").get<int64_t>();
  const auto lines = lines_without_seconds(options.run_dir);
  const auto images = [&](int64_t k) { return lines.at(static_cast<size_t>(k - 1)).at("samples").get<int64_t>(); };
  EXPECT_EQ(images(exchange + 1) - images(exchange), 3 * 2 * 8);

  options.run_dir = scratch / "resumed";
  options.checkpoint_every = exchange;  // of which there are two, at most
  for (const End& end : run_mortals(options, 2, {})) EXPECT_EQ(end.error, "");
  options.resume = options.run_dir;
  options.resume_exchange = exchange;
  for (const End& end : run_mortals(options, 3, {})) EXPECT_EQ(end.error, "");
  EXPECT_EQ(lines_without_seconds(options.run_dir), lines);
  EXPECT_EQ(tests::text_of(options.run_dir + "/model.safetensors"),
            tests::text_of(scratch / "joined/model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Strategies, JoinRunOfGradients, testing::Values("ddp", "top_k", "dgc", "powersgd"));

/// It comes after the first of two cuts, and takes part in the second.
TEST(RunWithCuts, IsJoined) {
  const tests::Scratch scratch;
  TrainOptions options = run_with_cuts("local_sgd", scratch / "run");
  options.exchanges = 24;
  options.nodes = 2;
  options.prune_at = 0.125;
  options.pruning.every = 18;
  Life first(options.run_dir, -1, Life::From::kAdmission), newcomer(options.run_dir, -1);
  const auto ends = run_and_join(options, 2, 8, {{0, &first}}, newcomer);
  for (const End& end : ends) ASSERT_EQ(end.error, "");
  const auto changes = changes_of(options.run_dir);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_LT(changes[0].at("exchange"), 21);
  const auto lines = lines_of(options.run_dir);
  EXPECT_LT(lines[3].at("parameters"), lines[2].at("parameters"));
  EXPECT_LT(lines[21].at("parameters"), lines[20].at("parameters"));
  for (const End& end : ends) {
    EXPECT_EQ(end.summary->parameters_compact, lines[21].at("parameters"));
    EXPECT_EQ(end.summary->pruned->exchange, 21);
    EXPECT_EQ(end.summary->pruned->accuracy_after, ends[0].summary->pruned->accuracy_after);
    EXPECT_EQ(end.summary->accuracy, ends[0].summary->accuracy_compact);
  }
}

/// The checksum of the teacher comes with what all have.
TEST(RunWithATeacher, IsJoined) {
  const tests::Scratch scratch;
  TrainOptions options = tiny_run(80, 1);
  options.run_dir = scratch / "teacher";
  run_to_end(options);
  options = run_with_newcomer("ddp", scratch / "run");
  options.teacher = scratch / "teacher/model.pt2";
  Life first(options.run_dir, -1, Life::From::kAdmission), newcomer(options.run_dir, -1);
  for (const End& end : run_and_join(options, 2, 10, {{0, &first}}, newcomer)) EXPECT_EQ(end.error, "");
  EXPECT_EQ(changes_of(options.run_dir).size(), 1U);
}

struct AdmissionCase {
  const char* name;
  const char* strategy;
  int ranks_per_node;
};

using RunWithNewcomers = testing::TestWithParam<AdmissionCase>;

/// While a node comes in, the first rank of one of the three is lost, at one operation after the other. Without node 0
/// the newcomer knocks at the other's door a second later: the run is long enough for that.
TEST_P(RunWithNewcomers, OutlivesWhoIsLostMeanwhile) {
  const int of_node = GetParam().ranks_per_node;
  const bool at_once = facts_of(GetParam().strategy).gradients;
  const auto operations = at_once ? std::vector<int64_t>{0, 1, 2, 3, 5} : std::vector<int64_t>{1, 5};
  for (const int lost : {0, 1, 2}) {
    for (const int64_t last : operations) {
      const tests::Scratch scratch;
      SCOPED_TRACE(fmt::format("node {} ends at operation {}", lost, last));
      TrainOptions options = run_with_newcomer(GetParam().strategy, scratch / "run");
      options.exchanges = lost == 0 ? 300 : 60;
      options.batch_size = 2;
      options.ranks_per_node = {of_node};
      if (of_node > 1) options.in_node = InNode::kGradients;
      const auto dies_at = [&](int node) { return node == lost ? last : -1; };
      Life first(options.run_dir, dies_at(0), Life::From::kAdmission);
      Life second(options.run_dir, dies_at(1), Life::From::kAdmission);
      Life newcomer(options.run_dir, dies_at(2), of_node > 1 ? Life::From::kChange : Life::From::kDoors);
      const auto ends = run_and_join(options, 2, 2, {{0, &first}, {of_node, &second}}, newcomer);
      for (int rank = 0; rank < 3 * of_node; ++rank) {
        const End& end = ends[static_cast<size_t>(rank)];
        EXPECT_EQ(end.died, rank == lost * of_node) << rank;
        if (rank / of_node != lost) {
          EXPECT_EQ(end.error, "") << rank;
        }
      }
      const auto lines = lines_of(options.run_dir);
      EXPECT_EQ(lines.size(), static_cast<size_t>(options.exchanges));
      for (size_t k = 0; k < lines.size(); ++k) EXPECT_EQ(lines[k].at("exchange"), k + 1);
      const auto summary = nlohmann::json::parse(tests::text_of(options.run_dir + "/summary.json"));
      EXPECT_EQ(summary.at("nodes_lost"), 1);
      EXPECT_EQ(summary.at("nodes_joined"), 1);
      EXPECT_EQ(summary.at("accuracy"), summary.at("accuracy_compact"));
      const auto changes = changes_of(options.run_dir);
      if (lost == 2 && !at_once && changes.front().at("exchange") == changes.back().at("exchange")) {
        EXPECT_EQ(summary.at("images_lost"), 0) << "it had taken no part";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RunWithNewcomers,
                         testing::Values(AdmissionCase{"Gradients", "ddp", 1}, AdmissionCase{"Weights", "diloco", 1},
                                         AdmissionCase{"Workers", "diloco", 2}),
                         [](const auto& param) { return param.param.name; });

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
