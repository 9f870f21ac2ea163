// Whole runs on the device: every strategy, payload, cut, penalty, checkpoint and evaluation has the CPU's numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "prunex/io/safetensors.h"
#include "tests/device/late_streams.h"
#include "tests/device/pretend_device.h"
#include "tests/device/pretend_graph.h"
#include "tests/device/pretend_memory.h"
#include "tests/device/same_bits.h"
#include "tests/device/small_runs.h"
#include "tests/json_lines.h"
#include "tests/texts.h"

namespace prunex::tests {
namespace {

using nlohmann::json;

/// Norms are sums over all entries, which a device adds up in an order of its own.
constexpr double kOfNorms = 1e-12;

void expect_same_norms(const json& here, const json& there) {
  ASSERT_EQ(here.size(), there.size());
  for (auto item = here.begin(); item != here.end(); ++item) {
    const json& other = here.is_object() ? there.at(item.key()) : there.at(item - here.begin());
    if (item->is_structured()) {
      expect_same_norms(*item, other);
    } else {
      EXPECT_NEAR(item->get<double>(), other.get<double>(), kOfNorms * (1 + item->get<double>()));
    }
  }
}

void expect_same_metrics(const std::string& here, const std::string& there) {
  auto ours = json_lines(here + "/metrics.jsonl"), theirs = json_lines(there + "/metrics.jsonl");
  ASSERT_EQ(ours.size(), theirs.size());
  ASSERT_FALSE(ours.empty());
  for (size_t line = 0; line < ours.size(); ++line) {
    for (json* both : {&ours[line], &theirs[line]}) both->erase("seconds");
    if (ours[line].contains("residuals")) {
      expect_same_norms(ours[line]["residuals"], theirs[line].at("residuals"));
      for (json* both : {&ours[line], &theirs[line]}) both->erase("residuals");
    }
    EXPECT_EQ(ours[line], theirs[line]);
  }
}

/// All nodes write the product of a checkpoint; running statistics may be each node's own.
TensorDict without_statistics(const TensorDict& tensors) {
  TensorDict rest;
  for (const auto& item : tensors) {
    if (item.key().find("running_") == std::string::npos) rest.insert(item.key(), item.value());
  }
  return rest;
}

/// model.safetensors, and what every rank and node has saved.
void expect_same_tensors(const std::string& here, const std::string& there) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(here)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto name = std::filesystem::relative(entry.path(), here).string();
    SCOPED_TRACE(name);
    const auto ours = io::read_safetensors(entry.path()).tensors,
               theirs = io::read_safetensors(there + "/" + name).tensors;
    if (entry.path().filename() == "z.safetensors") {
      expect_same_bits(without_statistics(ours), without_statistics(theirs));
    } else {
      expect_same_bits(ours, theirs);
    }
    ++files;
  }
  EXPECT_GT(files, 5);
}

void expect_same_runs(const std::string& here, const std::string& there) {
  expect_same_metrics(here, there);
  expect_same_tensors(here, there);
  EXPECT_EQ(text_of(here + "/structure.json"), text_of(there + "/structure.json"));
}

SmallRun run_named(const std::string& name) {
  const auto runs = small_runs();
  const auto run = std::find_if(runs.begin(), runs.end(), [&](const auto& one) { return one.name == name; });
  if (run == runs.end()) throw std::out_of_range(name);
  return *run;
}

class WholeRun : public testing::TestWithParam<SmallRun> {};

TEST_P(WholeRun, HasTheCpusNumbersOnTheDevice) {
  const Scratch folder;
  const auto options = options_of(GetParam(), folder, "here"), other = options_of(GetParam(), folder, "there");
  const auto here = run_on(c10::kCPU, options);
  const HostTraffic before = host_traffic();
  const auto there = run_on(pretend_device().type(), other);
  EXPECT_GT((host_traffic() - before).kernels, 1000) << "it ran somewhere else";
  EXPECT_EQ(here.accuracy, there.accuracy);
  EXPECT_EQ(here.loss, there.loss);
  EXPECT_EQ(here.parameters_compact, there.parameters_compact);
  expect_same_runs(options.run_dir, other.run_dir);
}

INSTANTIATE_TEST_SUITE_P(OnTheDevice, WholeRun, testing::ValuesIn(small_runs()),
                         [](const auto& info) { return info.param.name; });

/// Every rank's steps are replayed from graphs, of which the rank has so many in the run.
struct RecordedRun {
  const char* name;
  int64_t captures;
};

void PrintTo(const RecordedRun& run, std::ostream* out) {
  *out << run.name;
}

class WholeRunOfGraphs : public testing::TestWithParam<RecordedRun> {};

