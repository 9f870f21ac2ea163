#include "prunex/strategies/strategy.h"

#include <utility>

namespace prunex::strategies {
namespace {

class PostLocal final : public Strategy {
 public:
  PostLocal(std::unique_ptr<Strategy> first, StrategyMaker make_first_again, StrategyMaker make_second,
            Replica& replica, int64_t switch_after)
      : now_(std::move(first)),
        make_first_again_(std::move(make_first_again)),
        make_second_(std::move(make_second)),
        replica_(replica),
        switch_after_(switch_after) {}

  const LocalTerms& local_terms() const override { return now_->local_terms(); }
  void before_update(Replica& replica) override { now_->before_update(replica); }
  Exchange after_update(Replica& replica, int64_t step) override {
    const Exchange exchange = now_->after_update(replica, step);
    if (exchange.exchanged && exchange.index == switch_after_) become(make_second_);
    return exchange;
  }
  void finish() override { now_->finish(); }
  const Weights& product() const override { return now_->product(); }
  const sparsity::Masks& masks() const override { return now_->masks(); }
  void cut(const sparsity::Cut& cut, Replica& replica) override { now_->cut(cut, replica); }

  State state() const override { return now_->state(); }
  bool in_step() const override { return now_->in_step(); }
  void load(const State& state, const sparsity::Cut* cut, Replica& replica) override {
    now_->load(state, cut, replica);
  }
  void note_change(bool lost) override {
    if (now_) now_->note_change(lost);
  }
  void go_back(const State& before) override {
    const bool behind_switch = before.global["progress"][0].item<int64_t>() < switch_after_;
    if (behind_switch && !(now_ && now_->in_step())) become(make_first_again_);
    now_->go_back(before);
  }

 private:
  /// One must be gone before the other comes: it may listen to backward.
  void become(const StrategyMaker& make) {
    now_.reset();
    now_ = make(replica_);
  }

  std::unique_ptr<Strategy> now_;  // null if a rank was lost while the second one was made
  const StrategyMaker make_first_again_, make_second_;
  Replica& replica_;
  const int64_t switch_after_;
};

}  // namespace

std::unique_ptr<Strategy> make_post_local(std::unique_ptr<Strategy> first, StrategyMaker make_first_again,
                                          StrategyMaker make_second, Replica& replica, int64_t switch_after) {
  return std::make_unique<PostLocal>(std::move(first), std::move(make_first_again), std::move(make_second), replica,
                                     switch_after);
}

}  // namespace prunex::strategies
