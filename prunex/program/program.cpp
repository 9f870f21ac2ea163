#include "prunex/program/program.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

#include "prunex/program/compile.h"

namespace prunex::program {
namespace {

using c10::IValue;

// Ids are used as positions from here on.
Graph checked(Graph graph) {
  const auto check = [&](ValueId id, bool none_allowed) {
    const bool inside = id >= 0 && static_cast<size_t>(id) < graph.values.size();
    if (inside || (none_allowed && id == kNoValue)) return;
    throw std::invalid_argument(fmt::format("the graph names value {} of {}", id, graph.values.size()));
  };
  for (const auto id : graph.inputs) check(id, false);
  for (const auto id : graph.outputs) check(id, false);
  for (const auto& node : graph.nodes) {
    for (const auto id : node.outputs) check(id, true);
    for (const auto& argument : node.arguments) {
      const bool list = argument.kind == Argument::Kind::kValues || argument.kind == Argument::Kind::kInts;
      for (const auto id : argument.values) check(id, list);
    }
  }
  return graph;
}

// A graph input that run() finds by name.
struct Binding {
  ValueId slot;
  std::string name;
  size_t position;  // where it stands if Weights is in the graph's order
};

at::Tensor find_weight(const TensorDict& weights, const Binding& binding) {
  if (binding.position < weights.size()) {
    const auto& item = weights[binding.position];
    if (item.key() == binding.name) return item.value();
  }
  const auto* tensor = weights.find(binding.name);
  TORCH_CHECK(tensor, "[program] the weights lack '", binding.name, "'");
  return *tensor;
}

std::string to_text(const Shape& shape) {
  std::vector<std::string> extents;
  for (const auto& extent : shape) {
    const auto batch = extent.factor == 1 ? "B" : fmt::format("{}B", extent.factor);
    extents.push_back(extent.per_image ? batch : std::to_string(extent.factor));
  }
  return fmt::format("{}", fmt::join(extents, "x"));
}

void check_input(const Value& value, const at::Tensor& input) {
  bool fits = input.dim() == static_cast<int64_t>(value.shape.size());
  for (int64_t axis = 0; fits && axis < input.dim(); ++axis) {
    const auto& extent = value.shape[axis];
    fits = extent.per_image ? input.size(axis) % extent.factor == 0 : input.size(axis) == extent.factor;
  }
  TORCH_CHECK(value.shape.empty() || fits, "[program] input '", value.name, "' is ",
              fmt::format("{}", fmt::join(input.sizes(), "x")), ", wanted ", to_text(value.shape), " (B: batch)");
}

// One execution: the values that are alive, and the stack of the current call.
class Frame {
 public:
  Frame(size_t values, at::Device device) : slots_(values), device_(device) {}

  void set(ValueId slot, IValue value) { slots_[slot] = std::move(value); }
  at::Tensor tensor(ValueId slot) const { return slots_[slot].toTensor(); }

  void execute(const Call& call) {
    if (!call.arithmetic && !call.is_size) {
      stack_.clear();
      for (const auto& operand : call.operands) push(operand);
      if (call.guard) call.guard(stack_);
      if (call.detour) call.detour(stack_);
      call.operation->callBoxed(stack_);
      store(call);
    } else if (call.outputs[0] != kNoValue) {
      slots_[call.outputs[0]] = integer(call);
    }
    for (const auto slot : call.release) slots_[slot] = IValue();
  }

 private:
  void push(const Operand& operand) {
    switch (operand.kind) {
      case Operand::Kind::kLiteral:
        stack_.push_back(operand.literal);
        break;
      case Operand::Kind::kSlot:
        push_slot(slots_[operand.slots[0]], operand.last_use);
        break;
      case Operand::Kind::kNumber:
        stack_.emplace_back(at::native::wrapped_scalar_tensor(slots_[operand.slots[0]].toInt()));
        break;
      case Operand::Kind::kDevice:
        stack_.emplace_back(device_);
        break;
      default:
        push_list(operand);
    }
  }

  void push_slot(IValue& value, bool last_use) {
    if (last_use) {
      stack_.push_back(std::move(value));
    } else {
      stack_.push_back(value);
    }
  }

