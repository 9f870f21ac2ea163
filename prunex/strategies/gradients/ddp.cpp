#include "prunex/strategies/gradients/gradient_strategy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "prunex/stopwatch.h"
#include "prunex/strategies/exchange/background.h"
#include "prunex/strategies/exchange/rail_exchange.h"
#include "prunex/strategies/start.h"

namespace prunex::strategies {
namespace {

/// Calls back when backward has finished a parameter's gradient.
class GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientHook(std::function<void(const at::Tensor&)> call) : call_(std::move(call)) {}
  void operator()(const at::Tensor& parameter) override { call_(parameter); }

 private:
  std::function<void(const at::Tensor&)> call_;
};

/// When buckets are whole, of the steps since the last report but the first, before which something else may be done.
/// On the CPU alone: elsewhere hooks are called when work is handed to the device, not when it is done.
class Readiness {
 public:
  /// All of them are to be seen before every end of backward.
  void see_bucket() { moments_.push_back(Stopwatch::now()); }

  void end_backward() {
    const double begin = begin_, seconds = Stopwatch::now() - begin;
    if (begin > 0 && seconds > 0) {
      shares_.resize(moments_.size());
      for (size_t i = 0; i < moments_.size(); ++i) shares_[i].push_back((moments_[i] - begin) / seconds);
    }
    moments_.clear();
  }
  void end_waiting() { begin_ = Stopwatch::now(); }
  void forget_step() {
    begin_ = 0;
    moments_.clear();
  }

  /// Medians by bucket; nothing if no step was seen. Starts anew.
  std::vector<double> take() {
    std::vector<double> medians;
    for (auto& of_bucket : std::exchange(shares_, {})) {
      const auto middle = of_bucket.begin() + static_cast<std::ptrdiff_t>(of_bucket.size() / 2);
      std::nth_element(of_bucket.begin(), middle, of_bucket.end());
      medians.push_back(*middle);
    }
    forget_step();
    return medians;
  }

 private:
  double begin_ = 0;  // of the step; 0: not to be counted
  std::vector<double> moments_;
  std::vector<std::vector<double>> shares_;  // by bucket, then step
};

/// Every parameter has its place in one bucket, in the memory order of the parameter. Buckets are filled from the last
/// parameter on.
class GradientBuckets {
 public:
  GradientBuckets(const TensorDict& params, const Buckets& sizes);

  int count() const { return static_cast<int>(buffers_.size()); }
  at::Tensor& buffer(int bucket) { return buffers_[static_cast<size_t>(bucket)]; }
  /// Of the parameter's number in the dictionary.
  int bucket_of(int64_t parameter) const { return places_[static_cast<size_t>(parameter)].bucket; }
  /// Parameters in the bucket.
  int members(int bucket) const { return members_[static_cast<size_t>(bucket)]; }
  /// The parameter's place, in its shape and layout.
  at::Tensor view(int64_t parameter) const;

 private:
  struct Place {
    int bucket = 0;
    comm::Range range;
    std::vector<int64_t> sizes, strides;
  };

  std::vector<Place> places_;
  std::vector<at::Tensor> buffers_;
  std::vector<int> members_;
};

GradientBuckets::GradientBuckets(const TensorDict& params, const Buckets& sizes) : places_(params.size()) {
  std::vector<int64_t> lengths;
  for (size_t i = params.size(); i-- > 0;) {
    const at::Tensor& theta = params[i].value();
    TORCH_CHECK(theta.is_non_overlapping_and_dense(), "[strategies] parameter ", params[i].key(), " has gaps");
    const int64_t full =
        (lengths.size() <= 1 ? sizes.first : sizes.others) / static_cast<int64_t>(theta.element_size());
    if (lengths.empty() || lengths.back() >= full) {
      lengths.push_back(0);
      members_.push_back(0);
    }
    ++members_.back();
    const int64_t begin = lengths.back();
    lengths.back() += theta.numel();
    places_[i] = {
        static_cast<int>(lengths.size()) - 1, {begin, lengths.back()}, theta.sizes().vec(), theta.strides().vec()};
  }
  const auto like_gradients = params.front().value().options().requires_grad(false);
  for (const int64_t length : lengths) buffers_.push_back(at::zeros({length}, like_gradients));
}

at::Tensor GradientBuckets::view(int64_t parameter) const {
  const Place& place = places_[static_cast<size_t>(parameter)];
  return comm::slice(buffers_[static_cast<size_t>(place.bucket)], place.range)
      .as_strided(place.sizes, place.strides, place.range.begin);
}

class Ddp final : public GradientStrategy {
 public:
  Ddp(Replica& replica, comm::Hierarchy& ranks, const DdpOptions& options)
      : GradientStrategy(replica, ranks, options.reporting, options.begin),
        exchange_(ranks, options.exchange.form),
        codec_(options.exchange.payload),
        bucket_options_(options.buckets),
        params_(replica.weights.params),
        buckets_(params_, bucket_options_),
        in_node_(ranks.node_in_background),
        between_nodes_(ranks.between_in_background) {
    listen();
  }

  ~Ddp() override { stop_listening(); }

