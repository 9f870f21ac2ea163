// Interrupted runs: what is resumed equals what was never interrupted.
#include "prunex/train/run/checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "prunex/comm/connect.h"
#include "prunex/io/safetensors.h"
#include "prunex/train/trainer.h"
#include "tests/full_disk.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using tests::text_of;

namespace fs = std::filesystem;

nlohmann::json summary_of(const std::string& run_dir) {
  return nlohmann::json::parse(text_of(run_dir + "/summary.json"));
}

/// What a run's groups have moved, by group and operation, without times.
std::map<std::string, std::vector<int64_t>> moved_by(const std::string& run_dir) {
  std::map<std::string, std::vector<int64_t>> moved;
  const auto summary = summary_of(run_dir);
  for (const auto& [group, operations] : summary.at("traffic").items()) {
    for (const auto& [operation, counts] : operations.items()) {
      moved[group + "/" + operation] = {counts.at("count"), counts.at("payload_bytes"), counts.at("sent_bytes")};
    }
  }
  return moved;
}

/// Runs to the end with a checkpoint of `exchange` kept aside, goes on from it in another folder and compares.
void expect_resumed_equals_whole(TrainOptions options, int64_t exchange) {
  SCOPED_TRACE(exchange);
  const tests::Scratch scratch;
  const std::string whole = scratch / "whole", part = scratch / "part";
  options.run_dir = part;
  options.exchanges = 6;
  // the checkpoints of the last two exchanges are kept: every `exchange`-th leaves this one and the one after
  options.checkpoint_every = exchange;
  run_to_end(options);
  fs::copy(part, whole, fs::copy_options::recursive);
  fs::remove(part + "/model.safetensors");
  options.resume = part;
  options.resume_exchange = exchange;
  run_to_end(options);
  EXPECT_EQ(text_of(part + "/model.safetensors"), text_of(whole + "/model.safetensors"));
  EXPECT_EQ(text_of(part + "/model.pt2"), text_of(whole + "/model.pt2"));
  EXPECT_EQ(lines_without_seconds(part), lines_without_seconds(whole));
  EXPECT_FALSE(moved_by(whole).empty());
  EXPECT_EQ(moved_by(part), moved_by(whole));
  const auto summary = summary_of(part);  // of both parts, as the seconds of the exchanges are
  EXPECT_GE(summary.at("wall_seconds").get<double>(), summary.at("seconds").at("total").get<double>());
}

TEST(Checkpoint, AResumedRunEqualsTheWholeOneBeforeTheCutAtItAndAfterIt) {
  for (const int64_t exchange : {3, 4, 5}) expect_resumed_equals_whole(two_node_run(""), exchange);
}

/// Where replicas are in step a node has one optimizer; it had been written by every rank.
TEST(Checkpoint, TheOptimizerOfARunOfGradientsMayBeInEveryRanksShare) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "run");
  options.strategy = "ddp";
  options.checkpoint_every = 3;
  run_to_end(options);
  const auto whole = lines_without_seconds(options.run_dir);
  for (const int rank : {0, 1}) {
    const auto file = [&](const char* of) {
      return fmt::format("{}/checkpoint/3/{}-{}.safetensors", options.run_dir, of, rank);
    };
    const auto node = io::read_safetensors(file("node"));
    auto own = io::read_safetensors(file("rank"));
    TensorDict rest;
    for (const auto& item : node.tensors) {
      (item.key().starts_with("momentum/") ? own.tensors : rest).insert(item.key(), item.value());
    }
    EXPECT_LT(rest.size(), node.tensors.size());
    io::write_safetensors(file("node"), rest, node.metadata);
    io::write_safetensors(file("rank"), own.tensors, own.metadata);
  }
  options.resume = options.run_dir;
  options.resume_exchange = 3;
  run_to_end(options);
  EXPECT_EQ(lines_without_seconds(options.run_dir), whole);
}

