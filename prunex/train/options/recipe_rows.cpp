// Option rows of how theta is trained: the optimizer, the learning rate, batches and loss; sparse training.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "prunex/prune/regularizer.h"
#include "prunex/train/options.h"
#include "prunex/train/strategy_choice.h"
#include "prunex/train/teacher.h"

namespace prunex::train {
namespace {

using text::between;
using text::number;
using text::OptionList;

const text::Range kAlpha{.least = 0.001, .most = 1000, .or_zero = true, .wanted = "0, or 0.001 to 1000"};

const std::vector<std::pair<std::string, LearningRateSchedule>> kSchedules{
    {"cosine", LearningRateSchedule::kCosine},
    {"step", LearningRateSchedule::kStep},
    {"constant", LearningRateSchedule::kConstant},
    {"milestones", LearningRateSchedule::kMilestones}};

text::OptionValue phase_schedule(std::optional<LearningRateSchedule>& field) {
  std::vector<std::pair<std::string, std::optional<LearningRateSchedule>>> words{{"auto", std::nullopt}};
  words.insert(words.end(), kSchedules.begin(), kSchedules.end() - 1);  // milestones are the training's alone
  return text::choice(field, words);
}

const std::vector<std::pair<std::string, Optimizer>> kOptimizers{{"sgd", Optimizer::kSgd},
                                                                 {"nesterov", Optimizer::kNesterov},
                                                                 {"adamw", Optimizer::kAdamW},
                                                                 {"lamb", Optimizer::kLamb},
                                                                 {"muon", Optimizer::kMuon}};

text::Condition of_optimizers(const TrainOptions& o, const std::vector<std::string>& names) {
  return {fmt::format("`optimizer` {}", fmt::join(names, ", ")), [&o, names] {
            for (const auto& [name, rule] : kOptimizers) {
              if (rule != o.optimizer) continue;
              if (std::find(names.begin(), names.end(), name) == names.end()) return name + " does not read it";
            }
            return std::string();
          }};
}

void describe_optimizer(OptionList& list, TrainOptions& o) {
  const text::Condition moments = of_optimizers(o, {"adamw", "lamb", "muon"});
  list.add("optimizer", text::choice(o.optimizer, kOptimizers), "of the local steps").basic();
  list.add("lr", number(o.learning_rate, text::above_zero(), "auto"),
           "peak learning rate; auto: 0.1, of adamw and muon 0.001, of lamb 0.005")
      .basic();
  list.add("momentum", number(o.momentum, text::below_one(), "auto"), "auto: 0.9, of muon 0.95",
           {of_optimizers(o, {"sgd", "nesterov", "muon"})});
  list.add("weight-decay", number(o.weight_decay, text::at_least(0), "auto"),
           "auto: 5e-4 in the gradient of sgd and nesterov, else 0.01 apart from it");
  list.add("no-vector-decay", text::no_flag(o.decay_vectors),
           "weight decay leaves out parameters of one dimension or none, as biases and what norms of one axis have",
           {{"`weight_decay` above 0, or `sparse_weight_decay`", [&o] {
               const bool decays = o.weight_decay != 0.0 || (o.sparse.epochs > 0 && o.sparse.weight_decay > 0);
               return decays ? "" : "there is no weight decay";
             }}});
  list.add("beta1", number(o.beta1, text::below_one()), "decay of the mean of gradients", {moments});
  list.add("beta2", number(o.beta2, text::below_one()), "decay of the mean of their squares", {moments});
  list.add("eps", number(o.eps, text::above_zero(), "auto"), "added to the root of that; auto: 1e-8, of lamb 1e-6",
           {moments});
  list.add("clip-grad-norm", number(o.clip_norm, text::at_least(0)),
           "longest gradient of all parameters together, behind the mean where gradients are averaged; 0 = off");
}

/// The learning rate, and what is done to batches, loss and weights.
void describe_batches_and_rates(OptionList& list, TrainOptions& o) {
  const text::Condition milestones{"`lr_schedule` milestones", [&o] {
                                     const bool has = o.schedule == LearningRateSchedule::kMilestones;
                                     return has ? "" : "the schedule is another one";
                                   }};
  const text::Condition neighbours{"`batch_size` 2 or more",
                                   [&o] { return o.batch_size > 1 ? "" : "one image has no other to be mixed with"; }};
  const text::Condition teacher{"`teacher`", [&o] { return o.teacher == kNoTeacher ? "there is no `teacher`" : ""; }};
  list.add("lr-schedule", text::choice(o.schedule, kSchedules), "of the learning rate").basic();
  list.add("lr-milestones", text::numbers(o.milestones, "EPOCHS", text::above_zero()),
           "epochs after each of which the learning rate is multiplied: 30,60,80", {milestones});
  list.add("lr-gamma", number(o.milestone_factor, text::above_zero()), "what it is multiplied by", {milestones});
  list.add("warmup-epochs", number(o.warmup_epochs, text::at_least(0)), "linear rise to the peak")
      .instead_of("warmup-steps")
      .basic();
  list.add("warmup-steps", number(o.warmup_steps, text::at_least(0)), "the same, counted in steps",
           {{"`warmup_epochs` 0", [&o] { return o.warmup_epochs > 0 ? "`warmup_epochs` says how many" : ""; }}})
      .instead_of("warmup-epochs");
  list.add("label-smoothing", number(o.label_smoothing, between(0, 1)), "of the loss of training");
  list.add("teacher", text::one_of(o.teacher, {kNoTeacher, kWholeTeacher}, ".pt2"),
           "a trained network whose answers are learned, too; whole: this one as it was before its first cut");
  list.add("teacher-share", number(o.teacher_share, text::inner_share()), "of the loss; the labels have the rest",
           {teacher});
  list.add("teacher-temperature", number(o.teacher_temperature, text::above_zero()),
           "what the logits of both are divided by", {teacher});
  list.add("mixup", number(o.mix.mixup, kAlpha), "mix images with each other by Beta(A, A); 0 = off", {neighbours});
  list.add("cutmix", number(o.mix.cutmix, kAlpha),
           "replace a box by another image's, by Beta(A, A); beside `mixup` one of them per batch; 0 = off",
           {neighbours});
  list.add("ema", number(o.ema, text::below_one()),
           "decay per step of a mean of the weights, which is evaluated and shipped; 0 = off");
}

std::string no_penalty(const TrainOptions& o) {
  return with_defaults(o).sparse.penalty == "none" ? "nothing is penalised without `sparse`" : "";
}

}  // namespace

void describe_recipe(OptionList& list, TrainOptions& o) {
  describe_optimizer(list, o);
  describe_batches_and_rates(list, o);
}

void describe_sparse_training(OptionList& list, TrainOptions& o) {
  auto& sparse = o.sparse;
  const text::Condition penalty{"`sparse`", [&o] { return no_penalty(o); }};
  const text::Condition own_phase{
      "`sparse_epochs`",
      [&o] { return o.sparse.epochs > 0 ? "" : "there is no phase of its own without `sparse_epochs`"; }};
  const text::Condition finetuning{
      "`finetune_epochs`",
      [&o] { return o.finetune.epochs > 0 ? "" : "there is no such phase without `finetune_epochs`"; }};
  const auto is_penalty = [&o](const char* name) {
    return text::Condition{fmt::format("`sparse` {}", name), [&o, name] {
                             const std::string penalty = with_defaults(o).sparse.penalty;
                             return penalty == name ? "" : fmt::format("`sparse` {} does not read it", penalty);
                           }};
  };
  list.topic("Sparse training");
  list.add("sparse", text::one_of(sparse.penalty, prune::penalty_names()), "what is added to the gradients",
           {{"penalties where `strategy` is prunetrain", [&o] {
               const bool lacks = o.strategy == "prunetrain" && o.sparse.penalty == "none";
               return lacks ? "prunetrain is sparse training: with none it has group_lasso" : "";
             }}});
  list.add("sparse-reg", number(sparse.strength, text::above_zero(), "auto"),
           "its strength; auto: what is usual for it", {penalty});
  list.add("sparse-epochs", number(sparse.epochs, text::at_least(0)),
           "of a phase of its own after the training; 0 = during the training", {penalty});
  list.add("sparse-growth", number(sparse.growth, text::at_least(0)),
           "growing: by so much per epoch for the weakest unit", {is_penalty("growing")});
  list.add("sparse-share", number(sparse.loss_share, text::inner_share()),
           "group_lasso without `sparse_reg`: its share of the loss at the start",
           {is_penalty("group_lasso"), {"`sparse_reg` auto", [&o] {
                                          return o.sparse.strength ? std::string("`sparse_reg` is the strength") : "";
                                        }}});
  list.add("sparse-warmup", number(sparse.warmup_epochs, text::at_least(0)),
           "epochs in which the strength rises from 0", {penalty});
  list.add("sparse-refresh", number(sparse.refresh_every, between(1, kMostExchanges)),
           "exchanges between new coefficients",
           {penalty, {"penalties but bn_scale", [&sparse] {
                        return sparse.penalty == "bn_scale" ? "the coefficients of bn_scale stay as they are" : "";
                      }}});
  list.add("sparse-lr", number(sparse.learning_rate, text::above_zero(), "auto"), "of the own phase; auto: as `lr`",
           {own_phase});
  list.add("sparse-lr-schedule", phase_schedule(sparse.schedule), "of the own phase; auto: as `lr_schedule`",
           {own_phase});
  list.add("sparse-weight-decay", number(sparse.weight_decay, text::at_least(0)), "of the own phase", {own_phase});
  list.add("finetune-epochs", number(o.finetune.epochs, text::at_least(0)), "after the cuts of `prune_to`");
  list.add("finetune-lr", number(o.finetune.learning_rate, text::above_zero(), "auto"), "auto: as `lr`", {finetuning});
  list.add("finetune-lr-schedule", phase_schedule(o.finetune.schedule), "auto: as `lr_schedule`", {finetuning});
}

}  // namespace prunex::train
