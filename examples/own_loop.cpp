// Your own network, data, optimizer and loop; prunex averages the ranks and prunes while you train.
// Started alone, it runs two nodes as threads of one process; under `torchrun --no-python` every process is a rank.
#include <torch/torch.h>

#include <cstdio>

#include "prunex/comm/connect.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "prunex/train/optimizer.h"

namespace {

using namespace prunex;

constexpr int64_t kSteps = 300, kLocalSteps = 15, kClasses = 4;
constexpr double kLearningRate = 0.05, kMomentum = 0.9, kKeep = 0.5;

torch::nn::Sequential make_network() {
  using namespace torch::nn;
  return Sequential({{"conv1", Conv2d(Conv2dOptions(1, 16, 3))},
                     {"bn1", BatchNorm2d(16)},
                     {"relu1", ReLU()},
                     {"conv2", Conv2d(Conv2dOptions(16, 32, 3))},
                     {"bn2", BatchNorm2d(32)},
                     {"relu2", ReLU()},
                     {"pool", AdaptiveAvgPool2d(1)},
                     {"flatten", Flatten()},
                     {"fc", Linear(32, kClasses)}});
}

/// Channels that live or die together: a convolution's filters, their batch norm, the next layer's inputs.
std::vector<sparsity::Group> channel_groups() {
  constexpr int64_t kInputs = sparsity::kChannels;
  return {{"1", {{"conv1.weight"}, {"conv1.bias"}, {"bn1.weight"}, {"bn1.bias"}, {"conv2.weight", kInputs}}, 16, kKeep},
          {"2", {{"conv2.weight"}, {"conv2.bias"}, {"bn2.weight"}, {"bn2.bias"}, {"fc.weight", kInputs}}, 32, kKeep}};
}

strategies::HsadmmOptions hsadmm_options() {
  strategies::HsadmmOptions options;
  options.masks.groups = channel_groups();
  options.masks.keep = {.start = 2, .end = 10};  // prune from exchange 2 to 10 …
  options.masks.freeze_after = 10;               // … then keep the masks
  options.outer = {.rate = 0.7, .momentum = 0.8, .from = 1};
  options.local.steps = kLocalSteps;
  options.local.total_steps = kSteps;
  options.local.learning_rate = [](int64_t) { return kLearningRate; };
  options.local.momentum = kMomentum;
  return options;
}

/// Noisy stripes; the class is their direction.
std::pair<at::Tensor, at::Tensor> draw_batch(at::Generator& random) {
  const auto labels = torch::randint(kClasses, {64}, random, torch::kLong);
  const auto angle = (labels * (M_PI / kClasses)).view({-1, 1, 1, 1});
  const auto x = torch::arange(12).view({1, 1, 1, 12}), y = torch::arange(12).view({1, 1, 12, 1});
  const auto phase = 2 * M_PI * torch::rand({64, 1, 1, 1}, random);
  const auto stripes = torch::sin(1.2 * (x * angle.cos() + y * angle.sin()) + phase);
  return {stripes + 1.5 * torch::randn(stripes.sizes(), random), labels};
}

/// The optimizer's momentum, shared so that the strategy can clear it for pruned channels.
TensorDict share_momentum(torch::optim::SGD& optimizer, const TensorDict& params) {
  TensorDict momentum = train::fresh_state(params)["momentum"];
  for (const auto& theta : params) {
    auto state = std::make_unique<torch::optim::SGDParamState>();
    state->momentum_buffer(momentum[theta.key()]);
    optimizer.state()[theta.value().unsafeGetTensorImpl()] = std::move(state);
  }
  return momentum;
}

void train_rank(torch::nn::Sequential network, comm::Hierarchy& ranks) {
  const bool prints = ranks.layout.rank == 0;
  at::Generator random = at::make_generator<at::CPUGeneratorImpl>(ranks.layout.rank);  // each rank its own data
  torch::optim::SGD optimizer(network->parameters(), torch::optim::SGDOptions(kLearningRate).momentum(kMomentum));
  Replica replica;  // other names of the same tensors
  replica.weights = {network->named_parameters(), network->named_buffers()};
  replica.optimizer.insert("momentum", share_momentum(optimizer, replica.weights.params));

  const auto strategy = strategies::make_hsadmm(replica, ranks, hsadmm_options());

  for (int64_t step = 1; step <= kSteps; ++step) {
    const auto [images, labels] = draw_batch(random);
    optimizer.zero_grad();
    const auto loss = torch::cross_entropy_loss(network->forward(images), labels);
    loss.backward();
    strategy->before_update(replica);
    train::add_local_terms(replica.weights, strategy->local_terms());
    optimizer.step();
    const auto exchange = strategy->after_update(replica, step);
    if (exchange.exchanged && prints) {
      std::printf("exchange %2ld  loss %.3f  channels kept %.0f %%%s\n", exchange.index, loss.item<double>(),
                  100 * exchange.keep, exchange.frozen ? ", final" : "");
    }
  }
  strategy->finish();
  torch::NoGradGuard no_grad;
  for (const auto& z : strategy->product().params)
    replica.weights.params[z.key()].copy_(z.value());  // all ranks' model
  for (const auto& z : strategy->product().buffers) replica.weights.buffers[z.key()].copy_(z.value());

  network->eval();
  const auto [images, labels] = draw_batch(random);
  const double accuracy = network->forward(images).argmax(1).eq(labels).to(at::kDouble).mean().item<double>();
  if (prints) {
    std::printf("accuracy %.1f %%, %ld of 48 channels kept, %.1f kB sent to the other node\n", 100 * accuracy,
                sparsity::count_alive(strategy->masks()), static_cast<double>(ranks.rail->traffic().bytes.sent) / 1e3);
  }
  ranks.world->barrier();
}

}  // namespace

int main() {
  if (const auto environment = prunex::comm::read_environment()) {
    auto ranks = prunex::comm::connect(*environment);
    train_rank(make_network(), ranks);
    return 0;
  }
  std::vector<torch::nn::Sequential> networks{make_network(), make_network()};
  prunex::comm::run_ranks(2, 1,
                          [&](prunex::comm::Hierarchy& ranks) { train_rank(networks[ranks.layout.rank], ranks); });
}
