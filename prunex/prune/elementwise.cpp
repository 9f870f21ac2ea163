#include "prunex/prune/elementwise.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <map>
#include <utility>

#include "prunex/prune/axis_sums.h"
#include "prunex/prune/entries.h"

namespace prunex::prune {
namespace {

using sparsity::Slice;

constexpr double kObdcEpsilon = 1e-10;

Term term_of(const ImportanceOptions& options) {
  switch (options.criterion) {
    case Criterion::kTaylor:
      return options.signed_sum ? Term::kProduct : Term::kAbsoluteProduct;
    case Criterion::kHessian:
    case Criterion::kObdc:
      return Term::kCurvature;
    default:
      return options.power == 1 ? Term::kAbsolute : options.power == 2 ? Term::kSquare : Term::kPower;
  }
}

class Elementwise final : public Importance {
 public:
  Elementwise(const ImportanceOptions& options, const program::Graph& graph, TensorDict evidence)
      : entries_(options, graph), evidence_(std::move(evidence)), term_(term_of(options)) {
    if (options.criterion != Criterion::kObdc) return;
    for (auto& item : evidence_) item.value() = item.value() + kObdcEpsilon;
  }

  std::vector<UnitScores> score(const std::vector<sparsity::Group>& groups, const Weights& weights) const override {
    Sums sums;
    std::vector<UnitScores> scores;
    for (const sparsity::Group& group : groups) {
      scores.push_back(entries_.score(
          group, [&](const Slice& slice, const WeightRole& role) { return local(slice, role, weights, sums); }));
    }
    return scores;
  }

  /// The p-norm of every kernel: its |w|^p is the sum that it stands for. What has no say is left out.
  Weights condensed(const Weights& weights) const override {
    if (needs_evidence(entries_.options().criterion)) return weights;
    const at::NoGradGuard no_grad;
    Weights small;
    for (const auto& item : weights.params) {
      const at::Tensor& weight = item.value();
      if (!counts(item.key())) continue;
      const bool kernels = weight.dim() > 2 && entries_.role(item.key()).out_axis >= 0;
      small.params.insert(item.key(), kernels ? weight.flatten(2).norm(entries_.options().power, 2) : weight);
    }
    return small;
  }

 private:
  using Sums = std::map<std::pair<std::string, int64_t>, AxisSums>;

  bool counts(const std::string& tensor) const { return has_a_say(entries_.role(tensor)); }

  bool has_a_say(const WeightRole& role) const {
    const ImportanceOptions& options = entries_.options();
    if (!entries_.counts(role)) return false;
    if (options.criterion == Criterion::kBatchNormScale) return role.kind == WeightKind::kBatchNorm;
    if (options.criterion == Criterion::kObdc) return role.out_axis >= 0 || role.kind == WeightKind::kBias;
    return !(options.tp_compat && is_forgotten(role));
  }

  /// By Torch-Pruning: batch norm in Taylor, its bias also in Hessian.
  bool is_forgotten(const WeightRole& role) const {
    const bool taylor = entries_.options().criterion == Criterion::kTaylor;
    const bool hessian = entries_.options().criterion == Criterion::kHessian;
    return (taylor && role.kind == WeightKind::kBatchNorm) ||
           ((taylor || hessian) && role.kind == WeightKind::kBias && role.layer == WeightKind::kBatchNorm);
  }

  std::optional<std::vector<double>> local(const Slice& slice, const WeightRole& role, const Weights& weights,
                                           Sums& sums) const {
    if (!has_a_say(role)) return std::nullopt;
    if (entries_.options().criterion == Criterion::kObdc && role.out_axis >= 0 && slice.axis != role.out_axis) {
      return std::nullopt;
    }
    const at::Tensor* other = evidence_.find(slice.tensor);
    if (other == nullptr && needs_evidence(entries_.options().criterion)) return std::nullopt;
    const AxisSums& both = sums_of(slice, weights, other == nullptr ? at::Tensor() : *other, sums);
    return slice.axis == sparsity::kChannels ? both.channels : both.rows;
  }

  /// Axes 0 and 1 of a tensor share a pass; a later axis becomes the rows.
  const AxisSums& sums_of(const Slice& slice, const Weights& weights, const at::Tensor& other, Sums& sums) const {
    const int64_t first = slice.axis > sparsity::kChannels ? slice.axis : 0;
    const auto found = sums.find({slice.tensor, first});
    if (found != sums.end()) return found->second;
    const at::Tensor* weight = weights.params.find(slice.tensor);
    TORCH_CHECK(weight != nullptr, "[prune] a group lies on '", slice.tensor, "', which is no parameter");
    const auto front = [&](const at::Tensor& tensor) { return first == 0 ? tensor : tensor.movedim(first, 0); };
    AxisSums made = axis_sums(front(*weight), other.defined() ? front(other) : other, term_, entries_.options().power);
    if (term_ == Term::kProduct) absolute(made);
    return sums.emplace(std::make_pair(slice.tensor, first), std::move(made)).first->second;
  }

  static void absolute(AxisSums& sums) {
    for (double& sum : sums.rows) sum = std::abs(sum);
    for (double& sum : sums.channels) sum = std::abs(sum);
  }

  Entries entries_;
  TensorDict evidence_;
  Term term_;
};

}  // namespace

std::unique_ptr<Importance> make_elementwise(const ImportanceOptions& options, const program::Graph& graph,
                                             TensorDict evidence) {
  return std::make_unique<Elementwise>(options, graph, std::move(evidence));
}

}  // namespace prunex::prune
