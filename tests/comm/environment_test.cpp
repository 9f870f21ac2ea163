// What launchers set, as their documentation has it.
#include "prunex/comm/environment.h"
#include "tests/texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace prunex::comm {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;
using tests::message;

// As torchrun sets them for rank 3 of 2 nodes x 2 ranks.
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};

std::optional<Environment> read(const Variables& variables) {
  return read_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::optional<Environment> read_with(const std::string& name, const std::string& value) {
  auto variables = kTorchrun;
  variables[name] = value;
  return read(variables);
}

void expect_seat(const Environment& environment, const Seat& wanted) {
  EXPECT_EQ(environment.seat.node, wanted.node);
  EXPECT_EQ(environment.seat.local_rank, wanted.local_rank);
  EXPECT_EQ(environment.seat.local_size, wanted.local_size);
}

TEST(Environment, IsReadFromTorchrunsVariables) {
  const auto environment = read(kTorchrun).value();
  EXPECT_EQ(environment.rank, 3);
  EXPECT_EQ(environment.world_size, 4);
  expect_seat(environment, {1, 1, 2});
  EXPECT_EQ(environment.master_address, "node0");
  EXPECT_EQ(environment.master_port, 29500);
  EXPECT_EQ(environment.store_host, StoreHost::kTorchrun);
  EXPECT_EQ(read_with(kStoreSecret, "x")->store_host, StoreHost::kLauncher);
  EXPECT_EQ(environment.restart_count, 2);
  EXPECT_EQ(environment.ranks_before, 0);
  EXPECT_EQ(read_with(kRanksBefore, "3")->ranks_before, 3);
}

TEST(Environment, IsAbsentWithoutRankAndWorldSize) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"WORLD_SIZE", "1"}, {"PMI_SIZE", "1"}}));
}

TEST(Environment, HalvesAreRefusedByName) {
  EXPECT_THAT(message([] { read({{"RANK", "0"}}); }), HasSubstr("RANK is set but WORLD_SIZE is not"));
  EXPECT_THAT(message([] { read({{"WORLD_SIZE", "2"}}); }), HasSubstr("WORLD_SIZE is set but RANK is not"));
  EXPECT_THAT(message([] { read({{"OMPI_COMM_WORLD_SIZE", "2"}}); }), HasSubstr("OMPI_COMM_WORLD_RANK is not"));
  EXPECT_THAT(message([] { read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}); }), HasSubstr("PMI_SIZE=2: this MPI"));
}

TEST(Environment, FillsTheGapsOfAShortContract) {
  const auto alone = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}).value();
  EXPECT_EQ(alone.seat.local_size, 1);
  auto variables = kTorchrun;
  variables.erase("GROUP_RANK");
  variables.erase("LOCAL_RANK");
  EXPECT_EQ(read(variables)->seat.node, std::nullopt);
  EXPECT_EQ(read(variables)->seat.local_rank, 1);
}

TEST(Environment, NamesAMalformedVariable) {
  EXPECT_THAT(message([] { read_with("RANK", "x"); }), HasSubstr("RANK=x: wanted a whole number from 0 to 3"));
  EXPECT_THAT(message([] { read_with("RANK", "4"); }), HasSubstr("RANK=4: wanted a whole number from 0 to 3"));
  EXPECT_THAT(message([] { read_with("WORLD_SIZE", "0"); }), HasSubstr("WORLD_SIZE=0"));
  EXPECT_THAT(message([] { read_with("MASTER_PORT", "70000"); }), HasSubstr("MASTER_PORT=70000"));
  EXPECT_THAT(message([] { read({{"RANK", "0"}, {"WORLD_SIZE", "2"}}); }), HasSubstr("MASTER_ADDR is not"));
}

// As srun sets them for the last of seven tasks: 2 on each of node01, node02 and node03, 1 on gpu5.
const Variables kSlurm = {{"SLURM_JOB_ID", "1234567"},
                          {"SLURM_STEP_ID", "2"},
                          {"SLURM_PROCID", "6"},
                          {"SLURM_NTASKS", "9"},  // the job's; its batch script asked for more
                          {"SLURM_STEP_NUM_TASKS", "7"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "3"},
                          {"SLURM_TASKS_PER_NODE", "2(x4),1"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                          {"SLURM_JOB_NODELIST", "node[01-04],gpu5"},
                          {"SLURM_STEP_NODELIST", "node[01-03],gpu5"},
                          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};

Variables with(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(Slurm, TellsTheRankItsSeatAndWhereRanksMeet) {
  const auto environment = read(kSlurm).value();
  EXPECT_EQ(environment.rank, 6);
  EXPECT_EQ(environment.world_size, 7);
  expect_seat(environment, {3, 0, 1});
  EXPECT_EQ(environment.master_address, "node01");
  EXPECT_EQ(environment.master_port, 15000 + 6585);  // 1234567 + 2 x 1009 = 82 x 15000 + 6585
  EXPECT_EQ(environment.store_host, StoreHost::kRankZero);
}

TEST(Slurm, LeavesThePlaceToMeetToTheUser) {
  const auto environment = read(with(kSlurm, {{"MASTER_ADDR", "10.1.2.3"}, {"MASTER_PORT", "29500"}})).value();
  EXPECT_EQ(environment.master_address, "10.1.2.3");
  EXPECT_EQ(environment.master_port, 29500);
  EXPECT_EQ(read(with(kSlurm, {{"MASTER_PORT", "29500"}}))->master_address, "node01");
}

TEST(Slurm, TakesTheJobsVariablesWhereTheStepHasNone) {
  auto variables = with(kSlurm, {{"SLURM_NTASKS", "7"}, {"SLURM_TASKS_PER_NODE", "3,2,1(x2)"}});
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST"}) {
    variables.erase(name);
  }
  const auto environment = read(variables).value();
  EXPECT_EQ(environment.world_size, 7);
  EXPECT_EQ(environment.seat.local_size, 1);
  EXPECT_EQ(environment.master_address, "node01");
}

TEST(Slurm, StartsNoRanksInABatchScriptOrAnInteractiveShell) {
  EXPECT_FALSE(read(without(kSlurm, "SLURM_STEP_ID")));
  EXPECT_FALSE(read(without(kSlurm, "SLURM_PROCID")));
  EXPECT_FALSE(read(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}})));
}