  void push_list(const Operand& operand) {
    if (operand.kind == Operand::Kind::kTensors) {
      c10::List<at::Tensor> list;
      for (const auto slot : operand.slots) list.push_back(tensor(slot));
      stack_.emplace_back(std::move(list));
    } else if (operand.kind == Operand::Kind::kOptionalTensors) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto slot : operand.slots)
        list.push_back(slot == kNoValue ? std::nullopt : std::optional(tensor(slot)));
      stack_.emplace_back(std::move(list));
    } else {
      c10::List<int64_t> list;
      for (size_t i = 0; i < operand.slots.size(); ++i) {
        list.push_back(operand.slots[i] == kNoValue ? operand.ints[i] : slots_[operand.slots[i]].toInt());
      }
      stack_.emplace_back(std::move(list));
    }
  }

  void store(const Call& call) {
    if (call.output_is_list) {
      const auto list = stack_.at(0).toTensorVector();
      TORCH_CHECK(list.size() == call.outputs.size(), "[program] got ", list.size(), " tensors, the graph has ",
                  call.outputs.size());
      for (size_t i = 0; i < list.size(); ++i) store(call.outputs[i], list[i]);
      return;
    }
    for (size_t i = 0; i < call.outputs.size(); ++i) store(call.outputs[i], std::move(stack_[i]));
  }

  void store(ValueId slot, IValue value) {
    if (slot != kNoValue) slots_[slot] = std::move(value);
  }

  int64_t integer(const Call& call) const {
    if (call.is_size) return tensor(call.operands[0].slots[0]).size(number(call.operands[1]));
    return call.arithmetic(number(call.operands[0]), number(call.operands[1]));
  }

  int64_t number(const Operand& operand) const {
    return operand.slots.empty() ? operand.literal.toInt() : slots_[operand.slots[0]].toInt();
  }

  std::vector<IValue> slots_;
  std::vector<IValue> stack_;
  at::Device device_;
};

}  // namespace

struct Program::Compiled {
  // The graph in one mode.
  struct Form {
    Form(const Graph& source, Mode mode) : graph(in_mode(source, mode)), calls(compile(graph)) {}
    Graph graph;
    std::vector<Call> calls;
  };

  explicit Compiled(Graph source)
      : graph(checked(std::move(source))), train(graph, Mode::kTrain), eval(graph, Mode::kEval) {
    for (size_t id = 0; id < graph.values.size(); ++id) note_source(static_cast<ValueId>(id));
  }

  // Where run() will find what the graph does not compute.
  void note_source(ValueId id) {
    const auto& value = graph.values[id];
    if (value.role == Role::kParameter) params.push_back({id, graph.owner(value.weight), params.size()});
    if (value.role == Role::kBuffer) buffers.push_back({id, graph.owner(value.weight), buffers.size()});
    if (value.role != Role::kConstant) return;
    const auto constant = graph.constants.find(value.weight);
    if (constant == graph.constants.end()) {
      throw std::invalid_argument(fmt::format("the program lacks its constant '{}'", value.weight));
    }
    constants.emplace_back(id, constant->second);
  }

  using Constants = std::vector<std::pair<ValueId, at::Tensor>>;

  /// Moved there once: a copy in every run would be waited for.
  const Constants& constants_on(at::Device device) const {
    if (device.is_cpu()) return constants;
    const std::lock_guard lock(placing);
    auto& there = placed[device];
    if (there.empty()) {
      for (const auto& [slot, tensor] : constants) there.emplace_back(slot, tensor.to(device));
    }
    return there;
  }

  Frame bind(at::TensorList inputs, const Weights& weights) const {
    TORCH_CHECK(inputs.size() == graph.inputs.size(), "[program] got ", inputs.size(), " inputs, wanted ",
                graph.inputs.size());
    const auto device = inputs.empty() ? at::Device(at::kCPU) : inputs[0].device();
    Frame frame(graph.values.size(), device);
    for (const auto& binding : params) frame.set(binding.slot, find_weight(weights.params, binding));
    for (const auto& binding : buffers) frame.set(binding.slot, find_weight(weights.buffers, binding));
    for (const auto& [slot, tensor] : constants_on(device)) frame.set(slot, tensor);
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_input(graph.values[graph.inputs[i]], inputs[i]);
      frame.set(graph.inputs[i], inputs[i]);
    }
    return frame;
  }

  Graph graph;
  Form train, eval;
  std::vector<Binding> params, buffers;
  Constants constants;
  mutable std::mutex placing;
  mutable std::unordered_map<at::Device, Constants> placed;
};

