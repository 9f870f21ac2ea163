#include "prunex/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <stdexcept>

#include "prunex/channels/analysis.h"
#include "prunex/io/files.h"
#include "prunex/say.h"
#include "prunex/train/batch_feed.h"
#include "prunex/train/local_steps.h"
#include "prunex/train/network.h"
#include "prunex/train/outliving.h"
#include "prunex/train/product_mean.h"
#include "prunex/train/pruning.h"
#include "prunex/train/run.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

/// One rank's training loop: local steps, exchanges, what is measured in between, and the product at the end.
class Trainer {
 public:
  Trainer(const TrainOptions& options, comm::Hierarchy& ranks, const GraphMaker& make_graph)
      : Trainer(options, ranks, make_graph, prepare(options, &ranks)) {}
  Summary run(const std::string& config, StopRequest* stop);

 private:
  Trainer(const TrainOptions& options, comm::Hierarchy& ranks, const GraphMaker& make_graph, Prepared run);
  void say_remarks() const;
  void train_steps(Run& run);
  /// An exchange, and what all ranks make known of it.
  struct Round {
    strategies::Exchange exchange = {};
    Metrics metrics = {};
    Wishes wishes = {};
  };
  Round exchange_after(int64_t step, Run& run);
  void heed(const Wishes& wishes, Run& run);
  bool regroup(Run& run);
  void end(Run& run);
  void prune(const strategies::Exchange& exchange, int64_t step, Run& run);
  void add_up();
  Checkpoint snapshot();
  void restore(const Checkpoint& checkpoint);
  void local_step(int64_t step);
  bool changes_gradients() const;
  void measure(Round& round, int64_t step, Run& run);
  void count(const Metrics& metrics, Run& run);
  void evaluate_into(Metrics& metrics);
  Weights product() const { return evaluator_.product(mean_.of(strategy_->product())); }
  void summarise(const Run& run);
  void ship(const program::Model& compact, const sparsity::Cut& cut, const Run& run);
  void restart_speed();

  TrainOptions options_;
  comm::Hierarchy& ranks_;
  comm::InterfaceCounters interfaces_;
  const RunImages images_;
  const data::Datasets& data_;
  TrainedNetwork network_;
  RunLength length_;
  const std::optional<Division> division_;
  const std::unique_ptr<BatchFeed> feed_;
  data::Cursor cursor_;  // of the next step
  data::Dataset calibration_;
  Evaluator evaluator_;
  Pruning pruning_;
  const Arithmetic arithmetic_;
  LocalSteps steps_;
  std::unique_ptr<strategies::Strategy> strategy_;
  std::unique_ptr<comm::Elastic> elastic_;  // null unless the run outlives nodes
  ProductMean mean_;
  std::vector<std::string> remarks_;

  Stopwatch lap_;
  double begin_ = 0;  // of this part of the run
  Seconds since_exchange_;
  double gradient_seconds_ = 0;             // of averaging gradients since the last exchange
  LossSum losses_;                          // since the last exchange
  std::optional<double> loss_;              // their sum, once it was asked for
  int64_t steps_made_ = 0, last_step_ = 0;  // of which the last exchange was
  comm::Volume moved_;                      // by exchanges, up to the last record
  double seconds_before_cut_ = 0;
  int64_t samples_before_cut_ = 0;
  std::optional<Score> scored_;  // the product as it is now, on the test set
  Summary summary_, resumed_;    // of the run, and of what of it was before this part
};

