// What flows carry, against the bytes of the cost model.
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "plan/flows.h"

namespace prunex::plan {
namespace {

using comm::Form;

struct Sent {
  std::map<int, double> by_node, to_node, by_site;
};

Sent sent_in(const std::vector<std::vector<Flow>>& phases, const comm::ClusterShape& shape) {
  Sent sent;
  const int n = shape.nodes / shape.sites;
  for (const auto& phase : phases) {
    for (const auto& [from, to, bytes] : phase) {
      sent.by_node[from] += bytes;
      sent.to_node[to] += bytes;
      if (from / n != to / n) sent.by_site[from / n] += bytes;
    }
  }
  return sent;
}

TEST(Phases, CarryTheBytesOfEveryForm) {
  for (const comm::ClusterShape shape : {comm::ClusterShape{2, 1}, {5, 2}, {8, 1, 2}, {12, 2, 3}, {4, 1, 4}}) {
    for (const Form form : {Form::kFlat, Form::kLeader, Form::kSharded, Form::kDirect}) {
      const Sent sent = sent_in(phases_of(form, shape), shape);
      for (int node = 0; node < shape.nodes; ++node) {
        EXPECT_NEAR(sent.by_node.at(node), comm::node_bytes(form, 1, shape), 1e-12) << shape.nodes;
        EXPECT_NEAR(sent.to_node.at(node), comm::node_bytes(form, 1, shape), 1e-12) << shape.nodes;
      }
      for (int site = 0; site < shape.sites && shape.sites > 1; ++site) {
        EXPECT_NEAR(sent.by_site.at(site), comm::site_bytes(form, 1, shape), 1e-12)
            << shape.nodes << " " << shape.sites;
      }
    }
  }
}

TEST(Phases, OfWhatIsGatheredToo) {
  const comm::ClusterShape shape{8, 2, 2};
  const Sent sent = sent_in({gathering(2, shape)}, shape);
  EXPECT_NEAR(sent.by_node.at(3), comm::gathered_node_bytes(1, shape), 1e-12);
  EXPECT_NEAR(sent.by_site.at(0), 4 * 4 * 2, 1e-12);
  EXPECT_TRUE(phases_of(Form::kSharded, {1, 4}).empty());
}

TEST(Engine, TakesFlowsWhereLinksDifferOrOthersSendAndTheBuildHasThem) {
  Cluster cluster{.nodes = 4};
  EXPECT_FALSE(uses_flows(cluster));
  cluster.link = {100, 1000};
  EXPECT_EQ(uses_flows(cluster), has_flows());
  cluster.engine = Engine::kClosedForm;
  EXPECT_FALSE(uses_flows(cluster));
  cluster.engine = Engine::kFlows;
  EXPECT_TRUE(uses_flows(cluster));
  cluster = {.nodes = 4, .other_flows = 1};
  EXPECT_TRUE(uses_flows(cluster));
  if (has_flows()) {
    EXPECT_NE(make_network(cluster), nullptr);
  } else {
    EXPECT_THROW(make_network(cluster), std::invalid_argument);
  }
}

}  // namespace
}  // namespace prunex::plan
