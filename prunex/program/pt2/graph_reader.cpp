#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "prunex/program/operations.h"
#include "prunex/program/pt2/format.h"

namespace prunex::program {
namespace {

using nlohmann::json;

/// Outputs that are no tensors: constants, and sizes that nodes compute.
const std::unordered_set<std::string> kBesideTensors{"as_none", "as_int", "as_float", "as_bool", "as_sym_int"};

[[noreturn]] void refuse(const std::string& why) {
  throw std::invalid_argument(why);
}

void check_schema_version(const json& document) {
  constexpr int kMajor = 8;
  const auto& version = document.at("schema_version");
  const auto major = to_integer(version.at("major"));
  if (major == kMajor) return;
  refuse(fmt::format("is of schema version {}.{}, wanted {}: export it again with PyTorch 2.11", major,
                     version.contains("minor") ? to_integer(version["minor"]) : 0, kMajor));
}

// A graph of its own that runs as if it stood in the place of the node, as torch.no_grad() makes one.
constexpr std::string_view kSetsGradients = "torch.ops.higher_order.wrap_with_set_grad_enabled";

bool is_region(const std::string& target) {
  return target == kSetsGradients || target == "torch.ops.higher_order.wrap_with_autocast";
}

class GraphReader {
 public:
  GraphReader(const json& document, Batch batch, Maker maker)
      : fixed_allowed_(batch == Batch::kAny),
        trusted_(maker == Maker::kSelf),
        document_(document),
        module_(document.at("graph_module")),
        json_(&module_.at("graph")) {}

  Graph read() {
    const auto& specs = module_.at("signature").at("input_specs");
    check_output_kinds();
    for (const auto& spec : specs) find_batch(spec);
    if (batch_.empty() && !fixed_) refuse("has no tensor input");
    read_batch_sizes(document_.value("range_constraints", json::object()));
    for (const auto& spec : specs) read_input(spec);
    read_nodes();
    read_outputs();
    read_metadata();
    return std::move(graph_);
  }

 private:
  static std::string input_name(const json& spec) {
    const auto [kind, body] = to_tagged(spec);
    if (kind == "constant_input") {
      refuse(fmt::format(
          "input '{}' is a constant, wanted tensors only: export it without that one, and with those behind "
          "it by name",
          body.value("name", "?")));
    }
    if (kind != "user_input") refuse(fmt::format("has an input of kind '{}', which is not supported", kind));
    const auto& arg = body.at("arg");
    if (!arg.contains("as_tensor")) refuse("has an input that is not a tensor");
    return arg["as_tensor"].at("name").get<std::string>();
  }

  void find_batch(const json& spec) {
    if (!spec.contains("user_input")) return;
    const auto name = input_name(spec);
    const auto& sizes = json_->at("tensor_values").at(name).at("sizes");
    const bool fixed = sizes.empty() || sizes[0].contains("as_int");
    if (fixed && !(fixed_allowed_ && !sizes.empty() && batch_.empty())) refuse_fixed_batch(name, sizes);
    for (size_t axis = 1; axis < sizes.size(); ++axis) {
      if (!sizes[axis].contains("as_int")) {
        refuse(fmt::format("input '{}' is dynamic on axis {}; only the batch (axis 0) may be", name, axis));
      }
    }
    if (fixed) {
      fixed_ = true;
      return;
    }
    const auto expression = sizes[0].at("as_expr").at("expr_str").get<std::string>();
    const auto symbol = symbol_name(expression);
    if (fixed_ || !symbol || (!batch_.empty() && batch_ != *symbol)) {
      refuse(fmt::format("the batch of input '{}' is {}, wanted one symbol for all inputs", name, expression));
    }
    batch_ = *symbol;
  }

