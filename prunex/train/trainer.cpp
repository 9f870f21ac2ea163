#include "prunex/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#include "prunex/program/pt2.h"
#include "prunex/say.h"
#include "prunex/strategies/exchange/exchange_buffer.h"
#include "prunex/train/device.h"
#include "prunex/train/optimizer_choice.h"
#include "prunex/train/rank_trainer.h"
#include "prunex/train/remarks.h"
#include "prunex/train/strategy_choice.h"
#include "prunex/train/tensor_hash.h"

namespace prunex::train {

namespace {

int64_t gradient_steps(const TrainOptions& options, const RunLength& length) {
  if (facts_of(options.strategy).gradients) return length.steps;
  return std::min(length.steps, options.local_after * options.local_steps);
}

/// What a network comes from.
const char* maker_of(const std::string& model) {
  return model.ends_with(".pt2") ? "file" : "build of prunex";
}

}  // namespace

RankTrainer::RankTrainer(const TrainOptions& options, comm::Hierarchy& ranks, const GraphMaker& make_graph,
                         Prepared prepared)
    : options_(options),
      ranks_(ranks),
      interfaces_(ranks.interfaces),
      images_(std::move(prepared.images)),
      files_of_(has_files_by_node(options.data) ? std::optional(ranks.layout.node()) : std::nullopt),
      data_(images_.sets),
      checksums_(data_),
      network_(on_device(std::move(prepared.network.model), ranks.device), std::move(prepared.network.analysis),
               options.optimizer),
      program_checksum_(std::bit_cast<int64_t>(program::checksum(network_.graph()))),
      length_(std::move(prepared.length)),
      gradient_steps_(gradient_steps(options, length_)),
      division_(std::move(prepared.division)),
      feed_(make_batch_feed(make_loader(options, ranks.layout, data_.train, division_), ranks.device)),
      calibration_(std::move(prepared.calibration)),
      evaluator_(network_, calibration_, ranks, files_of_.has_value()),
      pruning_(options_, std::move(prepared.pruning), network_, evaluator_, data_),
      arithmetic_(decide_arithmetic(options.precision, ranks.device, *ranks.world)),
      teacher_(on_device(std::move(prepared.teacher), ranks.device)),
      steps_(network_, *feed_, arithmetic_, options.cuda_graphs && !ranks.device.is_cpu() ? make_graph : nullptr,
             {.label_smoothing = options.label_smoothing, .teacher = teacher_}),
      mean_(options.ema),
      remarks_(std::move(prepared.remarks)),
      interval_{.pace = Pace(options.straggler_factor), .losses = LossSum(length_)} {
  const prune::Size& size = network_.size();
  const StrategyFacts& facts = facts_of(options.strategy);
  summary_ = {.strategy = options.strategy,
              .model = options.model,
              .dataset = options.data.dataset,
              .sends_gradients = facts.gradients,
              .seed = options.seed,
              .shape = shape_of(options),
              .local_steps = options.local_steps,
              .description = images_.description,
              .classes = data_.train.classes,
              .parameters_dense = size.parameters,
              .macs_dense = size.macs,
              .elastic = options.elastic,
              .has_deadline = interval_.pace.has_deadline(),
              .averaged_buffers = strategies::averaged_numbers(network_.replica().weights)};
}

void RankTrainer::say_remarks() const {
  if (ranks_.layout.rank != 0 || options_.quiet) return;
  for (const auto& remark : remarks_) say(text::with_flags(fmt::format("prunex: {}\n", remark)));
  for (const auto& remark : transport_remarks(ranks_)) say(fmt::format("prunex: {}\n", remark));
}

Summary RankTrainer::run(const std::string& config, StopRequest* stop) {
  if (options_.join.empty()) {
    begin(config, stop);
  } else {
    join(config, stop);
  }
  summary_.precision = name_of(arithmetic_);
  run_->begin(summary_, length_.exchanges);
  if (elastic_) run_->publish(elastic_->doors());
  lap_.lap();
  begin_ = Stopwatch::now();
  train_steps();
  run_->end_progress();
  try {
    end();
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(error.what() + run_->safe().way_on());
  }
  return summary_;
}

void RankTrainer::begin(const std::string& config, StopRequest* stop) {
  run_.emplace(options_, config, ranks_, stop);
  say_remarks();
  const std::optional<Checkpoint> before = run_->safe().load();
  expect_same_images(data_, checksums_, division_ && division_->images.empty() ? *ranks_.node : *ranks_.world);
  moved_ = comm::moved_by_exchanges(ranks_);  // comparing images is no exchange
  expect_same_program();
  expect_same_teacher(teacher_.get(), *ranks_.world);
  strategy_ = make_own_strategy(before ? before->exchange : 0);
  if (before) {
    restore(*before);
  } else {
    prune(pruning_.due_cut({}, *strategy_), 0, 0);
  }
  elastic_ = make_elastic(options_, ranks_, data_.train.size(), config, transactions_up_to(summary_.steps));
}

/// Weights are rank 0's; what is computed with them is in every rank's own file.
void RankTrainer::expect_same_program() const {
  const auto other = comm::first_other(program_checksum_, *ranks_.world);
  if (!other) return;
  throw std::invalid_argument(
      fmt::format("`model` {}: rank {} has another network there than rank 0: wanted the same {} on all machines",
                  options_.model, *other, maker_of(options_.model)));
}

void RankTrainer::expect_program_of(const Checkpoint& checkpoint) const {
  const at::Tensor* before = checksum_in(checkpoint, kProgramChecksum);
  if (before == nullptr || before->item<int64_t>() == program_checksum_) return;
  throw std::invalid_argument(fmt::format("`model` {}: not the network with which the run began: wanted the same {}",
                                          options_.model, maker_of(options_.model)));
}

std::unique_ptr<strategies::Strategy> RankTrainer::make_own_strategy(int64_t exchanges_done) {
  const RunPlan plan{.length = length_,
                     .learning_rate = learning_rates(length_),
                     .masked = pruning_.plan().masked,
                     .exchanges_done = exchanges_done};
  return make_strategy(options_, plan, network_.replica(), ranks_);
}

/// Masks are final, the product is evaluated and written.
void RankTrainer::end() {
  if (!summary_.frozen && !strategy_->masks().is_empty()) evaluated_.reset();  // finish() applies masks
  const auto work = [&] {
    strategy_->finish();
    run_->traced("evaluate", summary_.exchanges, [&] { summarise(); });
    run_->write_trace();
    run_->finish();
  };
  if (!elastic_) return work();
  const Undo undo(*strategy_, network_.replica(), mean_);
  for (;;) {
    try {
      return work();
    } catch (const std::runtime_error&) {
      if (!has_lost()) throw;
      regroup();
      undo.bring_back(*strategy_, network_.replica(), mean_);  // not all may have finished it
    }
  }
}

void RankTrainer::train_steps() {
  if (summary_.converged) return;
  double begin = Stopwatch::now(), end = begin;  // of the local steps since the last exchange
  begin_steps();
  for (int64_t step = summary_.steps + 1; step <= length_.steps; ++step) {
    make_step(step);
    if (ends_interval(step)) wait_for(ranks_.device);  // so that seconds are true
    since_exchange_.local += lap_.lap();
    end = Stopwatch::now();
    const Round round = exchange_after(step);
    if (!round.exchange.exchanged) continue;
    const int64_t k = round.exchange.index;
    run_->trace({"local", begin, end - begin}, k);
    run_->trace(round.exchange.phases, k);
    summary_.images_lost += round.passed_by;
    count(round.metrics);
    prune(round.cut, k, step);
    heed(round.wishes);
    if (summary_.converged) return;
    if (round.newcomer && step < length_.steps) admit();
    lap_.lap();
    begin = Stopwatch::now();
    begin_steps();
  }
}

void RankTrainer::begin_steps() {
  interval_.pace.begin(std::min(options_.local_steps, length_.steps - last_step_));
  interval_.steps_of_all = 0;
}

/// The next one of the run, which others make if this rank does not.
void RankTrainer::make_step(int64_t step) {
  evaluated_.reset();
  if (is_transaction(step)) return make_together(step, step);
  const bool passes_by = !contributes() || interval_.pace.is_late();
  if (steps_in_node() && !passes_by) return make_together(step, step);
  begins_.clear();
  if (passes_by) return pass_by(step);
  local_step(step);
  if (interval_.pace.has_deadline()) wait_for(ranks_.device);
  interval_.pace.made_step();
}

/// A loss meanwhile costs a checkpoint; the next exchange finds who is left.
void RankTrainer::heed(const Wishes& wishes) {
  try {
    if (options_.elastic && wishes.lets_some_leave(ranks_.layout.world_size())) {
      run_->heed({.checkpoint = wishes.checkpoint}, [this] { return snapshot(); });
      return run_->safe().leave(summary_.exchanges);
    }
    run_->heed(wishes, [this] { return snapshot(); });
  } catch (const Interrupted&) {
    throw;
  } catch (const std::runtime_error&) {
    if (!has_lost()) throw;
  }
}

RankTrainer::Round RankTrainer::exchange_after(int64_t step) {
  Round round;
  const bool is_due = ends_interval(step);
  const auto exchange = [&] {
    round = {};
    if (is_due) {
      round.steps = is_transaction(step) ? interval_.steps_of_all : interval_.pace.agree(ranks_, contributors());
    }
    round.exchange = strategy_->after_update(network_.replica(), step);
    if (!round.exchange.exchanged) return;
    // without masks an exchange is one of those behind the freeze from the first on
    if (pruning_.plan().masked.groups.empty()) round.exchange.frozen = false;
    // what overlaps ends between the steps in which exchanges are due
    if (options_.overlap > 0) round.steps = (step - last_step_) * contributors();
    measure(round, step);
    round.cut = pruning_.due_cut(round.exchange, *strategy_);
  };
  if (!elastic_ || !is_due) {
    exchange();
    return round;
  }
  const auto best = summary_.best;
  const int64_t transaction = transactions_up_to(step) + 1;
  for (;;) {
    const Undo undo(*strategy_, network_.replica(), mean_);
    const bool divides = division_is_due_ || contributors() < ranks_.layout.world_size();
    const int rank = ranks_.layout.rank, all = ranks_.layout.world_size();
    try {
      exchange();
      round.metrics.z_hash = hash_of(strategy_->product().params, strategy_->masks());
      const uint64_t cut = round.cut ? sparsity::hash(round.cut->cut) : 0;
      round.newcomer = elastic_->commit(transaction, *round.metrics.z_hash ^ cut);
      if (divides) divide();
      return round;
    } catch (const std::runtime_error&) {
      if (!has_lost()) throw;
      const int64_t counted = regroup().transactions;
      if (counted == transaction) {            // all who are left had it
        if (divides) divide_among(rank, all);  // as those did who have gone on meanwhile
        if (is_transaction(step + 1)) divide();
        round.wishes = {};  // some may have tried already to fulfil them
        return round;
      }
      undo.bring_back(*strategy_, network_.replica(), mean_);
      summary_.best = best;
      if (counted + 1 < transaction) make_together(go_back(counted), step);
      if (steps_in_node() && !is_transaction(step) && steps_of_node_ < step) make_together(go_back_in_node(), step);
    }
  }
}

void RankTrainer::local_step(int64_t step) {
  const auto [epoch, of_epoch] = take_step();
  feed_->load(epoch, of_epoch);
  steps_made_ = step;
  if (options_.mix.any()) {
    const auto image = input_shape(network_.graph());
    steps_.set_mix(draw_mix(options_.mix, {options_.seed, epoch, of_epoch, ranks_.layout.rank}, image[2], image[3]));
  }
  seed_dropout(ranks_.device, options_.seed, ranks_.layout.rank, step);
  Replica& replica = network_.replica();
  const OptimizerOptions optimizer = optimizer_at(options_, length_.phase_of(step), step);
  if (steps_.has_graphs() && !changes_gradients()) {
    return interval_.losses.add(steps_.step(strategy_->local_terms(), optimizer), step);
  }
  interval_.losses.add(steps_.gradients(), step);
  const bool workers = options_.in_node == InNode::kGradients;
  if (facts_of(options_.strategy).gradients || workers) wait_for(ranks_.device);
  since_exchange_.local += lap_.lap();
  std::vector<at::Tensor> untouched;  // a strategy would give them zeros, and weight decay would move them
  for (const auto& theta : replica.weights.params) {
    if (!theta.value().grad().defined()) untouched.push_back(theta.value());
  }
  strategy_->before_update(replica);
  for (at::Tensor& theta : untouched) theta.mutable_grad().reset();
  (step > gradient_steps_ ? since_exchange_.local : gradient_seconds_) += lap_.lap();
  pruning_.add_to_gradients(replica.weights.params, step);
  optimizer_step(replica, strategy_->local_terms(), optimizer);
}

/// Whether somebody wants gradients between backward and the update.
bool RankTrainer::changes_gradients() const {
  const bool weights_alone = facts_of(options_.strategy).weights_alone() && options_.in_node == InNode::kWeights;
  return !weights_alone || options_.local_after > 0 || pruning_.plan().sparse;
}

/// Whether the rest of the run changes weights alone.
bool RankTrainer::may_end_early(const strategies::Exchange& exchange, const Phase& phase) const {
  const bool has_cuts_left = pruning_.plan().schedule && !pruning_.is_over(exchange);
  const bool ramp_is_over = options_.keep_ramp == sparsity::KeepRamp::kHard || exchange.index >= length_.prune_end;
  const bool has_final_share = pruning_.masks_are_final(exchange) || (ramp_is_over && options_.ema == 0);
  return !has_cuts_left && has_final_share && phase.end() == length_.steps;
}

/// Everyone measures and adds up.
void RankTrainer::measure(Round& round, int64_t step) {
  const strategies::Exchange& exchange = round.exchange;
  round.wishes = run_->safe().wishes(exchange.index, step == length_.steps);
  if (!loss_) loss_ = interval_.losses.take();
  const double exchange_seconds = lap_.lap();
  const Phase& phase = length_.phase_of(step);
  const prune::Size& size = network_.size();
  Metrics& metrics = round.metrics;
  metrics = {.phase = phase.name,
             .step = step,
             .samples = summary_.samples + round.steps * options_.batch_size,
             .epoch = static_cast<double>(step) / static_cast<double>(length_.steps_per_epoch),
             .loss = *loss_ / static_cast<double>(std::max<int64_t>(1, interval_.pace.made())),
             .learning_rate = learning_rate_at(phase, step),
             .parameters = size.parameters,
             .macs = size.macs,
             .exchange = exchange,
             .seconds = since_exchange_};
  if (interval_.pace.has_deadline()) {
    round.passed_by = ((step - last_step_) * contributors() - round.steps) * options_.batch_size;
  }
  if (pruning_.masks_are_final(exchange)) mean_.add(strategy_->product(), step - last_step_);
  metrics.exchange.converged = exchange.converged && may_end_early(exchange, phase);
  const double begin = Stopwatch::now();
  evaluate_into(metrics);
  if (metrics.accuracy) run_->trace({"evaluate", begin, Stopwatch::now() - begin}, exchange.index);
  metrics.seconds.evaluate = lap_.lap();
  metrics.seconds.exchange = seconds_of(exchange.phases);
  metrics.seconds.exchange.inter += gradient_seconds_;
  metrics.seconds.total = metrics.seconds.local + gradient_seconds_ + exchange_seconds + metrics.seconds.evaluate;
  const comm::Volume all = comm::moved_by_exchanges(ranks_);
  average_over_ranks(metrics, all - moved_, round.wishes, ranks_);
  moved_ = all;
  if (!exchange.residuals.empty()) metrics.residuals_by_rank = gather(exchange.own, *ranks_.world);
}

/// Rank 0 writes.
void RankTrainer::count(const Metrics& metrics) {
  summary_.exchanges = metrics.exchange.index;
  summary_.steps = metrics.step;
  summary_.samples = metrics.samples;
  const bool always = facts_of(options_.strategy).overlaps && !steps_.has_graphs();
  summary_.overlapped_steps += always ? metrics.step - last_step_ : metrics.exchange.overlapped;
  if (!metrics.exchange.buckets.empty()) summary_.buckets = metrics.exchange.buckets;
  summary_.seconds += metrics.seconds;
  summary_.bytes += metrics.bytes;
  summary_.frozen = metrics.exchange.frozen;
  summary_.converged = metrics.exchange.converged;
  const double rate =
      static_cast<double>(summary_.samples - samples_before_cut_) / (summary_.seconds.local - seconds_before_cut_);
  (network_.is_smaller() ? summary_.samples_per_second_after_cut : summary_.samples_per_second_before_cut) = rate;
  run_->report(metrics, summary_.seconds.total, rate);
  last_step_ = metrics.step;
  loss_.reset();
  gradient_seconds_ = 0;
  since_exchange_ = {};
  lap_.lap();
}

Summary train(const TrainOptions& options, comm::Hierarchy& ranks, const std::string& config, StopRequest* stop,
              const GraphMaker& make_graph) {
  validate(options);
  const auto wanted = comm::describe(shape_of(options)), got = comm::describe(ranks.layout);
  TORCH_CHECK(options.elastic || wanted == got, "[train] options and ranks disagree about the layout: ", wanted, ", ",
              got);
  check_elastic(options, ranks.layout);
  if (options.join.empty()) expect_same_options(config, *ranks.world);
  at::set_num_threads(options.threads);
  if (!ranks.device.is_cpu()) compute_reproducibly();
  return RankTrainer(with_defaults(options), ranks, make_graph).run(config, stop);
}

}  // namespace prunex::train
