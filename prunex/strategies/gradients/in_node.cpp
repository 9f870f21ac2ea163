#include <utility>

#include "prunex/strategies/gradients/gradients.h"

namespace prunex::strategies {
namespace {

/// Weights of the ranks of a node stay equal by themselves, so what `between` says of ranks it says of nodes.
class AveragingInNode final : public Strategy {
 public:
  AveragingInNode(std::unique_ptr<Strategy> between, Replica& replica, comm::Hierarchy& ranks, const DdpOptions& ddp)
      : ranks_(ranks),
        node_(comm::as_own_node(ranks)),
        between_(std::move(between)),
        in_node_(make_ddp(replica, node_, ddp)) {}

  const LocalTerms& local_terms() const override { return between_->local_terms(); }
  void before_update(Replica& replica) override {
    in_node_->before_update(replica);
    between_->before_update(replica);
  }
  Exchange after_update(Replica& replica, int64_t step) override {
    in_node_->after_update(replica, step);
    return between_->after_update(replica, step);
  }
  void finish() override { between_->finish(); }
  const Weights& product() const override { return between_->product(); }
  const sparsity::Masks& masks() const override { return between_->masks(); }
  void cut(const sparsity::Cut& cut, Replica& replica) override {
    between_->cut(cut, replica);
    in_node_->cut(cut, replica);
  }
  State state() const override { return between_->state(); }
  void load(const State& state, const sparsity::Cut* cut, Replica& replica) override {
    between_->load(state, cut, replica);
    if (cut != nullptr) in_node_->cut(*cut, replica);
  }
  void go_back(const State& before) override { between_->go_back(before); }
  void note_change(bool lost) override {
    node_ = comm::as_own_node(ranks_);
    in_node_->note_change(lost);
    between_->note_change(lost);
  }

 private:
  comm::Hierarchy& ranks_;
  comm::Hierarchy node_;  // stays where it is
  const std::unique_ptr<Strategy> between_, in_node_;
};

}  // namespace

std::unique_ptr<Strategy> make_averaging_in_node(std::unique_ptr<Strategy> between, Replica& replica,
                                                 comm::Hierarchy& ranks, const Reporting& reporting,
                                                 const Buckets& buckets) {
  const DdpOptions ddp{
      .reporting = reporting, .exchange = {.form = ExchangeForm::kFlat}, .buckets = buckets, .begin = Begin::kEqual};
  return std::make_unique<AveragingInNode>(std::move(between), replica, ranks, ddp);
}

}  // namespace prunex::strategies