  // A lower bound of 2 is what exports assume of any axis, and torch.export allows 0 and 1 all the same.
  void read_batch_sizes(const json& constraints) {
    const auto range = constraints.find(batch_);
    if (range == constraints.end()) return;
    const auto bound = [&](const char* name) {
      return range->contains(name) && range->at(name).is_number_integer() ? to_integer(range->at(name)) : 0;
    };
    if (bound("min_val") > 2) graph_.fewest_images = bound("min_val");
    graph_.most_images = std::max<int64_t>(0, bound("max_val"));
  }

  [[noreturn]] static void refuse_fixed_batch(const std::string& name, const json& sizes) {
    const auto got =
        sizes.empty() ? std::string("no batch") : fmt::format("the fixed batch {}", to_integer(sizes[0]["as_int"]));
    refuse(
        fmt::format("input '{0}' has {1}; export with dynamic_shapes: torch.export.export(model, ({0},), "
                    "dynamic_shapes={{\"{0}\": {{0: torch.export.Dim(\"batch\")}}}})",
                    name, got));
  }

  void read_input(const json& spec) {
    const auto [kind, body] = to_tagged(spec);
    if (kind == "parameter") return read_weight(body, "parameter_name", Role::kParameter);
    if (kind == "tensor_constant") return read_weight(body, "tensor_constant_name", Role::kConstant);
    if (kind == "constant_input" && trusted_) return;
    // A buffer that the state dict does not hold is as good as a constant.
    if (kind == "buffer") {
      return read_weight(body, "buffer_name", body.value("persistent", true) ? Role::kBuffer : Role::kConstant);
    }
    graph_.inputs.push_back(add_tensor(input_name(spec), Role::kInput));
  }

  void read_weight(const json& body, const char* key, Role role) {
    const auto id = add_tensor(body.at("arg").at("name").get<std::string>(), role);
    const auto name = body.at(key).get<std::string>();
    check_name(name);
    if (!weights_.insert(name).second) refuse(fmt::format("weight or constant '{}' is an input twice", name));
    graph_.values[id].weight = name;
  }

  // Names are printed.
  static void check_name(const std::string& name) {
    const auto is_control = [](unsigned char c) { return std::iscntrl(c) != 0; };
    if (name.empty() || std::any_of(name.begin(), name.end(), is_control)) {
      refuse("has a value or weight whose name is empty or holds control characters");
    }
  }

  ValueId add(Value value) {
    check_name(value.name);
    const auto id = static_cast<ValueId>(graph_.values.size());
    bind(value.name, id);
    const std::string name = value.name;
    for (int copy = 1; !names_.insert(value.name).second; ++copy) value.name = fmt::format("{}_{}", name, copy);
    graph_.values.push_back(std::move(value));
    return id;
  }

  void bind(const std::string& name, ValueId id) {
    if (!ids_.emplace(name, id).second) refuse(fmt::format("value '{}' is defined twice", name));
  }

  ValueId add_tensor(const std::string& name, Role role) {
    const auto& meta = json_->at("tensor_values");
    if (!meta.contains(name)) refuse(fmt::format("value '{}' has no recorded shape", name));
    Value value{.name = name, .role = role};
    try {
      value.dtype = dtype_of_code(to_integer(meta[name].at("dtype")));
    } catch (const std::invalid_argument& error) {
      refuse(fmt::format("value '{}': {}", name, error.what()));
    }
    for (const auto& size : meta[name].at("sizes")) value.shape.push_back(read_extent(name, size));
    check_shape(value);
    value.order = order_of(value, meta[name]);
    return add(std::move(value));
  }

  // By the strides of the export.
  at::MemoryFormat order_of(const Value& value, const json& meta) const {
    const json strides = meta.value("strides", json::array());
    if (strides.empty() || lies_in_order(value, strides, {0, 1, 2, 3, 4})) return at::MemoryFormat::Contiguous;
    const size_t rank = value.shape.size();
    if (rank == 4 && lies_in_order(value, strides, {0, 2, 3, 1})) return at::MemoryFormat::ChannelsLast;
    if (rank == 5 && lies_in_order(value, strides, {0, 2, 3, 4, 1})) return at::MemoryFormat::ChannelsLast3d;
    return at::MemoryFormat::Preserve;
  }