Trainer::Trainer(const TrainOptions& options, comm::Hierarchy& ranks, const GraphMaker& make_graph, Prepared run)
    : options_(options),
      ranks_(ranks),
      interfaces_(ranks.interfaces),
      images_(std::move(run.images)),
      data_(images_.sets),
      network_(on_device(std::move(run.network.model), ranks.device), std::move(run.network.analysis),
               options.optimizer),
      length_(std::move(run.length)),
      division_(std::move(run.division)),
      feed_(make_batch_feed(make_loader(options, ranks.layout, data_.train, division_), ranks.device)),
      calibration_(std::move(run.calibration)),
      evaluator_(network_, calibration_, ranks),
      pruning_(options_, std::move(run.pruning), network_, evaluator_, data_),
      arithmetic_(decide_arithmetic(options.precision, ranks.device, *ranks.world)),
      steps_(network_, *feed_, arithmetic_, options.cuda_graphs && !ranks.device.is_cpu() ? make_graph : nullptr,
             options.label_smoothing),
      mean_(options.ema),
      remarks_(std::move(run.remarks)),
      losses_(optimizer_of(options).learning_rate) {
  const Size& size = network_.size();
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
              .elastic = options.elastic};
  for (const auto& buffer : network_.replica().weights.buffers) {
    if (buffer.value().is_floating_point()) summary_.floating_buffers += buffer.value().numel();
  }
}

void Trainer::say_remarks() const {
  if (ranks_.layout.rank != 0 || options_.quiet) return;
  for (const auto& remark : remarks_) say(text::with_flags(fmt::format("prunex: {}\n", remark)));
  for (const auto& detour : detours(ranks_)) say(fmt::format("prunex: {}\n", detour));
}

Summary Trainer::run(const std::string& config, StopRequest* stop) {
  Run run(options_, config, ranks_, stop);
  say_remarks();
  const std::optional<Checkpoint> before = run.safe().load();
  expect_same_images(data_.train, division_ && division_->images.empty() ? *ranks_.node : *ranks_.world);
  const PruningPlan& masked = pruning_.plan();
  const RunPlan plan{.length = length_,
                     .learning_rate = learning_rates(length_),
                     .groups = masked.groups,
                     .score_units = masked.score_units,
                     .select_units = masked.select_units,
                     .exchanges_done = before ? before->exchange : 0};
  strategy_ = make_strategy(options_, plan, network_.replica(), ranks_);
  if (before) {
    restore(*before);
  } else {
    prune({}, 0, run);
  }
  elastic_ = make_elastic(options_, ranks_, summary_.exchanges);
  run.begin(summary_, length_.exchanges, name_of(arithmetic_));
  lap_.lap();
  begin_ = Stopwatch::now();
  train_steps(run);
  run.end_progress();
  try {
    end(run);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(error.what() + run.safe().way_on());
  }
  return summary_;
}

/// Masks are final, the product is evaluated and written.
void Trainer::end(Run& run) {
  if (!summary_.frozen && !strategy_->masks().is_empty()) scored_.reset();  // finish() applies masks
  const auto work = [&] {
    strategy_->finish();
    run.traced("evaluate", summary_.exchanges, [&] { summarise(run); });
    run.write_trace();
    run.finish();
  };
  for (;;) {
    try {
      return work();
    } catch (const std::runtime_error&) {
      if (!elastic_ || !elastic_->has_lost()) throw;
      regroup(run);
    }
  }
}

void Trainer::train_steps(Run& run) {
  double begin = Stopwatch::now(), end = begin;  // of the local steps since the last exchange
  for (int64_t step = summary_.steps + 1; step <= length_.steps; ++step) {
    local_step(step);
    if (step % options_.local_steps == 0 || step == length_.steps) wait_for(ranks_.device);  // so that seconds are true
    since_exchange_.local += lap_.lap();
    end = Stopwatch::now();
    const auto [exchange, metrics, wishes] = exchange_after(step, run);
    if (!exchange.exchanged) continue;
    run.trace({"local", begin, end - begin}, exchange.index);
    run.trace(exchange.phases, exchange.index);
    count(metrics, run);
    prune(exchange, step, run);
    heed(wishes, run);
    lap_.lap();
    if (exchange.converged) return;
    begin = Stopwatch::now();
  }
}

/// A loss meanwhile costs a checkpoint; the next exchange finds who is left.
void Trainer::heed(const Wishes& wishes, Run& run) {
  try {
    run.heed(wishes, [this] { return snapshot(); });
  } catch (const Interrupted&) {
    throw;
  } catch (const std::runtime_error&) {
    if (!elastic_ || !elastic_->has_lost()) throw;
  }
}

