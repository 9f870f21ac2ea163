#include "prunex/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>

#include "prunex/data/loader.h"
#include "prunex/io/atomic_file.h"
#include "prunex/io/json_lines.h"
#include "prunex/io/run_directory.h"
#include "prunex/prune/removable.h"
#include "prunex/prune/surgery.h"
#include "prunex/say.h"
#include "prunex/sparsity/cut.h"
#include "prunex/stopwatch.h"
#include "prunex/train/check.h"
#include "prunex/train/device.h"
#include "prunex/train/evaluate.h"
#include "prunex/train/evidence.h"
#include "prunex/train/local_step.h"
#include "prunex/train/metrics_file.h"
#include "prunex/train/over_ranks.h"
#include "prunex/train/product.h"
#include "prunex/train/progress.h"
#include "prunex/train/remarks.h"
#include "prunex/train/replica_state.h"
#include "prunex/train/safekeeping.h"
#include "prunex/train/schedule.h"
#include "prunex/train/scheduled_pruning.h"
#include "prunex/train/sgd.h"
#include "prunex/train/sparse_training.h"
#include "prunex/train/strategy_choice.h"
#include "prunex/train/structure.h"
#include "prunex/train/trace.h"
#include "prunex/train/trained_network.h"

namespace prunex::train {
namespace {

constexpr int64_t kTimedImages = 128;

class Trainer {
 public:
  Trainer(const TrainOptions& options, comm::Hierarchy& ranks) : Trainer(options, ranks, prepare(options)) {}
  Summary run(const std::string& config, StopRequest* stop);

 private:
  Trainer(const TrainOptions& options, comm::Hierarchy& ranks, Prepared run);
  void open_directory(const std::string& config);
  void open_reports();
  void say_remarks() const;
  void train_steps(Safekeeping& safe);
  void after_exchange(const strategies::Exchange& exchange, int64_t step);
  Checkpoint snapshot() const;
  void restore(const Checkpoint& checkpoint);
  double local_step(int64_t step);
  void traced(const char* name, const std::function<void()>& work);
  void write_trace();
  void record(const strategies::Exchange& exchange, int64_t step, Wishes& wishes);
  void evaluate_into(Metrics& metrics);
  Weights evaluated_product();
  Score score(const program::Program& program, const Weights& weights, const data::Dataset& dataset);
  program::Model compact_model(const Weights& product, const sparsity::Cut& cut);
  void summarise(const Weights& product);
  sparsity::Cut find_cut() const;
  void prune_on_schedule(int64_t exchange);
  void cut(const sparsity::Cut& cut);
  void restart_speed();
  bool writes() const { return ranks_.layout.rank == 0; }
  std::string missing_metrics() { return metrics_file_ ? metrics_file_->problem() : ""; }

  TrainOptions options_;
  comm::Hierarchy& ranks_;
  comm::InterfaceCounters interfaces_;
  const RunImages images_;
  const data::Datasets& data_;
  TrainedNetwork network_;
  std::vector<sparsity::Group> groups_;  // of the network before any cut
  RunLength length_;
  data::Loader loader_;
  data::Dataset calibration_;
  strategies::UnitScorer score_units_;
  strategies::UnitSelector select_units_;
  std::unique_ptr<strategies::Strategy> strategy_;
  std::optional<SparseTraining> sparse_;
  std::optional<ScheduledPruning> pruning_;
  bool bf16_;
  std::vector<std::string> remarks_;

