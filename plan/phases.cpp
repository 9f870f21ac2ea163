#include "plan/flows.h"

namespace prunex::plan {
namespace {

/// Every node to the next of its site, and to the node of its number in the next site.
std::vector<Flow> neighbours(double in_site, double across, const comm::ClusterShape& shape) {
  const int n = shape.nodes / shape.sites;
  std::vector<Flow> flows;
  for (int node = 0; node < shape.nodes; ++node) {
    const int site = node / n, place = node % n;
    if (n > 1 && in_site > 0) flows.push_back({node, site * n + (place + 1) % n, in_site});
    if (shape.sites > 1 && across > 0) flows.push_back({node, (node + n) % shape.nodes, across});
  }
  return flows;
}

/// Round all nodes, in their order.
std::vector<Flow> ring(double bytes, int nodes) {
  std::vector<Flow> flows;
  for (int node = 0; node < nodes; ++node) flows.push_back({node, (node + 1) % nodes, bytes});
  return flows;
}

}  // namespace

std::vector<std::vector<Flow>> phases_of(comm::Form form, const comm::ClusterShape& shape) {
  if (shape.nodes == 1) return {};
  const double n = static_cast<double>(shape.nodes) / shape.sites, s = shape.sites, nodes = shape.nodes;
  if (form == comm::Form::kDirect) return {neighbours(2 * (n - 1) / nodes, 2 * (nodes - n) / nodes, shape)};
  if (form == comm::Form::kFlat || shape.sites == 1) return {ring(comm::node_bytes(form, 1, shape), shape.nodes)};
  const auto part = neighbours((n - 1) / n, 0, shape);
  return {part, neighbours(0, 2 * (s - 1) / s / n, shape), part};
}

std::vector<Flow> gathering(double bytes, const comm::ClusterShape& shape) {
  const double n = static_cast<double>(shape.nodes) / shape.sites;
  return neighbours((n - 1) * bytes, (shape.nodes - n) * bytes, shape);
}

}  // namespace prunex::plan