Trainer::Round Trainer::exchange_after(int64_t step, Run& run) {
  Round round;
  const auto exchange = [&] {
    round = {};
    round.exchange = strategy_->after_update(network_.replica(), step);
    if (round.exchange.exchanged) measure(round, step, run);
  };
  const bool is_due = step % options_.local_steps == 0 || step == length_.steps;
  if (!elastic_ || !is_due) {
    exchange();
    return round;
  }
  const Before before(*strategy_, network_.replica(), mean_);
  for (;;) {
    try {
      exchange();
      round.metrics.z_hash = hash_of(strategy_->product().params, strategy_->masks());
      elastic_->commit(round.exchange.index, *round.metrics.z_hash);
      return round;
    } catch (const std::runtime_error&) {
      if (!elastic_->has_lost()) throw;
      if (regroup(run)) return round;  // all who are left had it
      before.bring_back(*strategy_, network_.replica(), mean_);
    }
  }
}

/// Goes on with the ranks that are left. Whether the exchange that this rank was in counts.
bool Trainer::regroup(Run& run) {
  add_traffic(resumed_.traffic, ranks_);
  const comm::Change change = elastic_->regroup();
  moved_ = {};
  if (!division_) {
    cursor_ = feed_->loader().divide(ranks_.layout.rank, ranks_.layout.world_size(), cursor_);
  }
  const int64_t ranks_lost = static_cast<int64_t>(change.lost.size()) * ranks_.layout.ranks_here();
  summary_.nodes_lost += static_cast<int64_t>(change.lost.size());
  summary_.images_lost += ranks_lost * options_.batch_size * (steps_made_ - last_step_);
  run.go_on(change, summary_, length_.exchanges, name_of(arithmetic_));
  return change.adopts;
}

void Trainer::prune(const strategies::Exchange& exchange, int64_t step, Run& run) {
  const double begin = Stopwatch::now();
  const auto lost = pruning_.after_exchange(exchange, step, *strategy_);
  if (!lost) return;
  mean_.cut(*lost);
  run.trace({"cut", begin, Stopwatch::now() - begin}, exchange.index);
  scored_.reset();
  summary_.pruned = pruning_.record();
  restart_speed();
}

/// What all parts of the run have moved and taken, this one and those before it.
void Trainer::add_up() {
  summary_.traffic = resumed_.traffic;
  add_traffic(summary_.traffic, ranks_);
  summary_.interface_bytes = interfaces_.gather(ranks_.layout, *ranks_.world);
  add_by_node(summary_.interface_bytes, resumed_.interface_bytes);
  summary_.wall_seconds = resumed_.wall_seconds + Stopwatch::now() - begin_;
}

/// Everything that the next step depends on. Between exchanges theta is z unless duals let it go its own way.
Checkpoint Trainer::snapshot() {
  add_up();
  Checkpoint checkpoint;
  checkpoint.exchange = summary_.exchanges;
  checkpoint.progress = progress_json(summary_);
  store_state(checkpoint, *strategy_, network_.replica());
  remember_images(data_.train, checkpoint);
  pruning_.save(checkpoint);
  mean_.save(checkpoint.node);
  return checkpoint;
}

void Trainer::restore(const Checkpoint& checkpoint) {
  expect_remembered_images(data_.train, checkpoint);
  restore_progress(summary_, checkpoint.progress);
  resumed_ = summary_;
  std::optional<sparsity::Cut> cut;
  if (!checkpoint.structure.empty()) {
    cut = parse_structure(checkpoint.structure).cut;
    network_.cut(*cut);
    restart_speed();
    if (cut->empty()) cut.reset();
  }
  try {
    load_state(checkpoint, cut ? &*cut : nullptr, *strategy_, network_.replica());
    mean_.load(checkpoint.node, network_.replica().weights.params);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(
        fmt::format("{}/checkpoint/{}: {}", options_.resume, checkpoint.exchange, error.what()));
  }
  pruning_.load(checkpoint, summary_.pruned);
  steps_made_ = last_step_ = summary_.steps;
  const int64_t steps_per_epoch = feed_->loader().steps_per_epoch();  // of the node's own images, where it has some
  cursor_ = {summary_.steps / steps_per_epoch, summary_.steps % steps_per_epoch};
}

