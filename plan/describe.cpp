#include <fmt/format.h>

#include <algorithm>

#include "plan/tables.h"

namespace prunex::plan {
namespace {

std::string link_text(const Cluster& cluster) {
  const auto mbit = [](double link) { return report::format(link, report::Unit::kMbit); };
  if (cluster.has_equal_links()) return "links of " + mbit(cluster.link.front());
  const auto [least, most] = std::minmax_element(cluster.link.begin(), cluster.link.end());
  return fmt::format("links of {} to {}", mbit(*least), mbit(*most));
}

}  // namespace

std::string describe(const Cluster& cluster) {
  std::string text = fmt::format("{} x {}, {}, {} ms", report::count_of(static_cast<size_t>(cluster.nodes), "node"),
                                 report::count_of(static_cast<size_t>(cluster.ranks_per_node), "rank"),
                                 link_text(cluster), report::plain(cluster.latency, 3));
  if (cluster.sites > 1) {
    text +=
        fmt::format(", in {} sites with {} and {} ms between them", cluster.sites,
                    report::format(*cluster.site_link, report::Unit::kMbit), report::plain(cluster.site_latency, 3));
  }
  if (cluster.straggler > 1)
    text += fmt::format(", the slowest node {} times as slow", report::plain(cluster.straggler, 3));
  return text;
}

}  // namespace prunex::plan
