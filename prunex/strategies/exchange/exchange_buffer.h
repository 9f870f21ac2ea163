// What nodes exchange, in one buffer: named tensors, what of them is alive, and what rounding has left out.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prunex/stopwatch.h"
#include "prunex/strategies/exchange/rail_exchange.h"
#include "prunex/strategies/exchange/row_shards.h"
#include "prunex/strategies/strategy.h"

namespace prunex::strategies {

/// Notes when the phases of an exchange ended. A phase begins where the one before it ended.
class PhaseClock {
 public:
  void restart() {
    phases_.clear();
    last_ = Stopwatch::now();
  }
  void end(const char* name, size_t bytes = 0) {
    const double begin = std::exchange(last_, Stopwatch::now());
    phases_.push_back({name, begin, last_ - begin, static_cast<int64_t>(bytes)});
  }
  /// What was since the last end() belongs to no phase.
  void skip() { last_ = Stopwatch::now(); }
  const std::vector<Phase>& phases() const { return phases_; }

 private:
  double last_ = Stopwatch::now();
  std::vector<Phase> phases_;
};

/// Whether an exchange in fp32 averages the buffer beside the parameters, as the statistics of batch norm: those of
/// another type stay each rank's own.
bool is_averaged(const at::Tensor& buffer, const TensorDict& params);
/// The numbers in all of those.
int64_t averaged_numbers(const Weights& weights);

/// Sums, then candidates, then means of a model's parameters and, unless messages are rounded, the buffers that are
/// averaged. A local rank has the rows of its shard to itself until means are taken. Where everything is alive nothing
/// is packed: the tensors lie in the buffer as they are sent.
class ExchangeBuffer {
 public:
  /// Tensors like those of `weights`, not filled. Borrows `ranks`.
  ExchangeBuffer(const Weights& weights, const ExchangeOptions& options, RailExchange& ranks);

  /// Whole tensors, views.
  TensorDict& tensors() { return work_.tensors; }
  /// My shard's rows, views.
  TensorDict rows() const { return shards_.rows(work_.tensors, mine()); }
  const RowShards& shards() const { return shards_; }
  /// My tensors as a model with these parameters and buffers; of buffers that are not here, those given.
  Weights as_weights(const TensorDict& params, const TensorDict& buffers);
  bool holds(const std::string& name) const { return work_.tensors.find(name) != nullptr; }
  int64_t nbytes() const { return static_cast<int64_t>(work_.buffer.nbytes()); }

  /// Eq. 15: from now on what is outside of `alive` is not sent and comes back as zero.
  void set_alive(const sparsity::Supports& alive);

  /// My rows <- their sum over the node; `alive`: of what is alive alone.
  void sum_in_node(bool alive);
  /// All rows, from the ranks that have them.
  void gather_in_node() { ranks_.gather_in_node(work_.buffer, parts_); }
  /// Some of my tensors' likes <- the rows of all local ranks, of what `plan` leaves of them.
  void share_in_node(const ShardedCompaction& plan, TensorDict& tensors);
  /// The rows of others <- 0.
  void clear_other_rows();
  /// Tensors <- the mean of their rows over nodes, larger nodes and those of a larger share counting for more. Rounded
  /// messages carry the change since `z`, which all nodes have.
  void mean_over_nodes(const TensorDict& z, PhaseClock& clock);
  /// Tensors <- the mean over all ranks of `weights`.
  void mean_over_ranks(const Weights& weights, const TensorDict& z, PhaseClock& clock);
  /// Its three parts. The second, of what the first has returned, no longer reads the weights and, where there are
  /// several nodes, calls no group inside them: another thread may run it while weights change and a node's ranks talk.
  at::Tensor take(const Weights& weights, PhaseClock& clock);
  void mean_of_taken(at::Tensor taken, const TensorDict& z, PhaseClock& clock);
  void give_mean(PhaseClock& clock);

  /// Of rounded messages, what they left out of these tensors is not added to the next ones.
  void forget_left_out(const std::function<bool(const std::string&)>& of);

  /// Tensors like those of `weights`, which have been cut, and what is alive of them.
  void cut(const sparsity::Cut& cut, const Weights& weights, const sparsity::Supports& alive);
  /// What messages have left out.
  void save(State& state) const;
  void load(const State& state);
  /// Which rows are whose, under the name of what they are `of`. It follows from the tensors with which this was made:
  /// in a run that first exchanged gradients, from what cuts had left by then.
  void save_shards(State& state, const std::string& of = "") const;
  /// Before load(): forgets what messages have left out, and what is not alive.
  void load_shards(const State& state, const std::string& of = "");

 private:
  int mine() const { return ranks_.mine(); }
  bool has_one_node() const { return ranks_.layout().nodes() == 1; }
  at::Tensor pack(const TensorDict& tensors);
  void unpack(const at::Tensor& buffer);
  void average_over_ranks(at::Tensor& buffer, const TensorDict& z);
  void average_over_nodes(at::Tensor& part, const TensorDict& z);
  std::array<TensorDict, 2> feedback_by_tensor() const;
  void set_feedback(const std::array<TensorDict, 2>& rows);

  RailExchange& ranks_;
  const Codec codec_;
  FlatTensors work_;
  RowShards shards_;
  std::vector<comm::Range> parts_;    // of the whole buffer
  ShardedCompaction plan_;            // of what is alive
  at::Tensor packed_;                 // what is less than everything
  std::optional<Feedback> feedback_;  // of rounded messages: like my part of what is alive
};

}  // namespace prunex::strategies
