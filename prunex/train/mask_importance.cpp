#include "prunex/train/mask_importance.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "prunex/prune/importance.h"
#include "prunex/train/evidence.h"

namespace prunex::train {
namespace {

class MaskScorer {
 public:
  MaskScorer(const TrainOptions& options, std::vector<sparsity::Group> groups, program::Program program,
             data::Dataset images)
      : name_(options.mask_importance),
        importance_(prune::importance_named(name_, "--mask-importance")),
        groups_(std::move(groups)),
        program_(std::move(program)),
        images_(std::move(images)) {
    importance_.seed = options.seed;
  }

  bool asks_data() const { return prune::needs_evidence(importance_.criterion); }

  std::vector<at::Tensor> operator()(const Weights& candidate, comm::Communicator& node) const {
    TensorDict evidence;
    if (asks_data()) {
      const at::AutoGradMode with_grad(true);
      evidence = collect_evidence(importance_.criterion, {program_, candidate}, images_, importance_.seed, node);
    }
    return score(candidate, std::move(evidence));
  }

  std::vector<at::Tensor> score(const Weights& weights, TensorDict evidence) const {
    const auto importance = prune::make_importance(importance_, program_.graph(), std::move(evidence));
    const auto scores = importance->score(groups_, weights);
    std::vector<at::Tensor> tensors;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (scores[g].empty()) {
        throw std::invalid_argument(
            fmt::format("--mask-importance: got {}, which cannot rank group '{}': nothing in it has a say", name_,
                        groups_[g].name));
      }
      tensors.push_back(at::tensor(scores[g], at::kDouble));
    }
    return tensors;
  }

 private:
  std::string name_;
  prune::ImportanceOptions importance_;
  std::vector<sparsity::Group> groups_;
  program::Program program_;
  data::Dataset images_;
};

void check_axes(const TrainOptions& options, const sparsity::Group& group) {
  const bool columns = std::any_of(group.slices.begin(), group.slices.end(),
                                   [](const auto& slice) { return slice.axis == sparsity::kColumns; });
  if (!columns) return;
  throw std::invalid_argument(fmt::format("--mask-importance: got {}, wanted {} for group '{}' of single columns",
                                          options.mask_importance, kNormImportance, group.name));
}

}  // namespace

std::vector<std::string> mask_importance_names() {
  std::vector<std::string> names = prune::importance_names();
  names.insert(names.begin(), kNormImportance);
  return names;
}

strategies::UnitScorer mask_scorer(const TrainOptions& options, const std::vector<sparsity::Group>& groups,
                                   const program::Model& model, const data::Dataset& training) {
  if (options.mask_importance == kNormImportance || groups.empty()) return nullptr;
  for (const auto& group : groups) check_axes(options, group);
  MaskScorer scorer(options, groups, model.program, evidence_images(training, options.pruning.importance_samples));
  if (!scorer.asks_data()) scorer.score(model.weights, TensorDict());
  return scorer;
}

}  // namespace prunex::train
