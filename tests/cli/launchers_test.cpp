// Ranks that other launchers start, over loopback: by their variables, set here, and by the launchers themselves.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/cli/command.h"
#include "tests/listening.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::cli {
namespace {

using nlohmann::json;
using Variables = std::vector<std::string>;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Three ranks: two on the first node, one on the second.
std::vector<Variables> slurm() {
  const std::string job = std::to_string(tests::free_port(15000) - 15000);  // the first step's port is 15000 + job
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
  const std::string port = std::to_string(tests::free_port(15000));
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

constexpr char kSlurm[] = PRUNEX_SOURCE_DIR "/tests/cli/slurm.sh";
constexpr char kSlurmExample[] = PRUNEX_SOURCE_DIR "/examples/slurm.sbatch";

/// Three ranks of one node; what they leave must be what prunex's own launcher leaves.
class RealLaunchers : public testing::Test {
 protected:
  /// Skips, or fails where nothing may be skipped, without the program.
  static std::string obstacle(const std::string& program) {
    const bool there = std::filesystem::exists(program) || std::getenv("PRUNEX_NO_SKIP") != nullptr;
    return there ? "" : "no " + program + ": scripts/setup.sh --tests";
  }

  static std::string obstacle_of_slurm() {
    if (const auto why = obstacle("/usr/sbin/slurmctld"); !why.empty()) return why;
    if (std::getenv("PRUNEX_NO_SKIP") != nullptr) return "";
    if (geteuid() != 0) return "Slurm's daemons want root";
    const std::filesystem::path groups = "/sys/fs/cgroup";
    const bool there = std::filesystem::exists(groups) && !std::filesystem::is_empty(groups);
    return there ? "" : "Slurm's daemons want control groups in /sys/fs/cgroup";
  }

  /// The command on a Slurm of one node, with what examples/slurm.sbatch takes from its environment.
  Result run_example_on_slurm(std::vector<std::string> command) const {
    command.insert(command.begin(), {"/usr/bin/env", std::string("PRUNEX=") + PRUNEX_BINARY,
                                     "RUN_DIR=" + scratch_ / "run", kSlurm, scratch_ / "slurm"});
    return run_program(scratch_.path(), command);
  }

  std::vector<std::string> train(std::vector<std::string> launcher, const std::string& run) const {
    const auto words =
        prunex({"train", "--samples", "80", "--model", "resnet8", "--precision", "fp32", "--batch-size", "4",
                "--local-steps", "1", "--exchanges", "3", "--quiet", "--ranks-per-node", "3", "--run-dir", run});
    launcher.insert(launcher.end(), words.begin(), words.end());
    return launcher;
  }

  void expect_trains_as_ours(const std::vector<std::string>& launcher) const {
    const Result theirs = run_program(scratch_.path(), train(launcher, "theirs"));
    ASSERT_EQ(theirs.status, 0) << theirs.errors;
    EXPECT_THAT(theirs.output, HasSubstr("accuracy"));
    const Result ours = run_program(scratch_.path(), train({}, "ours"));
    ASSERT_EQ(ours.status, 0) << ours.errors;
    EXPECT_EQ(theirs.output, ours.output);
    EXPECT_EQ(tests::text_of(scratch_ / "theirs/model.safetensors"),
              tests::text_of(scratch_ / "ours/model.safetensors"));
  }

  const tests::Scratch scratch_;
};

TEST_F(RealLaunchers, Torchrun) {
  const auto program = std::filesystem::path(PRUNEX_TEST_PYTHON).parent_path() / "torchrun";
  if (const auto why = obstacle(program); !why.empty()) GTEST_SKIP() << why;
  expect_trains_as_ours({program, "--no-python", "--nproc-per-node", "3", "--master-addr", "127.0.0.1", "--master-port",
                         std::to_string(tests::free_port(15000))});
}

TEST_F(RealLaunchers, MpirunOfOpenMpi) {
  const std::string program = "/usr/bin/mpirun";
  if (const auto why = obstacle(program); !why.empty()) GTEST_SKIP() << why;
  expect_trains_as_ours({program, "--allow-run-as-root", "--oversubscribe", "-n", "3", "-x", "MASTER_ADDR=127.0.0.1",
                         "-x", "MASTER_PORT=" + std::to_string(tests::free_port(15000))});
}

TEST_F(RealLaunchers, SrunOfSlurm) {
  if (const auto why = obstacle_of_slurm(); !why.empty()) GTEST_SKIP() << why;
  expect_trains_as_ours({kSlurm, scratch_ / "slurm", "/usr/bin/srun", "-n", "3"});
}

TEST_F(RealLaunchers, SbatchOfTheExample) {
  if (const auto why = obstacle_of_slurm(); !why.empty()) GTEST_SKIP() << why;
  const Result result =
      run_example_on_slurm({"/usr/bin/sbatch", "--wait", "--nodes", "1", "--ntasks-per-node", "2", "--output",
                            scratch_ / "log", kSlurmExample, "--samples", "80", "--model", "resnet8", "--batch-size",
                            "4", "--local-steps", "1", "--exchanges", "3"});
  const std::string log = tests::text_of(scratch_ / "log");
  EXPECT_EQ(result.status, 0) << result.errors << log;
  EXPECT_THAT(log, HasSubstr("1 nodes x 2 ranks"));
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "run/model.pt2")) << log;
}

