// The strategy behind make_hsadmm(): one rank's part in an exchange, and its state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "prunex/strategies/exchange/background.h"
#include "prunex/strategies/exchange/exchange_buffer.h"
#include "prunex/strategies/hsadmm/duals.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "prunex/strategies/hsadmm/mask_consensus.h"

namespace prunex::strategies {

class Hsadmm final : public Strategy {
 public:
  Hsadmm(Replica& replica, comm::Hierarchy& ranks, HsadmmOptions options);

  const LocalTerms& local_terms() const override { return terms_; }
  void before_update(Replica&) override {}
  Exchange after_update(Replica& replica, int64_t step) override;
  void finish() override;
  const Weights& product() const override { return z_; }
  const sparsity::Masks& masks() const override { return masks_.global(); }
  void cut(const sparsity::Cut& cut, Replica& replica) override;
  State state() const override;
  void go_back(const State& before) override;
  void note_change(bool lost) override { lost_nodes_ = lost_nodes_ || lost; }
  void load(const State& state, const sparsity::Cut* cut, Replica& replica) override;

 private:
  // The steps of an exchange in their order; docs/algorithm.md, section 3.
  void agree(Replica& replica);
  void collect(const Replica& replica);
  void update_node_candidate();
  void update_masks(Replica& replica);
  std::vector<at::Tensor> node_scores(const Replica& replica);
  void share_z_node();
  void update_z();
  void restart(Replica& replica);
  void restart_buffers(Replica& replica);
  void complete(Exchange& exchange);

  // The exchange beside the first local steps of the next interval.
  void take_off(const Replica& replica, int64_t step);
  Exchange land(Replica& replica);

  void make_duals();
  void restore_progress(const State& state);
  void restore_tensors(const State& state);
  void freeze(Replica& replica);
  void keep_masks();
  void set_support();
  void use_support();
  void set_node_plan();
  sparsity::Supports node_support() const;
  bool takes_outer_step() const;
  bool rounds() const { return options_.exchange.payload != Payload::kFp32; }
  void set_terms();
  at::Tensor rows_in_consensus(const std::string& name, const at::Tensor& tensor) const;
  int mine() const { return ranks_.mine(); }

  HsadmmOptions options_;
  std::optional<comm::Hierarchy> one_node_;
  RailExchange ranks_;
  MaskConsensus masks_;
  PhaseClock clock_;
  int64_t k_ = 0;
  bool frozen_ = false;
  bool is_cut_ = false;      // masks and groups are those of the network before
  bool lost_nodes_ = false;  // since the last exchange that ended

  Weights z_;
  TensorDict outer_;  // b of the outer step; empty before the first
  ExchangeBuffer work_;
  std::optional<Duals> duals_;

  sparsity::Supports support_;  // of the global masks
  ShardedCompaction node_;      // of the node's model: what is alive in it
  LocalTerms terms_;

  /// An exchange that is on its way.
  struct Flight {
    int64_t begin = 0, end = 0;  // steps
    TensorDict sent;             // theta at the begin
  };
  std::optional<Flight> flight_;
  std::optional<comm::BackgroundUse> between_nodes_, in_node_;
  Background background_;  // a flight's mean; the last member: ends before what it uses
};

}  // namespace prunex::strategies
