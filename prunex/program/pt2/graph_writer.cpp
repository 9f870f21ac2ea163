#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "prunex/digest.h"
#include "prunex/program/pt2/format.h"

namespace prunex::program {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kBatch = "Symbol('s0', positive=True, integer=True)";

Json number(int64_t value) {
  return {{"as_int", value}};
}

Json number(const Extent& extent, int64_t batch) {
  if (!extent.per_image) return number(extent.factor);
  const auto text = extent.factor == 1 ? kBatch : fmt::format("Mul(Integer({}), {})", extent.factor, kBatch);
  return {{"as_expr", {{"expr_str", text}, {"hint", number(extent.factor * batch)}}}};
}

// Of a tensor of so many axes, from the innermost on.
std::vector<size_t> axes_of(size_t rank, at::MemoryFormat order) {
  std::vector<size_t> axes;
  const bool channels_last =
      rank == 4 ? order == at::MemoryFormat::ChannelsLast : rank == 5 && order == at::MemoryFormat::ChannelsLast3d;
  if (channels_last) axes.push_back(1);
  for (size_t axis = rank; axis-- > 0;) {
    if (!channels_last || axis != 1) axes.push_back(axis);
  }
  return axes;
}

/// `batch`: the hint, of a shape that has one.
Json tensor_meta(const Shape& shape, at::ScalarType dtype, bool requires_grad,
                 at::MemoryFormat order = at::MemoryFormat::Contiguous, int64_t batch = 0) {
  Json sizes = Json::array(), strides = Json::array();
  for (const auto& extent : shape) sizes.push_back(number(extent, batch));
  strides.get_ref<Json::array_t&>().resize(shape.size());
  Extent stride{1, false};
  for (const size_t axis : axes_of(shape.size(), order)) {
    strides[axis] = number(stride, batch);
    stride = {stride.factor * shape[axis].factor, stride.per_image || shape[axis].per_image};
  }
  return {{"dtype", code_of_dtype(dtype)},
          {"sizes", sizes},
          {"requires_grad", requires_grad},
          {"device", {{"type", "cpu"}, {"index", nullptr}}},
          {"strides", strides},
          {"storage_offset", number(0)},
          {"layout", kStridedLayout}};
}

Shape shape_of(const at::Tensor& tensor) {
  Shape shape;
  for (const auto size : tensor.sizes()) shape.push_back({size, false});
  return shape;
}

// "aten::add.Tensor" -> "torch.ops.aten.add.Tensor"
std::string write_target(const std::string& target) {
  constexpr std::string_view kOnSizes = "sym::";
  if (target.starts_with(kOnSizes)) return "_operator." + target.substr(kOnSizes.size());
  const auto colon = target.find("::");
  auto name = fmt::format("torch.ops.{}.{}", target.substr(0, colon), target.substr(colon + 2));
  return target.find('.') == std::string::npos ? name + ".default" : name;
}

const c10::FunctionSchema* find_schema(const std::string& target) {
  const auto dot = target.find('.');
  const auto overload = dot == std::string::npos ? "" : target.substr(dot + 1);
  const auto handle = c10::Dispatcher::singleton().findSchema({target.substr(0, dot), overload});
  return handle ? &handle->schema() : nullptr;
}

class GraphWriter {
 public:
  GraphWriter(const Graph& graph, const Weights& weights)
      : graph_(graph),
        weights_(weights),
        metadata_(graph.metadata.empty() ? Json::object() : Json::parse(graph.metadata)) {}

  Json write() {
    for (const auto role : {Role::kParameter, Role::kBuffer, Role::kConstant}) write_weights(role);
    for (const auto id : graph_.inputs) write_input(graph_.values[id]);
    for (const auto& node : graph_.nodes) nodes_.push_back(write_node(node));
    write_outputs();
    return document();
  }

 private:
  /// Those that are no tensors stand where they stood.
  void write_outputs() {
    for (const auto id : graph_.outputs) outputs_.push_back({{"as_tensor", {{"name", graph_.values[id].name}}}});
    for (const auto& other : metadata_.value("other_outputs", Json::array())) {
      const auto place = std::min(other.at(0).get<size_t>(), outputs_.size());
      outputs_.insert(outputs_.begin() + static_cast<std::ptrdiff_t>(place), other.at(1));
    }
    for (const auto& output : outputs_) output_specs_.push_back({{"user_output", {{"arg", output}}}});
  }

