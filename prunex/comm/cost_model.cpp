#include "prunex/comm/cost_model.h"

namespace prunex::comm {
namespace {

constexpr double kPipelineChunk = 256 << 10;

double ring_bytes(double bytes, double ranks) {
  return 2 * (ranks - 1) / ranks * bytes;
}

}  // namespace

double node_bytes(Form form, double bytes, const ClusterShape& shape) {
  if (shape.nodes == 1) return 0;
  return ring_bytes(bytes, form == Form::kFlat ? shape.nodes * shape.ranks_per_node : shape.nodes);
}

double least_node_bytes(double bytes, const ClusterShape& shape) {
  return node_bytes(Form::kSharded, bytes, shape);
}

double predicted_seconds(Form form, double bytes, const ClusterShape& shape, const Speeds& speeds) {
  const double ranks = shape.ranks_per_node;
  const double hops = 2.0 * ((form == Form::kFlat ? shape.nodes * ranks : shape.nodes) - 1);
  const double wire = node_bytes(form, bytes, shape) / speeds.link + hops * speeds.latency;
  switch (form) {
    case Form::kFlat:
      return wire;
    case Form::kLeader:  // everything goes into shared memory, is added up and copied out, before and after the wire
      return wire + (ranks > 1 ? (ranks + 2) * bytes / speeds.memory : 0);
    case Form::kSharded:  // the first chunk of every shard goes in, the last one out
      return wire + (ranks > 1 ? (ranks + 2) * kPipelineChunk / speeds.memory : 0);
  }
  return wire;
}

}  // namespace prunex::comm