  // `axes` from the outermost on, as many as there are and in their own order beyond these. Extents of 1 have any
  // stride.
  bool lies_in_order(const Value& value, const json& strides, std::vector<size_t> axes) const {
    while (axes.size() < value.shape.size()) axes.push_back(axes.size());
    axes.resize(value.shape.size());
    if (strides.size() != axes.size()) return false;
    Extent wanted{1, false};
    for (size_t i = axes.size(); i-- > 0;) {
      const size_t axis = axes[i];
      const Extent& extent = value.shape[axis];
      if (extent.factor == 1 && !extent.per_image) continue;
      if (extent_of(strides[axis]) != wanted) return false;
      wanted = {wanted.factor * extent.factor, wanted.per_image || extent.per_image};
    }
    return true;
  }

  // Extents are multiplied wherever costs are counted. Weights are held against their records.
  static void check_shape(const Value& value) {
    constexpr int64_t kMostElements = 1 << 28, kMostPositions = 1 << 24, kMostWeights = int64_t{1} << 40;
    const bool stored = value.role != Role::kInput && value.role != Role::kComputed;
    int64_t elements = 1;
    for (const auto& extent : value.shape) {
      if (extent.factor < 0) refuse(fmt::format("value '{}' has the size {}", value.name, extent.factor));
      const bool overflows = __builtin_mul_overflow(elements, std::max<int64_t>(extent.factor, 1), &elements);
      const bool small = elements <= kMostElements && extent.factor <= kMostPositions;
      if (!overflows && (stored ? elements <= kMostWeights : small)) continue;
      refuse(fmt::format("value '{}' is recorded with more than {} elements per image, or {} on an axis", value.name,
                         kMostElements, kMostPositions));
    }
  }

  static std::string expression_of(const json& size) { return size.at("as_expr").at("expr_str").get<std::string>(); }

  // Nothing if it is neither a number nor a multiple of the batch.
  std::optional<Extent> extent_of(const json& size) const {
    if (size.contains("as_int")) return Extent{to_integer(size["as_int"]), false};
    return parse_extent(expression_of(size), batch_);
  }

  Extent read_extent(const std::string& name, const json& size) const {
    if (const auto extent = extent_of(size)) return *extent;
    refuse(fmt::format("value '{}' has the size {}, wanted a number or a multiple of the batch {}", name,
                       expression_of(size), batch_));
  }

  void read_nodes() {
    for (const auto* node : needed_nodes(*json_)) read_node(*node);
  }

  void read_node(const json& item) {
    const auto target = item.at("target").get<std::string>();
    try {
      if (is_region(target)) return read_region(item, target);
      Node node{.target = read_target(target), .metadata = item.value("metadata", json::object()).dump()};
      for (const auto& input : item.at("inputs")) {
        node.arguments.push_back(read_argument(input, [this](const std::string& name) { return find(name); }));
      }
      if (!trusted_ || !operation_of(node.target).names.empty()) check_operation(graph_, node);
      node.unrecorded = unrecorded_;
      read_node_outputs(item.at("outputs"), node);
      if (node.outputs.empty()) refuse("has no output");
      graph_.nodes.push_back(std::move(node));
    } catch (const std::invalid_argument& error) {
      const auto name = item.contains("name") && item["name"].is_string() ? item["name"].get<std::string>() : "?";
      refuse(fmt::format("node {} ({}): {}", name, target, error.what()));
    }
  }

