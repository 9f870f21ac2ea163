// prunex bench: what it measures is verified, and its bytes are those of the cost model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"
#include "tests/scratch.h"

namespace prunex::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json results_of(const tests::Scratch& scratch, const std::vector<std::string>& more) {
  std::vector<std::string> words{"bench", "all_reduce", "--json", "bench.json", "-n", "2", "-w", "1"};
  words.insert(words.end(), more.begin(), more.end());
  const Result result = run(scratch.path(), words);
  EXPECT_EQ(result.status, 0) << result.errors;
  std::ifstream file(scratch / "bench.json");
  return json::parse(file);
}

TEST(BenchAllReduce, SendsTheBytesOfTheCostModel) {
  const tests::Scratch scratch;
  const json results = results_of(
      scratch, {"--nodes", "2", "--ranks-per-node", "2", "-b", "16K", "-e", "4M", "-f", "256", "--line-rate", "1000"});
  ASSERT_EQ(results.size(), 6);
  for (const auto& result : results) {
    const double members = result["form"] == "flat" ? 4 : 2;
    const double bytes = result["bytes"];
    EXPECT_EQ(result["wrong"], 0) << result;
    EXPECT_NEAR(result["node_bytes"].get<double>(), 2 * (members - 1) / members * bytes, 0.02 * bytes) << result;
    // 2(M-1)/M S at 125 MB/s
    EXPECT_NEAR(result["bound_seconds"].get<double>(), bytes / 125e6, 1e-12) << result;
    EXPECT_GE(result["model_seconds"], result["bound_seconds"]) << result;
    EXPECT_GT(result["seconds"], 0);
  }
}

TEST(BenchAllReduce, RunsWithoutSharedMemory) {
  const tests::Scratch scratch;
  for (const auto& result : results_of(scratch, {"--nodes", "3", "--ranks-per-node", "1", "--form", "sharded", "-b",
                                                 "64K", "-e", "64K", "--no-shared-memory"})) {
    EXPECT_EQ(result["wrong"], 0);
    EXPECT_FALSE(result.contains("bound_seconds")) << "no rate was given";
    EXPECT_NEAR(result["node_bytes"].get<double>(), 4.0 / 3 * 65536, 2000);
  }
}

TEST(BenchAllReduce, SaysNothingOfResultsThatItDoesNotCheck) {
  const tests::Scratch scratch;
  const json results = results_of(scratch, {"--nodes", "2", "--form", "flat", "-b", "4", "-e", "4", "-c", "0"});
  EXPECT_FALSE(results.at(0).contains("wrong"));
}

TEST(BenchAllReduce, RefusesWhatMakesNoSense) {
  const tests::Scratch scratch;
  const std::string secret = write_secret(scratch / "secret", std::string(64, 's'));
  const Result same =
      run(scratch.path(), {"bench", "all_reduce", "--nodes", "2", "--secret-file", secret, "--json", "./secret"});
  EXPECT_EQ(same.status, 2);
  EXPECT_THAT(same.errors, HasSubstr("--json: got ./secret, which is --secret-file"));
  const Result size = run(scratch.path(), {"bench", "all_reduce", "-b", "many"});
  EXPECT_EQ(size.status, 2);
  EXPECT_THAT(size.errors, HasSubstr("-b: got 'many', wanted bytes, from 4 to 1024G, such as 4096, 64K or 16M"));
  const Result form = run(scratch.path(), {"bench", "all_reduce", "--form", "ring"});
  EXPECT_EQ(form.status, 2);
  EXPECT_THAT(form.errors, HasSubstr("--form"));
  EXPECT_EQ(run(scratch.path(), {"bench"}).status, 2);
}

}  // namespace
}  // namespace prunex::cli
