// A network as data: a list of ATen calls with named weights, as torch.export writes it, that runs and trains.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "prunex/tensors.h"

namespace prunex::program {

/// Position in Graph::values.
using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

/// One extent of a recorded shape: `factor`, or `factor` times the batch size.
struct Extent {
  int64_t factor = 0;
  bool per_image = false;
  bool operator==(const Extent&) const = default;
};
using Shape = std::vector<Extent>;

/// The sizes for so many images.
std::vector<int64_t> sizes_of(const Shape& shape, int64_t images);

/// Axis of a tensor of `rank` axes, counted from the front.
inline int64_t from_front(int64_t axis, int64_t rank) {
  return axis < 0 ? axis + rank : axis;
}

/// What a value is. Parameters, buffers and constants are inputs of the graph that come from files.
enum class Role { kParameter, kBuffer, kConstant, kInput, kComputed, kSymInt };

struct Value {
  std::string name;  ///< unique in the graph
  Role role = Role::kComputed;
  std::string weight{};  ///< parameters, buffers, constants: the state-dict name
  at::ScalarType dtype = at::kFloat;
  Shape shape{};  ///< of tensors
  /// Of tensors: how they lay in memory when the program was exported; kPreserve: in another way.
  at::MemoryFormat order = at::MemoryFormat::Contiguous;
  Extent number{};  ///< of kSymInt: its value
};

/// One argument of an ATen call, by the schema's name.
struct Argument {
  enum class Kind {
    kLiteral,  ///< `literal`; a number stands for a tensor where the schema says Tensor
    kValue,    ///< values[0]
    kValues,   ///< a list of tensors; kNoValue stands for None (indices of index.Tensor)
    kInts,     ///< a list of integers: values[i], or ints[i] where values[i] is kNoValue
  };
  std::string name;
  Kind kind = Kind::kLiteral;
  c10::IValue literal{};
  std::vector<ValueId> values{};
  std::vector<int64_t> ints{};
};

/// One call. Arguments that are left out take the schema's defaults.
struct Node {
  /// "aten::conv2d", "aten::add.Tensor", "aten::sym_size.int"; on kSymInt values "sym::mul", "sym::add", "sym::sub",
  /// "sym::floordiv" with arguments "a" and "b".
  std::string target;
  std::vector<Argument> arguments{};
  std::vector<ValueId> outputs{};  ///< kNoValue: this output is not used
  bool output_is_list = false;     ///< chunk, split
  /// In torch.no_grad: the first value that is computed there. Earlier ones may not be written to.
  ValueId unrecorded = kNoValue;
  std::string metadata{};  ///< JSON object, carried through files unread

  const Argument* find(const std::string& argument) const;  ///< nullptr: left out
  /// The (first) tensor of an argument; kNoValue if it is left out or None.
  ValueId tensor(const std::string& argument) const;
  /// A literal; `otherwise` if it is left out or None.
  int64_t integer(const std::string& argument, int64_t otherwise) const;
  bool boolean(const std::string& argument, bool otherwise) const;
  /// A list of literal integers, one alone included; empty if it is left out or None. Symbolic entries are -1.
  std::vector<int64_t> integers(const std::string& argument) const;
  /// Gives an argument a literal.
  void set(const std::string& argument, c10::IValue literal);
  /// "aten::relu_", "aten::add_.Tensor": writes to its first tensor.
  bool is_in_place() const;
  /// "aten::mul" of aten::mul.Tensor and of aten::mul_.Scalar.
  std::string operation() const;
};

/// The plain data of a program; nodes are in topological order.
struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs;  ///< the user's inputs, in calling order
  std::vector<ValueId> outputs;
  std::map<std::string, std::string> aliases;   ///< tied weights: state-dict name -> the name that owns the storage
  std::map<std::string, at::Tensor> constants;  ///< by Value::weight
  std::string metadata{};                       ///< JSON object, carried through files unread

  int64_t fewest_images = 0, most_images = 0;  ///< in a batch that the export allows; 0: any

  /// So many images in a batch, or what the export allows that is nearest.
  int64_t batch_of(int64_t images) const {
    return std::max(fewest_images, most_images > 0 ? std::min(images, most_images) : images);
  }
  /// Throws std::invalid_argument that begins with `option` if the export does not allow a batch of so many: the graph
  /// may be another one then.
  void expect_batch(const std::string& option, int64_t images) const;
  /// Images that recorded shapes are of: 1, or the fixed batch of the first input.
  int64_t images() const;
  /// The name under which Weights holds the tensor of a parameter or buffer: itself, or what it is an alias of.
  const std::string& owner(const std::string& weight) const;
};

/// How messages name a node: "conv2d_3 (aten::conv2d)".
std::string describe(const Graph& graph, const Node& node);

enum class Mode { kTrain, kEval };

/// The graph as it would have been exported in `mode`: the flags of batch norm, instance norm and dropout are set. In
/// kEval, the counting of num_batches_tracked and stochastic depth disappear; kTrain cannot bring them back. Batch norm
/// without running statistics keeps its flag. Ids of values stay; some values of the result are then in no node.
Graph in_mode(const Graph& graph, Mode mode);

/// Batch norm or instance norm, which have running statistics if their node says where.
bool may_keep_statistics(const Node& node);

/// The share of the running statistics that a batch replaces in training: 1 where the file says 0, which is what an
/// export in eval mode makes of None.
double momentum_of(const Node& norm);

/// An executable graph: const and re-entrant, so ranks can be threads. Copies share the graph.
class Program {
 public:
  /// Checks the graph (operations known, arguments match the schema, every value defined before use, no in-place write
  /// to parameters, constants or buffers but num_batches_tracked) and compiles it to dispatcher calls; throws
  /// std::invalid_argument that names the node.
  explicit Program(Graph graph);

  /// Runs the calls through the ATen dispatcher, with autograd if it is on. kTrain and kEval switch batch norm, dropout
  /// and stochastic depth whatever the file was exported as (in_mode). In kTrain, and in it alone, the contents of
  /// batch-norm buffers are updated. Values are freed after their last use. Parameters and buffers are found by name
  /// (quickest where their order is the graph's). Runs on the device of the first input, where the weights must be too.
  std::vector<at::Tensor> run(at::TensorList inputs, const Weights& weights, Mode mode) const;

  const Graph& graph() const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

/// A program with weights: what a file holds and a model function returns.
struct Model {
  Program program;
  Weights weights;
};

// shapes.cpp: shapes that a run has, against those that a graph records.

/// Parameters and buffers of zeros, as the graph records them.
Weights zero_weights(const Graph& graph);

/// torch.export 2.11 records an axis too many for the last states of recurrent layers, and for all that follows.
bool records_wrong_shapes(const Graph& graph);

/// Records the shapes of all computed values as two runs in eval mode have them, on 2 and 3 images of zeros, or as
/// many more as the export wants. Throws std::invalid_argument for a size that is neither fixed nor a multiple of the
/// batch.
Graph with_measured_shapes(Graph graph, const Weights& weights);

/// What the eval form makes of two images and weights of zeros (or of as many more as the export wants), by value;
/// undefined where nothing computes it.
std::vector<at::Tensor> values_of_zeros(const Graph& graph);

/// Runs the program in eval mode on images and weights of zeros, as values_of_zeros does: every value that something
/// uses must come out in its recorded shape. Throws c10::Error that names the value.
void check_shapes(const Program& program);

}  // namespace prunex::program