TEST(Slurm, NamesAMalformedOrMissingVariable) {
  const auto refusal = [](const Variables& variables) { return message([&] { read(variables); }); };
  EXPECT_THAT(refusal(with(kSlurm, {{"SLURM_PROCID", "7"}})),
              HasSubstr("SLURM_PROCID=7: wanted a whole number from 0 to 6"));
  EXPECT_THAT(refusal(with(kSlurm, {{"SLURM_LOCALID", "1"}})),
              HasSubstr("SLURM_LOCALID=1: wanted a whole number from 0 to 0"));
  EXPECT_THAT(refusal(with(kSlurm, {{"SLURM_STEP_ID", "batch"}})), HasSubstr("SLURM_STEP_ID=batch"));
  EXPECT_THAT(refusal(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x3"}})),
              HasSubstr("SLURM_STEP_TASKS_PER_NODE=2(x3: wanted the tasks of every node"));
  EXPECT_THAT(refusal(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x3)"}})), HasSubstr("SLURM_NODEID=3"));
  EXPECT_THAT(refusal(with(kSlurm, {{"SLURM_STEP_NODELIST", "node[01-"}})),
              HasSubstr("SLURM_STEP_NODELIST=node[01-: wanted hosts such as"));
  EXPECT_THAT(refusal(without(kSlurm, "SLURM_JOB_ID")),
              HasSubstr("SLURM_STEP_ID and SLURM_PROCID are set but SLURM_JOB_ID is not"));
}

// As mpirun sets them for the last rank of 2 on one host and 1 on another.
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                            {"OMPI_COMM_WORLD_NODE_RANK", "0"},
                            {"MASTER_ADDR", "node01"},
                            {"MASTER_PORT", "29500"}};

TEST(OpenMpi, TellsTheSeatButNotTheNode) {
  const auto environment = read(with(kOpenMpi, {{"GLOO_SOCKET_IFNAME", "eth1,eth3"}})).value();
  EXPECT_EQ(environment.rank, 2);
  EXPECT_EQ(environment.world_size, 3);
  EXPECT_EQ(environment.seat.node, std::nullopt);
  EXPECT_EQ(environment.seat.local_rank, 0);
  EXPECT_EQ(environment.seat.local_size, 1);
  EXPECT_EQ(environment.master_address, "node01");
  EXPECT_EQ(environment.master_port, 29500);
  EXPECT_EQ(environment.interfaces, (std::vector<std::string>{"eth1", "eth3"}));
}

// The ranks of prunex's launcher meet on loopback, whatever the cluster's profile says.
TEST(Environment, OfPrunexsLauncherNamesNoInterfaces) {
  const auto with_interface = with(kTorchrun, {{"GLOO_SOCKET_IFNAME", "ib0"}});
  EXPECT_EQ(read(with_interface)->interfaces, std::vector<std::string>{"ib0"});
  EXPECT_TRUE(read(with(with_interface, {{kStoreSecret, "x"}}))->interfaces.empty());
}

TEST(OpenMpi, DoesNotTellWhereRanksMeet) {
  EXPECT_THAT(message([] { read(without(kOpenMpi, "MASTER_ADDR")); }),
              HasSubstr("OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are set but MASTER_ADDR is not: wanted the "
                        "machine where the ranks meet"));
  EXPECT_THAT(message([] { read(without(kOpenMpi, "MASTER_PORT")); }), HasSubstr("set but MASTER_PORT is not"));
  EXPECT_THAT(message([] { read(without(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE")); }),
              HasSubstr("set but OMPI_COMM_WORLD_LOCAL_SIZE is not"));
}

TEST(OpenMpi, StartsNoRanksByMpirunOfOne) {
  EXPECT_FALSE(read(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}})));
}

TEST(Environment, IsThatOfTheInnermostLauncher) {
  const auto all = with(with(kSlurm, kOpenMpi), kTorchrun);
  EXPECT_EQ(read(all)->world_size, 4) << "torchrun started by srun or mpirun";
  EXPECT_EQ(read(with(kSlurm, kOpenMpi))->world_size, 3) << "mpirun in a Slurm job";
}

}  // namespace
}  // namespace prunex::comm