  const at::Tensor& find_tensor(const Value& value) const {
    const auto& name = graph_.owner(value.weight);
    if (value.role == Role::kConstant) return graph_.constants.at(name);
    const auto* tensor = (value.role == Role::kParameter ? weights_.params : weights_.buffers).find(name);
    if (!tensor) throw std::invalid_argument(fmt::format("the weights lack '{}'", name));
    return *tensor;
  }

  void write_weights(Role role) {
    for (const auto& value : graph_.values) {
      if (value.role != role) continue;
      const auto& tensor = find_tensor(value);
      const auto shape = shape_of(tensor);
      if (shape != value.shape) {
        throw std::invalid_argument(fmt::format("'{}' is {}, but the graph records another shape", value.weight,
                                                fmt::join(tensor.sizes(), "x")));
      }
      tensor_values_[value.name] = tensor_meta(shape, tensor.scalar_type(), tensor.requires_grad());
      inputs_.push_back({{"as_tensor", {{"name", value.name}}}});
      input_specs_.push_back(weight_spec(value));
    }
  }

  static Json weight_spec(const Value& value) {
    const Json arg{{"name", value.name}};
    if (value.role == Role::kParameter) return {{"parameter", {{"arg", arg}, {"parameter_name", value.weight}}}};
    if (value.role == Role::kConstant) {
      return {{"tensor_constant", {{"arg", arg}, {"tensor_constant_name", value.weight}}}};
    }
    return {{"buffer", {{"arg", arg}, {"buffer_name", value.weight}, {"persistent", true}}}};
  }

  void write_input(const Value& value) {
    const Json tensor{{"as_tensor", {{"name", value.name}}}};
    tensor_values_[value.name] =  // as the sample lies
        tensor_meta(value.shape, value.dtype, false, at::MemoryFormat::Contiguous, sample_batch(graph_));
    inputs_.push_back(tensor);
    input_specs_.push_back({{"user_input", {{"arg", tensor}}}});
  }

  Json write_node(const Node& node) {
    const auto* schema = node.target.starts_with("sym::") ? nullptr : find_schema(node.target);
    const auto metadata =
        node.metadata.empty() ? Json{{"nn_module_stack", "L__self__,,torch.nn.Module"}} : Json::parse(node.metadata);
    Json result{{"target", write_target(node.target)},
                {"inputs", write_arguments(node, schema)},
                {"outputs", write_node_outputs(node)},
                {"metadata", metadata},
                {"is_hop_single_tensor_return", nullptr}};
    const bool single = node.outputs.size() == 1 && !node.output_is_list;
    if (single && node.outputs[0] != kNoValue) result["name"] = graph_.values.at(node.outputs[0]).name;
    return result;
  }

  // Arguments in the schema's order; by position until the first that is left out or must be named.
  Json write_arguments(const Node& node, const c10::FunctionSchema* schema) const {
    constexpr int kPositional = 1, kKeyword = 2;
    Json inputs = Json::array();
    const auto add = [&](const Argument& argument, const c10::Argument* formal, bool by_position) {
      inputs.push_back({{"name", argument.name},
                        {"arg", write_argument(graph_, argument, formal)},
                        {"kind", by_position ? kPositional : kKeyword}});
    };
    if (!schema) {
      for (const auto& argument : node.arguments) add(argument, nullptr, true);
      return inputs;
    }
    bool by_position = true;
    for (const auto& formal : schema->arguments()) {
      const auto* argument = node.find(formal.name());
      by_position = by_position && argument && !formal.kwarg_only();
      if (argument) add(*argument, &formal, by_position);
    }
    return inputs;
  }

  Json write_node_outputs(const Node& node) {
    if (node.outputs.size() == 1 && !node.output_is_list)
      return Json::array({write_node_output(node.outputs[0], unused_name(0))});
    Json outputs = Json::array();
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      auto output = write_node_output(node.outputs[i], unused_name(i));
      outputs.push_back(node.output_is_list ? output.at("as_tensor") : output);
    }
    if (!node.output_is_list) return outputs;
    return Json::array({{{"as_tensors", outputs}}});
  }

  std::string unused_name(size_t output) const { return fmt::format("node_{}_unused_{}", nodes_.size(), output); }

  Json write_node_output(ValueId id, const std::string& unused) {
    if (id == kNoValue) {  // no name in the graph, but PyTorch looks its shape up
      tensor_values_[unused] = tensor_meta({}, at::kFloat, false);
      return {{"as_tensor", {{"name", unused}}}};
    }
    const auto& value = graph_.values.at(id);
    if (value.role == Role::kSymInt) {
      sym_int_values_[value.name] = number(value.number, sample_batch(graph_));
      return {{"as_sym_int", {{"as_name", value.name}}}};
    }
    tensor_values_[value.name] = tensor_meta(value.shape, value.dtype, false, value.order, sample_batch(graph_));
    return {{"as_tensor", {{"name", value.name}}}};
  }

