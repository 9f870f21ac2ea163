// Ranks of a run, and a run that goes on, compute with one program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "prunex/models/models.h"
#include "prunex/program/pt2.h"
#include "tests/scratch.h"
#include "tests/texts.h"
#include "tests/train/whole_runs.h"

namespace prunex::train {
namespace {

using testing::HasSubstr;

/// Weights by the seed; what is computed with them by the momentum of batch norm.
program::Model network(uint64_t seed, double momentum) {
  program::Model model = models::make_model("resnet8", {.seed = seed});
  program::Graph graph = model.program.graph();
  for (auto& node : graph.nodes) {
    if (node.target == "aten::batch_norm") node.set("momentum", momentum);
  }
  return {program::Program(std::move(graph)), std::move(model.weights)};
}

TEST(Checksum, IsOfWhatAProgramComputes) {
  program::Graph graph = network(0, 0.1).program.graph();
  const uint64_t sum = program::checksum(graph);
  EXPECT_EQ(program::checksum(network(1, 0.1).program.graph()), sum);
  EXPECT_NE(program::checksum(network(0, 0.2).program.graph()), sum);
  for (auto& node : graph.nodes) node.metadata = R"({"stack_trace": "/home/of/somebody"})";
  EXPECT_EQ(program::checksum(graph), sum);
  const auto with_constant = [&](double value) {
    program::Graph more = graph;
    more.values.push_back({.name = "table", .role = program::Role::kConstant, .weight = "table", .shape = {{2}}});
    more.constants.emplace("table", at::full({2}, value));
    return program::checksum(more);
  };
  EXPECT_EQ(with_constant(1), with_constant(1));
  EXPECT_NE(with_constant(1), with_constant(2));
}

TEST(Programs, OfAllRanksAreTheSameWhateverTheirWeights) {
  const tests::Scratch scratch;
  write_pt2(scratch / "a.pt2", network(0, 0.1));
  write_pt2(scratch / "weights.pt2", network(1, 0.1));
  write_pt2(scratch / "momentum.pt2", network(0, 0.2));
  const auto outcome = [&](const std::string& of_second) {
    std::array<std::string, 2> said;
    TrainOptions options = tiny_run(160, 1);
    options.nodes = 2;
    options.run_dir = scratch / ("with-" + of_second);
    comm::run_ranks(shape_of(options), [&](comm::Hierarchy& ranks) {
      const int rank = ranks.layout.rank;
      TrainOptions own = options;
      own.model = scratch / (rank == 0 ? "a.pt2" : of_second);
      said[static_cast<size_t>(rank)] = tests::message([&] { train(own, ranks, kConfig); });
    });
    return said;
  };
  EXPECT_THAT(outcome("weights.pt2"), testing::Each("no exception"));
  EXPECT_THAT(outcome("momentum.pt2"), testing::Each(HasSubstr("rank 1 has another network there than rank 0")));
}

TEST(Programs, OfARunThatGoesOnAreThoseWithWhichItBegan) {
  const tests::Scratch scratch;
  TrainOptions options = two_node_run(scratch / "run");
  options.model = scratch / "net.pt2";
  options.checkpoint_every = 5;  // the network has been cut
  write_pt2(options.model, network(0, 0.1));
  run_to_end(options);
  options.resume = options.run_dir;
  options.resume_exchange = 5;
  write_pt2(options.model, network(1, 0.1));
  EXPECT_EQ(run_to_end(options).exchanges, 6);
  write_pt2(options.model, network(0, 0.2));
  EXPECT_THAT(tests::message([&] { run_to_end(options); }),
              HasSubstr("net.pt2: not the network with which the run began"));
}

}  // namespace
}  // namespace prunex::train
