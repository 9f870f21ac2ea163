// bench/cluster.sh: commands on an emulated cluster, and what it leaves behind. Needs root and network namespaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"
#include "tests/scratch.h"

namespace prunex::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kScript = PRUNEX_SOURCE_DIR "/bench/cluster.sh";

std::vector<std::string> cluster(std::vector<std::string> arguments, const std::vector<std::string>& command) {
  arguments.insert(arguments.begin(), kScript);
  arguments.push_back("--");
  arguments.insert(arguments.end(), command.begin(), command.end());
  return arguments;
}

/// Why there can be no such cluster here; empty if there can.
std::string obstacle(const std::vector<std::string>& arguments = {"1", "1", "1"}) {
  if (std::getenv("PRUNEX_NO_SKIP") != nullptr) return "";
  const Result result = run_program(".", cluster(arguments, {"/bin/true"}));
  return result.status == 0 ? "" : result.errors;
}

std::string namespaces() {
  return run_program(".", {"/usr/bin/env", "ip", "netns", "list"}).output;
}
std::string interfaces() {
  return run_program(".", {"/usr/bin/env", "ip", "-brief", "link"}).output;
}

class Cluster : public testing::Test {
 protected:
  void SetUp() override {
    const auto reason = obstacle();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  void expect_nothing_left(int pid) const {
    EXPECT_THAT(namespaces(), Not(HasSubstr("prunex-" + std::to_string(pid) + "-")));
    EXPECT_THAT(interfaces(), Not(HasSubstr("node0.eth0")));
  }

  const tests::Scratch scratch_;
};

TEST_F(Cluster, GivesEveryRankItsVariablesAndANetworkOfItsNode) {
  const std::string script =
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $GLOO_SOCKET_IFNAME "
      "$OMP_NUM_THREADS > rank$RANK; ls /sys/class/net > links$RANK; [ $RANK != 0 ] || echo first";
  const Result result =
      run_program(scratch_.path(), cluster({"2", "2", "0", "--interfaces", "2"}, {"/bin/sh", "-c", script}));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.output, "first\n");
  for (int rank = 0; rank < 4; ++rank) {
    const auto text = [&](const std::string& name) {
      std::ifstream file(scratch_ / (name + std::to_string(rank)));
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    const auto r = std::to_string(rank);
    EXPECT_EQ(text("rank"),
              r + " 4 " + std::to_string(rank % 2) + " 2 " + std::to_string(rank / 2) + " 10.70.0.1 eth0,eth1 1\n");
    EXPECT_EQ(text("links"), "eth0\neth1\nlo\n");
  }
}

TEST_F(Cluster, ReturnsTheWorstStatusAndShowsTheErrorsOfAllRanks) {
  Running running(scratch_.path(), cluster({"2", "1", "0"}, {"/bin/sh", "-c", "echo oops >&2; exit $((RANK + 4))"}));
  const int pid = running.pid();
  const Result result = running.finish();
  EXPECT_EQ(result.status, 5);
  EXPECT_THAT(result.errors, HasSubstr("[rank 1] oops\n"));
  expect_nothing_left(pid);
}

/// Of a file of numbers, as control groups have them.
std::vector<int> numbers_in(const std::string& path) {
  std::ifstream file(path);
  return {std::istream_iterator<int>(file), {}};
}

// A quota is 1 ms or more; the weights are the highest that the kernel has.
TEST_F(Cluster, GivesEveryRankItsShareOfAProcessorBeforeOthers) {
  const std::vector<std::string> wanted{"2", "1", "0", "--cores", "0.1,0.5"};
  const auto reason = obstacle(wanted);
  if (!reason.empty()) GTEST_SKIP() << reason;
  Running running(scratch_.path(), cluster(wanted, {"/bin/sh", "-c", "echo here >&2; exec sleep 1000"}));
  ASSERT_TRUE(running.wait_for("[rank 1] here"));
  const bool is_second = std::filesystem::exists("/sys/fs/cgroup/cgroup.controllers");
  const auto group = [&](int rank) {
    return std::string("/sys/fs/cgroup/") + (is_second ? "" : "cpu/") + "prunex-" + std::to_string(running.pid()) +
           "-rank" + std::to_string(rank) + "/";
  };
  const std::vector<std::vector<int>> limits{{1000, 10000}, {2500, 5000}};
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<int> limit = numbers_in(group(rank) + (is_second ? "cpu.max" : "cpu.cfs_quota_us"));
    if (!is_second) limit.push_back(numbers_in(group(rank) + "cpu.cfs_period_us").at(0));
    EXPECT_EQ(limit, limits[static_cast<size_t>(rank)]);
    EXPECT_EQ(numbers_in(group(rank) + (is_second ? "cpu.weight" : "cpu.shares")).at(0), is_second ? 10000 : 262144);
    EXPECT_FALSE(numbers_in(group(rank) + "cgroup.procs").empty());
  }
  kill(running.pid(), SIGTERM);
  running.finish();
  EXPECT_FALSE(std::filesystem::exists(group(0)) || std::filesystem::exists(group(1)));
}

/// Rank 0 sends a byte and waits for it to come back, five times; prints the milliseconds of the quickest.
constexpr const char* kThereAndBack = R"(
import os, socket, sys, time
if os.environ["RANK"] == "1":
    there, _ = socket.create_server(("", 5000)).accept()
    for _ in range(5): there.sendall(there.recv(1))
else:
    for _ in range(200):
        try: there = socket.create_connection(("10.70.0.2", 5000)); break
        except OSError: time.sleep(0.05)
    seconds = []
    for _ in range(5):
        begin = time.monotonic()
        there.sendall(b"x"); there.recv(1)
        seconds.append(time.monotonic() - begin)
    print(1000 * min(seconds), file=sys.stderr)
)";

