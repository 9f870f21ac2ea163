#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>

#include "prunex/program/pt2/format.h"

namespace prunex::program {
namespace {

using c10::IValue;
using c10::TypeKind;
using nlohmann::json;
using nlohmann::ordered_json;
using Find = std::function<ValueId(const std::string&)>;

double read_double(const json& value) {
  if (!value.is_string()) return value.get<double>();
  const auto text = value.get<std::string>();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  throw std::invalid_argument(fmt::format("'{}' is not a number", text));
}

ordered_json write_double(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

IValue read_doubles(const json& values) {
  std::vector<double> doubles;
  for (const auto& value : values) doubles.push_back(read_double(value));
  return doubles;
}

std::vector<int64_t> read_integers(const json& values) {
  if (!values.is_array()) throw std::invalid_argument("is not a list of integers");
  std::vector<int64_t> integers;
  for (const auto& value : values) integers.push_back(to_integer(value));
  return integers;
}

IValue read_device(const json& value) {
  const bool indexed = value.contains("index") && !value["index"].is_null();
  const auto type = value.at("type").get<std::string>();
  return c10::Device(indexed ? fmt::format("{}:{}", type, to_integer(value["index"])) : type);
}

using ReadLiteral = IValue (*)(const json&);

const std::map<std::string, ReadLiteral>& literals() {
  static const std::map<std::string, ReadLiteral> readers{
      {"as_none", [](const json&) { return IValue(); }},
      {"as_bool", [](const json& v) { return IValue(v.get<bool>()); }},
      {"as_int", [](const json& v) { return IValue(to_integer(v)); }},
      {"as_float", [](const json& v) { return IValue(read_double(v)); }},
      {"as_string", [](const json& v) { return IValue(v.get<std::string>()); }},
      {"as_ints", [](const json& v) { return IValue(read_integers(v)); }},
      {"as_floats", read_doubles},
      {"as_bools", [](const json& v) { return IValue(v.get<std::vector<bool>>()); }},
      {"as_device", read_device},
      {"as_scalar_type", [](const json& v) { return IValue(static_cast<int64_t>(dtype_of_code(to_integer(v)))); }},
      {"as_memory_format",
       [](const json& v) { return IValue(static_cast<int64_t>(memory_format_of_code(to_integer(v)))); }},
      {"as_layout", [](const json& v) {
         if (to_integer(v) != kStridedLayout) throw std::invalid_argument("only strided tensors are supported");
         return IValue(static_cast<int64_t>(at::kStrided));
       }}};
  return readers;
}

Argument value_argument(const json& value, const char* key, const Find& find) {
  return {.kind = Argument::Kind::kValue, .values = {find(value.at(key).get<std::string>())}};
}

Argument read_tensors(const json& list, const Find& find) {
  Argument argument{.kind = Argument::Kind::kValues};
  for (const auto& item : list) {
    if (item.contains("as_none")) {
      argument.values.push_back(kNoValue);
    } else {
      const auto& tensor = item.contains("as_tensor") ? item["as_tensor"] : item;
      argument.values.push_back(find(tensor.at("name").get<std::string>()));
    }
  }
  return argument;
}

Argument read_ints(const json& list, const Find& find) {
  Argument argument{.kind = Argument::Kind::kInts};
  for (const auto& item : list) {
    const bool symbolic = item.contains("as_name");
    argument.values.push_back(symbolic ? find(item["as_name"].get<std::string>()) : kNoValue);
    argument.ints.push_back(symbolic ? 0 : to_integer(item.at("as_int")));
  }
  return argument;
}

Argument read_kind(const std::string& kind, const json& value, const Find& find) {
  if (kind == "as_tensor") return value_argument(value, "name", find);
  if (kind == "as_tensors" || kind == "as_optional_tensors") return read_tensors(value, find);
  if (kind == "as_sym_ints") return read_ints(value, find);
  if (kind == "as_sym_int") {
    if (value.contains("as_name")) return value_argument(value, "as_name", find);
    return {.literal = to_integer(value.at("as_int"))};
  }
  if (kind == "as_optional_tensor") {
    if (value.contains("as_none")) return {};
    return value_argument(value.at("as_tensor"), "name", find);
  }
  const auto literal = literals().find(kind);
  if (literal != literals().end()) return {.literal = literal->second(value)};
  if (kind == "as_graph") throw std::invalid_argument("is a graph: control flow is not supported");
  throw std::invalid_argument(fmt::format("is of kind '{}', which is not supported", kind));
}

ordered_json tensor_reference(const Graph& graph, ValueId id) {
  return {{"name", graph.values.at(id).name}};
}

ordered_json write_value(const Graph& graph, ValueId id) {
  if (graph.values.at(id).role == Role::kSymInt) return {{"as_sym_int", {{"as_name", graph.values[id].name}}}};
  return {{"as_tensor", tensor_reference(graph, id)}};
}

bool holds_optional(const c10::Argument* formal) {
  auto type = formal->type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  const auto list = type->cast<c10::ListType>();
  return list && list->getElementType()->kind() == TypeKind::OptionalType;
}

ordered_json write_tensors(const Graph& graph, const Argument& argument, const c10::Argument* formal) {
  const bool optional = formal && holds_optional(formal);
  auto list = ordered_json::array();
  for (const auto id : argument.values) {
    if (!optional) {
      list.push_back(tensor_reference(graph, id));
    } else if (id == kNoValue) {
      list.push_back({{"as_none", true}});
    } else {
      list.push_back({{"as_tensor", tensor_reference(graph, id)}});
    }
  }
  return {{optional ? "as_optional_tensors" : "as_tensors", list}};
}

ordered_json write_ints(const Graph& graph, const Argument& argument) {
  auto list = ordered_json::array();
  bool symbolic = false;
  for (size_t i = 0; i < argument.values.size(); ++i) {
    const auto id = argument.values[i];
    symbolic |= id != kNoValue;
    list.push_back(id == kNoValue ? ordered_json{{"as_int", argument.ints.at(i)}}
                                  : ordered_json{{"as_name", graph.values.at(id).name}});
  }
  if (!symbolic) return {{"as_ints", argument.ints}};
  return {{"as_sym_ints", list}};
}

TypeKind kind_of(const c10::Argument* formal) {
  if (!formal) return TypeKind::IntType;
  const auto type = formal->real_type();
  const auto optional = type->cast<c10::OptionalType>();
  return (optional ? optional->getElementType() : type)->kind();
}

// Integers stand for enumerations where the schema says so.
ordered_json write_int(int64_t value, TypeKind kind) {
  switch (kind) {
    case TypeKind::ScalarTypeType:
      return {{"as_scalar_type", code_of_dtype(static_cast<at::ScalarType>(value))}};
    case TypeKind::MemoryFormatType:
      return {{"as_memory_format", code_of_memory_format(static_cast<at::MemoryFormat>(value))}};
    case TypeKind::LayoutType:
      return {{"as_layout", kStridedLayout}};
    default:
      return {{"as_int", value}};
  }
}

ordered_json write_doubles(const std::vector<double>& values) {
  auto list = ordered_json::array();
  for (const double value : values) list.push_back(write_double(value));
  return {{"as_floats", list}};
}

ordered_json write_device(c10::Device device) {
  ordered_json index;
  if (device.has_index()) index = device.index();
  return {{"as_device", {{"type", c10::DeviceTypeName(device.type(), true)}, {"index", index}}}};
}

ordered_json write_literal(const IValue& literal, const c10::Argument* formal) {
  if (literal.isNone()) return {{"as_none", true}};
  if (literal.isBool()) return {{"as_bool", literal.toBool()}};
  if (literal.isInt()) return write_int(literal.toInt(), kind_of(formal));
  if (literal.isDouble()) return {{"as_float", write_double(literal.toDouble())}};
  if (literal.isString()) return {{"as_string", literal.toStringRef()}};
  if (literal.isIntList()) return {{"as_ints", literal.toIntVector()}};
  if (literal.isDoubleList()) return write_doubles(literal.toDoubleVector());
  if (literal.isBoolList()) {
    const auto list = literal.toBoolList();
    return {{"as_bools", std::vector<bool>(list.begin(), list.end())}};
  }
  if (literal.isDevice()) return write_device(literal.toDevice());
  throw std::invalid_argument(fmt::format("a {} cannot be written to a .pt2 file", literal.tagKind()));
}

}  // namespace

Argument read_argument(const json& named, const Find& find) {
  const auto name = named.at("name").get<std::string>();
  try {
    const auto [kind, body] = to_tagged(named.at("arg"));
    auto argument = read_kind(kind, body, find);
    argument.name = name;
    return argument;
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("argument '{}': {}", name, error.what()));
  }
}

ordered_json write_argument(const Graph& graph, const Argument& argument, const c10::Argument* formal) {
  switch (argument.kind) {
    case Argument::Kind::kValue:
      return write_value(graph, argument.values.at(0));
    case Argument::Kind::kValues:
      return write_tensors(graph, argument, formal);
    case Argument::Kind::kInts:
      return write_ints(graph, argument);
    case Argument::Kind::kLiteral:
      break;
  }
  return write_literal(argument.literal, formal);
}

}  // namespace prunex::program