// Cancelled and submitted again with the same RUN_DIR, in which it goes on. Far longer than it takes to cancel it.
TEST_F(RealLaunchers, SbatchOfTheExampleGoesOnWhereItWasCancelled) {
  if (const auto why = obstacle_of_slurm(); !why.empty()) GTEST_SKIP() << why;
  const std::string script = R"(set -euo pipefail
    example=$1
    job=$(sbatch --parsable --nodes 1 --ntasks-per-node 2 --output first "$example" --samples 80 --model resnet8 \
      --batch-size 4 --local-steps 1 --exchanges 1000000 --eval-every 0)
    waits() {
      for ((tries = 0; tries < 600; ++tries)); do
        if "$@"; then return; fi
        sleep 0.1
      done
      echo "no end of a minute's wait for: $*" >&2
      exit 1
    }
    has_exchanged() { [[ -e run/metrics.jsonl && $(wc -l <run/metrics.jsonl) -ge 3 ]]; }
    has_ended() { [[ -z $(squeue --noheader --jobs "$1") ]]; }
    waits has_exchanged
    scancel "$job"
    waits has_ended "$job"
    cp run/metrics.jsonl before
    job=$(sbatch --parsable --nodes 1 --ntasks-per-node 2 --output second "$example" --samples 80 \
      --log timestamps)
    has_gone_on() { (($(wc -l <run/metrics.jsonl) > $(wc -l <before))); }
    waits has_gone_on
    scancel "$job"
    waits has_ended "$job")";
  const Result result = run_example_on_slurm({"/bin/bash", "-c", script, "bash", kSlurmExample});
  const std::string first = tests::text_of(scratch_ / "first"), second = tests::text_of(scratch_ / "second");
  ASSERT_EQ(result.status, 0) << result.errors << first << second;
  EXPECT_THAT(first, HasSubstr("--resume")) << "how to go on";
  const testing::Matcher<std::string> with_times = testing::ContainsRegex("T[0-9:]+Z exchange ");
  EXPECT_THAT(first, testing::Not(with_times));
  EXPECT_THAT(second, with_times) << "options that --resume may change";
  std::ifstream metrics(scratch_ / "run/metrics.jsonl");
  int64_t exchange = 0;
  for (std::string line; std::getline(metrics, line);) EXPECT_EQ(json::parse(line)["exchange"], ++exchange);
  const std::string before = tests::text_of(scratch_ / "before");
  EXPECT_GT(exchange, std::count(before.begin(), before.end(), '\n'));
}

/// The example's command and, where they are named again, other values.
std::vector<std::string> command_of_kubernetes(const std::vector<std::pair<std::string, std::string>>& values) {
  const std::string text = tests::text_of(PRUNEX_SOURCE_DIR "/examples/kubernetes.yaml");
  const size_t begin = text.find('[', text.find("command: "));
  std::vector<std::string> words = json::parse(text.substr(begin, text.find('\n', begin) - begin));
  if (words.front() != "prunex") throw std::runtime_error("the example's command is " + words.front());
  words.front() = PRUNEX_BINARY;
  for (const auto& [name, value] : values) {
    const auto place = std::find(words.begin(), words.end(), name);
    place == words.end() ? words.insert(words.end(), {name, value}) : words.insert(words.erase(place + 1), value);
  }
  return words;
}

