#include "prunex/program/measured_shapes.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "prunex/program/mode.h"

namespace prunex::program {
namespace {

constexpr std::array<int64_t, 2> kBatches{2, 3};

bool is_recurrent(const Node& node) {
  const auto starts = [&](const char* name) { return node.target.starts_with(name); };
  return starts("aten::lstm.") || starts("aten::gru.") || starts("aten::rnn_tanh.") || starts("aten::rnn_relu.");
}

/// The eval form of a graph, giving out every tensor that it computes.
Graph exposed(const Graph& graph) {
  Graph open = in_mode(graph, Mode::kEval);
  open.outputs.clear();
  for (const auto& node : open.nodes) {
    for (const auto output : node.outputs) {
      if (output != kNoValue && open.values[output].role == Role::kComputed) open.outputs.push_back(output);
    }
  }
  return open;
}

at::Tensor zeros(const Value& value, int64_t images) {
  std::vector<int64_t> sizes;
  for (const auto& extent : value.shape) sizes.push_back(extent.factor * (extent.per_image ? images : 1));
  return at::zeros(sizes, value.dtype);
}

std::vector<at::Tensor> run(const Program& program, Weights weights, int64_t images) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> inputs;
  for (const auto input : program.graph().inputs) inputs.push_back(zeros(program.graph().values[input], images));
  return program.run(inputs, weights, Mode::kEval);
}

Extent extent(const std::string& name, int64_t small, int64_t large) {
  if (small == large) return {small, false};
  if (small * kBatches[1] == large * kBatches[0]) return {small / kBatches[0], true};
  throw std::invalid_argument(fmt::format("value '{}' has {} positions for {} images and {} for {}", name, small,
                                          kBatches[0], large, kBatches[1]));
}

}  // namespace

bool records_wrong_shapes(const Graph& graph) {
  const auto rank = [&](ValueId value) { return graph.values[value].shape.size(); };
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    const auto* states = node.find("hx");
    if (!is_recurrent(node) || !states || states->values.empty() || node.outputs.empty()) return false;
    const auto wrong = [&](ValueId output) { return output != kNoValue && rank(output) != rank(states->values[0]); };
    return std::any_of(node.outputs.begin() + 1, node.outputs.end(), wrong);
  });
}

Graph with_measured_shapes(Graph graph, const Weights& weights) {
  const Program open(exposed(graph));
  const auto small = run(open, weights, kBatches[0]), large = run(open, weights, kBatches[1]);
  const auto& outputs = open.graph().outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto& value = graph.values[outputs[i]];
    value.shape.clear();
    for (int64_t axis = 0; axis < small[i].dim(); ++axis) {
      value.shape.push_back(extent(value.name, small[i].size(axis), large[i].size(axis)));
    }
  }
  return graph;
}

}  // namespace prunex::program
