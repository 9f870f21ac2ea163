// Which network interface is used: the machine's own, so only what holds on every machine.
#include "prunex/comm/tcp/tcp_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <thread>

#include "prunex/comm/meet/socket.h"
#include "tests/texts.h"

namespace prunex::comm {
namespace {

using ::testing::HasSubstr;

TEST(Device, IsLoopbackOnOneMachine) {
  EXPECT_EQ(choose_address("", true), "127.0.0.1");
}

TEST(Device, IsNeverLoopbackBetweenMachines) {
  std::string found;
  try {
    found = choose_address("", false);
    EXPECT_FALSE(is_loopback(found));
  } catch (const std::invalid_argument& error) {
    found = error.what();
    EXPECT_THAT(found, HasSubstr("name the interface that reaches the other machines"));
  }
}

TEST(Interfaces, AreRefusedForWhatTheyLack) {
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  EXPECT_THAT(tests::message([] {
                check_interfaces({"lo", "wan7"});
              }),
              HasSubstr("`interface`: got wan7, no such interface; wanted one of "));
  std::thread([] {
    if (unshare(CLONE_NEWNET) != 0) {
      EXPECT_EQ(std::getenv("PRUNEX_NO_SKIP"), nullptr) << "no network of its own";
      return;
    }
    EXPECT_THAT(tests::message([] { check_interfaces({"lo"}); }),
                HasSubstr("`interface`: got lo, it is down or has no address; wanted one of "));
  }).join();
}

TEST(Addresses, AreThisMachinesOrNot) {
  EXPECT_TRUE(is_own_address("127.0.0.1"));
  EXPECT_FALSE(is_own_address("192.0.2.1"));  // for documentation
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
}

TEST(Device, TellsNetworkNamespacesOfOneMachineApart) {
  const auto here = network_identity();
  std::string there;
  bool permitted = false;
  std::thread([&] {
    permitted = unshare(CLONE_NEWNET) == 0;
    there = network_identity();
  }).join();
  EXPECT_EQ(there != here, permitted);
  EXPECT_THAT(there, testing::StartsWith(machine_identity()));
}

}  // namespace
}  // namespace prunex::comm
