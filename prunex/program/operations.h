// The operations that a program from a file may hold. A file is not trusted: its nodes go to ATen's dispatcher, which
// also knows operations that open files, show memory by numbers or unpickle objects.
#pragma once

#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "prunex/program/program.h"

namespace prunex::program {

/// Throws std::invalid_argument, without the node's name, unless a file may hold the node: its operation is listed in
/// operations.cpp, and its numbers (strides, groups, sizes) are in the ranges that operations of its kind work with.
void check_operation(const Graph& graph, const Node& node);

/// Checks the arguments of a call that ATen itself does not check, where wrong shapes would be read beyond their
/// memory. Throws c10::Error.
using Guard = void (*)(const torch::jit::Stack& arguments);
/// nullptr: ATen checks them all.
Guard find_guard(const std::string& target);

/// All that are listed: "aten::conv2d", "sym::mul".
std::vector<std::string> listed_operations();

}  // namespace prunex::program
