#include "prunex/prune/importance.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "prunex/digest.h"
#include "prunex/prune/entries.h"
#include "prunex/prune/words.h"

namespace prunex::prune {
namespace {

using sparsity::Group;
using sparsity::Slice;

std::vector<double> to_vector(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kCPU, at::kDouble).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

uint64_t hash(const std::string& text) {
  Digest digest;
  digest.add(text.data(), text.size());
  return digest.value();
}

/// Every group draws from a generator of its own, so that its scores depend on its name and size only.
class Random final : public Importance {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}

  std::vector<UnitScores> score(const std::vector<Group>& groups, const Weights&) const override {
    std::vector<UnitScores> scores;
    for (const Group& group : groups) {
      auto generator = at::make_generator<at::CPUGeneratorImpl>(seed_ ^ hash(group.name));
      scores.push_back(to_vector(at::rand({group.size}, generator, at::kDouble)));
    }
    return scores;
  }

 private:
  uint64_t seed_;
};

class Activation final : public Importance {
 public:
  Activation(const ImportanceOptions& options, const program::Graph& graph, TensorDict evidence)
      : entries_(options, graph), evidence_(std::move(evidence)) {}

  std::vector<UnitScores> score(const std::vector<Group>& groups, const Weights& weights) const override {
    return entries_.score(
        groups, [&](const Slice& slice, const WeightRole& role, int64_t) { return local(slice, role, weights); });
  }

  bool has_evidence() const override { return true; }

 private:
  /// Input channels that read the unit; those of grouped convolutions at equal positions of all groups.
  std::optional<std::vector<double>> local(const Slice& slice, const WeightRole& role, const Weights& weights) const {
    const at::Tensor* inputs = evidence_.find(slice.tensor);
    const bool reads = role.out_axis >= 0 && slice.axis != role.out_axis && entries_.counts(role);
    if (inputs == nullptr || !reads) return std::nullopt;
    const int64_t positions = weights.params[slice.tensor].size(slice.axis);
    if (inputs->numel() != role.channels_read(positions)) {
      throw std::invalid_argument(fmt::format("`evidence`: got that of {} inputs for {}, which reads {}",
                                              inputs->numel(), slice.tensor, role.channels_read(positions)));
    }
    return to_vector(inputs->reshape({-1, positions}).sum(0));
  }

  Entries entries_;
  TensorDict evidence_;
};

constexpr int64_t kChunk = 1024;  // rows whose distances to all are in memory at a time

/// One row per position of the slice, in its order.
at::Tensor rows_of(const at::Tensor& weight, const Slice& slice) {
  at::Tensor rows = weight.detach().to(at::kCPU, at::kFloat).movedim(slice.axis, 0);
  if (!slice.index.empty()) rows = rows.index_select(0, at::tensor(slice.index, at::kLong));
  return rows.reshape({rows.size(0), -1});
}

/// Of every row: the sum of its Euclidean distances to all rows.
std::vector<double> distances(const at::Tensor& rows) {
  std::vector<double> sums;
  for (int64_t begin = 0; begin < rows.size(0); begin += kChunk) {
    const at::Tensor part = rows.slice(0, begin, std::min(begin + kChunk, rows.size(0)));
    const at::Tensor chunk = at::cdist(part, rows).to(at::kDouble).sum(1);
    sums.insert(sums.end(), chunk.const_data_ptr<double>(), chunk.const_data_ptr<double>() + chunk.numel());
  }
  return sums;
}

/// FPGM: units close to all others of their layer can be replaced by them.
class GeometricMedian final : public Importance {
 public:
  GeometricMedian(const ImportanceOptions& options, const program::Graph& graph) : entries_(options, graph) {}

  std::vector<UnitScores> score(const std::vector<sparsity::Group>& groups, const Weights& weights) const override {
    const at::NoGradGuard no_grad;
    return entries_.score(groups, [&](const Slice& slice, const WeightRole& role, int64_t size) {
      return local(slice, role, size, weights);
    });
  }

 private:
  std::optional<std::vector<double>> local(const Slice& slice, const WeightRole& role, int64_t size,
                                           const Weights& weights) const {
    if (role.out_axis < 0 || !entries_.counts(role)) return std::nullopt;
    const at::Tensor rows = rows_of(weights.params[slice.tensor], slice);
    if (entries_.options().tp_compat) return at_positions(distances(rows.abs().pow(entries_.options().power)), slice);
    return at_positions(at_first(distances(rows.reshape({size, -1})), slice), slice);
  }

  /// The score of a unit at the first of its positions, zero at the others.
  static std::vector<double> at_first(const std::vector<double>& units, const Slice& slice) {
    if (slice.index.empty()) return units;
    const auto block = static_cast<size_t>(slice.positions_per_unit(static_cast<int64_t>(units.size())));
    std::vector<double> positions(slice.index.size(), 0);
    for (size_t unit = 0; unit < units.size(); ++unit) positions[unit * block] = units[unit];
    return positions;
  }

  /// From the order of the slice to positions of the axis.
  static std::vector<double> at_positions(std::vector<double> ordered, const Slice& slice) {
    if (slice.index.empty()) return ordered;
    std::vector<double> positions(1 + *std::max_element(slice.index.begin(), slice.index.end()), 0);
    for (size_t i = 0; i < slice.index.size(); ++i) positions[slice.index[i]] = ordered[i];
    return positions;
  }

  Entries entries_;
};

const Words<ImportanceOptions>& criteria() {
  static const Words<ImportanceOptions> options = {
      {"l1", {.power = 1}},
      {"l2", {.power = 2}},
      {"group_norm", {.power = 2}},
      {"bn_scale", {.criterion = Criterion::kBatchNormScale, .power = 1}},
      {"lamp", {.power = 2, .normalizer = Normalizer::kLamp}},
      {"fpgm", {.criterion = Criterion::kFpgm}},
      {"random", {.criterion = Criterion::kRandom}},
      {"taylor", {.criterion = Criterion::kTaylor}},
      {"hessian", {.criterion = Criterion::kHessian}},
      {"obdc", {.criterion = Criterion::kObdc}},
      {"activation", {.criterion = Criterion::kActivation}},
  };
  return options;
}

}  // namespace

std::vector<std::string> importance_names() {
  return names_of(criteria());
}

ImportanceOptions importance_named(const std::string& name, const char* option) {
  return meaning_of(name, criteria(), option);
}

bool needs_evidence(Criterion criterion) {
  return criterion == Criterion::kTaylor || criterion == Criterion::kHessian || criterion == Criterion::kObdc ||
         criterion == Criterion::kActivation;
}

void check(const ImportanceOptions& options) {
  const bool makers_count =
      options.criterion != Criterion::kActivation && options.criterion != Criterion::kBatchNormScale;
  if (makers_count || options.reduction != Reduction::kFirst) return;
  throw std::invalid_argument(
      fmt::format("`reduction`: got first, but the layer that makes the units has no say in {}",
                  options.criterion == Criterion::kActivation ? "activations" : "scales of batch norm"));
}

std::unique_ptr<Importance> make_importance(const ImportanceOptions& options, const program::Graph& graph,
                                            TensorDict evidence) {
  check(options);
  switch (options.criterion) {
    case Criterion::kRandom:
      return std::make_unique<Random>(options.seed);
    case Criterion::kFpgm:
      return std::make_unique<GeometricMedian>(options, graph);
    case Criterion::kActivation:
      return std::make_unique<Activation>(options, graph, std::move(evidence));
    default:
      return make_elementwise(options, graph, std::move(evidence));
  }
}

}  // namespace prunex::prune
