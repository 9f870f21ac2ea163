#include "prunex/train/network.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "prunex/channels/analysis.h"
#include "prunex/io/safetensors.h"
#include "prunex/models/models.h"
#include "prunex/program/program.h"
#include "prunex/program/pt2.h"
#include "prunex/sparsity/projection.h"
#include "prunex/text/json.h"
#include "prunex/text/read_file.h"
#include "prunex/train/remarks.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

constexpr int64_t kLargestStructure = 64 << 20;  // bytes

program::Model named_model(const TrainOptions& options, const data::Dataset& training) {
  if (options.model.ends_with(".pt2")) return program::read_pt2(options.model, options.max_model_size << 20);
  const auto shape = training.image_shape();
  return models::make_model(options.model, {.classes = training.classes,
                                            .channels = shape[0],
                                            .height = shape[1],
                                            .width = shape[2],
                                            .multiplier = options.width,
                                            .norm = options.norm,
                                            .seed = options.seed});
}

/// He's initialisation of the kernels that are left: their standard deviation goes with the filters that there are.
void rescale_kernels(TensorDict& params, const sparsity::Cut& cut) {
  const at::NoGradGuard no_grad;
  for (auto& theta : params) {
    const auto before = static_cast<double>(cut.tensors.at(theta.key()).shape.at(0));
    if (theta.value().dim() == 4) theta.value().mul_(std::sqrt(before / static_cast<double>(theta.value().size(0))));
  }
}

/// The network as narrow as the product of the run that wrote the file, with fresh weights.
program::Model narrowed(program::Model model, const std::string& path) {
  const Structure structure = parse_structure(text::read_file(path, kLargestStructure));
  const sparsity::Cut& cut = structure.cut;
  for (const auto& [name, shape] : sparsity::shapes_of(model.weights)) {
    const auto kept = cut.tensors.find(name);
    if (kept != cut.tensors.end() && kept->second.shape == shape) continue;
    throw std::invalid_argument(
        fmt::format("of another network: '{}' is [{}] in this one", name, fmt::join(shape, ", ")));
  }
  if (cut.empty()) throw std::invalid_argument("nothing was cut there: without `widths` the network is the same");
  model.program = channels::cut_program(channels::Analysis(model.program, structure.groups), cut);
  sparsity::apply_cut(model.weights, cut);
  rescale_kernels(model.weights.params, cut);
  return model;
}

/// Of images that the network has more outputs for than classes.
std::string width_remark(const program::Graph& graph, const data::Dataset& dataset, const std::string& source) {
  const int64_t outputs = graph.values[graph.outputs.front()].shape.back().factor;
  if (outputs == dataset.classes) return "";
  return fmt::format("{}: it has {} outputs, {} has {} classes: none stands for output {}{}", source, outputs,
                     dataset.name, dataset.classes, dataset.classes,
                     outputs > dataset.classes + 1 ? fmt::format(" … {}", outputs - 1) : "");
}