/// Optimizers with all else that a recipe has: in the middle of the training, and after the cut.
TEST(Checkpoint, AResumedRunEqualsTheWholeOneWithEveryOptimizer) {
  for (const auto rule :
       {Optimizer::kSgd, Optimizer::kNesterov, Optimizer::kAdamW, Optimizer::kLamb, Optimizer::kMuon}) {
    TrainOptions options = two_node_run("");
    options.optimizer = rule;
    options.clip_norm = 1;
    options.label_smoothing = 0.1;
    options.mix = {.mixup = 0.5, .cutmix = 1};
    options.ema = 0.9;
    for (const int64_t exchange : {3, 5}) expect_resumed_equals_whole(options, exchange);
  }
}

TEST(Checkpoint, AResumedRunEqualsTheWholeOneWithATeacher) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "teacher");
  options.exchanges = 3;
  run_to_end(options);
  options.teacher = scratch / "teacher/model.pt2";
  expect_resumed_equals_whole(options, 3);
}

/// Before the cut, at it and after it.
TEST(Checkpoint, AResumedRunEqualsTheWholeOneWithTheWholeNetworkAsTeacher) {
  TrainOptions options = two_node_run("");
  options.strategy = "diloco";
  options.pruning.target = "speed-up=2";
  options.teacher = kWholeTeacher;
  for (const int64_t exchange : {3, 4, 5}) expect_resumed_equals_whole(options, exchange);
}

/// One of the two is not what `auto` is on this machine.
TEST(Checkpoint, UnderAutoTheArithmeticStaysWhatItWas) {
  for (const auto& [precision, name] : {std::pair(Precision::kBf16, "bf16"), std::pair(Precision::kFp32, "fp32")}) {
    const tests::Scratch scratch;
    TrainOptions options = two_node_run(scratch / "run");
    options.nodes = 1;
    options.exchanges = 3;
    options.checkpoint_every = 1;
    options.precision = precision;
    run_to_end(options);
    options.precision = Precision::kAuto;
    options.resume = options.run_dir;
    options.resume_exchange = 2;
    EXPECT_EQ(run_to_end(options).precision, name);
  }
}

TEST(Checkpoint, DualsThatGoOnAndThetaOfItsOwnAreResumedToo) {
  TrainOptions options = two_node_run("");
  options.consensus.start_from = strategies::StartFrom::kTheta;
  options.after_freeze = strategies::AfterFreeze::kAdmm;
  options.masks.rule = strategies::MaskRule::kUnion;
  options.ranks_per_node = {2};
  for (const int64_t exchange : {3, 5}) expect_resumed_equals_whole(options, exchange);
}

/// Checkpoints of a made-up state, on one rank.
class Checkpointing : public testing::Test {
 protected:
  static Checkpoint made_up(int64_t exchange) {
    Checkpoint checkpoint;
    checkpoint.exchange = exchange;
    checkpoint.product.insert("w", at::full({3}, static_cast<double>(exchange)));
    checkpoint.node.insert("v/w", at::ones({3}));
    checkpoint.rank.insert("u/w", at::ones({3}));
    return checkpoint;
  }
  std::optional<std::string> save(int64_t exchange, const std::string& problem = "") {
    std::optional<std::string> failure;
    comm::run_ranks(1, 1, [&](comm::Hierarchy& ranks) {
      failure = Checkpoints(scratch_.path(), kConfig, ranks).save(made_up(exchange), problem);
    });
    return failure;
  }
  Checkpoint load(int64_t exchange = 0, const std::string& config = kConfig) {
    Checkpoint loaded;
    comm::run_ranks(
        1, 1, [&](comm::Hierarchy& ranks) { loaded = Checkpoints(scratch_.path(), config, ranks).load(exchange); });
    return loaded;
  }
  std::string file(int64_t exchange, const std::string& name) {
    return scratch_ / "checkpoint/" + std::to_string(exchange) + "/" + name;
  }

  tests::Scratch scratch_;
};

TEST_F(Checkpointing, TheLastTwoAreKept) {
  for (int64_t k : {2, 4, 6}) save(k);
  EXPECT_FALSE(fs::exists(file(2, "z.safetensors")));
  EXPECT_TRUE(fs::exists(file(4, "z.safetensors")));
  EXPECT_EQ(load().product["w"][0].item<double>(), 6);
}

