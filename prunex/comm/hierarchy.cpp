#include "prunex/comm/hierarchy.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "prunex/comm/watch/watch.h"

namespace prunex::comm {
namespace {

Group consecutive(std::string name, int first, int count, int rank) {
  Group group{std::move(name), {}, rank};
  for (int i = 0; i < count; ++i) group.members.push_back(first + i);
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

/// All messages of an exchange go over one group, which is called so.
Hierarchy one_node(Layout layout, const std::string& name, Communicator& world, Communicator& group,
                   const Hierarchy& ranks) {
  Hierarchy one{.layout = std::move(layout)};
  one.world = make_view(world.name(), world);
  one.node = make_view(name + " as node", group);
  one.rail = make_solo(name + " as rail");
  one.flat = make_view(name, group);
  one.device = ranks.device;
  one.node_in_background = ranks.node_in_background;
  return one;
}

}  // namespace

BackgroundUse::BackgroundUse(Hierarchy::InBackground groups) : taken_(std::move(groups)) {
  if (!taken_->exchange(true)) return;
  throw std::invalid_argument(
      "these ranks have a strategy already that exchanges beside steps (ddp, or `overlap`): wanted one at a time "
      "on the same connections");
}

std::vector<Membership> memberships(const Layout& layout) {
  const int node = layout.node(), per_site = layout.nodes_per_site(), place = node % per_site;
  const auto rail = fmt::format("rail {}", layout.local_rank());
  std::vector<Membership> all = {{&Hierarchy::world, consecutive("world", 0, layout.world_size(), layout.rank)},
                                 {&Hierarchy::node, consecutive(fmt::format("node {}", node), layout.first_rank(node),
                                                                layout.ranks_here(), layout.local_rank())},
                                 {&Hierarchy::rail, rail_part(layout, rail, 0, 1, layout.nodes())}};
  if (layout.sites == 1) return all;
  const int site = layout.site();
  all.push_back(
      {&Hierarchy::site, rail_part(layout, fmt::format("site {}, {}", site, rail), site * per_site, 1, per_site)});
  all.push_back(
      {&Hierarchy::cross, rail_part(layout, fmt::format("cross {}, {}", place, rail), place, per_site, layout.sites)});
  return all;
}

Hierarchy as_one_node(Hierarchy& ranks) {
  Hierarchy one = one_node({{ranks.layout.world_size()}, ranks.layout.rank}, "flat", *ranks.world, *ranks.flat, ranks);
  one.between_in_background = ranks.between_in_background;
  return one;
}

Hierarchy as_own_node(Hierarchy& ranks) {
  return one_node({{ranks.layout.ranks_here()}, ranks.layout.local_rank()}, "own node", *ranks.node, *ranks.node,
                  ranks);
}

Volume moved_by_exchanges(const Hierarchy& ranks) {
  Volume volume;
  for (const auto* group : {&ranks.node, &ranks.rail, &ranks.flat, &ranks.site, &ranks.cross}) {
    if (*group) volume += (*group)->traffic().bytes;
  }
  return volume;
}

void write_hang_reports_to(const Hierarchy& ranks, const std::string& folder) {
  if (ranks.watch) ranks.watch->write_reports_to(folder);
}

}  // namespace prunex::comm
