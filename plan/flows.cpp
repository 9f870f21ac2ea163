#include "plan/flows.h"

#include <cstdint>
#include <map>
#include <optional>

#include "plan/simgrid_platform.h"

namespace prunex::plan {
namespace {

namespace s4u = simgrid::s4u;

constexpr double kBytes = 1e9;                            // simulated
constexpr uint64_t kEndless = 1'000'000'000'000'000'000;  // bytes

void start_flow(s4u::Host* from, s4u::Host* to) {
  s4u::Actor::create("other", from, [from, to] { s4u::Comm::sendto(from, to, kEndless); })->daemonize();
}

/// Flows of others, both ways, for as long as the work takes: over the links between sites, or else of the nodes.
void start_other_traffic(const Platform& platform, const Cluster& cluster) {
  for (auto* host : cluster.sites > 1 ? platform.others : platform.nodes) {
    for (int i = 0; i < cluster.other_flows; ++i) {
      start_flow(host, platform.outside);
      start_flow(platform.outside, host);
    }
  }
}

/// Every rail is a connection, which counts where others take their shares of a link.
void run_phase(const Platform& platform, const Cluster& cluster, const std::vector<Flow>& phase) {
  const int rails = cluster.other_flows > 0 ? cluster.ranks_per_node : 1;
  std::vector<s4u::CommPtr> flows;
  for (const auto& [from, to, bytes] : phase) {
    const auto of_rail = static_cast<uint64_t>(bytes * kBytes / rails);
    for (int rail = 0; rail < rails; ++rail) {
      flows.push_back(s4u::Comm::sendto_async(platform.nodes[static_cast<size_t>(from)],
                                              platform.nodes[static_cast<size_t>(to)], of_rail));
    }
  }
  s4u::Comm::wait_all(flows);
}

/// Per byte.
double seconds_of(const Cluster& cluster, const std::vector<std::vector<Flow>>& phases) {
  const double seconds = in_child([&] {
    const Platform platform = make_platform(cluster, Latencies::kNone);
    return run_actor(platform, [&] {
      start_other_traffic(platform, cluster);
      for (const auto& phase : phases) run_phase(platform, cluster, phase);
    });
  });
  return seconds / kBytes;
}

class Flows final : public Network {
 public:
  explicit Flows(const Cluster& cluster)
      : cluster_(cluster), closed_form_(make_closed_form(cluster)), node_(make_closed_form(one_node_of(cluster))) {}

  double reduce(comm::Form form, double bytes) const override {
    const double wire = bytes > 0 && cluster_.nodes > 1 ? bytes * per_reduced(form) : 0;
    return closed_form_->reduce(form, 0) + wire + node_->reduce(form, bytes) - node_->reduce(form, 0);
  }

  double gather(double bytes) const override {
    const double wire = bytes > 0 && cluster_.nodes > 1 ? bytes * per_gathered() : 0;
    return closed_form_->gather(0) + wire + node_->gather(bytes) - node_->gather(0);
  }

 private:
  static Cluster one_node_of(Cluster cluster) {
    cluster.nodes = cluster.sites = 1;
    return cluster;
  }

  double per_reduced(comm::Form form) const {
    const auto [entry, is_new] = reduced_.try_emplace(form, 0);
    if (is_new) entry->second = seconds_of(cluster_, phases_of(form, cluster_.shape()));
    return entry->second;
  }

  double per_gathered() const {
    if (!gathered_) gathered_ = seconds_of(cluster_, {gathering(cluster_.ranks_per_node, cluster_.shape())});
    return *gathered_;
  }

  const Cluster cluster_;
  const std::unique_ptr<Network> closed_form_, node_;
  mutable std::map<comm::Form, double> reduced_;  // seconds per byte: a fluid's are in proportion
  mutable std::optional<double> gathered_;
};

}  // namespace

bool has_flows() {
  return true;
}

std::unique_ptr<Network> make_flows(const Cluster& cluster) {
  return std::make_unique<Flows>(cluster);
}

}  // namespace prunex::plan