/// Speeds count from the last cut on.
void Trainer::restart_speed() {
  seconds_before_cut_ = summary_.seconds.local;
  samples_before_cut_ = summary_.samples;
}

void Trainer::local_step(int64_t step) {
  scored_.reset();
  const auto [epoch, of_epoch] = cursor_;
  feed_->load(epoch, of_epoch);
  cursor_ = feed_->loader().after(cursor_);
  steps_made_ = step;
  if (options_.mix.any()) {
    const auto image = input_shape(network_.graph());
    steps_.set_mix(draw_mix(options_.mix, {options_.seed, epoch, of_epoch, ranks_.layout.rank}, image[2], image[3]));
  }
  seed_dropout(ranks_.device, options_.seed, ranks_.layout.rank, step);
  Replica& replica = network_.replica();
  const OptimizerOptions optimizer = optimizer_at(options_, length_.phase_of(step), step);
  if (steps_.has_graphs() && !changes_gradients()) {
    return losses_.add(steps_.step(strategy_->local_terms(), optimizer), step);
  }
  losses_.add(steps_.gradients(), step);
  if (facts_of(options_.strategy).gradients) wait_for(ranks_.device);
  since_exchange_.local += lap_.lap();
  strategy_->before_update(replica);
  gradient_seconds_ += lap_.lap();
  pruning_.add_to_gradients(replica.weights.params, step);
  optimizer_step(replica, strategy_->local_terms(), optimizer);
}

/// Whether somebody wants gradients between backward and the update.
bool Trainer::changes_gradients() const {
  return !facts_of(options_.strategy).weights_alone() || options_.local_after > 0 || pruning_.plan().sparse;
}

