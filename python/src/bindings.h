// The parts of the extension module.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <string>

#include "prunex/program/program.h"

namespace prunex::python {

namespace nb = nanobind;

/// Steps of a loop that does not say how many it has: none of them is the last.
inline constexpr int64_t kEndless = int64_t{1} << 60;

/// By weight, of convolutions and group norms.
std::map<std::string, int64_t> groups_in_layers(const program::Graph& graph);

void bind_cuts(nb::module_& module);
void bind_strategies(nb::module_& module);
void bind_loader(nb::module_& module);
void bind_networks(nb::module_& module);
void bind_gradient_exchanges(nb::module_& module);

}  // namespace prunex::python
