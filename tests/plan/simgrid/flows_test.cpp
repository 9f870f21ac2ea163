// Flows against the closed form where both hold, against messages one by one, and where links are shared by hand.
#include "plan/flows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/simgrid_platform.h"

namespace prunex::plan {
namespace {

namespace s4u = simgrid::s4u;
using comm::Form;

/// 100 MB/s, all for data; memory that takes no time.
Cluster cluster_of(int nodes, int ranks_per_node = 1, int sites = 1) {
  return {.nodes = nodes,
          .ranks_per_node = ranks_per_node,
          .link = {800},
          .latency = 0.1,
          .goodput = 1,
          .memory = 1e9,
          .sites = sites,
          .site_link = 400.0,
          .site_latency = 5};
}

TEST(Flows, AreTheClosedFormOnEvenClusters) {
  for (const auto& cluster :
       {cluster_of(2), cluster_of(7, 2), cluster_of(64, 8), cluster_of(8, 1, 2), cluster_of(12, 2, 3)}) {
    const auto flows = make_flows(cluster), closed = make_closed_form(cluster);
    for (const Form form : {Form::kFlat, Form::kLeader, Form::kSharded, Form::kDirect}) {
      EXPECT_NEAR(flows->reduce(form, 1e8) / closed->reduce(form, 1e8), 1, 1e-3)
          << cluster.nodes << " nodes, " << cluster.sites << " sites, form " << static_cast<int>(form);
    }
    EXPECT_NEAR(flows->gather(1e6) / closed->gather(1e6), 1, 1e-3);
  }
}

TEST(Flows, OfARingWaitForItsSlowestLink) {
  Cluster cluster = cluster_of(4);
  cluster.link = {200, 800};
  EXPECT_NEAR(make_flows(cluster)->reduce(Form::kSharded, 1e8), 1.5e8 / 25e6 + 6e-4, 1e-3);
}

// 2 sites of 2 nodes, 50 MB/s between them, of which one flow of others gets half beside ours, and a third beside two.
TEST(Flows, ShareTheLinkBetweenSitesWithOthers) {
  Cluster cluster = cluster_of(4, 1, 2);
  cluster.other_flows = 1;
  const double latency = make_closed_form(cluster)->reduce(Form::kFlat, 0);
  EXPECT_NEAR(make_flows(cluster)->reduce(Form::kFlat, 1e8), 1.5e8 / 25e6 + latency, 1e-3);
  // sums in the sites first: half of 1e8 twice at 100 MB/s; of the 1e8 between sites each node sends half
  const double in_sites = 2 * 0.5e8 / 1e8, across = 1e8 / (50e6 * 2 / 3);
  EXPECT_NEAR(make_flows(cluster)->reduce(Form::kSharded, 1e8),
              in_sites + across + make_closed_form(cluster)->reduce(Form::kSharded, 0), 1e-3);
}

/// A ring of messages on every rail: in each of 2(M-1) steps a block goes to the next node.
double seconds_of_messages(const Cluster& cluster, double bytes) {
  return in_child([&] {
    const Platform platform = make_platform(cluster, Latencies::kOnLinks);
    return run_actor(platform, [&] {
      const int nodes = cluster.nodes;
      const auto block = static_cast<uint64_t>(bytes / cluster.ranks_per_node / nodes);
      std::vector<s4u::ActorPtr> actors;
      for (int rail = 0; rail < cluster.ranks_per_node; ++rail) {
        for (int node = 0; node < nodes; ++node) {
          actors.push_back(s4u::Actor::create("ring", platform.nodes[static_cast<size_t>(node)], [=] {
            static int content;
            auto* in = s4u::Mailbox::by_name(fmt::format("{}.{}", rail, node));
            auto* out = s4u::Mailbox::by_name(fmt::format("{}.{}", rail, (node + 1) % nodes));
            for (int step = 0; step < 2 * (nodes - 1); ++step) {
              int* got = nullptr;
              const auto received = in->get_async<int>(&got);
              const auto sent = out->put_async(&content, block);
              received->wait();
              sent->wait();
            }
          }));
        }
      }
      for (auto& actor : actors) actor->join();
    });
  });
}

class AgainstMessages : public testing::TestWithParam<int> {};

// 100 MB over 25 Gbit/s, 8 ranks a node, 0.02 ms.
TEST_P(AgainstMessages, FlowsAreWithinThreePercent) {
  Cluster cluster = cluster_of(GetParam(), 8);
  cluster.link = {25000};
  cluster.latency = 0.02;
  const double flows = make_flows(cluster)->reduce(Form::kSharded, 1e8), messages = seconds_of_messages(cluster, 1e8);
  RecordProperty("flows_ms", fmt::format("{:.3f}", flows * 1e3));
  RecordProperty("messages_ms", fmt::format("{:.3f}", messages * 1e3));
  EXPECT_NEAR(flows / messages, 1, 0.03);
}

INSTANTIATE_TEST_SUITE_P(Nodes, AgainstMessages, testing::Values(8, 64, 128));

}  // namespace
}  // namespace prunex::plan
