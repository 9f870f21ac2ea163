#include "prunex/train/steps/local_steps.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

#include "prunex/train/device.h"

namespace prunex::train {
namespace {

/// Done before a step is recorded: what libraries set up at a first call, and what they choose at a second one.
constexpr int64_t kWarmUpSteps = 2;

void add(const at::Tensor& tensor, std::vector<int64_t>& identity) {
  identity.push_back(static_cast<int64_t>(std::bit_cast<uintptr_t>(tensor.const_data_ptr())));
  for (const int64_t size : tensor.sizes()) identity.push_back(size);
}

GraphMaker usable(GraphMaker make_graph, const c10::Device& device) {
  return make_graph && make_graph(device) ? make_graph : nullptr;
}

}  // namespace

LocalSteps::LocalSteps(TrainedNetwork& network, BatchFeed& feed, Arithmetic arithmetic, GraphMaker make_graph,
                       LossOptions loss)
    : network_(network),
      feed_(feed),
      arithmetic_(arithmetic),
      make_graph_(usable(std::move(make_graph), device_of(network.replica().weights))),
      loss_options_(std::move(loss)) {}

/// The page-locked copy is kept by whoever allocates such memory until it was read.
void LocalSteps::set_mix(const Mix& mix) {
  const auto device = device_of(network_.replica().weights);
  at::Tensor& numbers = loss_options_.mix;
  if (device.is_cpu()) {
    numbers = mix.numbers();
  } else if (!numbers.defined()) {
    numbers = on_device(mix.numbers(), device);
  } else {
    numbers.copy_(mix.numbers().pin_memory(), true);
  }
}

LocalSteps::Identity LocalSteps::identity_of(const std::vector<const TensorDict*>& more) const {
  const Replica& replica = network_.replica();
  Identity identity;
  for (const auto& input : feed_.inputs()) add(input, identity);
  if (loss_options_.mix.defined()) add(loss_options_.mix, identity);
  std::vector<const TensorDict*> all{&replica.weights.params, &replica.weights.buffers};
  if (const auto& teacher = loss_options_.teacher) {
    all.insert(all.end(), {&teacher->model.weights.params, &teacher->model.weights.buffers});
  }
  all.insert(all.end(), more.begin(), more.end());
  for (const auto* tensors : all) {
    identity.push_back(static_cast<int64_t>(tensors->size()));
    for (const auto& item : *tensors) add(item.value(), identity);
  }
  return identity;
}

void LocalSteps::run(Identity identity, const std::function<void()>& work) {
  if (!graph_ || identity != identity_) {
    graph_.reset();  // gives its memory back before the next one takes some
    loss_ = at::Tensor();
    gradients_.clear();
    graph_ = make_graph_(device_of(network_.replica().weights));
    identity_ = std::move(identity);
    alike_ = 0;
  }
  if (alike_ < kWarmUpSteps) {
    ++alike_;
    return graph_->warm_up(work);
  }
  if (alike_ == kWarmUpSteps) {
    try {
      graph_->capture(work);
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error& error) {
      const std::string why = error.what_without_backtrace();
      throw std::runtime_error(
          fmt::format("the network's step cannot be one CUDA graph: {}; wanted `no_cuda_graphs`, or other operations",
                      why.substr(0, why.find('\n'))));
    }
    for (const auto& theta : network_.replica().weights.params) gradients_.push_back(theta.value().grad());
    ++alike_;
    ++captures_;
  }
  graph_->replay();
}

at::Tensor LocalSteps::gradients() {
  Replica& replica = network_.replica();
  const auto& program = network_.program();
  if (!has_graphs()) return compute_gradients(program, replica, feed_.batch(), arithmetic_, loss_options_);
  run(identity_of({}), [&] { loss_ = take_gradients(program, replica, feed_.batch(), arithmetic_, loss_options_); });
  for (size_t p = 0; p < gradients_.size(); ++p) replica.weights.params[p].value().mutable_grad() = gradients_[p];
  return loss_;
}

void LocalSteps::set_numbers(const strategies::LocalTerms& terms, const OptimizerOptions& options) {
  const Replica& replica = network_.replica();
  if (!numbers_.rate.defined() || numbers_.rho1.defined() == terms.rho1.empty() || rho1_.size() != terms.rho1.size()) {
    numbers_ = numbers_of(replica, terms, options);
  } else {
    numbers_.rate.fill_(options.learning_rate);
    numbers_.step.fill_(static_cast<double>(replica.updates));
    if (rho1_ != terms.rho1) numbers_.rho1.copy_(numbers_of(replica, terms, options).rho1);
  }
  rho1_ = terms.rho1;
}

at::Tensor LocalSteps::step(const strategies::LocalTerms& terms, const OptimizerOptions& options) {
  Replica& replica = network_.replica();
  if (!has_graphs()) {
    const at::Tensor loss = gradients();
    optimizer_step(replica, terms, options);
    return loss;
  }
  ++replica.updates;  // a graph's update does not count itself
  set_numbers(terms, options);
  std::vector<const TensorDict*> more{&terms.anchor, &terms.masks};
  for (const auto& state : replica.optimizer) more.push_back(&state.value());
  Identity identity = identity_of(more);
  for (const double setting : {options.momentum, options.weight_decay, options.clip_norm}) {
    identity.push_back(std::bit_cast<int64_t>(setting));
  }
  for (const auto& number : {numbers_.rate, numbers_.step}) add(number, identity);
  if (numbers_.rho1.defined()) add(numbers_.rho1, identity);
  run(std::move(identity), [&] {
    loss_ = take_gradients(network_.program(), replica, feed_.batch(), arithmetic_, loss_options_);
    optimizer_step(replica, terms, options, &numbers_);
  });
  return loss_;
}

void wait_for(const c10::Device& device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl backend(device.type());
  backend.synchronizeStream(backend.getStream(device));
}

}  // namespace prunex::train
