#include "prunex/train/pruning/evidence.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "prunex/channels/roles.h"
#include "prunex/data/load.h"
#include "prunex/program/macs.h"
#include "prunex/strategies/dictionaries.h"
#include "prunex/train/batches.h"

namespace prunex::train {
namespace {

using data::Batch;
using data::Dataset;
using program::Graph;
using program::Mode;
using program::Model;
using program::Node;
using program::Program;
using program::ValueId;
using prune::Criterion;

constexpr int64_t kBatch = 64;

/// Leaves of autograd of their own over the same memory.
Weights with_gradients(const Weights& weights) {
  Weights leaves = weights;
  for (auto& item : leaves.params) {
    item.value() = item.value().detach();
    if (item.value().is_floating_point()) item.value().set_requires_grad(true);
  }
  return leaves;
}

/// Leaves the gradients of the summed loss in `leaves`.
void backward(const Program& program, Weights& leaves, const at::Tensor& images, const at::Tensor& labels) {
  for (auto& item : leaves.params) item.value().mutable_grad().reset();
  const at::Tensor logits = program.run({images}, leaves, Mode::kEval).front();
  at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum).backward();
}

void add_gradients(TensorDict& sums, const Weights& leaves, bool squared) {
  const at::NoGradGuard no_grad;
  for (const auto& item : leaves.params) {
    const at::Tensor& gradient = item.value().grad();
    if (gradient.defined()) sums[item.key()].add_(squared ? gradient.square() : gradient);
  }
}

TensorDict gradient_sums(const Model& model, const Dataset& dataset, const comm::Range& part) {
  Weights leaves = with_gradients(model.weights);
  TensorDict sums = strategies::zeros_like(strategies::detached(model.weights.params));
  for (const comm::Range& images : batches_of(part, model.program.graph(), kBatch)) {
    const Batch batch = batch_for(leaves, dataset, images);
    backward(model.program, leaves, batch.images, batch.labels);
    add_gradients(sums, leaves, false);
  }
  return sums;
}

/// A label that the model itself would give the image, drawn by its number and the seed.
at::Tensor drawn_label(const Model& model, const at::Tensor& image, uint64_t seed, int64_t number) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits = model.program.run({image}, model.weights, Mode::kEval).front();
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed ^ (0x9e3779b97f4a7c15 * (number + 1)));
  return at::multinomial(logits.softmax(1).cpu(), 1, false, generator).flatten().to(logits.device());
}

/// One image at a time: the square of a sum would be another number.
TensorDict square_sums(const Model& model, const Dataset& dataset, const comm::Range& part,
                       std::optional<uint64_t> seed) {
  Weights leaves = with_gradients(model.weights);
  TensorDict sums = strategies::zeros_like(strategies::detached(model.weights.params));
  for (int64_t number = part.begin; number < part.end; ++number) {
    const Batch image = batch_for(leaves, dataset, {number, number + 1});
    const at::Tensor label = !seed ? image.labels : drawn_label(model, image.images, *seed, number);
    backward(model.program, leaves, image.images, label);
    add_gradients(sums, leaves, true);
  }
  return sums;
}

/// A graph that gives out |x| of what its layers read, and the layers' weights in that order.
struct Exposed {
  Graph graph;
  std::vector<std::string> weights;
};

ValueId add_absolute(Graph& graph, std::vector<Node>& nodes, ValueId input) {
  const auto id = static_cast<ValueId>(graph.values.size());
  program::Value value = graph.values.at(input);
  value.name = fmt::format("layer_input_{}", id);
  value.role = program::Role::kComputed;
  graph.values.push_back(std::move(value));
  Node node{.target = "aten::abs"};
  node.arguments.push_back({.name = "self", .kind = program::Argument::Kind::kValue, .values = {input}});
  node.outputs = {id};
  nodes.push_back(std::move(node));
  return id;
}

Exposed exposed(const Graph& graph) {
  Exposed open{graph, {}};
  open.graph.nodes.clear();
  open.graph.outputs.clear();
  for (const Node& node : graph.nodes) {
    const auto* weight = node.find("weight");
    const bool is_parameter =
        weight != nullptr && graph.values.at(weight->values.at(0)).role == program::Role::kParameter;
    if (program::is_layer(node) && is_parameter) {
      open.graph.outputs.push_back(add_absolute(open.graph, open.graph.nodes, node.find("input")->values.at(0)));
      open.weights.push_back(graph.owner(graph.values.at(weight->values.at(0)).weight));
    }
    open.graph.nodes.push_back(node);
  }
  return open;
}