TEST_F(Checkpointing, OnesOfARunThatWasGoneBackFromAreRemovedByTheNext) {
  for (int64_t k : {8, 12, 9}) save(k);
  EXPECT_EQ(load().exchange, 9);
  EXPECT_EQ(load(8).exchange, 8);
  EXPECT_FALSE(fs::exists(file(12, "")));
}

TEST_F(Checkpointing, OneThatIsNotWholeIsNotKeptInsteadOfOneThatIs) {
  for (int64_t k : {10, 20}) save(k);
  fs::remove(file(20, "rank-0.safetensors"));
  save(30);
  EXPECT_FALSE(fs::exists(file(20, "")));
  EXPECT_EQ(load(10).exchange, 10);
  EXPECT_EQ(load().exchange, 30);
}

// Of 30 a rank's file is missing, which the others do not look for.
TEST_F(Checkpointing, TheOneThatWasGoneOnFromIsKept) {
  comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
    Checkpoints checkpoints(scratch_.path(), kConfig, ranks);
    for (int64_t k : {10, 20, 30}) EXPECT_EQ(checkpoints.save(made_up(k)), std::nullopt);
  });
  fs::remove(file(30, "rank-1.safetensors"));
  comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
    Checkpoints checkpoints(scratch_.path(), kConfig, ranks);
    EXPECT_EQ(checkpoints.load(0).exchange, 20);
    EXPECT_EQ(checkpoints.save(made_up(37)), std::nullopt);
  });
  EXPECT_TRUE(fs::exists(file(20, "z.safetensors")));
  EXPECT_FALSE(fs::exists(file(30, "")));
}

TEST_F(Checkpointing, NothingStaysOfOneInWhichAnElasticRunLosesARank) {
  comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
    Checkpoints checkpoints(scratch_.path(), kConfig, ranks, true);
    EXPECT_EQ(checkpoints.save(made_up(10)), std::nullopt);
    if (ranks.layout.rank == 1) return;
    ranks.world->abort("lost rank 1");
    EXPECT_THAT([&] { checkpoints.save(made_up(20)); }, ThrowsMessage<std::runtime_error>(HasSubstr("lost rank 1")));
  });
  EXPECT_FALSE(fs::exists(file(20, "")));
  EXPECT_EQ(load().exchange, 10);
}

TEST_F(Checkpointing, OneThatNotAllFilesOfWereWrittenDoesNotCount) {
  save(2);
  save(4);
  fs::remove(file(4, "rank-0.safetensors"));
  EXPECT_EQ(load().exchange, 2);
}

TEST_F(Checkpointing, WhatKilledRanksLeftIsRemovedByTheNextRun) {
  save(2);
  save(4);
  fs::remove(file(4, "rank-0.safetensors"));
  std::ofstream(file(2, "node-0.safetensors.123-0123abcd.tmp")) << "half";
  EXPECT_EQ(load().exchange, 2);
  EXPECT_FALSE(fs::exists(file(4, "z.safetensors")));
  EXPECT_EQ(std::distance(fs::directory_iterator(file(2, "")), {}), 3);
}

/// As where each machine has a disk of its own and the ranks are started in another order, or all on one.
TEST_F(Checkpointing, ThatHasFilesOfOtherRanksAloneIsLeftForThem) {
  const std::string disks[] = {scratch_ / "0", scratch_ / "1"};
  comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
    const std::string& own = disks[ranks.layout.rank];
    fs::create_directory(own);
    EXPECT_EQ(Checkpoints(own, kConfig, ranks).save(made_up(2)), std::nullopt);
  });
  for (const auto& order : {std::array{1, 0}, std::array{0, 0}}) {
    comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
      Checkpoints checkpoints(disks[order[static_cast<size_t>(ranks.layout.rank)]], kConfig, ranks);
      EXPECT_THAT([&] { checkpoints.load(0); },
                  ThrowsMessage<std::invalid_argument>(HasSubstr("no complete checkpoint")));
    });
  }
  comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
    EXPECT_EQ(Checkpoints(disks[ranks.layout.rank], kConfig, ranks).load(0).exchange, 2);
  });
}

