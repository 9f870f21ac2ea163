#include "plan/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace prunex::plan {
namespace {

/// Of operations that wait for each other, the first carries everything and the others their latency: seconds are
/// linear in bytes.
double seconds_of(comm::Form form, double bytes, double count, const Network& network) {
  if (count <= 0) return bytes > 0 ? network.reduce(form, bytes) : 0;
  return network.reduce(form, bytes) + (count - 1) * network.reduce(form, 0);
}

class Predictor {
 public:
  /// `dense_step`: seconds of a step of the dense network, on the machine where this seed was recorded.
  Predictor(const Recorded& recorded, double dense_step, const Setting& setting, const Cluster& cluster,
            const Network& network)
      : recorded_(recorded), setting_(setting), cluster_(cluster), network_(network) {
    const auto ratio = payload_ratio(recorded, setting.payload);
    if (!ratio) {
      throw std::invalid_argument(
          fmt::format("{}: {} has no payload {}", recorded.name, recorded.strategy, setting.payload));
    }
    if (recorded.changes_what_it_sends && setting.local_steps != recorded.local_steps) {
      throw std::invalid_argument(
          fmt::format("{}: post-local SGD sends something else at another interval", recorded.name));
    }
    bytes_ratio_ = *ratio;
    if (setting.payload != "fp32") form_ = comm::Form::kDirect;
    if (setting.payload == "fp32" && recorded.payload != "fp32") form_ = comm::Form::kSharded;
    if (setting.seconds_per_step) {
      speed_ = *setting.seconds_per_step / (dense_step * setting.batch / recorded.batch);
    }
    rank_share_ = recorded.knows_no_nodes ? cluster.ranks_per_node : 1;
  }

  void add(Prediction& sum, const Stretch& stretch, double images) const {
    const double steps = images / (setting_.batch * cluster_.ranks());
    const double step = stretch.step_seconds * speed_ * setting_.batch / recorded_.batch;
    const double compute = steps * step, local = compute * cluster_.straggler;
    const double sends = recorded_.sends_gradients ? steps : steps / setting_.local_steps;
    const double exchanges = steps / setting_.local_steps;
    const double message = message_seconds(stretch);
    double waiting = sends * message;
    if (recorded_.sends_gradients && recorded_.overlap > 0) {
      const double whole =
          overlapped_step(step * cluster_.straggler, reduced(stretch), recorded_.buckets, form_, network_);
      waiting = steps * (whole - step * cluster_.straggler);
    } else if (recorded_.overlap > 0) {
      waiting = std::max(0.0, waiting - overlapped_share() * local);
    }
    sum.steps += steps;
    sum.exchanges += exchanges;
    sum.compute += compute;
    sum.wire += waiting;
    const double work = stretch.work_seconds + (setting_.counts_overhead ? stretch.inter_seconds : 0);
    sum.seconds += local + exchanges * work * speed_ + waiting;
    sum.node_bytes += sends * node_bytes(stretch);
  }

 private:
  /// Of the local steps: as many of an interval as in the recorded ones.
  double overlapped_share() const {
    return std::min(1.0, recorded_.overlap * recorded_.local_steps / setting_.local_steps);
  }

  double reduced(const Stretch& stretch) const { return stretch.reduced * bytes_ratio_ * rank_share_; }

  double message_seconds(const Stretch& stretch) const {
    const Operations& count = recorded_.operations;
    double seconds = 0;
    if (form_ == comm::Form::kDirect) {
      seconds = seconds_of(form_, reduced(stretch), std::max(1.0, count.direct), network_);
      const double rings = recorded_.form == comm::Form::kDirect ? count.rings : count.rings - 1;
      seconds += std::max(0.0, rings) * network_.reduce(comm::Form::kSharded, 0);
    } else {
      seconds = seconds_of(form_, reduced(stretch), count.rings, network_);
    }
    return seconds + (count.gathers > 0 ? network_.gather(stretch.gathered) * count.gathers : 0);
  }

  double node_bytes(const Stretch& stretch) const {
    const auto shape = cluster_.shape();
    return comm::node_bytes(form_, reduced(stretch), shape) + comm::gathered_node_bytes(stretch.gathered, shape);
  }

  const Recorded& recorded_;
  const Setting& setting_;
  const Cluster& cluster_;
  const Network& network_;
  comm::Form form_ = recorded_.form;
  double bytes_ratio_ = 1, speed_ = 1, rank_share_ = 1;
};

}  // namespace

Setting as_recorded(const Recorded& recorded) {
  return {.local_steps = recorded.local_steps, .payload = recorded.payload, .batch = recorded.batch};
}

Prediction predict(const Recorded& recorded, const RecordedSeed& seed, const Setting& setting, const Cluster& cluster,
                   const Network& network, double images) {
  const Predictor predictor(recorded, dense_step_seconds(recorded, seed), setting, cluster, network);
  Prediction sum;
  for (const auto& stretch : seed.stretches) {
    predictor.add(sum, stretch, std::min(images, stretch.images));
    images -= stretch.images;
    if (images <= 0) break;
  }
  return sum;
}

double interval_for(double share, double wire_seconds, double step_seconds) {
  return std::max(1.0, std::ceil(wire_seconds * (1 - share) / share / step_seconds));
}

double overlapped_step(double step_seconds, double bytes, const std::vector<report::Bucket>& buckets, comm::Form form,
                       const Network& network) {
  double end = 0;
  for (const auto& bucket : buckets) {
    end = std::max(end, step_seconds * bucket.ready) + network.reduce(form, bytes * bucket.bytes);
  }
  return std::max(end, step_seconds);
}

}  // namespace prunex::plan