/// Calls `make`, whose errors get a name.
template <class Make>
auto about(const std::string& source, const Make& make) {
  try {
    return make();
  } catch (const c10::Error& error) {
    throw std::invalid_argument(fmt::format("{}: {}", source, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw std::invalid_argument(fmt::format("{}: {}", source, text::reason(error)));
  }
}

std::vector<int64_t> sizes_after_batch(const program::Shape& shape) {
  std::vector<int64_t> sizes;
  for (size_t d = 1; d < shape.size(); ++d) sizes.push_back(shape[d].factor);
  return sizes;
}

/// Local steps and exchanges are in fp32.
void expect_floats(const Weights& weights, const std::string& source) {
  for (const auto& theta : weights.params) {
    const auto type = theta.value().scalar_type();
    if (type == at::kFloat) continue;
    throw std::invalid_argument(
        fmt::format("{}: parameter {} is {}, wanted Float", source, theta.key(), at::toString(type)));
  }
}

/// Leaves of autograd; all state is made after their likeness.
void make_trainable(Weights& weights) {
  for (auto& item : weights.params) {
    item.value() = in_fast_layout(item.value()).set_requires_grad(true);
  }
}

/// A file may say that parameters are frozen; make_trainable() does not ask.
std::string unfreezing_remark(const Weights& weights, const std::string& source) {
  std::vector<std::string> frozen;
  for (const auto& theta : weights.params) {
    if (!theta.value().requires_grad()) frozen.push_back(theta.key());
  }
  if (frozen.empty()) return "";
  return fmt::format("{}: frozen in the file (requires_grad is False), but trained: {}", source, some_of(frozen));
}

std::string cut_remark(const channels::Analysis& analysis, const TrainOptions& options, const std::string& source) {
  const std::string words = group_words(options);
  const bool masks_nothing = words != "none" && groups_to_prune(analysis, options).empty();
  if (!masks_nothing && !options.pruning.any()) return "";
  const std::string why = nothing_to_cut(analysis, source);
  if (!why.empty() || !masks_nothing) return why;
  return fmt::format("{}: nothing can be cut: `groups` {} finds no channels in it", source, words);
}

}  // namespace

void check_fits(const program::Graph& graph, const data::Dataset& dataset, const std::string& source) {
  if (graph.inputs.size() != 1) {
    throw std::invalid_argument(
        fmt::format("{}: takes {} inputs, wanted one image batch", source, graph.inputs.size()));
  }
  const auto& input = graph.values[graph.inputs.front()];
  if (input.dtype != at::kFloat) {
    throw std::invalid_argument(fmt::format("{}: its input is {}, wanted Float", source, at::toString(input.dtype)));
  }
  const auto wanted = dataset.image_shape();
  if (input.shape.size() != 4 || sizes_after_batch(input.shape) != wanted) {
    const int64_t size = image_size_of(graph);  // of streamed images it can be chosen, and the colours cannot
    const bool can_be_had = dataset.is_streamed() && size > 0 && input.shape[1].factor == wanted[0];
    throw std::invalid_argument(fmt::format("{}: its input is [batch, {}], the images of {} are [batch, {}]{}", source,
                                            fmt::join(sizes_after_batch(input.shape), ", "), dataset.name,
                                            fmt::join(wanted, ", "),
                                            can_be_had ? fmt::format("; wanted `image_size` {}", size) : ""));
  }
  const auto logits = sizes_after_batch(graph.values[graph.outputs.front()].shape);
  if (logits.size() != 1 || logits[0] < dataset.classes) {
    throw std::invalid_argument(fmt::format("{}: its output is [batch, {}], {} has {} classes", source,
                                            fmt::join(logits, ", "), dataset.name, dataset.classes));
  }
}

int64_t image_size_of(const program::Graph& graph) {
  if (graph.inputs.size() != 1) return 0;
  const auto sizes = sizes_after_batch(graph.values[graph.inputs.front()].shape);
  return sizes.size() == 3 && sizes[1] == sizes[2] ? sizes[1] : 0;
}

at::Tensor in_fast_layout(const at::Tensor& weight) {
  const at::Tensor theta = weight.detach();
  return theta.dim() == 4 ? theta.contiguous(at::MemoryFormat::ChannelsLast) : theta;
}

namespace {

/// Under the tensor's own name or another one of weights that are tied, of which files have one or all.
const at::Tensor& stored_of(const io::SafeTensors& file, const std::string& name,
                            const std::map<std::string, std::string>& aliases, const std::string& path) {
  const at::Tensor* stored = file.tensors.find(name);
  for (const auto& [alias, owner] : aliases) {
    const at::Tensor* other = owner == name ? file.tensors.find(alias) : nullptr;
    const bool both = stored != nullptr && other != nullptr;
    if (both && (stored->scalar_type() != other->scalar_type() || !at::equal(*stored, *other))) {
      throw std::invalid_argument(
          fmt::format("`weights` {}: '{}' and '{}' differ, and are one tensor in the model", path, name, alias));
    }
    if (stored == nullptr) stored = other;
  }
  return stored != nullptr ? *stored : io::tensor_of(file, name, path);
}

}  // namespace

void load_weights(Weights& weights, const std::string& path, const std::map<std::string, std::string>& aliases) {
  const auto file = io::read_safetensors(path);
  at::NoGradGuard no_grad;
  for (TensorDict* tensors : {&weights.params, &weights.buffers}) {
    for (auto& item : *tensors) {
      const at::Tensor& stored = stored_of(file, item.key(), aliases, path);
      if (stored.sizes() != item.value().sizes()) {
        throw std::invalid_argument(fmt::format("`weights` {}: '{}' has shape [{}], the model wants [{}]", path,
                                                item.key(), fmt::join(stored.sizes(), ", "),
                                                fmt::join(item.value().sizes(), ", ")));
      }
      item.value().copy_(stored);
    }
  }
  for (const auto& stored : file.tensors) {
    if (weights.params.find(stored.key()) == nullptr && weights.buffers.find(stored.key()) == nullptr &&
        !aliases.contains(stored.key())) {
      throw std::invalid_argument(fmt::format("`weights` {}: the model has no tensor '{}'", path, stored.key()));
    }
  }
}

Network load_network(const TrainOptions& options, const data::Dataset& training) {
  const std::string source = "`model` " + options.model;
  program::Model model = named_model(options, training);
  if (!options.widths.empty()) {
    model = about("`widths` " + options.widths, [&] { return narrowed(std::move(model), options.widths); });
  }
  check_fits(model.program.graph(), training, source);
  expect_floats(model.weights, source);
  model.program.graph().expect_batch("`batch_size`", options.batch_size);
  if (options.model.ends_with(".pt2")) {  // channels are found by what a file says of shapes
    about(source, [&] { program::check_shapes(model.program); });
  }
  if (!options.weights.empty()) load_weights(model.weights, options.weights, model.program.graph().aliases);
  channels::Analysis analysis(model.program, {.heads = options.heads});
  if (options.heads) expect_heads(analysis, source);
  std::vector<std::string> remarks{unfreezing_remark(model.weights, source), cut_remark(analysis, options, source)};
  remarks.push_back(mask_remark(analysis, group_words(options), source));
  remarks.push_back(width_remark(model.program.graph(), training, source));
  make_trainable(model.weights);
  for (auto& remark : training_remarks(model, source)) remarks.push_back(std::move(remark));
  std::erase(remarks, "");
  return {std::move(model), std::move(analysis), std::move(remarks)};
}

namespace {

sparsity::Cut cut_of_nothing(const TrainedNetwork& network) {
  const auto& groups = network.analysis().removable();
  return sparsity::make_cut(groups, sparsity::full_masks(groups), sparsity::shapes_of(network.replica().weights));
}

}  // namespace

TrainedNetwork::TrainedNetwork(program::Model model, channels::Analysis analysis, Optimizer optimizer)
    : program_(std::move(model.program)),
      group_options_(analysis.options()),
      analysis_(std::move(analysis)),
      replica_{model.weights, fresh_state(model.weights.params, optimizer)},
      size_(size_of(graph(), replica_.weights)) {}

const channels::Analysis& TrainedNetwork::analysis() const {
  if (!analysis_) analysis_.emplace(program_, group_options_);
  return *analysis_;
}

program::Model TrainedNetwork::compact(const Weights& product, const sparsity::Cut& cut) const {
  return is_smaller() ? program::Model{program_, product} : without(cut, product);
}

program::Model TrainedNetwork::without(const sparsity::Cut& step, const Weights& weights) const {
  Weights small = weights;
  sparsity::apply_cut(small, step);
  return {channels::cut_program(analysis(), step), small};
}

void TrainedNetwork::cut(const sparsity::Cut& step) {
  if (!total_) total_ = cut_of_nothing(*this);
  if (step.empty()) return;
  program_ = channels::cut_program(analysis(), step);
  analysis_.reset();
  sparsity::apply_cut(replica_.weights, step);
  for (auto& state : replica_.optimizer) sparsity::apply_cut(state.value(), step);
  total_ = sparsity::compose(*total_, step);
  size_ = size_of(graph(), replica_.weights);
}

}  // namespace prunex::train