  std::string directory_;
  std::optional<io::DirectoryLock> lock_;  // rank 0
  std::unique_ptr<MetricsFile> metrics_file_;
  std::unique_ptr<Progress> progress_;
  std::optional<Trace> trace_;
  Stopwatch lap_, run_;
  Seconds since_exchange_;
  double loss_since_exchange_ = 0;
  int64_t last_step_ = 0;
  comm::Volume moved_;  // by exchanges, up to the last record
  double seconds_before_cut_ = 0;
  int64_t samples_before_cut_ = 0;
  Summary summary_;
};

Trainer::Trainer(const TrainOptions& options, comm::Hierarchy& ranks, Prepared run)
    : options_(options),
      ranks_(ranks),
      interfaces_(ranks.interfaces),
      images_(std::move(run.images)),
      data_(images_.sets),
      network_(on_device(std::move(run.network.model), ranks.device)),
      groups_(std::move(run.groups)),
      length_(std::move(run.length)),
      loader_(data_.train, {.batch_size = options.batch_size,
                            .rank = ranks.layout.rank,
                            .ranks = ranks.layout.world_size(),
                            .seed = options.seed}),
      calibration_(std::move(run.calibration)),
      score_units_(std::move(run.score_units)),
      select_units_(std::move(run.select_units)),
      sparse_(std::move(run.sparse)),
      pruning_(std::move(run.pruning)),
      bf16_(decide_bf16(options.precision, ranks.device, *ranks.world)),
      remarks_(std::move(run.remarks)) {
  const Size& size = network_.size();
  const StrategyFacts& facts = facts_of(options.strategy);
  summary_ = {.strategy = options.strategy,
              .model = options.model,
              .dataset = options.data.dataset,
              .sends_gradients = facts.gradients,
              .overlaps_backward = facts.overlaps,
              .seed = options.seed,
              .shape = shape_of(options),
              .local_steps = options.local_steps,
              .description = images_.description,
              .classes = data_.train.classes,
              .parameters_dense = size.parameters,
              .macs_dense = size.macs};
  for (const auto& buffer : network_.replica().weights.buffers) {
    if (buffer.value().is_floating_point()) summary_.floating_buffers += buffer.value().numel();
  }
}

void Trainer::say_remarks() const {
  if (!writes() || options_.quiet) return;
  for (const auto& remark : remarks_) say(text::with_flags(fmt::format("prunex: {}\n", remark)));
  for (const auto& detour : detours(ranks_)) say(fmt::format("prunex: {}\n", detour));
}

Summary Trainer::run(const std::string& config, StopRequest* stop) {
  open_directory(config);
  say_remarks();
  if (ranks_.watch) ranks_.watch->write_reports_to(directory_);
  Safekeeping safe(options_, directory_, config, ranks_, stop);
  const std::optional<Checkpoint> before = safe.load();
  strategy_ = make_strategy(options_, {length_, groups_, score_units_, select_units_, before ? before->exchange : 0},
                            network_.replica(), ranks_);
  if (before) {
    restore(*before);
  } else {
    after_exchange({}, 0);
  }
  if (writes()) open_reports();
  if (options_.trace) trace_.emplace(ranks_);
  lap_.lap();
  run_.lap();
  safe.begin();
  train_steps(safe);
  strategy_->finish();
  if (progress_) progress_->finish();
  try {
    traced("evaluate", [&] { summarise(evaluated_product()); });
    write_trace();
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(error.what() + safe.way_on());
  }
  ranks_.world->barrier();  // no rank leaves while another still needs it
  safe.finish();
  if (progress_) progress_->done();
  return summary_;
}

/// Rank 0 chooses and makes it; the others need its name for their checkpoints.
void Trainer::open_directory(const std::string& config) {
  directory_ = options_.resume;
  const bool resumes = !directory_.empty();
  if (writes() && !resumes) {
    directory_ = options_.run_dir;
    if (directory_.empty()) {
      directory_ = io::create_next_run_directory("runs", {options_.data.dataset, options_.model, options_.strategy});
    } else {
      io::create_run_directory(directory_);
    }
  }
  if (writes()) {
    lock_.emplace(directory_, "prunex train");
    if (!resumes) io::create_run_directory(directory_);  // nobody else has used it meanwhile
    io::remove_temporaries(directory_);
    if (!resumes) io::write_file_atomically(directory_ + "/config.toml", config);
  }
  if (!resumes) directory_ = broadcast_text(*ranks_.world, directory_);
}

void Trainer::open_reports() {
  const std::string metrics = directory_ + "/metrics.jsonl";
  if (!options_.resume.empty()) io::keep_first_lines(metrics, summary_.exchanges);
  metrics_file_ = std::make_unique<MetricsFile>(metrics);
  progress_ = std::make_unique<Progress>(summary_, length_.exchanges, options_.log, options_.quiet);
  progress_->start(directory_, bf16_);
}

void Trainer::train_steps(Safekeeping& safe) {
  double begin = Stopwatch::now(), end = begin;  // of the local steps since the last exchange
  for (int64_t step = summary_.steps + 1; step <= length_.steps; ++step) {
    loss_since_exchange_ += local_step(step);
    since_exchange_.local += lap_.lap();
    end = Stopwatch::now();
    const auto exchange = strategy_->after_update(network_.replica(), step);
    if (!exchange.exchanged) continue;
    if (trace_) trace_->add({"local", begin, end - begin}, exchange.index);
    if (trace_) trace_->add(exchange.phases, exchange.index);
    Wishes wishes = safe.wishes(exchange.index, step == length_.steps);
    record(exchange, step, wishes);
    after_exchange(exchange, step);
    if (wishes.ends() && progress_) progress_->finish();
    if (wishes.any()) traced("checkpoint", [&] { safe.heed(wishes, snapshot(), missing_metrics()); });
    lap_.lap();
    if (exchange.converged) return;
    begin = Stopwatch::now();
  }
}

/// What makes the network smaller, and what depends on its weights; once before the first step, too.
void Trainer::after_exchange(const strategies::Exchange& exchange, int64_t step) {
  if (exchange.frozen && options_.shrink && !network_.total() && !pruning_) traced("cut", [&] { cut(find_cut()); });
  if (pruning_ && pruning_->due(exchange.index)) traced("cut", [&] { prune_on_schedule(exchange.index); });
  if (sparse_) sparse_->refresh(strategy_->product(), exchange.index, step);
}

void Trainer::traced(const char* name, const std::function<void()>& work) {
  const double begin = Stopwatch::now();
  work();
  if (trace_) trace_->add({name, begin, Stopwatch::now() - begin}, summary_.exchanges);
}

void Trainer::write_trace() {
  if (!trace_) return;
  const std::string text = trace_->gather();
  if (writes()) io::write_file_atomically(directory_ + "/trace.json", text);
}

/// Everything that the next step depends on. Between exchanges theta is z unless duals let it go its own way.
Checkpoint Trainer::snapshot() const {
  Checkpoint checkpoint;
  checkpoint.exchange = summary_.exchanges;
  checkpoint.progress = progress_json(summary_);
  if (const auto& total = network_.total()) {
    checkpoint.structure = structure_json({options_.model, input_shape(network_.graph()), *total});
  }
  store_state(checkpoint, *strategy_, network_.replica());
  if (sparse_) sparse_->save(checkpoint.node);
  return checkpoint;
}

void Trainer::restore(const Checkpoint& checkpoint) {
  restore_progress(summary_, checkpoint.progress);
  std::optional<sparsity::Cut> cut;
  if (!checkpoint.structure.empty()) {
    cut = parse_structure(checkpoint.structure).cut;
    network_.cut(*cut);
    restart_speed();
    if (cut->empty()) cut.reset();
  }
  load_state(checkpoint, cut ? &*cut : nullptr, *strategy_, network_.replica());
  if (sparse_ && cut) sparse_->cut(network_.graph(), *cut);
  if (sparse_) sparse_->load(checkpoint.node);
  last_step_ = summary_.steps;
}

/// What the masks allow to remove from the network as it was before any cut.
sparsity::Cut Trainer::find_cut() const {
  const auto& weights = network_.replica().weights;
  const auto supports = sparsity::supports_of(groups_, strategy_->masks(), weights.params);
  const auto removable = prune::removable_units(prune::dependency_groups(network_.graph()), supports);
  return sparsity::make_cut(removable.groups, removable.alive, sparsity::shapes_of(weights));
}

/// From here on everything is smaller.
void Trainer::cut(const sparsity::Cut& cut) {
  check_agreement(cut, *ranks_.world);
  network_.cut(cut);
  restart_speed();
  if (cut.empty()) return;
  strategy_->cut(cut, network_.replica());
  if (sparse_) sparse_->cut(network_.graph(), cut);
}

/// Speeds count from the last cut on.
void Trainer::restart_speed() {
  seconds_before_cut_ = summary_.seconds.local;
  samples_before_cut_ = summary_.samples;
}

void Trainer::prune_on_schedule(int64_t exchange) {
  const Weights before = pruning_->has_target() ? evaluated_product() : strategy_->product();
  const auto milliseconds = [&](const Weights& weights) {
    return milliseconds_per_batch(network_.program(), weights, data_.test, kTimedImages);
  };
  if (pruning_->is_first(exchange)) {
    const Size& size = network_.size();
    summary_.pruned = {.parameters_before = size.parameters,
                       .macs_before = size.macs,
                       .accuracy_before = score(network_.program(), before, data_.test).accuracy,
                       .milliseconds_before = milliseconds(before)};
  }
  const auto images = [&] { return evidence_images(data_.train, options_.pruning.importance_samples); };
  const sparsity::Cut step =
      pruning_->cut(exchange, {network_.program(), before}, network_.total(), images, *ranks_.world);
  cut(step);
  if (!pruning_->is_last(exchange)) return;
  Weights after = before;
  sparsity::apply_cut(after, step);
  PrunedRecord& record = *summary_.pruned;
  const Size& size = network_.size();
  record.exchange = exchange;
  record.parameters_after = size.parameters;
  record.macs_after = size.macs;
  record.accuracy_after = score(network_.program(), after, data_.test).accuracy;
  record.accuracy_after_statistics = score(network_.program(), evaluated_product(), data_.test).accuracy;
  record.milliseconds_after = milliseconds(after);
}

double Trainer::local_step(int64_t step) {
  const int64_t epoch = (step - 1) / length_.steps_per_epoch;
  const auto batch = on_device(loader_.batch(epoch, (step - 1) % length_.steps_per_epoch), ranks_.device);
  seed_dropout(ranks_.device, options_.seed, ranks_.layout.rank, step);
  Replica& replica = network_.replica();
  const Phase& phase = length_.phase_of(step);
  const double loss = compute_gradients(network_.program(), replica, batch, bf16_);
  if (!std::isfinite(loss)) {
    throw std::runtime_error(fmt::format("the training loss is {} at step {}: try a lower `lr` (got {})", loss, step,
                                         options_.learning_rate));
  }
  since_exchange_.local += lap_.lap();
  strategy_->before_update(replica);
  since_exchange_.exchange.inter += lap_.lap();
  if (sparse_) sparse_->add_to_gradients(replica.weights.params, step);
  sgd_step(replica, strategy_->local_terms(),
           {.learning_rate = learning_rate_at(phase, step),
            .momentum = local_momentum(options_),
            .weight_decay = phase.weight_decay});
  return loss;
}

/// Everyone measures and adds up; rank 0 writes.
void Trainer::record(const strategies::Exchange& exchange, int64_t step, Wishes& wishes) {
  const double exchange_seconds = lap_.lap();
  const Phase& phase = length_.phase_of(step);
  const Size& size = network_.size();
  Metrics metrics{.phase = phase.name,
                  .step = step,
                  .samples = step * options_.batch_size * ranks_.layout.world_size(),
                  .epoch = static_cast<double>(step) / static_cast<double>(length_.steps_per_epoch),
                  .loss = loss_since_exchange_ / static_cast<double>(step - last_step_),
                  .learning_rate = learning_rate_at(phase, step),
                  .parameters = size.parameters,
                  .macs = size.macs,
                  .exchange = exchange,
                  .seconds = since_exchange_};
  evaluate_into(metrics);
  metrics.seconds.evaluate = lap_.lap();
  const double gradient_seconds = metrics.seconds.exchange.inter;
  metrics.seconds.exchange = seconds_of(exchange.phases);
  metrics.seconds.exchange.inter += gradient_seconds;
  metrics.seconds.total = metrics.seconds.local + gradient_seconds + exchange_seconds + metrics.seconds.evaluate;
  const comm::Volume all = comm::moved_by_exchanges(ranks_);
  average_over_ranks(metrics, all - moved_, wishes, ranks_);
  moved_ = all;
  if (!exchange.residuals.empty()) metrics.residuals_by_rank = gather(exchange.own, *ranks_.world);

  summary_.exchanges = exchange.index;
  summary_.steps = step;
  summary_.samples = metrics.samples;
  summary_.seconds += metrics.seconds;
  summary_.bytes += metrics.bytes;
  summary_.frozen = exchange.frozen;
  const double rate =
      static_cast<double>(summary_.samples - samples_before_cut_) / (summary_.seconds.local - seconds_before_cut_);
  (network_.total() ? summary_.samples_per_second_after_cut : summary_.samples_per_second_before_cut) = rate;
  if (writes()) {
    metrics_file_->append(metrics);
    progress_->report(metrics, summary_.seconds.total, rate);
  }
  last_step_ = step;
  loss_since_exchange_ = 0;
  since_exchange_ = {};
  lap_.lap();
}

/// Every so many exchanges, at the end of a phase, and at the end.
void Trainer::evaluate_into(Metrics& metrics) {
  const int64_t exchange = metrics.exchange.index;
  const bool due = options_.eval_every > 0 && exchange % options_.eval_every == 0;
  const bool ends = length_.phase_of(last_step_ + 1).begin != length_.phase_of(metrics.step + 1).begin;
  if (!due && !ends && exchange != length_.exchanges) return;
  traced("evaluate", [&] {
    const Weights product = evaluated_product();
    metrics.accuracy = score(network_.program(), product, data_.test).accuracy;
    if (data_.validation.size() == 0) return;
    metrics.validation_accuracy = score(network_.program(), product, data_.validation).accuracy;
    const bool masks_are_final = groups_.empty() || metrics.exchange.frozen;
    if (!masks_are_final || (pruning_ && !pruning_->is_over(exchange - 1))) return;
    if (summary_.best && summary_.best->validation_accuracy >= *metrics.validation_accuracy) return;
    summary_.best = {exchange, *metrics.validation_accuracy, *metrics.accuracy};
  });
}

Weights Trainer::evaluated_product() {
  return with_estimated_statistics(network_.program(), strategy_->product(), calibration_, *ranks_.world);
}

Score Trainer::score(const program::Program& program, const Weights& weights, const data::Dataset& dataset) {
  return evaluate(program, weights, dataset, *ranks_.world);
}

/// The model that ships: small whether or not it was trained small.
program::Model Trainer::compact_model(const Weights& product, const sparsity::Cut& cut) {
  if (network_.is_smaller()) return {network_.program(), product};
  Weights compact = product;
  sparsity::apply_cut(compact, cut);
  return {prune::cut_program(network_.program(), cut), compact};
}

void Trainer::summarise(const Weights& product) {
  const Score test = score(network_.program(), product, data_.test);
  summary_.accuracy = test.accuracy;
  summary_.loss = test.loss;
  if (data_.validation.size() > 0) {
    summary_.validation_accuracy = score(network_.program(), product, data_.validation).accuracy;
  }
  const sparsity::Cut cut = network_.is_smaller() ? *network_.total() : find_cut();
  const program::Model compact = compact_model(product, cut);
  const Size size = size_of(compact.program.graph(), compact.weights);
  summary_.parameters_compact = size.parameters;
  summary_.macs_compact = size.macs;
  for (const auto& mask : strategy_->masks()) {
    summary_.units_pruned += mask.value().numel() - mask.value().sum().item<int64_t>();
  }
  for (const auto& group : cut.groups) summary_.units_removed += group.size - static_cast<int64_t>(group.kept.size());
  summary_.not_removed = leftovers(groups_, strategy_->masks(), cut);

  // rank 0 alone reads the file back, as any user of it would
  at::Tensor accuracy = at::zeros({1}, at::kDouble);
  if (writes()) {
    if (const auto problem = missing_metrics(); !problem.empty()) throw std::runtime_error(problem);
    write_product(directory_, compact, images_.description);
    write_structure(directory_, {options_.model, input_shape(compact.program.graph()), cut});
    const auto shipped = on_device(read_product(directory_), ranks_.device);
    accuracy.fill_(evaluate(shipped.program, shipped.weights, data_.test).accuracy);
  }
  ranks_.world->broadcast(accuracy);
  summary_.accuracy_compact = accuracy.item<double>();
  summary_.traffic = {{"node", ranks_.node->traffic()}, {"rail", ranks_.rail->traffic()}};
  if (ranks_.flat->traffic().operations > 0) summary_.traffic.insert({"flat", ranks_.flat->traffic()});
  if (ranks_.site) summary_.traffic.insert({{"site", ranks_.site->traffic()}, {"cross", ranks_.cross->traffic()}});
  summary_.interface_bytes = interfaces_.gather(ranks_.layout, *ranks_.world);
  summary_.wall_seconds = run_.lap();
  if (writes()) io::write_file_atomically(directory_ + "/summary.json", to_json(summary_));
}

}  // namespace

Summary train(const TrainOptions& options, comm::Hierarchy& ranks, const std::string& config, StopRequest* stop) {
  validate(options);
  check_device(options, ranks.device);
  const auto wanted = comm::describe(shape_of(options)), got = comm::describe(ranks.layout);
  TORCH_CHECK(wanted == got, "[train] options and ranks disagree about the layout: ", wanted, ", ", got);
  at::set_num_threads(options.threads);
  return Trainer(with_defaults(options), ranks).run(config, stop);
}

}  // namespace prunex::train
