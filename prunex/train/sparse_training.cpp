#include "prunex/train/sparse_training.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

namespace prunex::train {
namespace {

const std::string kRoom = "sparse/";  // in checkpoints

prune::RegularizerOptions regularizer_options(const SparseOptions& sparse, int64_t classes) {
  const auto penalty = prune::penalty_named(sparse.penalty);
  return {.penalty = penalty,
          .strength = sparse.strength.value_or(prune::usual_strength(penalty)),
          .growth = sparse.growth,
          .loss_share = sparse.loss_share,
          .first_loss = std::log(static_cast<double>(classes))};
}

}  // namespace

SparseTraining::SparseTraining(const TrainOptions& options, const RunLength& length, const channels::Analysis& analysis,
                               int64_t classes)
    : options_(options.sparse),
      local_steps_(options.local_steps),
      length_(length),
      regularizer_(regularizer_options(options.sparse, classes), analysis) {}

void SparseTraining::save(TensorDict& state) const {
  for (const auto& item : regularizer_.state()) state.insert(kRoom + item.key(), item.value());
}

void SparseTraining::load(const TensorDict& state) {
  TensorDict own;
  for (const auto& item : state) {
    if (item.key().starts_with(kRoom)) own.insert(item.key().substr(kRoom.size()), item.value());
  }
  regularizer_.load(own);
}

bool SparseTraining::acts_in(int64_t step) const {
  const std::string_view phase = options_.epochs > 0 ? "sparse" : "train";
  return step <= length_.steps && length_.phase_of(step).name == phase;
}

void SparseTraining::add_to_gradients(TensorDict& params, int64_t step) const {
  if (!acts_in(step)) return;
  const double warmup = options_.warmup_epochs * static_cast<double>(length_.steps_per_epoch);
  const auto in_phase = static_cast<double>(step - length_.phase_of(step).begin);
  regularizer_.add_to_gradients(params, warmup > 0 ? std::min(1.0, in_phase / warmup) : 1);
}

void SparseTraining::refresh(const Weights& weights, int64_t exchange, int64_t step) {
  const int64_t last = std::min(step + local_steps_, length_.steps);
  const bool due = exchange % options_.refresh_every == 0 || !regularizer_.has_coefficients();
  if (!due || (!acts_in(step + 1) && !acts_in(last))) return;
  const int64_t in_phase = std::max<int64_t>(0, step - length_.phase_of(last).begin);
  const int64_t passed = std::min(in_phase, local_steps_ * options_.refresh_every);
  regularizer_.refresh(weights, static_cast<double>(passed) / static_cast<double>(length_.steps_per_epoch));
}

}  // namespace prunex::train
