#include "prunex/prune/importance.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <utility>

#include "prunex/prune/elementwise.h"
#include "prunex/prune/entries.h"
#include "prunex/prune/geometric_median.h"
#include "prunex/prune/words.h"

namespace prunex::prune {
namespace {

using sparsity::Group;
using sparsity::Slice;

std::vector<double> to_vector(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kCPU, at::kDouble).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

/// FNV-1a.
uint64_t hash(const std::string& text) {
  uint64_t state = 0xcbf29ce484222325;
  for (const char c : text) state = (state ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return state;
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
    std::vector<UnitScores> scores;
    for (const Group& group : groups) {
      scores.push_back(entries_.score(
          group, [&](const Slice& slice, const WeightRole& role) { return local(slice, role, weights); }));
    }
    return scores;
  }

 private:
  /// Input channels that read the unit; those of grouped convolutions at equal positions of all groups.
  std::optional<std::vector<double>> local(const Slice& slice, const WeightRole& role, const Weights& weights) const {
    const at::Tensor* inputs = evidence_.find(slice.tensor);
    const bool reads = role.out_axis >= 0 && slice.axis != role.out_axis && entries_.counts(role);
    if (inputs == nullptr || !reads) return std::nullopt;
    const int64_t positions = weights.params[slice.tensor].size(slice.axis);
    TORCH_CHECK(inputs->numel() % positions == 0, "[prune] evidence of ", inputs->numel(), " inputs for '",
                slice.tensor, "', which reads ", positions);
    return to_vector(inputs->reshape({-1, positions}).sum(0));
  }

  Entries entries_;
  TensorDict evidence_;
};

const Words<ImportanceOptions>& table() {
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
  return names_of(table());
}

ImportanceOptions importance_named(const std::string& name, const char* option) {
  return meaning_of(name, table(), option);
}

bool needs_evidence(Criterion criterion) {
  return criterion == Criterion::kTaylor || criterion == Criterion::kHessian || criterion == Criterion::kObdc ||
         criterion == Criterion::kActivation;
}

std::unique_ptr<Importance> make_importance(const ImportanceOptions& options, const program::Graph& graph,
                                            TensorDict evidence) {
  switch (options.criterion) {
    case Criterion::kRandom:
      return std::make_unique<Random>(options.seed);
    case Criterion::kFpgm:
      return make_geometric_median(options, graph);
    case Criterion::kActivation:
      return std::make_unique<Activation>(options, graph, std::move(evidence));
    default:
      return make_elementwise(options, graph, std::move(evidence));
  }
}

}  // namespace prunex::prune
