// The parts of a .pt2 file: a zip of named records; the graph in models/model.json, its arguments, sizes and codes, and
// the sample inputs.
#pragma once

#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prunex/program/program.h"
#include "prunex/program/pt2.h"

namespace c10 {
struct Argument;
}

namespace prunex::program {

/// Reads the document without its tensors: constants and aliases are left empty. Throws std::invalid_argument that
/// names what is not supported.
Graph read_graph(const nlohmann::json& document, Batch batch, Maker maker);

/// The nodes of a graph without assertions and without sizes that only assertions needed.
std::vector<const nlohmann::json*> needed_nodes(const nlohmann::json& graph);

/// "aten::add.Tensor" of "torch.ops.aten.add.Tensor". Throws std::invalid_argument for what no operation is.
std::string read_target(const std::string& target);

/// The document for a graph with its weights. Throws std::invalid_argument where they disagree.
nlohmann::ordered_json write_graph(const Graph& graph, const Weights& weights);

/// The "tensor_meta" of a stored tensor, row-major whatever its memory layout is.
nlohmann::ordered_json write_tensor_meta(const at::Tensor& tensor);

/// Reads {"name": …, "arg": {"as_…": …}}. `find` turns the name of a value into its id. Throws std::invalid_argument
/// that names the argument if its kind is not supported.
Argument read_argument(const nlohmann::json& named, const std::function<ValueId(const std::string&)>& find);

/// The "arg" of `argument`, which the schema describes as `formal`; null for arguments of symbolic arithmetic.
nlohmann::ordered_json write_argument(const Graph& graph, const Argument& argument, const c10::Argument* formal);

/// The name in "Symbol('s0', …)"; none if `expression` is anything else.
std::optional<std::string> symbol_name(const std::string& expression);

/// The extent that `expression`, such as "Mul(Integer(12), Symbol('s0', positive=True, integer=True))", stands for when
/// the batch is called `batch`; none if it is neither a number nor a multiple of the batch, or holds another symbol or
/// an unknown function.
std::optional<Extent> parse_extent(const std::string& expression, const std::string& batch);

/// Images of the sample inputs, which are the hint for the batch: of 1 PyTorch would make a constant when it decomposes
/// the program.
inline int64_t sample_batch(const Graph& graph) {
  return graph.batch_of(2);
}

inline constexpr int kStridedLayout = 7;

/// Throw std::invalid_argument for codes and types that programs do not support (complex, quantized, 8-bit floats).
at::ScalarType dtype_of_code(int64_t code);
int code_of_dtype(at::ScalarType dtype);
at::MemoryFormat memory_format_of_code(int64_t code);
int code_of_memory_format(at::MemoryFormat format);

/// nlohmann-json itself rounds, wraps and looks past the end: throw std::invalid_argument unless it is an integer of 64
/// bits; a size, an axis' stride or a position, which are not negative.
int64_t to_integer(const nlohmann::json& value);
int64_t to_size(const nlohmann::json& value);

/// An object that says by its only key what it holds.
struct Tagged {
  const std::string& tag;
  const nlohmann::json& body;
};
/// Throws std::invalid_argument unless `value` is an object with one key.
Tagged to_tagged(const nlohmann::json& value);

// archive.cpp: the zip file around a program, named records.

/// Reads records and holds them against the archive's CRC-32s. Errors are std::runtime_error without the path (read_pt2
/// adds it).
class ArchiveReader {
 public:
  /// Refuses an archive whose records are larger than `most_bytes` together; 0: than eight times the file, or 8 MiB.
  explicit ArchiveReader(const std::string& path, int64_t most_bytes = 0);
  /// `bytes` must outlive the reader.
  explicit ArchiveReader(std::string_view bytes, int64_t most_bytes = 0);
  ~ArchiveReader();

  int64_t limit() const;  ///< bytes of all records together
  bool has(const std::string& record) const;
  /// As text::parse_json: bounded in depth.
  nlohmann::json json(const std::string& record) const;
  /// The record's bytes in storage of its own.
  c10::Storage storage(const std::string& record) const;

 private:
  struct Archive;
  std::unique_ptr<Archive> archive_;
};

/// Writes records to a temporary file beside `path`; finish() renames it. Destroyed before that, it leaves nothing. The
/// bytes depend on nothing but the records.
class ArchiveWriter {
 public:
  explicit ArchiveWriter(const std::string& path);
  ~ArchiveWriter();

  void write(const std::string& record, const void* data, size_t bytes);
  void write(const std::string& record, const std::string& text) { write(record, text.data(), text.size()); }
  void finish();

 private:
  struct Archive;
  void check() const;

  std::unique_ptr<Archive> archive_;
};

}  // namespace prunex::program
