#include <algorithm>

#include "plan/cluster.h"
#include "report/verdict.h"

namespace prunex::plan {
namespace {

using report::kBytesPerMbit;

comm::Speeds speeds_of(const Cluster& cluster) {
  const double slowest = *std::min_element(cluster.link.begin(), cluster.link.end());
  return {.link = cluster.goodput * slowest * kBytesPerMbit,
          .latency = cluster.latency / 1e3,
          .memory = cluster.memory * 1e9,
          .site_link = cluster.goodput * cluster.site_link.value_or(0) * kBytesPerMbit,
          .site_latency = cluster.site_latency / 1e3};
}

class ClosedForm final : public Network {
 public:
  explicit ClosedForm(const Cluster& cluster) : shape_(cluster.shape()), speeds_(speeds_of(cluster)) {}

  double reduce(comm::Form form, double bytes) const override {
    return comm::predicted_seconds(form, bytes, shape_, speeds_);
  }
  double gather(double bytes) const override { return comm::gathered_seconds(bytes, shape_, speeds_); }

 private:
  const comm::ClusterShape shape_;
  const comm::Speeds speeds_;
};

}  // namespace

std::unique_ptr<Network> make_closed_form(const Cluster& cluster) {
  return std::make_unique<ClosedForm>(cluster);
}

}  // namespace prunex::plan