/// Of `nodes` nodes of one rank each, on one disk.
TEST_F(Checkpointing, OfAnElasticRunIsNotWholeWithoutTheShareOfANodeThatTookPart) {
  const auto on = [&](int nodes, const auto& call) {
    comm::run_ranks(nodes, 1, [&](comm::Hierarchy& ranks) {
      Checkpoints checkpoints(scratch_.path(), kConfig, ranks, true);
      call(checkpoints, ranks.layout.rank);
    });
  };
  const auto save_by = [&](int nodes, int64_t exchange, double value) {
    on(nodes, [&](Checkpoints& checkpoints, int rank) {
      Checkpoint checkpoint = made_up(exchange);
      checkpoint.product["w"].fill_(value);
      checkpoint.rank["u/w"].fill_(value + rank);
      EXPECT_EQ(checkpoints.save(checkpoint), std::nullopt);
    });
  };
  /// The exchange that all go on from, and the last rank's own.
  const auto load_by = [&](int nodes) {
    std::pair<int64_t, double> loaded;
    on(nodes, [&](Checkpoints& checkpoints, int rank) {
      const Checkpoint checkpoint = checkpoints.load(0);
      if (rank == nodes - 1) loaded = {checkpoint.exchange, checkpoint.rank["u/w"][0].item<double>()};
    });
    return loaded;
  };
  save_by(3, 10, 100);
  save_by(3, 20, 200);
  EXPECT_EQ(load_by(3), std::pair(int64_t{20}, 202.0));
  EXPECT_EQ(load_by(2), std::pair(int64_t{20}, 201.0));
  EXPECT_EQ(load_by(4), std::pair(int64_t{20}, 0.0));  // as one that has just joined
  // a run that went on from 10 on two nodes; what the third had at 20 is of the run before
  save_by(2, 20, 300);
  EXPECT_EQ(load_by(3), std::pair(int64_t{20}, 0.0));
  // all ranks were killed in the middle of a save
  save_by(2, 30, 400);
  fs::remove(file(30, "rank-1.safetensors"));
  fs::remove(file(30, "node-1.safetensors"));
  EXPECT_EQ(load_by(2), std::pair(int64_t{20}, 301.0));
}

/// Machines with disks of their own: all ranks were killed when one had saved again what the run had saved before.
TEST_F(Checkpointing, OfTwoSavesOfOneExchangeIsNone) {
  const auto each = [&](const auto& call) {
    comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
      const std::string disk = scratch_ / std::to_string(ranks.layout.rank);
      fs::create_directory(disk);
      Checkpoints checkpoints(disk, kConfig, ranks);
      call(checkpoints, ranks.layout.rank);
    });
  };
  for (const int64_t exchange : {10, 20}) {
    each([&](Checkpoints& checkpoints, int) { EXPECT_EQ(checkpoints.save(made_up(exchange)), std::nullopt); });
  }
  fs::rename(scratch_ / "0/checkpoint/20", scratch_ / "before");
  each([&](Checkpoints& checkpoints, int) {
    Checkpoint again = made_up(20);
    again.product["w"].fill_(99);
    EXPECT_EQ(checkpoints.save(again), std::nullopt);
  });
  fs::remove_all(scratch_ / "0/checkpoint/20");
  fs::rename(scratch_ / "before", scratch_ / "0/checkpoint/20");
  each([&](Checkpoints& checkpoints, int) { EXPECT_EQ(checkpoints.load(0).exchange, 10); });
}

