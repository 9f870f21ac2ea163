#include "prunex/train/pruning/mask_choice.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "prunex/prune/importance.h"
#include "prunex/prune/plan.h"
#include "prunex/sparsity/projection.h"
#include "prunex/text/option.h"
#include "prunex/train/batch_statistics.h"
#include "prunex/train/pruning/by_importance.h"
#include "prunex/train/pruning/evidence.h"
#include "prunex/train/strategy_choice.h"

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

  void try_without_data() const { checked(scores_without_data(importance_, groups_, program_.graph())); }

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
  scorer.try_without_data();
  if (scorer.asks_data()) expect_image_for_each(shape_of(options).world_size(), scorer.images());
  return scorer;
}

namespace {

prune::PlanOptions plan_options(const TrainOptions& options) {
  prune::PlanOptions plan = options.pruning.plan;
  plan.limits.round_to = multiple_of_units(options);
  return plan;
}

prune::Target target_of(const TrainOptions& options, const prune::Planner& planner) {
  if (options.budget.empty()) return {.kind = prune::Target::Kind::kRatio, .share = 1 - options.keep};
  const auto budget = text::assignment_in(options.budget);
  if (!budget || budget->first == "ratio") {
    throw std::invalid_argument(
        fmt::format("`keep`: got '{}', wanted a share in (0, 1], macs=M, parameters=P or speed-up=X", options.budget));
  }
  return prune::target_named("`keep` " + budget->first, budget->first, budget->second, planner);
}

prune::Normalizer normalizer_of(const TrainOptions& options) {
  if (options.mask_importance == kNormImportance) return prune::Normalizer::kMean;
  return prune::importance_named(options.mask_importance, "`mask_importance`").normalizer;
}

class MaskPlan {
 public:
  MaskPlan(const TrainOptions& options, const std::vector<sparsity::Group>& groups, const channels::Analysis& analysis)
      : groups_(groups),
        planner_(analysis, plan_options(options)),
        target_(target_of(options, planner_)),
        normalizer_(normalizer_of(options)) {
    std::map<std::string, size_t> position_of;
    for (size_t g = 0; g < planner_.groups().size(); ++g) position_of[planner_.groups()[g].name] = g;
    for (const auto& group : groups_) positions_.push_back(position_of.at(group.name));
    std::vector<at::Tensor> equal;
    for (const auto& group : groups_) equal.push_back(at::ones({group.size}, at::kDouble));
    const std::string option =
        options.budget.empty() ? fmt::format("`keep` {}", options.keep) : "`keep` " + options.budget;
    prune::expect_in_reach(option, planner_, by_group(equal), target_);
  }

  sparsity::Masks masks(const std::vector<at::Tensor>& scores, double progress) const {
    const auto all = sparsity::full_masks(planner_.groups());
    const auto plan = planner_.plan(all, by_group(scores), target_, progress);
    sparsity::Masks chosen;
    for (const auto& group : groups_) chosen.insert(group.name, plan.masks[group.name].clone());
    return chosen;
  }

 private:
  /// In the planner's order; groups that are not masked have no scores and stay whole.
  std::vector<prune::UnitScores> by_group(const std::vector<at::Tensor>& scores) const {
    std::vector<prune::UnitScores> all(planner_.groups().size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      const at::Tensor own = scores[g].contiguous();
      const double* first = own.const_data_ptr<double>();
      auto& normalized = all[positions_[g]];
      normalized.assign(first, first + own.numel());
      prune::normalize(normalized, normalizer_);
    }
    return all;
  }

  std::vector<sparsity::Group> groups_;
  prune::Planner planner_;
  prune::Target target_;
  prune::Normalizer normalizer_;
  std::vector<size_t> positions_;  // of groups_ in the planner's
};

bool has_shares_alone(const TrainOptions& options) {
  const auto& [scope, limits, compatible] = options.pruning.plan;
  return options.budget.empty() && scope == prune::Scope::kLocal && limits.max_ratio >= 1 && limits.ratios.empty() &&
         limits.ignore.empty();
}

[[noreturn]] void refuse_budget(const std::string& option, const std::string& why) {
  throw std::invalid_argument(
      fmt::format("{}: a budget for the whole network (`keep`, `scope`, `ignore`, `max_ratio`, "
                  "`layer_ratio`) {}",
                  option, why));
}

}  // namespace

strategies::UnitSelector mask_plan(const TrainOptions& options, const std::vector<sparsity::Group>& groups,
                                   const channels::Analysis& analysis) {
  if (groups.empty() || has_shares_alone(options)) return nullptr;
  const std::string words = group_words(options);
  if (words != "coupled" && words != "coupled-inner")
    refuse_budget("`groups` " + words, "wants coupled or coupled-inner");
  if (options.masks.rule != strategies::MaskRule::kJoint) {
    refuse_budget("`mask_rule` union", "wants joint: the union of the nodes' masks would not meet it");
  }
  const auto plan = std::make_shared<const MaskPlan>(options, groups, analysis);
  return [plan](const std::vector<at::Tensor>& scores, double progress) { return plan->masks(scores, progress); };
}

MaskedUnits masked_units(const TrainOptions& options, std::vector<sparsity::Group> groups, const program::Model& model,
                         const channels::Analysis& analysis, const data::Dataset& training,
                         const data::Dataset& calibration) {
  auto score = mask_scorer(options, groups, model, training, calibration);
  auto select = mask_plan(options, groups, analysis);
  return {std::move(groups), std::move(score), std::move(select)};
}

}  // namespace prunex::train