  // Its nodes stand where the node does that holds them. The names in it are its own.
  void read_region(const json& item, const std::string& target) {
    const auto& inputs = item.at("inputs");
    const auto is_graph = [](const json& input) { return input.at("arg").contains("as_graph"); };
    const auto held = std::find_if(inputs.begin(), inputs.end(), is_graph);
    if (held == inputs.end()) refuse("has no graph");
    const auto place = static_cast<size_t>(held - inputs.begin());
    const bool gradients = target != kSetsGradients;
    check_switches(inputs, place, gradients);
    const json& region = held->at("arg")["as_graph"].at("graph");
    std::unordered_map<std::string, ValueId> ids;
    const auto& formals = region.at("inputs");
    if (place + 1 + formals.size() != inputs.size()) refuse("its graph takes another number of inputs");
    for (size_t i = 0; i < formals.size(); ++i) {
      ids[reference(formals[i])] = find(reference(inputs[place + 1 + i].at("arg")));
    }
    const json* outside = std::exchange(json_, &region);
    const ValueId unrecorded =
        std::exchange(unrecorded_, gradients ? unrecorded_ : static_cast<ValueId>(graph_.values.size()));
    std::swap(ids_, ids);
    read_nodes();
    std::vector<ValueId> results;
    for (const auto& output : region.at("outputs")) results.push_back(find(reference(output)));
    std::swap(ids_, ids);
    unrecorded_ = unrecorded;
    json_ = outside;
    name_results(item, results, gradients);
  }

  // torch.export leaves out torch.enable_grad.
  static void check_switches(const json& inputs, size_t place, bool gradients) {
    if (place != (gradients ? 4 : 1)) refuse("has other arguments than its graph is behind");
    if (!inputs.at(gradients ? 2 : 0).at("arg").at("as_bool").get<bool>()) return;
    refuse(gradients ? "torch.autocast is not supported" : "torch.enable_grad is not supported");
  }

  // Of a tensor or a size.
  static std::string reference(const json& argument) {
    const auto [kind, body] = to_tagged(argument);
    if (kind == "as_sym_int") return body.at("as_name").get<std::string>();
    if (kind != "as_tensor") refuse(fmt::format("its graph has an input or output of kind '{}'", kind));
    return body.at("name").get<std::string>();
  }

  void name_results(const json& item, const std::vector<ValueId>& results, bool gradients) {
    std::vector<std::string> names;
    for (const auto& output : item.at("outputs")) {
      const auto [kind, body] = to_tagged(output);
      if (kind != "as_tensors") names.push_back(reference(output));
      for (const auto& tensor : kind == "as_tensors" ? body : json::array()) {
        names.push_back(tensor.at("name").get<std::string>());
      }
    }
    if (names.size() != results.size()) refuse("its graph has another number of outputs");
    for (size_t i = 0; i < names.size(); ++i) {
      const Value& result = graph_.values.at(results[i]);
      if (gradients || result.role == Role::kSymInt) {
        bind(names[i], results[i]);
      } else {
        Node node{.target = "aten::detach", .metadata = item.value("metadata", json::object()).dump()};
        node.arguments.push_back({.name = "self", .kind = Argument::Kind::kValue, .values = {results[i]}});
        node.outputs.push_back(add({.name = names[i],
                                    .role = Role::kComputed,
                                    .dtype = result.dtype,
                                    .shape = result.shape,
                                    .order = result.order}));
        graph_.nodes.push_back(std::move(node));
      }
    }
  }

  ValueId find(const std::string& name) const {
    const auto id = ids_.find(name);
    if (id == ids_.end()) refuse(fmt::format("value '{}' is not defined", name));
    return id->second;
  }

  void read_node_outputs(const json& outputs, Node& node) {
    for (const auto& output : outputs) {
      if (output.contains("as_tensor")) {
        node.outputs.push_back(output_tensor(output["as_tensor"], outputs.size() > 1));
      } else if (output.contains("as_tensors") && outputs.size() == 1) {
        node.output_is_list = true;
        for (const auto& tensor : output["as_tensors"]) node.outputs.push_back(output_tensor(tensor, true));
      } else if (output.contains("as_sym_int")) {
        node.outputs.push_back(add_number(output["as_sym_int"].at("as_name").get<std::string>()));
      } else if (!output.contains("as_none")) {
        refuse(fmt::format("its output of kind '{}' is not supported", to_tagged(output).tag));
      }
    }
  }

