#include "prunex/program/compile.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "prunex/program/pt2/format.h"

namespace prunex::program {
namespace {

using c10::IValue;
using c10::TypeKind;

c10::TypePtr without_optional(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

c10::TypePtr element_of(const c10::TypePtr& type) {
  const auto list = without_optional(type)->cast<c10::ListType>();
  return list ? list->getElementType() : nullptr;
}

bool is_tensor(const c10::TypePtr& type) {
  return without_optional(type)->kind() == TypeKind::TensorType;
}

std::vector<double> to_doubles(const IValue& ints) {
  const auto values = ints.toIntVector();
  return {values.begin(), values.end()};
}

// What Python's argument parser accepts where the schema names another type.
IValue convert(const IValue& literal, const c10::Argument& formal) {
  const auto type = without_optional(formal.type());
  if (type->kind() == TypeKind::TensorType && literal.isScalar()) {
    return at::native::wrapped_scalar_tensor(literal.toScalar());
  }
  if (type->kind() == TypeKind::FloatType && literal.isInt()) return static_cast<double>(literal.toInt());
  const auto element = element_of(type);
  if (!element) return literal;
  if (element->kind() == TypeKind::FloatType && literal.isIntList()) return to_doubles(literal);
  if (element->kind() == TypeKind::IntType && literal.isInt() && formal.N()) {
    return std::vector<int64_t>(*formal.N(), literal.toInt());
  }
  return literal;
}

bool accepts(const c10::Argument& formal, const IValue& literal) {
  if (without_optional(formal.type())->kind() == TypeKind::NumberType && literal.isScalar()) return true;
  return literal.type()->isSubtypeOf(*formal.type());
}

bool asks_for_order(const Node& node) {
  const auto preserve = static_cast<int64_t>(at::MemoryFormat::Preserve);
  return node.integer("memory_format", preserve) != preserve;
}

class Compiler {
 public:
  explicit Compiler(const Graph& graph) : graph_(graph), defined_(graph.values.size()), source_(graph.values.size()) {
    for (size_t id = 0; id < graph.values.size(); ++id) {
      const auto role = graph.values[id].role;
      defined_[id] = role != Role::kComputed && role != Role::kSymInt;
      source_[id] = static_cast<ValueId>(id);
    }
  }

  std::vector<Call> compile() {
    for (const auto id : graph_.inputs) check_defined(id, "the inputs");
    std::vector<Call> calls;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      node_ = &graph_.nodes[i];
      calls.push_back(call());
      calls.back().node = i;
    }
    check_outputs();
    calls = with_written_views(std::move(calls));
    mark_last_uses(calls);
    return calls;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument(fmt::format("node {}: {}", describe(graph_, *node_), what));
  }

  void check_defined(ValueId id, const std::string& user) const {
    if (!defined_[id]) {
      throw std::invalid_argument(
          fmt::format("value '{}' is used by {} before any node defines it", graph_.values[id].name, user));
    }
  }

  void check_outputs() const {
    if (graph_.outputs.empty()) throw std::invalid_argument("the program has no output");
    for (const auto id : graph_.outputs) {
      check_defined(id, "the outputs");
      if (graph_.values[id].role == Role::kSymInt) {
        throw std::invalid_argument(fmt::format("output '{}' is not a tensor", graph_.values[id].name));
      }
    }
  }

  Call call() {
    check_arguments();
    const auto& facts = operation_of(node_->target);
    auto call = facts.arithmetic ? integer_call(facts.arithmetic) : operator_call(facts);
    define_outputs(call);
    return call;
  }

  void check_arguments() const {
    std::unordered_set<std::string> names;
    for (const auto& argument : node_->arguments) {
      if (!names.insert(argument.name).second) fail(fmt::format("argument '{}' is given twice", argument.name));
      if (argument.kind == Argument::Kind::kValue && argument.values.size() != 1) {
        fail(fmt::format("argument '{}' holds {} values, wanted one", argument.name, argument.values.size()));
      }
      for (const auto id : argument.values) {
        if (id != kNoValue) check_defined(id, "node " + describe(graph_, *node_));
      }
    }
  }

  Call integer_call(SizeArithmetic arithmetic) const {
    Call call{.arithmetic = arithmetic};
    for (const auto* name : {"a", "b"}) {
      const auto* argument = node_->find(name);
      if (!argument) fail(fmt::format("argument '{}' is missing", name));
      const bool literal = argument->kind == Argument::Kind::kLiteral && argument->literal.isInt();
      if (!literal && !is_symbolic(*argument)) fail(fmt::format("argument '{}' is not an integer", name));
      call.operands.push_back(literal ? Operand{.literal = argument->literal}
                                      : Operand{.kind = Operand::Kind::kSlot, .slots = argument->values});
    }
    return call;
  }

  bool is_symbolic(const Argument& argument) const {
    return argument.kind == Argument::Kind::kValue && graph_.values[argument.values[0]].role == Role::kSymInt;
  }

  Call operator_call(const Operation& facts) {
    Call call{.operation = find_operation(),
              .is_size = node_->target == "aten::sym_size.int",
              .guard = facts.guard,
              .detour = facts.detour};
    const auto& schema = call.operation->schema();
    size_t matched = 0;
    for (const auto& formal : schema.arguments()) {
      const auto* argument = node_->find(formal.name());
      matched += argument != nullptr;
      check_write(formal, argument);
      call.operands.push_back(argument ? operand(formal, *argument) : default_operand(formal));
    }
    if (matched != node_->arguments.size())
      fail(fmt::format("an argument is unknown to the schema {}", to_text(schema)));
    call.output_is_list = node_->output_is_list;
    const auto& returns = schema.returns();
    const bool gives_list = returns.size() == 1 && element_of(returns[0].type());
    if (call.output_is_list != gives_list) fail(gives_list ? "gives a list of tensors" : "gives no list of tensors");
    if (!call.output_is_list && node_->outputs.size() > schema.returns().size()) {
      fail(fmt::format("has {} outputs, but the schema returns {}", node_->outputs.size(), schema.returns().size()));
    }
    if (call.is_size && node_->tensor("self") == kNoValue) fail("argument 'self' is not a tensor");
    follow_aliases(schema, facts.shares);
    return call;
  }

  static std::string to_text(const c10::FunctionSchema& schema) {
    std::ostringstream text;
    text << schema;
    return text.str();
  }

  c10::OperatorHandle find_operation() const {
    const auto dot = node_->target.find('.');
    const auto overload = dot == std::string::npos ? "" : node_->target.substr(dot + 1);
    const auto handle = c10::Dispatcher::singleton().findSchema({node_->target.substr(0, dot), overload});
    if (!handle) fail("this build of LibTorch has no such operation");
    return *handle;
  }

  Operand default_operand(const c10::Argument& formal) const {
    if (!formal.default_value()) fail(fmt::format("argument '{}' is missing and has no default", formal.name()));
    return {.literal = *formal.default_value()};
  }

  Operand operand(const c10::Argument& formal, const Argument& argument) const {
    switch (argument.kind) {
      case Argument::Kind::kLiteral:
        return literal_operand(formal, argument.literal);
      case Argument::Kind::kValue:
        return value_operand(formal, argument);
      case Argument::Kind::kValues:
        return list_operand(formal, argument);
      case Argument::Kind::kInts:
        return ints_operand(formal, argument);
    }
    fail(fmt::format("argument '{}' is of an unknown kind", argument.name));
  }

  static TypeKind kind_of(const c10::Argument& formal) { return without_optional(formal.real_type())->kind(); }

  static bool is_enumeration(const c10::Argument& formal) {
    const auto kind = kind_of(formal);
    return kind == TypeKind::ScalarTypeType || kind == TypeKind::MemoryFormatType || kind == TypeKind::LayoutType;
  }

  // ATen takes them for integers, and uses them as positions in tables.
  void check_enumeration(const c10::Argument& formal, const IValue& literal) const {
    if (!is_enumeration(formal) || !literal.isInt()) return;
    const int64_t value = literal.toInt();
    if (value < 0 || value > std::numeric_limits<int8_t>::max())
      wrong_type(formal, fmt::format("the number {}", value));
    const auto kind = kind_of(formal);
    try {
      if (kind == TypeKind::ScalarTypeType) code_of_dtype(static_cast<at::ScalarType>(value));
      if (kind == TypeKind::MemoryFormatType) code_of_memory_format(static_cast<at::MemoryFormat>(value));
    } catch (const std::invalid_argument& error) {
      fail(fmt::format("argument '{}': {}", formal.name(), error.what()));
    }
    const bool strided = static_cast<at::Layout>(value) == at::kStrided;
    if (kind == TypeKind::LayoutType && !strided) wrong_type(formal, "another layout than strided");
  }

  Operand literal_operand(const c10::Argument& formal, const IValue& given) const {
    if (given.isDevice()) return {.kind = Operand::Kind::kDevice};
    // Recorded false on a CPU export; it says which kernel CUDA takes and changes nothing elsewhere.
    if (formal.name() == "cudnn_enabled") return {.literal = true};
    // Of an embedding: how its gradient is stored, which exchanges and optimizers want dense.
    if (formal.name() == "sparse") return {.literal = false};
    auto literal = convert(given, formal);
    if (!accepts(formal, literal)) wrong_type(formal, given.type()->repr_str());
    check_enumeration(formal, literal);
    return {.literal = std::move(literal)};
  }

  Operand value_operand(const c10::Argument& formal, const Argument& argument) const {
    const auto kind = without_optional(formal.type())->kind();
    const auto& value = graph_.values[argument.values[0]];
    // Written without the schema saying so, while ranks share constants.
    const bool normalizes = operation_of(node_->target).in_eval == InEval::kNormalizes;
    const bool own =
        value.role == Role::kBuffer || value.role == Role::kParameter || (value.role == Role::kComputed && !normalizes);
    if (formal.name().starts_with("running_") && !own) {
      fail(fmt::format("the statistics '{}' are no buffer of the state dict",
                       value.weight.empty() ? value.name : value.weight));
    }
    if (value.role != Role::kSymInt) {
      if (kind != TypeKind::TensorType) wrong_type(formal, "a tensor");
      return {.kind = Operand::Kind::kSlot, .slots = argument.values};
    }
    if (kind == TypeKind::TensorType) return {.kind = Operand::Kind::kNumber, .slots = argument.values};
    const bool number = kind == TypeKind::IntType || kind == TypeKind::NumberType;
    if (!number || is_enumeration(formal)) wrong_type(formal, "a symbolic integer");
    return {.kind = Operand::Kind::kSlot, .slots = argument.values};
  }

  Operand list_operand(const c10::Argument& formal, const Argument& argument) const {
    const auto element = element_of(formal.type());
    if (!element || !is_tensor(element)) wrong_type(formal, "a list of tensors");
    const bool optional = element->kind() == TypeKind::OptionalType;
    for (const auto id : argument.values) {
      if (id == kNoValue && !optional) wrong_type(formal, "a list with a missing tensor");
      if (id != kNoValue && graph_.values[id].role == Role::kSymInt)
        wrong_type(formal, "a symbolic integer in the list");
    }
    return {.kind = optional ? Operand::Kind::kOptionalTensors : Operand::Kind::kTensors, .slots = argument.values};
  }

  Operand ints_operand(const c10::Argument& formal, const Argument& argument) const {
    const auto element = element_of(formal.type());
    if (!element || element->kind() != TypeKind::IntType) wrong_type(formal, "a list of integers");
    if (argument.values.size() != argument.ints.size()) wrong_type(formal, "values and ints of different lengths");
    bool symbolic = false;
    for (const auto id : argument.values) {
      if (id != kNoValue && graph_.values[id].role != Role::kSymInt) wrong_type(formal, "a tensor in the list");
      symbolic |= id != kNoValue;
    }
    if (!symbolic) return {.literal = argument.ints};
    return {.kind = Operand::Kind::kInts, .slots = argument.values, .ints = argument.ints};
  }

  [[noreturn]] void wrong_type(const c10::Argument& formal, const std::string& got) const {
    fail(fmt::format("argument '{}' is {}, wanted {}", formal.name(), got, formal.type()->repr_str()));
  }

  // Ranks share constants, and evaluation must leave weights alone; only training's batch counter is written in place.
  void check_write(const c10::Argument& formal, const Argument* argument) {
    if (!formal.alias_info() || !formal.alias_info()->isWrite() || !argument || argument->values.empty()) return;
    for (const auto id : argument->values) {
      const auto& value = graph_.values[source_[id]];
      const bool counter = value.role == Role::kBuffer && value.dtype == at::kLong && value.shape.empty() &&
                           node_->target.starts_with("aten::add_");
      const bool free = value.role == Role::kComputed || value.role == Role::kInput;
      if (!free && !counter) fail(fmt::format("writes to '{}' in place", value.weight));
      // What is written without a record would be taken for recorded.
      const bool before = node_->unrecorded != kNoValue && source_[id] < node_->unrecorded;
      if (before && at::isFloatingType(value.dtype)) fail("writes in torch.no_grad to what was computed before it");
      written_[source_[id]] = static_cast<size_t>(node_ - graph_.nodes.data());
    }
  }

  // A view's source is what a later in-place write would change.
  void follow_aliases(const c10::FunctionSchema& schema, bool shares) {
    for (const auto& formal : schema.arguments()) {
      const auto* argument = node_->find(formal.name());
      const bool tensors = argument && !argument->values.empty() && argument->values[0] != kNoValue;
      if (tensors && (shares || formal.alias_info())) return show(*argument);
      if (!shares) return;
    }
  }

  // What is written into a copy is not in what it is a copy of: tensors that later writes reach through such views lie
  // as they did in the export. The caller's inputs are not written to.
  std::vector<Call> with_written_views(std::vector<Call> calls) const {
    std::unordered_set<ValueId> ordered;
    for (auto& call : calls) {
      const auto& node = graph_.nodes[call.node];
      if (!operation_of(node.target).may_copy || node.outputs[0] == kNoValue) continue;
      const auto written = written_.find(source_[node.outputs[0]]);
      if (written == written_.end() || written->second < call.node) continue;
      call.detour = nullptr;
      // Without an order of its own it is a copy only of another type or device.
      if (node.target.starts_with("aten::to.") && !asks_for_order(node)) continue;
      check_order(node, written->first);
      ordered.insert(written->first);
    }
    std::vector<Call> result;
    for (const auto id : graph_.inputs) {
      if (written_.contains(id)) result.push_back(rearranged("aten::clone", id, ordered.contains(id), 0));
    }
    for (auto& call : calls) {
      const size_t node = call.node;
      result.push_back(std::move(call));
      for (const auto id : graph_.nodes[node].outputs) {
        if (ordered.contains(id)) result.push_back(rearranged("aten::contiguous", id, true, node));
      }
    }
    return result;
  }

  // Whether a call was a view or a copy in the export depends on how the tensor lay there that it shows.
  void check_order(const Node& node, ValueId written) const {
    if (graph_.values[written].order != at::MemoryFormat::Preserve) return;
    throw std::invalid_argument(fmt::format(
        "node {}: what it shows is written to later, in place, and lay in memory neither row by row nor channels last "
        "in the export: write out of place",
        describe(graph_, node)));
  }

  // Puts another tensor in the place of a value.
  Call rearranged(const char* operation, ValueId id, bool ordered, size_t node) const {
    const auto format = graph_.values[id].order;
    const auto order = ordered && format != at::MemoryFormat::Preserve ? IValue(format) : IValue();
    return {.operation = c10::Dispatcher::singleton().findSchemaOrThrow(operation, ""),
            .operands = {{.kind = Operand::Kind::kSlot, .slots = {id}}, {.literal = order}},
            .outputs = {id},
            .node = node};
  }

  // Of several tensors each result shows its own.
  void show(const Argument& argument) {
    for (size_t i = 0; i < node_->outputs.size(); ++i) {
      const auto shown = argument.values[std::min(i, argument.values.size() - 1)];
      if (node_->outputs[i] != kNoValue) source_.at(node_->outputs[i]) = source_[shown];
    }
  }

  void define_outputs(Call& call) {
    call.outputs = node_->outputs;
    for (const auto id : call.outputs) {
      if (id == kNoValue) continue;
      if (defined_[id]) fail(fmt::format("defines value '{}' again", graph_.values[id].name));
      defined_[id] = true;
    }
  }

  void mark_last_uses(std::vector<Call>& calls) const {
    std::unordered_set<ValueId> needed(graph_.outputs.begin(), graph_.outputs.end());
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      for (auto& output : call->outputs) {
        if (!needed.contains(output)) output = kNoValue;
      }
      for (auto operand = call->operands.rbegin(); operand != call->operands.rend(); ++operand) {
        for (const auto slot : operand->slots) {
          if (slot == kNoValue || !needed.insert(slot).second) continue;
          if (operand->kind == Operand::Kind::kSlot) {
            operand->last_use = true;
          } else {
            call->release.push_back(slot);
          }
        }
      }
    }
  }

  const Graph& graph_;
  const Node* node_ = nullptr;
  std::vector<bool> defined_;
  std::vector<ValueId> source_;                  // of a view: the value whose storage it shows
  std::unordered_map<ValueId, size_t> written_;  // the last node that writes to the storage of a value
};

}  // namespace

std::vector<Call> compile(const Graph& graph) {
  return Compiler(graph).compile();
}

}  // namespace prunex::program
