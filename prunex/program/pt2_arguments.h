// Arguments of a node as JSON, both ways.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>

#include "prunex/program/program.h"

namespace c10 {
struct Argument;
}

namespace prunex::program {

/// Reads {"name": …, "arg": {"as_…": …}}. `find` turns the name of a value into its id. Throws std::invalid_argument
/// that names the argument if its kind is not supported.
Argument read_argument(const nlohmann::json& named, const std::function<ValueId(const std::string&)>& find);

/// The "arg" of `argument`, which the schema describes as `formal`; null for arguments of symbolic arithmetic.
nlohmann::ordered_json write_argument(const Graph& graph, const Argument& argument, const c10::Argument* formal);

}  // namespace prunex::program