TEST_F(Cluster, DelaysWhatTravelsBetweenNodes) {
  Running running(scratch_.path(),
                  cluster({"2", "1", "100", "--delay", "40"}, {"/usr/bin/env", "python3", "-c", kThereAndBack}));
  const int pid = running.pid();
  const Result result = running.finish();
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_GE(std::stod(result.errors), 80);
  expect_nothing_left(pid);
}

TEST_F(Cluster, LeavesNothingWhenItIsInterruptedOrKilled) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    Running running(scratch_.path(), cluster({"2", "1", "0"}, {"/bin/sh", "-c", "echo here $$ >&2; sleep 1000"}));
    ASSERT_TRUE(running.wait_for("[rank 1] here"));
    const int pid = running.pid();
    kill(pid, signal);
    const Result result = running.finish();  // when the last process has closed its end of the pipe
    EXPECT_EQ(result.status, signal == SIGKILL ? -SIGKILL : 128 + SIGTERM);
    for (int i = 0; i < 1500 && namespaces().find(std::to_string(pid)) != std::string::npos; ++i) usleep(20'000);
    expect_nothing_left(pid);
  }
}

TEST_F(Cluster, TrainsAcrossShapedLinks) {
  const Result result = run_program(
      scratch_.path(),
      cluster({"2", "1", "200"},
              prunex({"train", "--nodes", "2", "--samples", "80", "--model", "resnet8", "--batch-size", "8",
                      "--local-steps", "2", "--exchanges", "2", "--test-limit", "10", "--quiet", "--run-dir", "run"})));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("sent between nodes"));
  const auto summary = nlohmann::json::parse(std::ifstream(scratch_ / "run/summary.json"));
  EXPECT_EQ(summary["nodes"], 2);
}

/// The process of a rank that a script has started.
int process_of(const Running& script, int rank) {
  for (const int pid : script.children()) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
    const std::string environment{std::istreambuf_iterator<char>(file), {}};
    if (environment.starts_with("RANK=" + std::to_string(rank) + '\0') ||
        environment.find('\0' + ("RANK=" + std::to_string(rank)) + '\0') != std::string::npos) {
      return pid;
    }
  }
  return 0;
}

/// Without a launcher that would end the other ranks: they notice by themselves.
TEST_F(Cluster, EveryRankNamesTheOneThatDiedOrWasCutOff) {
  const std::vector<std::string> endless =
      prunex({"train", "--nodes", "2", "--ranks-per-node", "2", "--samples", "160", "--model", "resnet8",
              "--batch-size", "8", "--local-steps", "1", "--exchanges", "1000000", "--eval-every", "0", "--run-dir"});
  for (const bool cut : {false, true}) {
    auto command = endless;
    command.push_back(cut ? "cut" : "kill");
    Running running(scratch_.path(), cluster({"2", "2", "0"}, command));
    ASSERT_TRUE(running.wait_for("exchange 3/"));
    const auto space = "prunex-" + std::to_string(running.pid()) + "-switch";
    if (cut) run_program(".", {"/usr/bin/env", "ip", "-n", space, "link", "set", "node1.eth0", "down"});
    if (!cut) kill(process_of(running, 3), SIGKILL);
    const Result result = running.finish();
    EXPECT_EQ(result.status, cut ? 1 : 128 + SIGKILL);
    for (int rank = 0; rank < (cut ? 4 : 3); ++rank) {
      const auto head = (rank > 0 ? "\n\\[rank " + std::to_string(rank) + "\\] " : "\n") + "prunex: .*lost rank ";
      EXPECT_THAT(result.errors, ContainsRegex(head + (!cut       ? "3 \\(node 1\\)"
                                                       : rank < 2 ? "[23] \\(node 1\\)"
                                                                  : "[01] \\(node 0\\)")));
    }
  }
}

TEST(ClusterScript, RefusesWhatItDoesNotUnderstandInOneLine) {
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& reason) {
    std::vector<std::string> words{kScript};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const Result result = run_program(".", words);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.errors, StartsWith("cluster.sh: "));
    EXPECT_THAT(result.errors, HasSubstr(reason));
    EXPECT_EQ(result.errors.find('\n'), result.errors.size() - 1) << result.errors;
  };
  refused({}, "NODES RANKS_PER_NODE MBIT");
  refused({"2", "1", "100"}, "COMMAND");
  refused({"0", "1", "100", "--", "true"}, "NODES: got '0'");
  refused({"2", "one", "100", "--", "true"}, "RANKS_PER_NODE: got 'one'");
  refused({"2", "1", "fast", "--", "true"}, "MBIT: got 'fast'");
  refused({"2", "1", "1", "--rails", "2", "--", "true"}, "'--rails'");
  refused({"2", "1", "1", "--interfaces", "0", "--", "true"}, "--interfaces: got '0'");
  refused({"2", "1", "25,fast", "--", "true"}, "MBIT: got '25,fast'");
  refused({"2", "1", "1", "--cores", "half", "--", "true"}, "--cores: got 'half'");
  refused({"2", "1", "1", "--cores", "0.2,0", "--", "true"}, "--cores: got '0.2,0'");
  refused({"2", "1", "1", "--cores", "0.049", "--", "true"}, "--cores: got '0.049'");
  refused({"2", "1", "1", "--delay", "long", "--", "true"}, "--delay: got 'long'");
  refused({"2", "1", "1", "--burst", "0", "--", "true"}, "--burst: got '0'");
}

}  // namespace
}  // namespace prunex::cli