const Argument* Node::find(const std::string& argument) const {
  for (const auto& candidate : arguments) {
    if (candidate.name == argument) return &candidate;
  }
  return nullptr;
}

ValueId Node::tensor(const std::string& argument) const {
  const Argument* found = find(argument);
  return found == nullptr || found->values.empty() ? kNoValue : found->values[0];
}

int64_t Node::integer(const std::string& argument, int64_t otherwise) const {
  const Argument* found = find(argument);
  return found != nullptr && found->literal.isInt() ? found->literal.toInt() : otherwise;
}

bool Node::boolean(const std::string& argument, bool otherwise) const {
  const Argument* found = find(argument);
  return found != nullptr && found->literal.isBool() ? found->literal.toBool() : otherwise;
}

std::vector<int64_t> Node::integers(const std::string& argument) const {
  const Argument* found = find(argument);
  if (found == nullptr) return {};
  if (found->kind == Argument::Kind::kLiteral) {
    if (found->literal.isInt()) return {found->literal.toInt()};
    return found->literal.isIntList() ? found->literal.toIntVector() : std::vector<int64_t>{};
  }
  std::vector<int64_t> list;
  for (size_t i = 0; i < found->values.size(); ++i) {
    list.push_back(found->values[i] == kNoValue ? found->ints.at(i) : -1);
  }
  return list;
}

void Node::set(const std::string& argument, c10::IValue literal) {
  Argument given{.name = argument, .literal = std::move(literal)};
  const auto is_named = [&](const Argument& candidate) { return candidate.name == argument; };
  const auto found = std::find_if(arguments.begin(), arguments.end(), is_named);
  if (found == arguments.end()) {
    arguments.push_back(std::move(given));
  } else {
    *found = std::move(given);
  }
}

bool Node::is_in_place() const {
  return target.substr(0, target.find('.')).ends_with('_');
}

std::string Node::operation() const {
  std::string name = target.substr(0, target.find('.'));
  if (is_in_place()) name.pop_back();
  return name;
}

std::vector<int64_t> sizes_of(const Shape& shape, int64_t images) {
  std::vector<int64_t> sizes;
  for (const auto& extent : shape) sizes.push_back(extent.per_image ? extent.factor * images : extent.factor);
  return sizes;
}

std::string describe(const Graph& graph, const Node& node) {
  for (const auto id : node.outputs) {
    if (id != kNoValue) return fmt::format("{} ({})", graph.values[id].name, node.target);
  }
  return node.target;
}

void Graph::expect_batch(const std::string& option, int64_t images) const {
  if (images >= fewest_images && (most_images == 0 || images <= most_images)) return;
  throw std::invalid_argument(fmt::format("{}: got a batch of {}, the program was exported for {} to {} images", option,
                                          images, std::max<int64_t>(1, fewest_images),
                                          most_images > 0 ? std::to_string(most_images) : "any number of"));
}

int64_t Graph::images() const {
  if (inputs.empty() || values.at(inputs[0]).shape.size() < 2) return 1;  // features alone are of one image
  const Extent& batch = values[inputs[0]].shape[0];
  return batch.per_image ? 1 : std::max<int64_t>(1, batch.factor);
}

const std::string& Graph::owner(const std::string& weight) const {
  const auto alias = aliases.find(weight);
  return alias == aliases.end() ? weight : alias->second;
}

Program::Program(Graph graph) : compiled_(std::make_shared<const Compiled>(std::move(graph))) {}

const Graph& Program::graph() const {
  return compiled_->graph;
}

std::vector<at::Tensor> Program::run(at::TensorList inputs, const Weights& weights, Mode mode) const {
  const auto& form = mode == Mode::kTrain ? compiled_->train : compiled_->eval;
  auto frame = compiled_->bind(inputs, weights);
  for (const auto& call : form.calls) {
    try {
      frame.execute(call);
    } catch (c10::Error& error) {
      error.add_context("in node " + describe(form.graph, form.graph.nodes[call.node]));
      throw;
    }
  }
  std::vector<at::Tensor> outputs;
  for (const auto id : form.graph.outputs) outputs.push_back(frame.tensor(id));
  return outputs;
}

}  // namespace prunex::program
