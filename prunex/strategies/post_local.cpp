#include "prunex/strategies/strategy.h"

#include <utility>

namespace prunex::strategies {
namespace {

class PostLocal final : public Strategy {
 public:
  PostLocal(std::unique_ptr<Strategy> first, std::function<std::unique_ptr<Strategy>(Replica&)> make_second,
            Replica& replica, int64_t switch_after)
      : now_(std::move(first)), make_second_(std::move(make_second)), replica_(replica), switch_after_(switch_after) {}

  const LocalTerms& local_terms() const override { return now_->local_terms(); }
  void before_update(Replica& replica) override { now_->before_update(replica); }
  Exchange after_update(Replica& replica, int64_t step) override {
    const Exchange exchange = now_->after_update(replica, step);
    if (exchange.exchanged && exchange.index == switch_after_) switch_over();
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

 private:
  /// The first one must be gone: it may listen to backward.
  void switch_over() {
    now_.reset();
    now_ = make_second_(replica_);
  }

  std::unique_ptr<Strategy> now_;
  std::function<std::unique_ptr<Strategy>(Replica&)> make_second_;
  Replica& replica_;
  const int64_t switch_after_;
};

}  // namespace

std::unique_ptr<Strategy> make_post_local(std::unique_ptr<Strategy> first,
                                          std::function<std::unique_ptr<Strategy>(Replica&)> make_second,
                                          Replica& replica, int64_t switch_after) {
  return std::make_unique<PostLocal>(std::move(first), std::move(make_second), replica, switch_after);
}

}  // namespace prunex::strategies