TEST_F(Checkpointing, ADirectoryIsTakenThatHoldsMoreThanARunBeginsWith) {
  const auto is_taken = [&](const std::string& directory) {
    bool taken = false;
    comm::run_ranks(1, 1, [&](comm::Hierarchy& ranks) { taken = Checkpoints(directory, kConfig, ranks).is_taken(); });
    return taken;
  };
  EXPECT_FALSE(is_taken(scratch_ / "none"));
  EXPECT_FALSE(is_taken(scratch_.path()));
  std::ofstream(scratch_ / "config.toml") << kConfig;
  EXPECT_FALSE(is_taken(scratch_.path()));
  std::ofstream(scratch_ / "summary.json") << "{}";
  EXPECT_TRUE(is_taken(scratch_.path())) << "a run that is done";
  fs::remove(scratch_ / "summary.json");
  save(2);
  EXPECT_TRUE(is_taken(scratch_.path())) << "one that can go on";
  fs::remove_all(scratch_ / "checkpoint");
  std::ofstream(scratch_ / "config.toml") << "seed=8\n";
  EXPECT_TRUE(is_taken(scratch_.path())) << "another run";
}

TEST_F(Checkpointing, OnAFullDiskNothingOfItStaysAndTheOnesBeforeDo) {
  EXPECT_EQ(save(2), std::nullopt);
  EXPECT_EQ(save(3), std::nullopt);
  {
    const tests::FullDisk disk(100);
    const auto failure = save(4);
    ASSERT_TRUE(failure.has_value());
    EXPECT_THAT(*failure, AllOf(HasSubstr("cannot write"), HasSubstr("checkpoint/4/z.safetensors")));
  }
  EXPECT_EQ(save(5, "no metrics"), "no metrics");
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch_ / "checkpoint"), {}), 2);
  EXPECT_EQ(load(2).exchange, 2);
  EXPECT_EQ(load().exchange, 3);
}

TEST_F(Checkpointing, OfSeveralRanksIsNoneIfOneCannotWriteItAndOnlyThatOneSaysWhy) {
  comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
    Checkpoint checkpoint;
    checkpoint.exchange = 2;
    checkpoint.rank.insert("u/w", at::ones({3}));
    const bool fails = ranks.layout.rank == 1;
    const auto failure = Checkpoints(scratch_.path(), kConfig, ranks).save(checkpoint, fails ? "no room" : "");
    EXPECT_EQ(failure, fails ? "no room" : "");
  });
  EXPECT_FALSE(fs::exists(file(2, "rank-0.safetensors")));
}

/// Where ranks share no disk, one of them may still have a directory of this name.
TEST_F(Checkpointing, AnotherRunsConfigurationIsReplacedAndTheRunsOwnIsNot) {
  const std::string own = std::string(kConfig) + "heartbeat-timeout=7\n", config = scratch_ / "config.toml";
  for (const std::string& others : {std::string(), std::string("lr=0.1\nseed=8\n"), std::string("no settings")}) {
    std::ofstream(config) << others;
    save(2);
    EXPECT_EQ(text_of(config), kConfig) << others;
  }
  std::ofstream(config) << own;
  save(4);
  EXPECT_EQ(text_of(config), own);
}

TEST_F(Checkpointing, ADamagedFileIsNamedAndTheOneBeforeOffered) {
  save(2);
  save(4);
  std::string bytes = text_of(file(4, "node-0.safetensors"));
  bytes.back() ^= 1;
  std::ofstream(file(4, "node-0.safetensors"), std::ios::binary) << bytes;
  EXPECT_THAT([&] { load(); }, ThrowsMessage<std::runtime_error>(
                                   AllOf(HasSubstr("4/node-0.safetensors"), HasSubstr("`resume_exchange` 2"))));
  EXPECT_EQ(load(2).exchange, 2);
}

TEST_F(Checkpointing, AnotherOptionIsRefusedByName) {
  save(2);
  EXPECT_THAT([&] { load(0, "lr=0.1\nseed=7\n"); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("`seed`: got 7"), HasSubstr("had 0"))));
}

