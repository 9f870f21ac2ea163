#include "prunex/comm/hierarchy.h"

#include "prunex/comm/watch/watch.h"

namespace prunex::comm {

Hierarchy as_one_node(Hierarchy& ranks) {
  Hierarchy flat{.layout = {{ranks.layout.world_size()}, ranks.layout.rank}};
  flat.world = make_view("world", *ranks.world);
  flat.node = make_view("flat as node", *ranks.flat);
  flat.rail = make_solo("flat as rail");
  flat.flat = make_view("flat", *ranks.flat);
  return flat;
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