/// Mean over all but the channels, times the images, which need not be the first axis. Channels are axis 1 of images,
/// the last otherwise.
at::Tensor by_channel(const at::Tensor& input, int64_t weight_rank, int64_t images) {
  const at::Tensor rows = weight_rank > 2 ? input.flatten(2).transpose(1, 2).flatten(0, 1) : input.flatten(0, -2);
  return rows.sum(0).div_(static_cast<double>(rows.size(0)) / static_cast<double>(images));
}

TensorDict activation_sums(const Model& model, const Dataset& dataset, const comm::Range& part) {
  const at::NoGradGuard no_grad;
  const Exposed open = exposed(model.program.graph());
  const Program program(open.graph);
  const Weights& weights = model.weights;
  TensorDict sums;
  for (const comm::Range& images : batches_of(part, program.graph(), kBatch)) {
    const Batch batch = batch_for(weights, dataset, images);
    const auto inputs = program.run({batch.images}, weights, Mode::kEval);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const at::Tensor channels = by_channel(inputs[i], weights.params[open.weights[i]].dim(), images.size());
      at::Tensor* sum = sums.find(open.weights[i]);
      if (sum == nullptr) {
        sums.insert(open.weights[i], channels);
      } else {
        sum->add_(channels);
      }
    }
  }
  return sums;
}

TensorDict sums_of(Criterion criterion, const Model& model, const Dataset& dataset, const comm::Range& part,
                   uint64_t seed) {
  switch (criterion) {
    case Criterion::kTaylor:
      return gradient_sums(model, dataset, part);
    case Criterion::kHessian:
      return square_sums(model, dataset, part, std::nullopt);
    case Criterion::kObdc:
      return square_sums(model, dataset, part, seed);
    case Criterion::kActivation:
      return activation_sums(model, dataset, part);
    default:
      return TensorDict();
  }
}

/// Of the sizes that sums_of() has.
TensorDict some_evidence(Criterion criterion, const Graph& graph, const TensorDict& weights) {
  if (criterion != Criterion::kActivation) return strategies::zeros_like(weights);
  TensorDict inputs;
  const channels::WeightRoles roles = channels::weight_roles(graph);
  for (const std::string& name : exposed(graph).weights) {
    const channels::WeightRole& role = roles.at(name);
    if (role.out_axis < 0 || inputs.contains(name)) continue;
    inputs.insert(name, at::zeros({role.channels_read(weights[name].size(1 - role.out_axis))}));
  }
  return inputs;
}

}  // namespace

std::vector<prune::UnitScores> scores_without_data(prune::ImportanceOptions importance,
                                                   const std::vector<sparsity::Group>& groups, const Graph& graph) {
  const at::NoGradGuard no_grad;
  if (importance.criterion == Criterion::kFpgm) importance.criterion = Criterion::kMagnitude;  // all pairs take long
  const Weights weights = program::zero_weights(graph);
  TensorDict evidence;
  if (prune::needs_evidence(importance.criterion))
    evidence = some_evidence(importance.criterion, graph, weights.params);
  return prune::make_importance(importance, graph, std::move(evidence))->score(groups, weights);
}

Dataset evidence_images(const Dataset& training, int64_t samples) {
  return data::limited(training, std::min(samples, training.size()), "`importance_samples`");
}

void expect_image_for_each(int64_t ranks, int64_t images) {
  if (images >= ranks) return;
  throw std::invalid_argument(
      fmt::format("`importance_samples`: got {} images, wanted one for each of the {} ranks", images, ranks));
}

TensorDict collect_evidence(Criterion criterion, const Model& model, const Dataset& dataset, uint64_t seed,
                            comm::Communicator& world) {
  TORCH_CHECK(dataset.size() >= world.size(), "[train] evidence from ", dataset.size(), " images by ", world.size(),
              " ranks");
  TensorDict evidence = sums_of(criterion, model, dataset, images_of_rank(dataset, world), seed);
  for (auto& item : evidence) {
    world.all_reduce(item.value());
    item.value().div_(static_cast<double>(dataset.size()));
  }
  return evidence;
}

}  // namespace prunex::train
