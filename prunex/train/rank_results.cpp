// What a rank's run comes to: measured, kept to go on from, and written.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/comm/nccl/gpu.h"
#include "prunex/io/files.h"
#include "prunex/strategies/dictionaries.h"
#include "prunex/train/device.h"
#include "prunex/train/images/answers.h"
#include "prunex/train/product.h"
#include "prunex/train/rank_trainer.h"
#include "prunex/train/strategy_choice.h"
#include "prunex/train/tensor_hash.h"

namespace prunex::train {
namespace {

constexpr const char* kCursor = "cursor";  // in checkpoints: epoch, step, position

std::vector<std::string> gpus_of(comm::Hierarchy& ranks) {
  if (!ranks.device.is_cuda()) return {};
  const auto names = comm::gather_texts(*ranks.world, comm::gpu_name(ranks.device));
  const std::set<std::string> once(names.begin(), names.end());
  return {once.begin(), once.end()};
}

}  // namespace

/// What was due after exchange `k`, 0 being before the first step.
void RankTrainer::prune(const std::optional<DueCut>& due, int64_t k, int64_t step) {
  if (due) {
    if (options_.teacher == kWholeTeacher && !teacher_) {
      set_teacher(make_teacher(options_, {network_.program(), evaluator_.product(*strategy_)}));
    }
    pruning_.cut(*due, *strategy_);
    mean_.cut(due->cut);
    run_->trace({"cut", due->begin, Stopwatch::now() - due->begin}, k);
    evaluated_.reset();
    summary_.pruned = pruning_.record();
    if (!due->cut.empty()) restart_speed();
  }
  pruning_.refresh(k, step, *strategy_);
}

void RankTrainer::set_teacher(std::shared_ptr<const Teacher> teacher) {
  teacher_ = std::move(teacher);
  steps_.set_teacher(teacher_);
}

/// What all parts of the run have moved and taken, this one and those before it.
void RankTrainer::add_up() {
  summary_.traffic = resumed_.traffic;
  add_traffic(summary_.traffic, ranks_);
  summary_.interface_bytes = interfaces_.gather(ranks_.layout, *ranks_.world);
  add_by_node(summary_.interface_bytes, resumed_.interface_bytes);
  summary_.wall_seconds = resumed_.wall_seconds + Stopwatch::now() - begin_;
}

/// Everything that the next step depends on. Between exchanges theta is z unless duals let it go its own way.
Checkpoint RankTrainer::snapshot() {
  add_up();
  Checkpoint checkpoint;
  checkpoint.exchange = summary_.exchanges;
  checkpoint.progress = progress_json(summary_);
  store_state(checkpoint, *strategy_, network_.replica());
  remember_images(checksums_, files_of_, checkpoint);
  checkpoint.node.insert(kProgramChecksum, at::tensor({program_checksum_}, at::kLong));
  save_teacher(options_, teacher_.get(), checkpoint);
  pruning_.save(checkpoint);
  mean_.save(checkpoint.node);
  const int64_t position = feed_->loader().position(cursor_);
  checkpoint.node.insert(kCursor, at::tensor({cursor_.epoch, cursor_.step, position}, at::kLong));
  return checkpoint;
}

void RankTrainer::restore(const Checkpoint& checkpoint) {
  expect_remembered_images(data_, checksums_, files_of_, checkpoint);
  expect_program_of(checkpoint);
  set_teacher(teacher_after(checkpoint, options_, teacher_, {network_.program(), network_.replica().weights}));
  restore_progress(summary_, checkpoint.progress);
  go_on_in(arithmetic_named(summary_.precision));
  resumed_ = summary_;
  std::optional<sparsity::Cut> cut;
  if (!checkpoint.structure.empty()) {
    cut = parse_structure(checkpoint.structure).cut;
    network_.cut(*cut);
    if (cut->empty()) {
      cut.reset();
    } else {
      restart_speed();
    }
  }
  try {
    load_state(checkpoint, cut ? &*cut : nullptr, *strategy_, network_.replica());
    mean_.load(checkpoint.node, network_.replica().weights.params);
    pruning_.load(checkpoint, summary_.pruned);
    steps_made_ = last_step_ = summary_.steps;
    restore_cursor(checkpoint);
  } catch (const std::invalid_argument& error) {
    const std::string source = options_.resume.empty()
                                   ? "what the run hands over"
                                   : fmt::format("{}/checkpoint/{}", options_.resume, checkpoint.exchange);
    throw std::invalid_argument(fmt::format("{}: {}", source, error.what()));
  }
}

/// Under `auto`, whatever the processors would have chosen that it goes on with.
void RankTrainer::go_on_in(std::optional<Arithmetic> before) {
  const bool is_there = before && (*before != Arithmetic::kTf32 || ranks_.device.is_cuda());
  if (is_there && options_.precision == Precision::kAuto) arithmetic_ = *before;
  steps_.set_arithmetic(arithmetic_);
}

/// Where images are divided among all ranks, they go on where these have come to, however many they are.
void RankTrainer::restore_cursor(const Checkpoint& checkpoint) {
  data::Loader& loader = feed_->loader();
  if (division_ || !checkpoint.node.contains(kCursor)) {
    const int64_t steps = loader.steps_per_epoch();  // of the node's own images, where it has some
    cursor_ = {summary_.steps / steps, summary_.steps % steps};
    return;
  }
  const auto [epoch, step, position] = strategies::saved_numbers<int64_t, 3>(checkpoint.node, kCursor);
  if (epoch < 0 || step < 0 || position < 0) {
    throw std::invalid_argument(
        fmt::format("tensor {} is [{}, {}, {}], wanted none below 0", kCursor, epoch, step, position));
  }
  cursor_ = loader.go_on({epoch, step}, position);
}

/// Speeds count from the last cut on.
void RankTrainer::restart_speed() {
  seconds_before_cut_ = summary_.seconds.local;
  samples_before_cut_ = summary_.samples;
}

/// Every so many exchanges, at the end of a phase, and at the end, also where residuals bring it.
void RankTrainer::evaluate_into(Metrics& metrics) {
  const int64_t exchange = metrics.exchange.index;
  const bool due = options_.eval_every > 0 && exchange % options_.eval_every == 0;
  const bool ends = length_.phase_of(last_step_ + 1).begin != length_.phase_of(metrics.step + 1).begin;
  if (!due && !ends && exchange != length_.exchanges && !metrics.exchange.converged) return;
  const Weights product = this->product();
  evaluated_ = evaluator_.evaluate(product, data_.test);
  metrics.accuracy = evaluated_->accuracy;
  if (data_.validation.size() == 0) return;
  metrics.validation_accuracy = validated(product);
  if (!pruning_.is_over(metrics.exchange)) return;
  if (summary_.best && summary_.best->validation_accuracy >= *metrics.validation_accuracy) return;
  summary_.best = {exchange, *metrics.validation_accuracy, *metrics.accuracy};
}

/// On the images that were held out, of all nodes where each has its own.
double RankTrainer::validated(const Weights& product) const {
  return evaluator_.evaluate(product, data_.validation, files_of_.has_value()).accuracy;
}

void RankTrainer::summarise() {
  summary_.graph_captures = steps_.captures();
  summary_.gpus = gpus_of(ranks_);
  const Weights product = this->product();
  const Evaluation test = evaluated_ ? *evaluated_ : evaluator_.evaluate(product, data_.test);
  if (!std::isfinite(test.loss)) {
    throw std::runtime_error("the loss on the test images is not finite: try a lower `lr`");
  }
  summary_.accuracy = test.accuracy;
  if (division_) {
    summary_.partition = {division_->rule, division_->class_counts, accuracy_by_node(*division_, test)};
  }
  summary_.loss = test.loss;
  if (data_.validation.size() > 0) summary_.validation_accuracy = validated(product);
  const sparsity::Cut cut = network_.is_smaller() ? *network_.total() : pruning_.removable(strategy_->masks());
  program::Model compact = network_.compact(product, cut);
  for (auto& theta : compact.weights.params) theta.value() = theta.value().detach().set_requires_grad(true);
  const prune::Size size = size_of(compact.program.graph(), compact.weights);
  summary_.parameters_compact = size.parameters;
  summary_.macs_compact = size.macs;
  summary_.units_pruned = summary_.units_removed = 0;  // it may be done again, without a node
  for (const auto& mask : strategy_->masks()) {
    summary_.units_pruned += mask.value().numel() - mask.value().sum().item<int64_t>();
  }
  for (const auto& group : cut.groups) summary_.units_removed += group.size - static_cast<int64_t>(group.kept.size());
  summary_.not_removed = train::not_removed(pruning_.plan().masked.groups, strategy_->masks(), cut);

  ship(compact, cut);
  summary_.images_skipped = images_skipped(data_, options_, ranks_);
  add_up();
  if (run_->writes()) io::write_file_atomically(run_->directory() + "/summary.json", to_json(summary_));
}

/// Writes the product and reads it back, as any user of it would: what is there now is evaluated, by the other ranks as
/// they have it themselves.
void RankTrainer::ship(const program::Model& compact, const sparsity::Cut& cut) {
  std::optional<program::Model> shipped;
  if (run_->writes()) {
    if (const auto problem = run_->problem(); !problem.empty()) throw std::runtime_error(problem);
    write_product(run_->directory(), compact, images_.description);
    write_structure(run_->directory(),
                    {options_.model, input_shape(compact.program.graph()), cut, network_.group_options()});
    shipped = on_device(read_product(run_->directory()), ranks_.device);
    const auto hash = [](const Weights& weights) { return hash_of(weights.params, weights.buffers); };
    if (hash(shipped->weights) != hash(compact.weights)) {
      throw std::runtime_error(run_->directory() + "/model.pt2: read back, it has other weights than were written");
    }
  }
  const program::Model& model = shipped ? *shipped : compact;
  const Answers answered = answers(model.program, model.weights, data_.test, *ranks_.world);
  if (shipped) io::write_file_atomically(run_->directory() + "/answers.json", answers_json(answered, data_.test));
  summary_.accuracy_compact = answered.accuracy();
  summary_.top5_accuracy = answered.top5_accuracy();
}

}  // namespace prunex::train
