// Slurm's lists, as `scontrol show hostnames` and its manual pages read them.
#include "prunex/comm/environment.h"

#include <gtest/gtest.h>

namespace prunex::comm {
namespace {

TEST(Slurm, ListsOfHostsBeginWithOne) {
  const std::pair<const char*, const char*> lists[] = {{"gpu5", "gpu5"},
                                                       {"gpu5,node[01-03]", "gpu5"},
                                                       {"node[01-03,7],gpu5", "node01"},
                                                       {"node[7,01-03]", "node7"},
                                                       {"node[9]", "node9"},
                                                       {"rack[1-2]n[03-04]", "rack1n03"},
                                                       {"node[08-11]-ib.cluster,login", "node08-ib.cluster"}};
  for (const auto& [list, first] : lists) EXPECT_EQ(first_host(list), first) << list;
}

TEST(Slurm, OtherTextIsNoListOfHosts) {
  for (const char* text : {"", ",node1", "node[", "node[]", "node[1-2", "node[-2]"}) {
    EXPECT_EQ(first_host(text), std::nullopt) << text;
  }
}

TEST(Slurm, ListsOfTasksAreRunLengths) {
  using Tasks = std::vector<int>;
  EXPECT_EQ(tasks_per_node("4"), Tasks{4});
  EXPECT_EQ(tasks_per_node("2(x3),1"), (Tasks{2, 2, 2, 1}));
  EXPECT_EQ(tasks_per_node("1,16(x2)"), (Tasks{1, 16, 16}));
}

TEST(Slurm, OtherTextIsNoListOfTasks) {
  for (const char* text : {"", "x", "2,", "2(x)", "2(x3", "2(x3)1", "2(3)", "0", "-1", "2(x0)", "2(x2000000)"}) {
    EXPECT_EQ(tasks_per_node(text), std::nullopt) << text;
  }
}

TEST(Slurm, StepsMeetBelowThePortsThatLinuxHandsOut) {
  EXPECT_EQ(port_of_step(0, 0), 15000);
  EXPECT_EQ(port_of_step(14999, 0), 29999);
  EXPECT_EQ(port_of_step(15000, 0), 15000);
  EXPECT_EQ(port_of_step(7, 1), 15000 + 7 + 1009);
  EXPECT_EQ(port_of_step(4294967295, 4294967290), 15000 + (4294967295 + 1009 * 4294967290) % 15000);
}

}  // namespace
}  // namespace prunex::comm
