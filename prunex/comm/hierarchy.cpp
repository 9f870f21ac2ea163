#include "prunex/comm/hierarchy.h"

#include <stdexcept>

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

}  // namespace

BackgroundUse::BackgroundUse(const Hierarchy& ranks) : taken_(ranks.in_background) {
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
  Hierarchy flat{.layout = {{ranks.layout.world_size()}, ranks.layout.rank}};
  flat.world = make_view("world", *ranks.world);
  flat.node = make_view("flat as node", *ranks.flat);
  flat.rail = make_solo("flat as rail");
  flat.flat = make_view("flat", *ranks.flat);
  return flat;
}

Hierarchy as_own_node(Hierarchy& ranks) {
  Hierarchy alone{.layout = {{ranks.layout.ranks_here()}, ranks.layout.local_rank()}};
  alone.world = make_view("own node as world", *ranks.node);
  alone.node = make_view("own node", *ranks.node);
  alone.rail = make_solo("own node as rail");
  alone.flat = make_view("own node, flat", *ranks.node);
  alone.device = ranks.device;
  alone.in_background = ranks.in_background;
  return alone;
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