  // torch.export gives no shape to those of several outputs that nobody uses.
  ValueId output_tensor(const json& tensor, bool one_of_several) {
    const auto name = tensor.at("name").get<std::string>();
    if (one_of_several && !json_->at("tensor_values").contains(name)) return kNoValue;
    return add_tensor(name, Role::kComputed);
  }

  ValueId add_number(const std::string& name) {
    const auto number = read_extent(name, json_->at("sym_int_values").at(name));
    return add({.name = name, .role = Role::kSymInt, .dtype = at::kLong, .number = number});
  }

  void check_output_kinds() const {
    for (const auto& spec : module_.at("signature").at("output_specs")) {
      const auto& kind = to_tagged(spec).tag;
      if (kind.ends_with("_mutation")) {
        refuse(
            fmt::format("has an output of kind '{}': it was decomposed; save what torch.export.export returns", kind));
      }
      if (kind != "user_output") refuse(fmt::format("has an output of kind '{}', which is not supported", kind));
    }
  }

  /// As the graph has it.
  std::string name_of_size(const std::string& name) const {
    const Value& value = graph_.values[find(name)];
    if (value.role != Role::kSymInt) refuse(fmt::format("value '{}' is given out as a number, which it is not", name));
    return value.name;
  }

  void read_outputs() {
    const auto& specs = module_.at("signature").at("output_specs");
    for (const auto& spec : specs) {
      const auto& arg = to_tagged(spec).body.at("arg");
      const auto& kind = to_tagged(arg).tag;
      if (kind == "as_tensor") {
        graph_.outputs.push_back(find(arg["as_tensor"].at("name").get<std::string>()));
      } else if (kBesideTensors.contains(kind)) {
        json output = arg;
        if (kind == "as_sym_int") output[kind]["as_name"] = name_of_size(arg[kind].at("as_name").get<std::string>());
        other_outputs_.push_back({graph_.outputs.size() + other_outputs_.size(), output});
      } else {
        refuse(fmt::format(
            "gives out something {} that torch.export.load does not read: wanted tensors, numbers or None", kind));
      }
    }
    if (graph_.outputs.empty()) refuse("has no tensor output");
  }

  // What only other tools read: how inputs and outputs are nested, outputs that are no tensors, names of modules.
  void read_metadata() {
    json metadata = json::object();
    for (const auto& entry : module_.value("module_call_graph", json::array())) {
      const auto name = entry.at("fqn").get<std::string>();
      const bool root = name.empty() && entry.contains("signature") && entry["signature"].is_object();
      if (root) {
        const auto& signature = entry["signature"];
        if (signature.contains("in_spec")) metadata["in_spec"] = signature["in_spec"].get<std::string>();
        if (signature.contains("forward_arg_names") && signature["forward_arg_names"].is_array()) {
          metadata["forward_arg_names"] = signature["forward_arg_names"].get<std::vector<std::string>>();
        }
        metadata["out_spec"] = signature.at("out_spec");
        metadata["other_outputs"] = other_outputs_;
      }
      if (!name.empty()) metadata["modules"].push_back(name);
    }
    if (module_.contains("treespec_namedtuple_fields")) {
      metadata["treespec_namedtuple_fields"] = module_["treespec_namedtuple_fields"];
    }
    graph_.metadata = metadata.dump();
  }

  const bool fixed_allowed_, trusted_;
  bool fixed_ = false;
  const json& document_;
  const json& module_;
  const json* json_;  // the graph that is read
  Graph graph_;
  std::string batch_;                             // the symbol
  std::unordered_map<std::string, ValueId> ids_;  // in json_
  std::unordered_set<std::string> names_;         // of all values
  std::unordered_set<std::string> weights_;       // names of parameters, buffers and constants
  ValueId unrecorded_ = kNoValue;                 // in torch.no_grad: the first value that is made there
  json other_outputs_ = json::array();            // [its place, what it is]
};

}  // namespace

Graph read_graph(const json& document, Batch batch, Maker maker) {
  check_schema_version(document);
  return GraphReader(document, batch, maker).read();
}

}  // namespace prunex::program