  Exchange after_update(Replica& replica, int64_t step) override {
    if (std::find(copied_.begin(), copied_.end(), true) != copied_.end()) {
      throw std::logic_error("[strategies] ddp: wanted before_update() between backward and the optimizer");
    }
    Exchange exchange = GradientStrategy::after_update(replica, step);
    if (!exchange.exchanged) return exchange;
    const auto ready = readiness_.take();
    for (size_t i = 0; i < ready.size(); ++i) {
      exchange.buckets.push_back({static_cast<int64_t>(buckets_.buffer(static_cast<int>(i)).nbytes()), ready[i]});
    }
    return exchange;
  }
  void note_change(bool) override {
    readiness_.forget_step();
    forget_step();
  }

 private:
  void listen() {
    forget_step();
    if (bucket_options_.several_backwards) return;
    for (size_t i = 0; i < params_.size(); ++i) {
      torch::autograd::impl::set_post_acc_grad_hooks(
          params_[i].value(), std::make_unique<GradientHook>([this, i](const at::Tensor& theta) { take(i, theta); }));
    }
  }

  void stop_listening() {
    for (auto& theta : params_) torch::autograd::impl::set_post_acc_grad_hooks(theta.value(), nullptr);
  }

  void cut_state(const sparsity::Cut&, Replica& replica) override {
    stop_listening();
    params_ = replica.weights.params;
    buckets_ = GradientBuckets(params_, bucket_options_);
    readiness_ = {};
    listen();
  }

  void restore_own(const State&) override { note_change(false); }

  /// Buckets leave in one order on all ranks, the last parameters first, and once per step: whether another rank's
  /// gradients have grown since, none could know.
  void take(size_t parameter, const at::Tensor& theta) {
    at::NoGradGuard no_grad;
    if (copied_[parameter]) {
      throw std::logic_error(fmt::format(
          "[strategies] ddp: the gradient of {} has grown after it was taken: several backwards per step want "
          "`buckets.several_backwards`",
          params_[parameter].key()));
    }
    at::Tensor place = buckets_.view(static_cast<int64_t>(parameter));
    // what a further backward adds to is not what is on its way
    if (theta.grad().defined() && theta.grad().is_alias_of(place)) theta.mutable_grad() = theta.grad().clone();
    if (theta.grad().defined()) {
      place.copy_(theta.grad());
    } else {
      place.zero_();
    }
    copied_[parameter] = true;
    --missing_[static_cast<size_t>(buckets_.bucket_of(static_cast<int64_t>(parameter)))];
    for (; next_ < buckets_.count() && missing_[static_cast<size_t>(next_)] == 0; ++next_) {
      readiness_.see_bucket();
      background_.add(place.device(), [this, bucket = next_] { average(buckets_.buffer(bucket)); });
    }
  }

  void average(at::Tensor& buffer) {
    at::NoGradGuard no_grad;
    exchange_.mean_over_ranks(buffer, codec_);
  }

  /// Parameters that this step did not use count as zero.
  void average_gradients(TensorDict& params) override {
    for (size_t i = params.size(); i-- > 0;) {
      if (!copied_[i]) take(i, params[i].value());
    }
    if (params.front().value().is_cpu() && !bucket_options_.several_backwards)
      readiness_.end_backward();
    else
      readiness_.forget_step();
    background_.wait();
    readiness_.end_waiting();
    for (size_t i = 0; i < params.size(); ++i)
      params[i].value().mutable_grad() = buckets_.view(static_cast<int64_t>(i)).variable_data();  // no view: detach_()
    forget_step();
  }

  void forget_step() {
    next_ = 0;
    copied_.assign(params_.size(), false);
    missing_.resize(static_cast<size_t>(buckets_.count()));
    for (int bucket = 0; bucket < buckets_.count(); ++bucket)
      missing_[static_cast<size_t>(bucket)] = buckets_.members(bucket);
  }

  RailExchange exchange_;
  const Codec codec_;
  const Buckets bucket_options_;
  TensorDict params_;  // the replica's own
  GradientBuckets buckets_;
  std::vector<bool> copied_;  // of this step's gradients
  std::vector<int> missing_;  // of every bucket
  int next_ = 0;              // bucket to leave
  Readiness readiness_;
  const comm::BackgroundUse in_node_, between_nodes_;
  Background background_;  // the last member: ends before what it uses
};

}  // namespace

void check(const DdpOptions& options) {
  const bool flat = options.exchange.form == ExchangeForm::kFlat;
  if (options.exchange.payload > (flat ? Payload::kFp32 : Payload::kFp16)) {
    throw std::invalid_argument(fmt::format("`payload`: got {}, ddp{} has {}", name_of(options.exchange.payload),
                                            flat ? " with `exchange` flat" : "",
                                            flat ? "fp32 alone" : "fp32, and between nodes bf16 and fp16"));
  }
}

std::unique_ptr<Strategy> make_ddp(Replica& replica, comm::Hierarchy& ranks, const DdpOptions& options) {
  check(options);
  expect_usable(replica.weights.params, options.exchange.payload);
  return std::make_unique<Ddp>(replica, ranks, options);
}

}  // namespace prunex::strategies
