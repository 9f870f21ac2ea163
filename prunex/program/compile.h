// A graph in one mode, compiled: for every call the operator's handle and how to fill its stack.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

#include "prunex/program/operations.h"
#include "prunex/program/program.h"

namespace prunex::program {

/// How to push one argument.
struct Operand {
  enum class Kind {
    kLiteral,
    kSlot,             ///< slots[0]
    kNumber,           ///< slots[0], a symbolic int where the schema wants a tensor
    kTensors,          ///< Tensor[]
    kOptionalTensors,  ///< Tensor?[]
    kInts,             ///< int[]: slots[i], or ints[i] where slots[i] is kNoValue
    kDevice,           ///< the device of the run
  };
  Kind kind = Kind::kLiteral;
  bool last_use = false;  ///< kSlot: nobody needs the value afterwards, so it may be moved
  c10::IValue literal{};
  std::vector<ValueId> slots{};
  std::vector<int64_t> ints{};
};

struct Call {
  std::optional<c10::OperatorHandle> operation{};
  SizeArithmetic arithmetic = nullptr;  ///< on two sizes; nullptr: `operation` is called
  bool is_size = false;                 ///< of an axis: no call, for a number
  Guard guard = nullptr;                ///< to be asked before the operation is called; nullptr: no need
  Detour detour = nullptr;              ///< for the arguments of the call, after that; nullptr: no need
  std::vector<Operand> operands{};
  std::vector<ValueId> outputs{};  ///< kNoValue: dropped at once
  bool output_is_list = false;
  std::vector<ValueId> release{};  ///< to be freed after the call
  size_t node = 0;                 ///< position in the nodes of the compiled graph
};

/// `graph` must already be in its mode, its ids valid. Throws std::invalid_argument that names the node.
std::vector<Call> compile(const Graph& graph);

}  // namespace prunex::program
