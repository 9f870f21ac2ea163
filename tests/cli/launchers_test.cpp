// Ranks that other launchers start: their variables are set here, over loopback.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "tests/scratch.h"

namespace prunex::cli {
namespace {

using nlohmann::json;
using Variables = std::vector<std::string>;
using testing::HasSubstr;

bool is_free(int port) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool free = bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(listener);
  return free;
}

/// A port from `least` on, not the one of another run of this test.
int free_port(int least) {
  int port = least + getpid() % 10000;
  while (!is_free(port)) ++port;
  return port;
}

// Three ranks: two on the first node, one on the second.
std::vector<Variables> slurm() {
  const std::string job = std::to_string(free_port(15000) - 15000);  // the first step's port is 15000 + job
  std::vector<Variables> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back({"SLURM_JOB_ID=" + job, "SLURM_STEP_ID=0", "SLURM_NTASKS=3", "SLURM_STEP_NUM_TASKS=3",
                     "SLURM_PROCID=" + std::to_string(rank), "SLURM_LOCALID=" + std::to_string(rank % 2),
                     "SLURM_NODEID=" + std::to_string(rank / 2), "SLURM_STEP_TASKS_PER_NODE=2,1",
                     "SLURM_STEP_NODELIST=localhost,node[02-03]"});
  }
  return ranks;
}

std::vector<Variables> open_mpi() {
  const std::string port = std::to_string(free_port(15000));
  std::vector<Variables> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back({"OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK=" + std::to_string(rank),
                     "OMPI_COMM_WORLD_LOCAL_RANK=" + std::to_string(rank % 2),
                     "OMPI_COMM_WORLD_LOCAL_SIZE=" + std::to_string(rank < 2 ? 2 : 1), "MASTER_ADDR=127.0.0.1",
                     "MASTER_PORT=" + port});
  }
  return ranks;
}

class Launchers : public testing::Test {
 protected:
  /// One process per rank, and what each of them answered.
  std::vector<Result> train(const std::vector<Variables>& ranks, const std::vector<std::string>& more) {
    std::vector<std::unique_ptr<Running>> processes;
    for (const auto& variables : ranks) {
      std::vector<std::string> words{"/usr/bin/env"};
      words.insert(words.end(), variables.begin(), variables.end());
      words.insert(words.end(),
                   {PRUNEX_BINARY, "train", "--samples", "80", "--model", "resnet8", "--precision", "fp32",
                    "--batch-size", "4", "--local-steps", "1", "--exchanges", "2", "--quiet", "--run-dir", "run"});
      words.insert(words.end(), more.begin(), more.end());
      processes.push_back(std::make_unique<Running>(scratch_.path(), words));
    }
    std::vector<Result> results;
    for (auto& process : processes) results.push_back(process->finish());
    return results;
  }

  void expect_trains_on_unequal_nodes(const std::vector<Variables>& ranks) {
    for (const auto& result : train(ranks, {"--nodes", "2", "--ranks-per-node", "2,1"})) {
      EXPECT_EQ(result.status, 0) << result.errors;
      EXPECT_EQ(result.errors, "");
    }
    const json summary = json::parse(std::ifstream(scratch_ / "run/summary.json"));
    EXPECT_EQ(summary["ranks_per_node"], (json{2, 1}));
    EXPECT_EQ(summary["samples"], 3 * 4 * 2);
  }

  const tests::Scratch scratch_;
};

TEST_F(Launchers, SlurmStartsARun) {
  expect_trains_on_unequal_nodes(slurm());
}

TEST_F(Launchers, OpenMpiStartsARun) {
  expect_trains_on_unequal_nodes(open_mpi());
}

TEST_F(Launchers, ThatStartOtherNodesAreRefused) {
  const auto results = train(open_mpi(), {"--nodes", "3"});
  EXPECT_EQ(results[0].status, 2);
  EXPECT_THAT(results[0].errors,
              HasSubstr("--nodes, --ranks-per-node: got 3 nodes x 1 ranks, the launcher started nodes of 2, 1 ranks"));
}

}  // namespace
}  // namespace prunex::cli
