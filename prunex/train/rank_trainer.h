// One rank's run, from its data to its product: what train() makes of the options.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prunex/stopwatch.h"
#include "prunex/train/elastic/elastic.h"
#include "prunex/train/evaluator.h"
#include "prunex/train/network.h"
#include "prunex/train/prepare.h"
#include "prunex/train/product_mean.h"
#include "prunex/train/pruning/pruning.h"
#include "prunex/train/run/run.h"
#include "prunex/train/steps/batch_feed.h"
#include "prunex/train/steps/local_steps.h"
#include "prunex/train/steps/pace.h"
#include "prunex/train/trainer.h"

namespace prunex::train {

/// One rank's training loop: local steps, exchanges, what is measured in between, and the product at the end.
class RankTrainer {
 public:
  RankTrainer(const TrainOptions& options, comm::Hierarchy& ranks, const GraphMaker& make_graph)
      : RankTrainer(options, ranks, make_graph, prepare(options, &ranks)) {}
  Summary run(const std::string& config, StopRequest* stop);

 private:
  RankTrainer(const TrainOptions& options, comm::Hierarchy& ranks, const GraphMaker& make_graph, Prepared prepared);
  void say_remarks() const;
  void expect_same_program() const;
  void expect_program_of(const Checkpoint& checkpoint) const;
  std::unique_ptr<strategies::Strategy> make_own_strategy(int64_t exchanges_done);
  void begin(const std::string& config, StopRequest* stop);
  void join(const std::string& config, StopRequest* stop);
  void train_steps();
  /// An exchange, and what all ranks make known of it.
  struct Round {
    strategies::Exchange exchange = {};
    Metrics metrics = {};
    Wishes wishes = {};
    int64_t steps = 0;      // local ones of all ranks together
    int64_t passed_by = 0;  // images that slow ranks did not come to
    std::optional<DueCut> cut = {};
    bool newcomer = false;  // waits to be let in
  };
  bool ends_interval(int64_t step) const {
    return strategies::ends_interval(step, options_.local_steps, length_.steps);
  }
  Round exchange_after(int64_t step);
  void heed(const Wishes& wishes);
  /// Whether an operation threw because a node is lost that the run outlives.
  bool has_lost() const { return elastic_ && elastic_->has_lost(); }
  comm::Change regroup();
  bool agree_in_node();
  void admit();
  void go_on(const comm::Change& change);
  void divide();
  void divide_among(int rank, int ranks);
  data::Cursor take_step();
  int contributors() const { return elastic_ ? elastic_->contributors() : ranks_.layout.world_size(); }
  bool contributes() const { return !elastic_ || elastic_->contributes(); }
  void end();
  void prune(const std::optional<DueCut>& due, int64_t k, int64_t step);
  void set_teacher(std::shared_ptr<const Teacher> teacher);
  void add_up();
  Checkpoint snapshot();
  void restore(const Checkpoint& checkpoint);
  void restore_cursor(const Checkpoint& checkpoint);
  void go_on_in(std::optional<Arithmetic> before);
  void begin_steps();
  void make_step(int64_t step);
  void make_together(int64_t first, int64_t last);
  int64_t go_back(int64_t transactions);
  int64_t go_back_in_node();
  void bring_back(int64_t step);
  /// Whether the step is a transaction of its own, as those are that send gradients to all.
  bool is_transaction(int64_t step) const { return elastic_ && step <= gradient_steps_; }
  /// Whether all ranks of a node have a step or none, as they average gradients there, in a run that outlives nodes.
  bool steps_in_node() const {
    return elastic_ && options_.in_node == InNode::kGradients && ranks_.layout.ranks_here() > 1;
  }
  int64_t transactions_up_to(int64_t step) const { return std::min(step, gradient_steps_) + summary_.exchanges; }
  void local_step(int64_t step);
  void pass_by(int64_t step);
  bool may_end_early(const strategies::Exchange& exchange, const Phase& phase) const;
  bool changes_gradients() const;
  void measure(Round& round, int64_t step);
  void count(const Metrics& metrics);
  void evaluate_into(Metrics& metrics);
  double validated(const Weights& product) const;
  Weights product() const { return evaluator_.product(mean_.of(strategy_->product())); }
  void summarise();
  void ship(const program::Model& compact, const sparsity::Cut& cut);
  void restart_speed();

  TrainOptions options_;
  comm::Hierarchy& ranks_;
  comm::InterfaceCounters interfaces_;
  const RunImages images_;
  const std::optional<int> files_of_;  // the node whose own files these are
  const data::Datasets& data_;
  const Checksums checksums_;
  TrainedNetwork network_;
  const int64_t program_checksum_;  // before any cut
  RunLength length_;
  const int64_t gradient_steps_;  // that send gradients: all, none, or those of the first exchanges
  const std::optional<Division> division_;
  const std::unique_ptr<BatchFeed> feed_;
  data::Cursor cursor_;  // of the next step
  /// The local steps since the last exchange.
  struct Interval {
    Pace pace;
    LossSum losses;
    int64_t steps_of_all = 0;  // of all ranks together, while they send gradients
  };
  /// What it takes to make a step again, with the transactions before it.
  struct StepBegin {
    int64_t step;
    Undo undo;
    data::Cursor cursor;
    Interval interval;
  };
  std::deque<StepBegin> begins_;  // of the last two steps, while these send gradients, to all or in the node
  int64_t steps_of_node_ = 0;     // that all of its ranks had made when the ranks of the run last changed
  bool division_is_due_ = false;  // ranks have changed since the images were divided among them
  data::Dataset calibration_;
  Evaluator evaluator_;
  Pruning pruning_;
  Arithmetic arithmetic_;
  std::shared_ptr<const Teacher> teacher_;  // null: none, or not yet
  LocalSteps steps_;
  std::unique_ptr<strategies::Strategy> strategy_;
  std::unique_ptr<comm::Elastic> elastic_;  // null unless the run outlives nodes
  ProductMean mean_;
  std::vector<std::string> remarks_;

  Stopwatch lap_;
  double begin_ = 0;  // of this part of the run
  Seconds since_exchange_;
  double gradient_seconds_ = 0;  // of averaging gradients since the last exchange
  Interval interval_;
  std::optional<double> loss_;              // the sum of its losses, once it was asked for
  int64_t steps_made_ = 0, last_step_ = 0;  // of which the last exchange was
  comm::Volume moved_;                      // by exchanges, up to the last record
  double seconds_before_cut_ = 0;
  int64_t samples_before_cut_ = 0;
  std::optional<Evaluation> evaluated_;  // the product as it is now, on the test set
  std::optional<Run> run_;               // from its beginning on
  Summary summary_, resumed_;            // of the run, and of what of it was before this part
};

}  // namespace prunex::train