TEST_F(Checkpointing, WhatTheResultDoesNotDependOnMayDiffer) {
  const auto config = [](const std::string& folder, double seconds, bool is_on) {
    return fmt::format("data-dir = \"{}\"\nheartbeat-timeout = {}\ntrace = {}\nno-shared-memory = {}\nseed = 0\n",
                       folder, seconds, is_on, is_on);
  };
  std::ofstream(scratch_ / "config.toml") << config("old", 1.5, false);
  Checkpoint checkpoint;
  checkpoint.exchange = 2;
  checkpoint.product.insert("w", at::ones({1}));
  comm::run_ranks(1, 1, [&](comm::Hierarchy& ranks) {
    Checkpoints(scratch_.path(), config("old", 1.5, false), ranks).save(checkpoint);
  });
  EXPECT_EQ(load(0, config("new", 60, true)).exchange, 2);
}

/// There are no files for a third node: its number is what differs, and what is said.
TEST_F(Checkpointing, AnotherLayoutIsRefusedByNameBeforeItsFilesAreLookedFor) {
  std::ofstream(scratch_ / "config.toml") << "nodes=2\nseed=0\n";
  EXPECT_THAT([&] { load(0, "nodes=3\nseed=0\n"); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("`nodes`: got 3"), HasSubstr("had 2"))));
}

/// By the survivors of an elastic run, who have other numbers than before.
TEST_F(Checkpointing, OfNodesOfDifferentSizesIsForThoseAlone) {
  const auto save = [&](std::vector<int> sizes, int64_t exchange) {
    comm::run_ranks(comm::Layout{.node_sizes = std::move(sizes)}, [&](comm::Hierarchy& ranks) {
      Checkpoints(scratch_.path(), kConfig, ranks, true).save(made_up(exchange));
    });
  };
  const auto loaded = [&](std::vector<int> sizes) {
    std::string of_rank_0;
    comm::run_ranks(comm::Layout{.node_sizes = std::move(sizes)}, [&](comm::Hierarchy& ranks) {
      const auto said = tests::message([&] { Checkpoints(scratch_.path(), kConfig, ranks, true).load(0); });
      if (ranks.layout.rank == 0) of_rank_0 = said;
    });
    return of_rank_0;
  };
  save({2, 2, 1}, 1);
  EXPECT_EQ(loaded({2, 2, 1}), "no exception");
  save({2, 2}, 2);
  EXPECT_EQ(loaded({2, 2, 2}), "no exception");
  EXPECT_THAT(loaded({2, 2, 1}), testing::EndsWith("checkpoint/2: was saved by nodes of 2,2 ranks after others were "
                                                   "lost, from which nodes of 2,2,1 cannot go on; `resume_exchange` 1 "
                                                   "goes on from before that"));
}

TEST_F(Checkpointing, NoneIsOneLine) {
  EXPECT_THAT([&] { load(); }, ThrowsMessage<std::invalid_argument>(HasSubstr("no complete checkpoint")));
  save(2);
  EXPECT_THAT([&] { load(3); }, ThrowsMessage<std::invalid_argument>(HasSubstr("`resume_exchange` 3")));
}

/// A rank that begins as one that has just joined.
TEST_F(Checkpointing, WhoHasNoShareHasTheChecksumsOfTheNodesAndNotThoseOfARank) {
  comm::run_ranks(1, 1, [&](comm::Hierarchy& ranks) {
    Checkpoint checkpoint = made_up(2);
    checkpoint.node.insert(kImagesChecksum, at::full({1}, 5, at::kLong));
    checkpoint.rank.insert(kTeacherChecksum, at::full({1}, 7, at::kLong));
    Checkpoints(scratch_.path(), kConfig, ranks, true).save(checkpoint);
  });
  comm::run_ranks(2, 1, [&](comm::Hierarchy& ranks) {
    const Checkpoint loaded = Checkpoints(scratch_.path(), kConfig, ranks, true).load(0);
    const at::Tensor* images = checksum_in(loaded, kImagesChecksum);
    ASSERT_NE(images, nullptr);
    EXPECT_EQ(images->item<int64_t>(), 5);
    EXPECT_EQ(checksum_in(loaded, kTeacherChecksum) != nullptr, ranks.layout.rank == 0);
  });
}

}  // namespace
}  // namespace prunex::train
