#include "tests/program/graphs.h"

#include <ATen/ATen.h>

namespace prunex::program {

ValueId add_value(Graph& graph, Value value) {
  graph.values.push_back(std::move(value));
  return static_cast<ValueId>(graph.values.size() - 1);
}

ValueId add_node(Graph& graph, const std::string& target, std::vector<Argument> arguments, const std::string& output) {
  const auto id = add_value(graph, {.name = output});
  graph.nodes.push_back({.target = target, .arguments = std::move(arguments), .outputs = {id}});
  return id;
}

Argument literal(const std::string& name, c10::IValue value) {
  return {.name = name, .literal = std::move(value)};
}

Argument value(const std::string& name, ValueId id) {
  return {.name = name, .kind = Argument::Kind::kValue, .values = {id}};
}

Argument values(const std::string& name, std::vector<ValueId> ids) {
  return {.name = name, .kind = Argument::Kind::kValues, .values = std::move(ids)};
}

ValueId add_size(Graph& graph, const std::string& target, std::vector<Argument> arguments) {
  const auto id = add_node(graph, target, std::move(arguments), "size_" + std::to_string(graph.values.size()));
  graph.values[id].role = Role::kSymInt;
  return id;
}

Graph rows_graph(int64_t columns) {
  Graph graph;
  graph.inputs = {add_value(graph, {.name = "x", .role = Role::kInput, .shape = {{1, true}, {columns}}})};
  return graph;
}

namespace {

ValueId weight(Graph& graph, const std::string& name, Shape shape) {
  auto id =
      add_value(graph, {.name = "p_" + name, .role = Role::kParameter, .weight = name, .shape = std::move(shape)});
  std::replace(graph.values[id].name.begin(), graph.values[id].name.end(), '.', '_');
  return id;
}

ValueId buffer(Graph& graph, const std::string& name, Shape shape, at::ScalarType dtype = at::kFloat) {
  const auto id = weight(graph, name, std::move(shape));
  graph.values[id].role = Role::kBuffer;
  graph.values[id].dtype = dtype;
  graph.values[id].name[0] = 'b';
  return id;
}

}  // namespace

Graph small_graph() {
  Graph graph;
  const auto kernel = weight(graph, "conv.weight", {{4}, {2}, {3}, {3}});
  const auto gamma = weight(graph, "bn.weight", {{4}}), beta = weight(graph, "bn.bias", {{4}});
  const auto matrix = weight(graph, "fc.weight", {{3}, {4}}), bias = weight(graph, "fc.bias", {{3}});
  const auto mean = buffer(graph, "bn.running_mean", {{4}}), var = buffer(graph, "bn.running_var", {{4}});
  const auto count = buffer(graph, "bn.num_batches_tracked", {}, at::kLong);
  const auto x = add_value(graph, {.name = "x", .role = Role::kInput, .shape = {{1, true}, {2}, {5}, {5}}});
  graph.inputs = {x};
  const Shape maps{{1, true}, {4}, {5}, {5}};
  auto conv =
      add_node(graph, "aten::conv2d",
               {value("input", x), value("weight", kernel), literal("padding", std::vector<int64_t>{1, 1})}, "conv");
  auto counted = add_node(graph, "aten::add_.Tensor", {value("self", count), literal("other", 1)}, "add_");
  auto norm = add_node(graph, "aten::batch_norm",
                       {value("input", conv), value("weight", gamma), value("bias", beta), value("running_mean", mean),
                        value("running_var", var), literal("training", true), literal("momentum", 0.1),
                        literal("eps", 1e-5), literal("cudnn_enabled", false)},
                       "norm");
  auto relu = add_node(graph, "aten::relu_", {value("self", norm)}, "relu");
  auto pooled =
      add_node(graph, "aten::mean.dim", {value("self", relu), literal("dim", std::vector<int64_t>{2, 3})}, "mean");
  auto y =
      add_node(graph, "aten::linear", {value("input", pooled), value("weight", matrix), value("bias", bias)}, "linear");
  for (const auto id : {conv, norm, relu}) graph.values[id].shape = maps;
  graph.values[counted].dtype = at::kLong;
  graph.values[pooled].shape = {{1, true}, {4}};
  graph.values[y].shape = {{1, true}, {3}};
  graph.outputs = {y};
  return graph;
}

Weights small_weights() {
  Weights weights;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    weights.params.insert(name, tensor.set_requires_grad(true));
  };
  add("conv.weight", at::randn({4, 2, 3, 3}));
  add("bn.weight", at::rand({4}) + 0.5);
  add("bn.bias", at::randn({4}));
  add("fc.weight", at::randn({3, 4}));
  add("fc.bias", at::randn({3}));
  weights.buffers.insert("bn.running_mean", at::randn({4}));
  weights.buffers.insert("bn.running_var", at::rand({4}) + 0.5);
  weights.buffers.insert("bn.num_batches_tracked", at::zeros({}, at::kLong));
  return weights;
}

Weights clone(const Weights& weights) {
  Weights copy;
  for (const auto& item : weights.params) {
    copy.params.insert(item.key(), item.value().detach().clone().set_requires_grad(true));
  }
  for (const auto& item : weights.buffers) copy.buffers.insert(item.key(), item.value().clone());
  return copy;
}

at::Tensor small_by_hand(const at::Tensor& x, Weights& weights, bool training) {
  auto& p = weights.params;
  auto& b = weights.buffers;
  if (training) b["bn.num_batches_tracked"] += 1;
  auto y = at::conv2d(x, p["conv.weight"], {}, 1, 1);
  y = at::relu(at::batch_norm(y, p["bn.weight"], p["bn.bias"], b["bn.running_mean"], b["bn.running_var"], training, 0.1,
                              1e-5, false));
  return at::linear(y.mean({2, 3}), p["fc.weight"], p["fc.bias"]);
}

}  // namespace prunex::program
