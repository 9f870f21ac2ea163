// Ranks that listen within a range of ports, as a firewall lets through.
#include "prunex/comm/ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "prunex/comm/connect.h"
#include "prunex/comm/meet/socket.h"

namespace prunex::comm {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kHost = "127.0.0.1";

/// Of so many ports that nobody else has now.
PortRange free_range(int ports) {
  for (;;) {
    const int first = port_of(listen_on({kHost, 0}, 1));
    if (first + ports - 1 > 65535) continue;
    const PortRange range{static_cast<uint16_t>(first), static_cast<uint16_t>(first + ports - 1)};
    try {
      for (int port = range.first; port <= range.last; ++port) listen_on({kHost, static_cast<uint16_t>(port)}, 1);
      return range;
    } catch (const std::runtime_error&) {
      continue;
    }
  }
}

TEST(Ports, AreTakenInTurn) {
  const PortRange range = free_range(2);
  const Socket first = listen_on({kHost, 0}, 1, range);
  std::optional<Socket> second = listen_on({kHost, 0}, 1, range);
  EXPECT_EQ(port_of(first), range.first);
  EXPECT_EQ(port_of(*second), range.last);
  EXPECT_THAT(
      [&] {
        listen_on({kHost, 0}, 1, range);
      },
      ThrowsMessage<std::runtime_error>(HasSubstr("`ports`: none of")));
  second.reset();
  EXPECT_EQ(port_of(listen_on({kHost, 0}, 1, range)), range.last);
}

TEST(Ports, ThatOthersAreExpectedAtAreLeftAlone) {
  PortRange range = free_range(2);
  range.except = {range.first};
  const Socket socket = listen_on({kHost, 0}, 1, range);
  EXPECT_EQ(port_of(socket), range.last);
  EXPECT_THROW(listen_on({kHost, 0}, 1, range), std::runtime_error);
}

TEST(Ports, OfAnyKindAreTheKernelsChoice) {
  const Socket first = listen_on({kHost, 0}, 1, {}), second = listen_on({kHost, 0}, 1, {});
  EXPECT_NE(port_of(first), port_of(second));
}

TEST(Ports, AreWhereRanksListen) {
  const std::chrono::milliseconds none(0);
  const PortRange range = free_range(3);
  int met = 0;
  run_ranks(1, 3,
            [&](Hierarchy& ranks) {
              ranks.world->barrier();
              if (ranks.layout.rank == 0) ++met;
            },
            {.ports = range, .heartbeat_timeout = none});
  EXPECT_EQ(met, 1);
  std::vector<Socket> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(listen_on({kHost, 0}, 1, range));
  EXPECT_THAT([&] { run_ranks(1, 3, [](Hierarchy&) {}, {.ports = range, .heartbeat_timeout = none}); },
              ThrowsMessage<std::runtime_error>(HasSubstr("`ports`: none of")));
}

}  // namespace
}  // namespace prunex::comm
