// Programs in files, as torch.export.save writes and torch.export.load reads them (.pt2, schema major version 8).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "prunex/program/program.h"

namespace prunex::program {

/// Whether the batch (axis 0 of every input) may be a number: such a program runs on so many images only.
enum class Batch { kDynamic, kAny };

/// Who made a file. kSelf: this process, of a module of its own: any operation that LibTorch knows may be in it, for
/// most of which pruning has no rule, and inputs that are constants, which are left out.
enum class Maker { kStranger, kSelf };

/// Reads a program. Weights are contiguous, in the file's order; tied ones are one tensor and an alias. Buffers outside
/// the state dict become constants. What is not supported throws std::invalid_argument, an unreadable file
/// std::runtime_error; both name the file, in one line.
/// A file may come from a stranger: it holds none but the operations of operations.cpp, its weights lie inside their
/// records, and those have the archive's CRC-32s. Records that are larger than `most_bytes` together are refused; 0:
/// than eight times the file.
Model read_pt2(const std::string& path, int64_t most_bytes = 0, Batch batch = Batch::kDynamic);
/// The same of a file's bytes; `name` stands for the path.
Model parse_pt2(std::string_view bytes, const std::string& name, int64_t most_bytes = 0, Batch batch = Batch::kDynamic,
                Maker maker = Maker::kStranger);

/// Texts by name, beside the program: what torch.export.save and torch.export.load call extra_files.
using ExtraFiles = std::map<std::string, std::string>;

/// Nothing if the file has no such text. Throws as read_pt2 does.
std::optional<std::string> read_extra_file(const std::string& path, const std::string& name, int64_t most_bytes = 0);

/// 64 bits of what a program computes: its calls, shapes and constants, not weights or what files carry along.
uint64_t checksum(const Graph& graph);

/// Writes a program that stock PyTorch loads, trains and compiles; write a graph in_mode(kEval) to ship it. The weights
/// are stored row-major whatever their memory layout. A temporary name, then a rename; equal models give equal bytes.
void write_pt2(const std::string& path, const Model& model, const ExtraFiles& extra_files = {});

}  // namespace prunex::program
