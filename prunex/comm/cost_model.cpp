#include "prunex/comm/cost_model.h"

#include <algorithm>

namespace prunex::comm {
namespace {

double ring_bytes(double bytes, double ranks) {
  return 2 * (ranks - 1) / ranks * bytes;
}

/// Sums in the sites first, of which each node then takes its part to the other sites.
bool is_by_site(Form form, const ClusterShape& shape) {
  return shape.sites > 1 && (form == Form::kLeader || form == Form::kSharded);
}

double nodes_of_site(const ClusterShape& shape) {
  return static_cast<double>(shape.nodes) / shape.sites;
}

/// What crosses the slower of two kinds of link, all nodes of a site sharing one of them.
double wire_seconds(double node, double site, const Speeds& speeds) {
  return std::max(node / speeds.link, site > 0 ? site / speeds.site_link : 0);
}

double latency_of_step(const ClusterShape& shape, const Speeds& speeds) {
  return shape.sites > 1 ? std::max(speeds.latency, speeds.site_latency) : speeds.latency;
}

double by_site_seconds(double bytes, const ClusterShape& shape, const Speeds& speeds) {
  const double n = nodes_of_site(shape), s = shape.sites;
  const double within = n > 1 ? ring_bytes(bytes, n) / speeds.link + 2 * speeds.latency : 0;
  const double across = ring_bytes(bytes, s);
  return within + wire_seconds(across / n, across, speeds) + 2 * (s - 1) * speeds.site_latency;
}

double seconds_between_nodes(Form form, double bytes, const ClusterShape& shape, const Speeds& speeds) {
  if (shape.nodes == 1) return 0;
  if (is_by_site(form, shape)) return by_site_seconds(bytes, shape, speeds);
  const int ring = form == Form::kFlat ? shape.nodes * shape.ranks_per_node : shape.nodes;
  const double steps = form == Form::kDirect ? 2 : 2.0 * (ring - 1);
  return wire_seconds(node_bytes(form, bytes, shape), site_bytes(form, bytes, shape), speeds) +
         steps * latency_of_step(shape, speeds);
}

/// What the wire does not hide: everything goes into shared memory, is added up and copied out, before and after it;
/// or, in a pipeline, the first chunk of every shard goes in, and the last one out.
double seconds_in_node(double bytes, const ClusterShape& shape, const Speeds& speeds) {
  return shape.ranks_per_node > 1 ? (shape.ranks_per_node + 2) * bytes / speeds.memory : 0;
}

}  // namespace

double node_bytes(Form form, double bytes, const ClusterShape& shape) {
  if (shape.nodes == 1) return 0;
  if (is_by_site(form, shape)) {
    const double n = nodes_of_site(shape);
    return ring_bytes(bytes, n) + ring_bytes(bytes, shape.sites) / n;
  }
  return ring_bytes(bytes, form == Form::kFlat ? shape.nodes * shape.ranks_per_node : shape.nodes);
}

double least_node_bytes(double bytes, const ClusterShape& shape) {
  return node_bytes(Form::kSharded, bytes, {shape.nodes, shape.ranks_per_node});
}

double site_bytes(Form form, double bytes, const ClusterShape& shape) {
  if (shape.sites == 1) return 0;
  if (is_by_site(form, shape)) return ring_bytes(bytes, shape.sites);
  if (form != Form::kDirect) return node_bytes(form, bytes, shape);  // a ring leaves every site once
  const double n = nodes_of_site(shape);
  return n * 2 * (shape.nodes - n) / shape.nodes * bytes;
}

double predicted_seconds(Form form, double bytes, const ClusterShape& shape, const Speeds& speeds) {
  const double wire = seconds_between_nodes(form, bytes, shape, speeds);
  if (form == Form::kFlat) return wire;
  return wire + seconds_in_node(form == Form::kSharded ? static_cast<double>(kChunkBytes) : bytes, shape, speeds);
}

double gathered_node_bytes(double bytes, const ClusterShape& shape) {
  return (shape.nodes - 1.0) * shape.ranks_per_node * bytes;
}

double gathered_seconds(double bytes, const ClusterShape& shape, const Speeds& speeds) {
  const double of_node = shape.ranks_per_node * bytes, n = nodes_of_site(shape);
  const double inside = seconds_in_node(bytes, shape, speeds);
  if (shape.nodes == 1) return inside;
  const double across = shape.sites > 1 ? n * (shape.nodes - n) * of_node : 0;
  return inside + wire_seconds(gathered_node_bytes(bytes, shape), across, speeds) + latency_of_step(shape, speeds);
}

}  // namespace prunex::comm
