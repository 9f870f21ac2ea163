#include "prunex/comm/gloo/connect.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>

#include "prunex/comm/gloo/device.h"
#include "prunex/comm/gloo/gloo_communicator.h"

namespace prunex::comm {
namespace {

// Cards read "layout|network".
void check_layouts(const std::vector<std::string>& cards, const Layout& layout) {
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    const auto other = cards[rank].substr(0, cards[rank].find('|'));
    if (other == describe(layout)) continue;
    throw std::invalid_argument(
        fmt::format("[comm] rank {} has {}, rank {} has {}", layout.rank, describe(layout), rank, other));
  }
}

bool on_one_machine(const std::vector<std::string>& cards) {
  return std::all_of(cards.begin(), cards.end(), [&](const auto& card) { return card == cards.front(); });
}

Group world_group(const Layout& layout) {
  Group group{"world", {}, layout.rank};
  for (int rank = 0; rank < layout.world_size(); ++rank) group.members.push_back(rank);
  return group;
}

Group node_group(const Layout& layout) {
  Group group{fmt::format("node {}", layout.node()), {}, layout.local_rank()};
  for (int i = 0; i < layout.ranks_here(); ++i) group.members.push_back(layout.first_rank(layout.node()) + i);
  return group;
}

// The ranks with my local index on the nodes first, first + step, …
Group rail_part(const Layout& layout, const std::string& name, int first, int step, int count) {
  if (!layout.on_rail()) return {name, {layout.rank}, 0};
  Group group{name, {}, (layout.node() - first) / step};
  for (int i = 0; i < count; ++i) {
    group.members.push_back(layout.first_rank(first + i * step) + layout.local_rank());
  }
  return group;
}

Group rail_group(const Layout& layout) {
  return rail_part(layout, fmt::format("rail {}", layout.local_rank()), 0, 1, layout.nodes());
}

Group site_group(const Layout& layout) {
  const int nodes = layout.nodes_per_site();
  return rail_part(layout, fmt::format("site {}, rail {}", layout.site(), layout.local_rank()), layout.site() * nodes,
                   1, nodes);
}

Group cross_group(const Layout& layout) {
  const int place = layout.node() % layout.nodes_per_site();
  return rail_part(layout, fmt::format("cross {}, rail {}", place, layout.local_rank()), place, layout.nodes_per_site(),
                   layout.sites);
}

void ignore_broken_pipes() {
  struct sigaction current = {};
  sigaction(SIGPIPE, nullptr, &current);
  if (current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

// What a rank's groups communicate through; null for a single rank.
struct Devices {
  std::shared_ptr<gloo::transport::Device> first, rail;
};

Devices make_devices(const Layout& layout, const std::vector<std::string>& interfaces, bool one_machine) {
  check_interfaces(interfaces);
  const auto first = make_device(interfaces.empty() ? "" : interfaces[0], one_machine);
  const size_t mine = interfaces.empty() ? 0 : static_cast<size_t>(layout.local_rank()) % interfaces.size();
  return {first, mine == 0 ? first : make_device(interfaces[mine], one_machine)};
}

void check_wanted(const Layout& layout, const Layout& wanted) {
  if (layout.node_sizes == wanted.node_sizes) return;
  throw std::invalid_argument(fmt::format("--nodes, --ranks-per-node: got {}, the launcher started {}",
                                          describe({wanted.node_sizes}), describe(layout)));
}

}  // namespace

Hierarchy connect(const Layout& layout, Store& store, const GlooOptions& options) {
  check(layout);
  Devices devices;
  if (layout.world_size() > 1) {
    ignore_broken_pipes();
    const auto card = describe(layout) + "|" + network_identity();
    const auto cards = exchange_cards(store, "joined", {layout.rank, layout.world_size()}, card, options.join_timeout);
    check_layouts(cards, layout);
    devices = make_devices(layout, options.interfaces, on_one_machine(cards));
  }
  const GlooTimeouts timeouts = {options.join_timeout, options.timeout};
  const auto make = [&](const Group& group, const std::shared_ptr<gloo::transport::Device>& device) {
    return make_gloo_communicator(group, store, device, timeouts);
  };
  Hierarchy hierarchy{.layout = layout};
  hierarchy.world = make(world_group(layout), devices.first);
  hierarchy.node = make(node_group(layout), devices.first);
  hierarchy.rail = make(rail_group(layout), devices.rail);
  if (layout.sites > 1) {
    hierarchy.site = make(site_group(layout), devices.rail);
    hierarchy.cross = make(cross_group(layout), devices.rail);
  }
  hierarchy.world->barrier();  // the store's host may leave once no rank needs it
  return hierarchy;
}

Hierarchy connect(const Environment& environment, GlooOptions options, const std::optional<Layout>& wanted) {
  if (options.interfaces.empty()) options.interfaces = environment.interfaces;
  const auto store = environment.world_size == 1 ? make_memory_store() : make_store(environment, options.join_timeout);
  Layout layout = find_layout(environment, *store, options.join_timeout);
  if (wanted) check_wanted(layout, *wanted);
  if (wanted) layout.sites = wanted->sites;
  return connect(layout, *store, options);
}

}  // namespace prunex::comm