/// Everyone measures and adds up.
void Trainer::measure(Round& round, int64_t step, Run& run) {
  const strategies::Exchange& exchange = round.exchange;
  round.wishes = run.safe().wishes(exchange.index, step == length_.steps);
  if (!loss_) loss_ = losses_.take();
  const double exchange_seconds = lap_.lap();
  const Phase& phase = length_.phase_of(step);
  const Size& size = network_.size();
  Metrics& metrics = round.metrics;
  metrics = {.phase = phase.name,
             .step = step,
             .samples = summary_.samples + (step - last_step_) * options_.batch_size * ranks_.layout.world_size(),
             .epoch = static_cast<double>(step) / static_cast<double>(length_.steps_per_epoch),
             .loss = *loss_ / static_cast<double>(step - last_step_),
             .learning_rate = learning_rate_at(phase, step),
             .parameters = size.parameters,
             .macs = size.macs,
             .exchange = exchange,
             .seconds = since_exchange_};
  if (pruning_.masks_are_final(exchange)) mean_.add(strategy_->product(), step - last_step_);
  const double begin = Stopwatch::now();
  evaluate_into(metrics);
  if (metrics.accuracy) run.trace({"evaluate", begin, Stopwatch::now() - begin}, exchange.index);
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
void Trainer::count(const Metrics& metrics, Run& run) {
  summary_.exchanges = metrics.exchange.index;
  summary_.steps = metrics.step;
  summary_.samples = metrics.samples;
  const bool always = facts_of(options_.strategy).overlaps && !steps_.has_graphs();
  summary_.overlapped_steps += always ? metrics.step - last_step_ : metrics.exchange.overlapped;
  summary_.seconds += metrics.seconds;
  summary_.bytes += metrics.bytes;
  summary_.frozen = metrics.exchange.frozen;
  const double rate =
      static_cast<double>(summary_.samples - samples_before_cut_) / (summary_.seconds.local - seconds_before_cut_);
  (network_.total() ? summary_.samples_per_second_after_cut : summary_.samples_per_second_before_cut) = rate;
  run.report(metrics, summary_.seconds.total, rate);
  last_step_ = metrics.step;
  loss_.reset();
  gradient_seconds_ = 0;
  since_exchange_ = {};
  lap_.lap();
}

/// Every so many exchanges, at the end of a phase, and at the end.
void Trainer::evaluate_into(Metrics& metrics) {
  const int64_t exchange = metrics.exchange.index;
  const bool due = options_.eval_every > 0 && exchange % options_.eval_every == 0;
  const bool ends = length_.phase_of(last_step_ + 1).begin != length_.phase_of(metrics.step + 1).begin;
  if (!due && !ends && exchange != length_.exchanges) return;
  const Weights product = this->product();
  scored_ = evaluator_.score(product, data_.test);
  metrics.accuracy = scored_->accuracy;
  if (data_.validation.size() == 0) return;
  metrics.validation_accuracy = evaluator_.score(product, data_.validation).accuracy;
  if (!pruning_.is_over(metrics.exchange)) return;
  if (summary_.best && summary_.best->validation_accuracy >= *metrics.validation_accuracy) return;
  summary_.best = {exchange, *metrics.validation_accuracy, *metrics.accuracy};
}

void Trainer::summarise(const Run& run) {
  summary_.graph_captures = steps_.captures();
  const Weights product = this->product();
  const Score test = scored_ ? *scored_ : evaluator_.score(product, data_.test);
  summary_.accuracy = test.accuracy;
  if (division_) {
    summary_.partition = {division_->rule, division_->class_counts,
                          accuracy_by_node(*division_, test.correct_by_class, data_.test)};
  }
  summary_.loss = test.loss;
  if (data_.validation.size() > 0) {
    summary_.validation_accuracy = evaluator_.score(product, data_.validation).accuracy;
  }
  const sparsity::Cut cut = network_.is_smaller() ? *network_.total() : pruning_.removable(strategy_->masks());
  const program::Model compact = network_.compact(product, cut);
  const Size size = size_of(compact.program.graph(), compact.weights);
  summary_.parameters_compact = size.parameters;
  summary_.macs_compact = size.macs;
  for (const auto& mask : strategy_->masks()) {
    summary_.units_pruned += mask.value().numel() - mask.value().sum().item<int64_t>();
  }
  for (const auto& group : cut.groups) summary_.units_removed += group.size - static_cast<int64_t>(group.kept.size());
  summary_.not_removed = leftovers(pruning_.plan().groups, strategy_->masks(), cut);

  ship(compact, cut, run);
  add_up();
  if (run.writes()) io::write_file_atomically(run.directory() + "/summary.json", to_json(summary_));
}

/// Writes the product and reads it back, as any user of it would: what is there now is evaluated.
void Trainer::ship(const program::Model& compact, const sparsity::Cut& cut, const Run& run) {
  at::Tensor accuracy = at::zeros({1}, at::kDouble);
  if (run.writes()) {
    if (const auto problem = run.problem(); !problem.empty()) throw std::runtime_error(problem);
    write_product(run.directory(), compact, images_.description);
    write_structure(run.directory(), {options_.model, input_shape(compact.program.graph()), cut});
    accuracy.fill_(write_answers(run.directory(), data_.test, ranks_.device));
  }
  ranks_.world->broadcast(accuracy);
  summary_.accuracy_compact = accuracy.item<double>();
}

}  // namespace

Summary train(const TrainOptions& options, comm::Hierarchy& ranks, const std::string& config, StopRequest* stop,
              const GraphMaker& make_graph) {
  validate(options);
  const auto wanted = comm::describe(shape_of(options)), got = comm::describe(ranks.layout);
  TORCH_CHECK(wanted == got, "[train] options and ranks disagree about the layout: ", wanted, ", ", got);
  at::set_num_threads(options.threads);
  if (!ranks.device.is_cpu()) multiply_in_fp32();
  return Trainer(with_defaults(options), ranks, make_graph).run(config, stop);
}

}  // namespace prunex::train
