// The bytes a run reports against those the kernel saw.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/cli/command.h"
#include "tests/network.h"
#include "tests/scratch.h"

namespace prunex::cli {
namespace {

struct Bytes {
  double counted = 0;  // both nodes' exchanges, by summary.json
  double kernel = 0;   // all that crossed the loopback interface
  double told = 0;     // what of that summary.json has: the launcher's and the ranks' rendezvous is not in it
};

/// 40 exchanges of ResNet-20 between two nodes with one rank each. Start-up sends the weights once more; the interface
/// also carries the store, the statistics of the batch norm and acknowledgements.
Bytes bytes_of_a_run(const std::string& directory) {
  const int64_t before = tests::interface_bytes("lo");
  const Result result =
      run(directory, {"train",   "--nodes",      "2",         "--model",      "resnet20",    "--samples",
                      "400",     "--test-limit", "20",        "--batch-size", "2",           "--local-steps",
                      "1",       "--exchanges",  "40",        "--eval-every", "0",           "--groups",
                      "coupled", "--quiet",      "--run-dir", "run",          "--interface", "lo"});
  EXPECT_EQ(result.status, 0) << result.errors;
  const auto summary = nlohmann::json::parse(std::ifstream(directory + "/run/summary.json"));
  const double weights = 4.0 * summary["parameters_dense"].get<double>();
  return {2 * summary["inter_node_bytes"].get<double>(),
          static_cast<double>(tests::interface_bytes("lo") - before) - weights,
          summary["interface_bytes"]["lo"].at(0)["sent"].get<double>() - weights};
}

TEST(KernelCounters, AgreeWithTheBytesARunReports) {
  Bytes best;
  std::thread([&best] {
    // where the interface is shared, others' bytes come on top: the quietest of some tries
    const int tries = tests::enter_private_network() ? 1 : 3;
    for (int i = 0; i < tries; ++i) {
      const tests::Scratch scratch;
      const Bytes bytes = bytes_of_a_run(scratch.path());
      if (i == 0 || bytes.kernel < best.kernel) best = bytes;
    }
  }).join();
  EXPECT_NEAR(best.kernel / best.counted, 1, 0.06);
  EXPECT_NEAR(best.told / best.counted, 1, 0.06);
  EXPECT_LE(best.told, best.kernel);
}

}  // namespace
}  // namespace prunex::cli
