#include "prunex/comm/gloo/connect.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>

#include "prunex/comm/addresses.h"
#include "prunex/comm/descriptors.h"
#include "prunex/comm/device_groups.h"
#include "prunex/comm/gloo/device.h"
#include "prunex/comm/gloo/gloo_communicator.h"
#include "prunex/comm/nccl/nccl_communicator.h"
#include "prunex/comm/shm/share_memory.h"
#include "prunex/comm/shm/shm_communicator.h"
#include "prunex/comm/view.h"

namespace prunex::comm {
namespace {

// Cards read "layout|network".
void check_layouts(const std::vector<std::string>& cards, const Layout& layout) {
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    const auto other = cards[rank].substr(0, cards[rank].find('|'));
    if (other == describe(layout)) continue;
    throw std::invalid_argument(
        fmt::format("[comm] rank {} has {}, rank {} has {}", layout.rank, describe(layout), rank, shown(other)));
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

std::vector<int> nodes_of(Layout layout, const Group& group) {
  std::vector<int> nodes;
  for (const int member : group.members) {
    layout.rank = member;
    nodes.push_back(layout.node());
  }
  return nodes;
}

void ignore_broken_pipes() {
  struct sigaction current = {};
  sigaction(SIGPIPE, nullptr, &current);
  if (current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

// What a rank's groups communicate through; nothing for a single rank.
struct Networks {
  Network first, rail;
};

Networks make_networks(const Layout& layout, const std::vector<std::string>& interfaces, bool one_machine) {
  const auto first = make_network(interfaces.empty() ? "" : interfaces[0], one_machine);
  const size_t mine = interfaces.empty() ? 0 : static_cast<size_t>(layout.local_rank()) % interfaces.size();
  return {first, mine == 0 ? first : make_network(interfaces[mine], one_machine)};
}

void check_wanted(const Layout& layout, const Layout& wanted) {
  if (layout.node_sizes == wanted.node_sizes) return;
  throw std::invalid_argument(fmt::format("--nodes, --ranks-per-node: got {}, the launcher started {}",
                                          describe({wanted.node_sizes}), describe(layout)));
}

// One card per rank; without a network, of this rank alone.
struct Joined {
  std::vector<std::string> cards;
  Networks networks;
};

// Meets the other ranks, without connecting to them.
Joined join_ranks(const Layout& layout, Meeting meeting, const GlooOptions& options) {
  ignore_broken_pipes();
  const auto card = describe(layout) + "|" + network_identity();
  if (layout.world_size() == 1) return {{card}, {}};
  const auto cards = exchange_cards(meeting, "joined", {layout.rank, layout.world_size()}, card);
  check_layouts(cards, layout);
  return {cards, make_networks(layout, options.interfaces, on_one_machine(cards))};
}

// Null for one rank, if switched off, and if there is none to share; then `problem` says why.
std::shared_ptr<NodeMemory> memory_of_node(const Layout& layout, Meeting meeting, const GlooOptions& options,
                                           std::string& problem) {
  if (layout.ranks_here() == 1 || !options.shared_memory) return nullptr;
  auto shared = share_memory(layout, meeting);
  if (shared.memory) shared.memory->set_timeout(options.timeout);
  problem = shared.problem;
  return shared.memory;
}

Guard guard_of(const Hierarchy& hierarchy, const GlooOptions& options) {
  return {hierarchy.watch->abort_switch(), options.heartbeat_timeout};
}

Hierarchy make_groups(const Layout& layout, Meeting meeting, const GlooOptions& options, const Networks& networks) {
  Hierarchy hierarchy{.layout = layout};
  hierarchy.watch =
      std::make_unique<Watch>(layout, WatchOptions{options.timeout, options.reports, options.report_signal});
  const Guard guard = guard_of(hierarchy, options);
  const auto make = [&](const Group& group, const Network& network) {
    auto communicator = make_gloo_communicator(group, meeting, network, options.timeout, guard);
    communicator->record_in(hierarchy.watch->journal());
    communicator->stand_on(nodes_of(layout, group));
    return communicator;
  };
  hierarchy.world = make(world_group(layout), networks.first);
  auto rail = make(rail_group(layout), networks.rail);
  if (const auto memory = memory_of_node(layout, meeting, options, hierarchy.no_shared_memory)) {
    const NodeGuard node_guard = {layout.rank, node_group(layout).name, memory, guard};
    hierarchy.node = make_shm_communicator(node_guard);
    hierarchy.node->record_in(hierarchy.watch->journal());
    if (layout.sites == 1) hierarchy.pipeline = std::make_unique<Pipeline>(layout, *hierarchy.node, *rail, node_guard);
  } else {
    hierarchy.node = make(node_group(layout), networks.first);
  }
  hierarchy.rail = std::move(rail);
  if (layout.sites > 1) {
    hierarchy.site = make(site_group(layout), networks.rail);
    hierarchy.cross = make(cross_group(layout), networks.rail);
  }
  return hierarchy;
}

// All groups serve this rank's GPU from here on.
void extend_to_gpus(Hierarchy& hierarchy, const std::vector<std::string>& machines, Meeting meeting,
                    const GlooOptions& options) {
  const Layout& layout = hierarchy.layout;
  let_nccl_use(options.interfaces);
  const Gpu gpu = choose_gpu(machines, layout);
  hierarchy.device = gpu.device;
  const DeviceGroups gpus(exchange_cards(meeting, "gpus", {layout.rank, layout.world_size()}, gpu.identity),
                          meeting.store, {meeting.join.left(), options.timeout}, guard_of(hierarchy, options));
  const auto extend = [&](std::unique_ptr<Communicator>& group, const Group& members) {
    group = gpus.extend(std::move(group), members, hierarchy.watch->journal());
  };
  hierarchy.pipeline.reset();  // it adds up in the CPU's memory
  extend(hierarchy.world, world_group(layout));
  extend(hierarchy.node, node_group(layout));
  extend(hierarchy.rail, rail_group(layout));
  if (layout.sites > 1) {
    extend(hierarchy.site, site_group(layout));
    extend(hierarchy.cross, cross_group(layout));
  }
  hierarchy.staged = gpus.sharing();
}

Hierarchy connect(const Layout& layout, Meeting meeting, const GlooOptions& options) {
  check(layout);
  if (layout.world_size() > 1) {
    check_interfaces(options.interfaces);
    reserve_descriptors(descriptors_of_rank(layout));
  }
  if (options.report_signal != 0) block_signal(options.report_signal);
  const bool gpu = options.device == c10::DeviceType::CUDA;
  if (gpu) check_gpu();
  const auto [cards, networks] = join_ranks(layout, meeting, options);
  Hierarchy hierarchy = make_groups(layout, meeting, options, networks);
  if (gpu) extend_to_gpus(hierarchy, cards, meeting, options);
  hierarchy.interfaces = options.interfaces;
  hierarchy.flat = make_view("flat", *hierarchy.world);
  if (layout.world_size() > 1 && options.heartbeat_timeout.count() > 0) {
    const auto& address = networks.rail.address;  // so that a cut of any rail's network is noticed
    hierarchy.watch->start(meeting.store, {options.heartbeat_timeout, address, meeting.join.left()});
  }
  hierarchy.world->barrier();
  if (layout.rank == 0) meeting.store.release();
  return hierarchy;
}

}  // namespace

Hierarchy connect(const Layout& layout, Store& store, const GlooOptions& options) {
  Join join(options.join_timeout, options.announce);
  return connect(layout, {store, join}, options);
}

Hierarchy connect(const Environment& environment, GlooOptions options, const std::optional<Layout>& wanted) {
  if (options.report_signal != 0) block_signal(options.report_signal);  // before the store starts threads
  if (options.interfaces.empty()) options.interfaces = environment.interfaces;
  Join join(options.join_timeout, options.announce);
  const auto store = environment.world_size == 1 ? RunStore{nullptr, make_memory_store()}
                                                 : meet(environment, options.interfaces, join);
  const Meeting meeting = {*store.client, join};
  Layout layout = find_layout(environment, meeting);
  if (wanted) check_wanted(layout, *wanted);
  if (wanted) layout.sites = wanted->sites;
  return connect(layout, meeting, options);
}

}  // namespace prunex::comm
