// Rails on several network interfaces: two nodes are two network namespaces joined by two cables.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "prunex/comm/connect.h"
#include "prunex/comm/meet/socket.h"
#include "prunex/comm/store.h"
#include "tests/network.h"

namespace prunex::comm {
namespace {

void on_thread(const std::function<void()>& body) {
  std::thread(body).join();
}

/// Two nodes with eth0 in 10.81/16 and eth1 in 10.82/16, for as long as this lives.
class TwoNodes {
 public:
  TwoNodes() {
    for (int node = 0; node < 2 && ready_; ++node) on_thread([&] { open_node(node); });
    for (int cable = 0; cable < 2 && ready_; ++cable) lay(cable);
  }
  ~TwoNodes() {
    for (const int node : nodes_) close(node);
  }
  TwoNodes(const TwoNodes&) = delete;
  TwoNodes& operator=(const TwoNodes&) = delete;

  bool ready() const { return ready_; }
  /// Moves the calling thread, and those it starts, to a node.
  void enter(int node) const { setns(nodes_[node], CLONE_NEWNET); }

 private:
  void open_node(int node) {
    ready_ = tests::enter_private_network();
    nodes_[node] = open("/proc/thread-self/ns/net", O_RDONLY);
  }

  void lay(int cable) {
    const auto other = fmt::format("/proc/{}/fd/{}", getpid(), nodes_[1]);
    on_node(0, fmt::format("link add eth{0} type veth peer name eth{0} netns {1}", cable, other));
    for (int node = 0; node < 2; ++node) {
      on_node(node, fmt::format("address add 10.{}.0.{}/16 dev eth{}", 81 + cable, 1 + node, cable));
      on_node(node, fmt::format("link set eth{} up", cable));
    }
  }

  void on_node(int node, const std::string& words) {
    on_thread([&] {
      enter(node);
      ready_ = ready_ && std::system(("ip " + words + " 2>/dev/null").c_str()) == 0;
    });
  }

  std::array<int, 2> nodes_ = {-1, -1};
  bool ready_ = true;
};

struct Sent {
  int64_t eth0 = 0, eth1 = 0;
};

/// What leaves the node that the caller is on while its rail of this local rank reduces a megabyte.
Sent sent_by_rail(Hierarchy& h, int local_rank) {
  const auto sent = [] { return Sent{tests::interface_bytes("eth0"), tests::interface_bytes("eth1")}; };
  h.world->barrier();
  const Sent before = sent();
  h.world->barrier();
  if (h.layout.local_rank() == local_rank) {
    auto x = at::ones({1 << 18});
    h.rail->all_reduce(x);
    EXPECT_TRUE(at::equal(x, at::full_like(x, 2)));
  }
  h.world->barrier();
  const Sent after = sent();
  h.world->barrier();
  return {after.eth0 - before.eth0, after.eth1 - before.eth1};
}

void on_four_ranks(const TwoNodes& nodes, const std::vector<std::string>& interfaces,
                   const std::function<void(Hierarchy&)>& body) {
  const auto store = make_memory_store();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      nodes.enter(rank / 2);
      auto h = connect(Layout::even(2, 2, rank), *store, {.interfaces = interfaces});
      body(h);
      h.world->barrier();
    });
  }
  for (auto& rank : ranks) rank.join();
}

constexpr int64_t kMegabyte = 1 << 20, kLittle = 50'000;  // two nodes send the tensor's bytes once each

constexpr const char* kNeeds = "needs network namespaces, virtual ethernet and the command ip";

bool may_be_skipped(const TwoNodes& nodes) {
  return !nodes.ready() && std::getenv("PRUNEX_NO_SKIP") == nullptr;
}

TEST(Interfaces, CarryRailsInTurn) {
  const TwoNodes nodes;
  if (may_be_skipped(nodes)) GTEST_SKIP() << kNeeds;
  ASSERT_TRUE(nodes.ready());
  on_four_ranks(nodes, {"eth0", "eth1"}, [&](Hierarchy& h) {
    const Sent first = sent_by_rail(h, 0), second = sent_by_rail(h, 1);
    if (h.layout.rank != 0) return;
    EXPECT_NEAR(static_cast<double>(first.eth0), kMegabyte, 0.06 * kMegabyte);
    EXPECT_LT(first.eth1, kLittle);
    EXPECT_NEAR(static_cast<double>(second.eth1), kMegabyte, 0.06 * kMegabyte);
    EXPECT_LT(second.eth0, kLittle);
  });
}

// The second of two interfaces alone: what is used where the option is ignored is the first, or none.
TEST(Interfaces, AreThoseThatWereGivenAndNoOthers) {
  const TwoNodes nodes;
  if (may_be_skipped(nodes)) GTEST_SKIP() << kNeeds;
  ASSERT_TRUE(nodes.ready());
  on_four_ranks(nodes, {"eth1"}, [&](Hierarchy& h) {
    const Sent sent = sent_by_rail(h, 0);
    if (h.layout.rank != 0) return;
    EXPECT_NEAR(static_cast<double>(sent.eth1), kMegabyte, 0.06 * kMegabyte);
    EXPECT_LT(sent.eth0, kLittle);
  });
}

TEST(Interfaces, AreKnownByTheirAddresses) {
  EXPECT_EQ(interface_with(address_of_interface("lo")), "lo");
  EXPECT_EQ(interface_with("203.0.113.9"), "");
}

}  // namespace
}  // namespace prunex::comm
