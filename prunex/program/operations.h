// What programs must know of ATen's operations: a row of operations.cpp each. What pruning must know of them is in
// channels/operations.cpp.
#pragma once

#include <ATen/core/stack.h>

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "prunex/program/macs.h"
#include "prunex/program/program.h"

namespace prunex::program {

/// Checks the arguments of a call that ATen itself does not check, where wrong shapes would be read beyond their
/// memory. Throws c10::Error.
using Guard = void (*)(const torch::jit::Stack& arguments);

/// Puts arguments of the same meaning in the place of those that a kernel gets wrong.
using Detour = void (*)(torch::jit::Stack& arguments);

/// Of two computed sizes. Throws c10::Error.
using SizeArithmetic = int64_t (*)(int64_t a, int64_t b);

/// What becomes of a call in evaluation (in_mode); flags are told by the names of arguments.
enum class InEval {
  kStays,
  kNormalizes,  ///< keeps its flag if it has no running statistics
  kCounts,      ///< added in place to num_batches_tracked, it goes
  kDraws,       ///< the noise of stochastic depth, which goes with all that is made of it
  kAverages,    ///< a copy of the probabilities stands for what they draw
  kMultiplies,  ///< by noise, it goes, with what made the noise's mean 1
  kDivides,     ///< noise stays noise
  kMakes,       ///< goes with its last user
};

/// Several operations that are alike.
struct Operation {
  std::string_view names;  ///< separated by spaces, "aten::" left out
  /// Throws std::invalid_argument for numbers of a file's node that are out of their ranges.
  void (*check)(const Graph& graph, const Node& node) = nullptr;
  Guard guard = nullptr;    ///< nullptr: ATen checks all
  Detour detour = nullptr;  ///< nullptr: no need
  /// Multiply-accumulates of one image; nullptr: none.
  AxisProducts (*macs)(const Graph& graph, const Node& node) = nullptr;
  bool layer = false;  ///< a convolution or a linear layer, not a product of activations
  /// The results may lie in the memory of the tensors that it takes first, although its schema does not say so.
  bool shares = false;
  /// The result lies in the memory of the tensor that it takes or is a copy, by how that one lies there.
  bool may_copy = false;
  InEval in_eval = InEval::kStays;
  SizeArithmetic arithmetic = nullptr;  ///< of "sym::" operations
};

/// The row of "aten::conv2d"; an empty one if no row names it.
const Operation& operation_of(const std::string& target);

/// The name in rows of an operation that has several: "aten::cat" of "aten::concat". Another stays.
std::string name_of_row(const std::string& target);

/// All that rows name: "aten::conv2d", "sym::mul". A file is not trusted, and may hold no others: its nodes go to
/// ATen's dispatcher, which also knows operations that open files, show memory by numbers or unpickle objects.
std::vector<std::string> listed_operations();

/// Throws std::invalid_argument, without the node's name, unless a file may hold the node.
void check_operation(const Graph& graph, const Node& node);

/// The rows of a table by the names in them. A name in two of them is a std::logic_error.
template <class Row>
class RowsByName {
 public:
  template <size_t count>
  explicit RowsByName(const Row (&table)[count]) {
    for (const Row& row : table) {
      std::istringstream names{std::string(row.names)};
      for (std::string name; names >> name;) {
        const bool added = rows_.emplace(name.starts_with("sym::") ? name : "aten::" + name, &row).second;
        if (!added) throw std::logic_error("two rows for operation " + name);
      }
    }
  }

  /// An empty one if no row names it.
  const Row& of(const std::string& target) const {
    const auto found = rows_.find(target);
    return found == rows_.end() ? none_ : *found->second;
  }
  const std::unordered_map<std::string, const Row*>& all() const { return rows_; }

 private:
  std::unordered_map<std::string, const Row*> rows_;
  Row none_{};
};

/// Whether the rows of a convolution's weight are its inputs.
bool is_transposed(const Node& node);

// guards.cpp
void guard_batch_norm(const torch::jit::Stack& arguments);
void guard_weight_norm(const torch::jit::Stack& arguments);
void guard_attention(const torch::jit::Stack& arguments);
void guard_division(const torch::jit::Stack& arguments);
void guard_lstm(const torch::jit::Stack& arguments);
void guard_gru(const torch::jit::Stack& arguments);
void guard_rnn(const torch::jit::Stack& arguments);

// detours.cpp
void detour_convolution(torch::jit::Stack& arguments);
void detour_recurrent(torch::jit::Stack& arguments);
void detour_view(torch::jit::Stack& arguments);
void detour_view_as(torch::jit::Stack& arguments);

// operation_macs.cpp
AxisProducts convolution_macs(const Graph& graph, const Node& node);
AxisProducts recurrent_macs(const Graph& graph, const Node& node);
AxisProducts product_macs(const Graph& graph, const Node& node);
AxisProducts einsum_macs(const Graph& graph, const Node& node);
AxisProducts attention_macs(const Graph& graph, const Node& node);

}  // namespace prunex::program
