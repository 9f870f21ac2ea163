// The kernel's table of interfaces: files of its form, and that of this machine.
#include "prunex/comm/traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "prunex/comm/connect.h"
#include "tests/network.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using ::testing::HasSubstr;

void write_table(const std::string& path, int64_t received, int64_t sent) {
  std::ofstream(path)
      << "Inter-|   Receive                                                |  Transmit\n"
         " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop\n"
         "    lo:     7       1    0    0    0     0          0         0       7       1    0    0\n"
         "veth0: 1 2 3 4 5 6 7 8 9 10 11 12\n"
      << "  eth0:" << received << " 5 0 0 0 0 0 0 " << sent << " 6 0 0 0 0 0 0\n";
}

TEST(InterfaceCounters, ReadTheTableOfTheKernel) {
  const tests::Scratch scratch;
  const std::string table = scratch / "dev";
  write_table(table, 1000, 12345678901);
  const auto bytes = read_interface("eth0", table);
  EXPECT_EQ(bytes.received, 1000);
  EXPECT_EQ(bytes.sent, 12345678901);
  EXPECT_EQ(read_interface("eth0:1", table).sent, bytes.sent);
}

TEST(InterfaceCounters, AgreeWithTheTableOfThisMachine) {
  const int64_t before = tests::interface_bytes("lo");
  const int64_t sent = read_interface("lo").sent;
  EXPECT_GE(sent, before);
  EXPECT_LE(sent, tests::interface_bytes("lo"));
}

TEST(InterfaceCounters, NameAnInterfaceThatIsNotThere) {
  const auto missing = [](const std::string& name, const std::string& table) {
    return tests::message([&] { read_interface(name, table); });
  };
  EXPECT_THAT(missing("eth7", kInterfaceTable),
              HasSubstr("/proc/thread-self/net/dev: no counters of the interface eth7"));
  EXPECT_THAT(missing("eth0", "/no/table"), HasSubstr("/no/table: no counters of the interface eth0"));
}

TEST(InterfaceCounters, AreThoseOfEveryNodesFirstRank) {
  const tests::Scratch scratch;
  const auto table_of = [&](int rank) { return scratch / std::to_string(rank); };
  for (int rank = 0; rank < 4; ++rank) write_table(table_of(rank), 100, 200);
  run_ranks(2, 2, [&](Hierarchy& h) {
    const InterfaceCounters counters({"eth0", "lo"}, table_of(h.layout.rank));
    write_table(table_of(h.layout.rank), 101 + h.layout.rank, 210 + h.layout.rank);
    const auto bytes = counters.gather(h.layout, *h.world);
    ASSERT_EQ(bytes.size(), 2U);
    ASSERT_EQ(bytes.at("eth0").size(), 2U);
    EXPECT_EQ(bytes.at("eth0")[0].received, 1);
    EXPECT_EQ(bytes.at("eth0")[0].sent, 10);
    EXPECT_EQ(bytes.at("eth0")[1].received, 3);
    EXPECT_EQ(bytes.at("eth0")[1].sent, 12);
    EXPECT_EQ(bytes.at("lo")[1].sent, 0);
  });
}

TEST(InterfaceCounters, WithoutInterfacesThereIsNothingToGather) {
  run_ranks(2, 1, [](Hierarchy& h) { EXPECT_TRUE(InterfaceCounters({}).gather(h.layout, *h.world).empty()); });
}

/// A node that joined by its address names one, the others none; or machines call theirs otherwise.
TEST(InterfaceCounters, MayBeOthersOnEveryNode) {
  const tests::Scratch scratch;
  write_table(scratch / "table", 100, 200);
  const std::vector<std::vector<std::string>> names{{}, {"eth0"}, {"lo", "eth0"}};
  run_ranks(3, 1, [&](Hierarchy& h) {
    const InterfaceCounters counters(names[static_cast<size_t>(h.layout.rank)], scratch / "table");
    h.world->barrier();
    if (h.layout.rank == 0) write_table(scratch / "table", 101, 210);
    h.world->barrier();
    const auto bytes = counters.gather(h.layout, *h.world);
    ASSERT_EQ(bytes.size(), 2U);
    const auto& eth0 = bytes.at("eth0");
    ASSERT_EQ(eth0.size(), 3U);
    EXPECT_EQ(std::vector({eth0[0].sent, eth0[1].sent, eth0[2].sent}), (std::vector<int64_t>{0, 10, 10}));
    EXPECT_EQ(bytes.at("lo").size(), 3U);
  });
}

}  // namespace
}  // namespace prunex::comm