TEST_P(WholeRunOfGraphs, HasTheCpusNumbers) {
  const Scratch folder;
  const auto run = run_named(GetParam().name);
  auto options = options_of(run, folder, "here"), other = options_of(run, folder, "there");
  for (auto* one : {&options, &other}) one->local_steps = 4;
  run_on(c10::kCPU, options);
  const GraphCounts before = graph_counts();
  const auto there = run_on(pretend_device().type(), other, make_pretend_graph);
  EXPECT_EQ(there.graph_captures, GetParam().captures);
  EXPECT_EQ(graph_counts().captures - before.captures, GetParam().captures * train::shape_of(options).world_size());
  EXPECT_GT(graph_counts().replays, before.replays);
  expect_same_runs(options.run_dir, other.run_dir);
}

INSTANTIATE_TEST_SUITE_P(OnTheDevice, WholeRunOfGraphs,
                         testing::Values(RecordedRun{"ddp_fp32", 1}, RecordedRun{"diloco_int2", 1},
                                         RecordedRun{"hsadmm_fp32", 2}, RecordedRun{"hsadmm_as_the_paper", 2},
                                         RecordedRun{"hsadmm_admm_after_the_freeze_masked", 2},
                                         RecordedRun{"hsadmm_uneven_nodes_int4", 2}, RecordedRun{"scaffold_fp32", 1},
                                         RecordedRun{"top_k_fp32", 1}, RecordedRun{"powersgd_cut", 2},
                                         RecordedRun{"prunetrain_fp32", 1}, RecordedRun{"post_local_int2", 1},
                                         RecordedRun{"diloco_overlapped_int2", 1}, RecordedRun{"hsadmm_overlapped", 2},
                                         RecordedRun{"optimizer_adamw", 2}, RecordedRun{"optimizer_lamb", 2},
                                         RecordedRun{"optimizer_muon", 2}, RecordedRun{"cut_by_l2", 3},
                                         RecordedRun{"sparse_growing", 2}),
                         [](const auto& info) { return info.param.name; });

/// Nothing runs before somebody waits for it: an order that the code does not ask for would show.
class WholeRunOnLateStreams : public testing::TestWithParam<std::tuple<const char*, bool>> {};

void expect_the_cpus_numbers_on_late_streams(const std::string& name, const train::GraphMaker& make_graph) {
  const Scratch folder;
  const auto run = run_named(name);
  auto options = options_of(run, folder, "here"), other = options_of(run, folder, "there");
  for (auto* one : {&options, &other}) one->local_steps = 4;
  run_on(c10::kCPU, options);
  {
    const LateStreams late;
    run_on(pretend_device().type(), other, make_graph);
  }
  expect_same_runs(options.run_dir, other.run_dir);
}

TEST_P(WholeRunOnLateStreams, HasTheCpusNumbers) {
  const auto& [name, in_graphs] = GetParam();
  expect_the_cpus_numbers_on_late_streams(name, in_graphs ? make_pretend_graph : train::GraphMaker());
}

INSTANTIATE_TEST_SUITE_P(OnTheDevice, WholeRunOnLateStreams,
                         testing::Combine(testing::Values("ddp_fp32", "diloco_int2", "diloco_overlapped_int2",
                                                          "hsadmm_overlapped", "scaffold_fp32", "sparse_growing"),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "_in_graphs" : "");
                         });

/// Images that do not lie on the device.
TEST(WholeRunOfStreamedImages, HasTheCpusNumbersOnLateStreams) {
  PretendMemory::instance().set_free(1000);
  expect_the_cpus_numbers_on_late_streams("cropped_and_mirrored", make_pretend_graph);
  PretendMemory::instance().set_free(size_t{1} << 30);
}

TEST(WholeRunWithoutGraphs, IsKernelByKernelIfSoTold) {
  const Scratch folder;
  auto options = options_of(small_runs().front(), folder, "plain");
  options.cuda_graphs = false;
  const GraphCounts before = graph_counts();
  EXPECT_EQ(run_on(pretend_device().type(), options, make_pretend_graph).graph_captures, 0);
  EXPECT_EQ(graph_counts().captures, before.captures);
}

/// A checkpoint knows no device.
class ResumedRun : public testing::TestWithParam<SmallRun> {};

TEST_P(ResumedRun, GoesOnFromTheCpusCheckpointOnTheDevice) {
  const Scratch folder;
  auto options = options_of(GetParam(), folder, "here");
  options.checkpoint_every = 1;
  run_on(c10::kCPU, options);
  std::filesystem::copy(folder / "here", folder / "there", std::filesystem::copy_options::recursive);
  auto rest = options_of(GetParam(), folder, "there");
  rest.checkpoint_every = 1;
  rest.resume = rest.run_dir;
  rest.resume_exchange = 4;
  run_on(pretend_device().type(), rest);
  expect_same_runs(options.run_dir, rest.run_dir);
}

std::vector<SmallRun> some_runs() {
  std::vector<SmallRun> some;
  for (const char* name : {"hsadmm_int2", "hsadmm_as_the_paper", "diloco_int8", "scaffold_bf16", "prunetrain_fp32",
                           "top_k_deep_gradient_compression", "powersgd_cut", "sparse_growing"})
    some.push_back(run_named(name));
  return some;
}

INSTANTIATE_TEST_SUITE_P(OnTheDevice, ResumedRun, testing::ValuesIn(some_runs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace prunex::tests