// Four pods with the variables that Kubeflow's operator sets.
TEST(Kubernetes, TheExampleTrainsUnderWhatItsOperatorSets) {
  EXPECT_THAT(tests::text_of(PRUNEX_SOURCE_DIR "/examples/kubernetes.yaml"),
              AllOf(HasSubstr("replicas: 1\n"), HasSubstr("replicas: 3\n")));
  const tests::Scratch scratch;
  const auto words = command_of_kubernetes({{"--run-dir", scratch / "run"},
                                            {"--local-steps", "1"},
                                            {"--exchanges", "2"},
                                            {"--samples", "80"},
                                            {"--model", "resnet8"},
                                            {"--batch-size", "4"}});
  const std::string port = "MASTER_PORT=" + std::to_string(tests::free_port(15000));
  std::vector<std::unique_ptr<Running>> pods;
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<std::string> pod{"/usr/bin/env", "RANK=" + std::to_string(rank), "WORLD_SIZE=4",
                                 "MASTER_ADDR=127.0.0.1", port};
    pod.insert(pod.end(), words.begin(), words.end());
    pods.push_back(std::make_unique<Running>(scratch.path(), pod));
  }
  for (auto& pod : pods) {
    const Result result = pod->finish();
    EXPECT_EQ(result.status, 0) << result.errors;
  }
  const json summary = json::parse(std::ifstream(scratch / "run/summary.json"));
  EXPECT_EQ(summary["nodes"], 4);
  EXPECT_EQ(summary["samples"], 4 * 4 * 2);
}

TEST(Resuming, NeedsNoSharedDisk) {
  const tests::Scratch scratch;
  const auto train = [&](const std::vector<std::string>& options) {
    const int port = tests::free_port(15000);
    std::vector<std::string> command = prunex({"train", "--quiet"});
    command.insert(command.end(), options.begin(), options.end());
    std::vector<std::unique_ptr<Running>> ranks;
    for (const int rank : {0, 1}) {
      const std::string disk = scratch / std::to_string(rank);
      std::filesystem::create_directory(disk);
      ranks.push_back(std::make_unique<Running>(disk, as_rank(rank, 2, port, command)));
    }
    for (auto& rank : ranks) EXPECT_EQ(errors_of(rank->finish()), std::vector<std::string>());
  };
  train({"--nodes", "2", "--samples", "80", "--model", "resnet8", "--precision", "fp32", "--batch-size", "4",
         "--local-steps", "1", "--exchanges", "4", "--checkpoint-every", "1", "--run-dir", "run"});
  const std::string model = tests::text_of(scratch / "0/run/model.safetensors");
  std::filesystem::remove(scratch / "0/run/model.safetensors");
  train({"--resume", "run", "--resume-exchange", "3"});
  EXPECT_EQ(tests::text_of(scratch / "0/run/model.safetensors"), model);
}

/// Each rank has a command of its own.
TEST(Starting, WantsTheSameOptionsOnAllRanks) {
  const tests::Scratch scratch;
  const int port = tests::free_port(15000);
  const auto command = prunex({"train", "--quiet", "--nodes", "2", "--samples", "80", "--model", "resnet8",
                               "--batch-size", "4", "--exchanges", "2", "--run-dir", "run"});
  auto other = command;
  other.insert(other.end(), {"--lr", "0.3", "--threads", "2"});
  Running first(scratch.path(), as_rank(0, 2, port, command)), second(scratch.path(), as_rank(1, 2, port, other));
  for (auto* rank : {&first, &second}) {
    const Result result = rank->finish();
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(errors_of(result),
                ElementsAre("prunex: --lr: rank 0 has auto, rank 1 0.3: wanted the same on all ranks"));
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
}

/// The directory is new where rank 0 is, and has another run's checkpoints where rank 1 is.
TEST(Starting, LeavesOtherRunsOnTheDisksOfOtherNodes) {
  const tests::Scratch scratch;
  std::filesystem::create_directories(scratch / "1/run/checkpoint/7");
  std::ofstream(scratch / "1/run/config.toml") << "seed = 7\n";
  const int port = tests::free_port(15000);
  const auto command = prunex({"train", "--quiet", "--nodes", "2", "--samples", "80", "--model", "resnet8",
                               "--batch-size", "4", "--exchanges", "2", "--run-dir", "run"});
  std::vector<std::unique_ptr<Running>> ranks;
  for (const int rank : {0, 1}) {
    std::filesystem::create_directories(scratch / std::to_string(rank));
    ranks.push_back(std::make_unique<Running>(scratch / std::to_string(rank), as_rank(rank, 2, port, command)));
  }
  for (auto& rank : ranks) {
    const Result result = rank->finish();
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.errors, HasSubstr("--run-dir run: is not empty on node 1"));
  }
  EXPECT_TRUE(std::filesystem::exists(scratch / "1/run/checkpoint/7"));
  EXPECT_EQ(tests::text_of(scratch / "1/run/config.toml"), "seed = 7\n");
}

}  // namespace
}  // namespace prunex::cli
