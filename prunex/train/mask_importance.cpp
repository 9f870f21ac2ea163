#include "prunex/train/mask_importance.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "prunex/prune/importance.h"
#include "prunex/train/data_pruning.h"
#include "prunex/train/evaluate.h"
#include "prunex/train/evidence.h"

namespace prunex::train {
namespace {

class MaskScorer {
 public:
  MaskScorer(const TrainOptions& options, std::vector<sparsity::Group> groups, program::Program program,
             const data::Dataset& training, data::Dataset calibration)
      : name_(options.mask_importance),
        importance_(prune::importance_named(name_, "`mask_importance`")),
        groups_(std::move(groups)),
        program_(std::move(program)),
        images_(evidence_images(training, options.pruning.importance_samples)),
        calibration_(std::move(calibration)) {
    importance_.seed = options.seed;
    importance_.normalizer = prune::Normalizer::kNone;  // masks compare units of one group
  }

  int64_t images() const { return images_.size(); }
  bool asks_data() const { return prune::needs_evidence(importance_.criterion); }

  std::vector<at::Tensor> operator()(const Weights& candidate, comm::Communicator& node) const {
    program::Model model{program_, candidate};
    if (asks_data()) model.weights = with_estimated_statistics(program_, candidate, calibration_, node);
    return checked(score_by_importance(
        importance_, groups_, model, [this] { return images_; }, node));
  }

  void try_without_data(const Weights& weights) const {
    checked(prune::make_importance(importance_, program_.graph())->score(groups_, weights));
  }

 private:
  std::vector<at::Tensor> checked(const std::vector<prune::UnitScores>& scores) const {
    std::vector<at::Tensor> tensors;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (scores[g].empty()) {
        throw std::invalid_argument(
            fmt::format("`mask_importance`: got {}, which cannot rank group '{}': nothing in it has a say", name_,
                        groups_[g].name));
      }
      tensors.push_back(at::tensor(scores[g], at::kDouble));
    }
    return tensors;
  }

  std::string name_;
  prune::ImportanceOptions importance_;
  std::vector<sparsity::Group> groups_;
  program::Program program_;
  data::Dataset images_, calibration_;
};

void check_axes(const TrainOptions& options, const sparsity::Group& group) {
  const bool columns = std::any_of(group.slices.begin(), group.slices.end(),
                                   [](const auto& slice) { return slice.axis == sparsity::kColumns; });
  if (!columns) return;
  throw std::invalid_argument(fmt::format("`mask_importance`: got {}, wanted {} for group '{}' of single columns",
                                          options.mask_importance, kNormImportance, group.name));
}

}  // namespace

std::vector<std::string> mask_importance_names() {
  std::vector<std::string> names = prune::importance_names();
  names.insert(names.begin(), kNormImportance);
  return names;
}

strategies::UnitScorer mask_scorer(const TrainOptions& options, const std::vector<sparsity::Group>& groups,
                                   const program::Model& model, const data::Dataset& training,
                                   const data::Dataset& calibration) {
  if (options.mask_importance == kNormImportance || groups.empty()) return nullptr;
  for (const auto& group : groups) check_axes(options, group);
  MaskScorer scorer(options, groups, model.program, training, calibration);
  if (!scorer.asks_data()) scorer.try_without_data(model.weights);
  const int ranks = shape_of(options).world_size();
  if (scorer.asks_data() && scorer.images() < ranks) {
    throw std::invalid_argument(fmt::format("`importance_samples`: got {} images, wanted one for each of the {} ranks",
                                            scorer.images(), ranks));
  }
  return scorer;
}

}  // namespace prunex::train