  Json document() const {
    const Json graph{{"inputs", inputs_},
                     {"outputs", outputs_},
                     {"nodes", nodes_},
                     {"tensor_values", tensor_values_},
                     {"sym_int_values", sym_int_values_},
                     {"sym_bool_values", Json::object()}};
    const Json module{{"graph", graph},
                      {"signature", {{"input_specs", input_specs_}, {"output_specs", output_specs_}}},
                      {"module_call_graph", call_graph()},
                      {"metadata", Json::object()},
                      {"treespec_namedtuple_fields", metadata_.value("treespec_namedtuple_fields", Json::object())}};
    Json constraints = Json::object();
    const bool fixed = !graph_.inputs.empty() && !graph_.values[graph_.inputs[0]].shape.empty() &&
                       !graph_.values[graph_.inputs[0]].shape[0].per_image;
    const Json most = graph_.most_images > 0 ? Json(graph_.most_images) : Json(nullptr);
    if (!fixed) constraints["s0"] = {{"min_val", std::max<int64_t>(1, graph_.fewest_images)}, {"max_val", most}};
    return {{"graph_module", module},
            {"opset_version", {{"aten", 10}}},
            {"range_constraints", constraints},
            {"schema_version", {{"major", 8}, {"minor", 17}}},
            {"verifiers", Json::array({"TRAINING"})},
            {"torch_version", "2.11.0"},
            {"guards_code", Json::array()}};
  }

  static Json leaf() { return {{"type", nullptr}, {"context", nullptr}, {"children_spec", Json::array()}}; }

  static Json tuple(size_t leaves) {
    Json children = Json::array();
    for (size_t i = 0; i < leaves; ++i) children.push_back(leaf());
    return {{"type", "builtins.tuple"}, {"context", "null"}, {"children_spec", children}};
  }

  // A structure is stored as text: its version, then its tree.
  static std::string structure(const Json& tree) { return Json::array({1, tree}).dump(); }

  Json call_graph() const {
    const Json keywords{{"type", "builtins.dict"}, {"context", "[]"}, {"children_spec", Json::array()}};
    Json in = tuple(0);
    in["children_spec"] = Json::array({tuple(graph_.inputs.size()), keywords});
    const Json out = graph_.outputs.size() == 1 ? leaf() : tuple(graph_.outputs.size());
    Json names = Json::array();
    for (const auto id : graph_.inputs) names.push_back(graph_.values[id].name);
    const Json signature{{"inputs", Json::array()},
                         {"outputs", Json::array()},
                         {"in_spec", metadata_.value("in_spec", structure(in))},
                         {"out_spec", metadata_.value("out_spec", structure(out))},
                         {"forward_arg_names", metadata_.value("forward_arg_names", names)}};
    Json calls = Json::array({{{"fqn", ""}, {"signature", signature}}});
    for (const auto& name : metadata_.value("modules", Json::array())) {
      calls.push_back({{"fqn", name}, {"signature", nullptr}});
    }
    return calls;
  }

  const Graph& graph_;
  const Weights& weights_;
  const Json metadata_;
  Json inputs_ = Json::array(), outputs_ = Json::array(), nodes_ = Json::array();
  Json input_specs_ = Json::array(), output_specs_ = Json::array();
  Json tensor_values_ = Json::object(), sym_int_values_ = Json::object();
};

}  // namespace

nlohmann::ordered_json write_graph(const Graph& graph, const Weights& weights) {
  return GraphWriter(graph, weights).write();
}

uint64_t checksum(const Graph& graph) {
  Graph plain = graph;
  plain.metadata.clear();
  for (auto& node : plain.nodes) node.metadata.clear();
  Digest digest;
  const std::string text = write_graph(plain, zero_weights(plain)).dump();
  digest.add(text.data(), text.size());
  for (const auto& [name, constant] : plain.constants) {
    const at::Tensor dense = constant.detach().cpu().contiguous();
    digest.add(dense.const_data_ptr(), dense.nbytes());
  }
  return digest.value();
}

nlohmann::ordered_json write_tensor_meta(const at::Tensor& tensor) {
  return tensor_meta(shape_of(tensor), tensor.scalar_type(), tensor.requires_grad());
}

}  // namespace prunex::program
