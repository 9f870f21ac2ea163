// The safetensors file format: named tensors behind a JSON header.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "prunex/tensors.h"

namespace prunex::io {

using Metadata = std::map<std::string, std::string>;

struct SafeTensors {
  TensorDict tensors;  ///< on the CPU, row-major, in the order of the header
  Metadata metadata;
};

/// Writes the values row-major whatever their memory layout, atomically; equal input gives equal bytes. The metadata
/// of the file also has a checksum of every tensor: docs/design.md.
/// Types: float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, bool.
void write_safetensors(const std::string& path, const TensorDict& tensors, const Metadata& metadata = {});

/// Throws std::runtime_error, one line that names `path`, if the file is missing or is not exactly what the format
/// describes: the tensors must cover the data without gap or overlap; or if it has checksums and a byte has changed:
/// the line names the tensor. The metadata is without the checksums.
SafeTensors read_safetensors(const std::string& path);
/// Its metadata, for which the header is read alone.
Metadata read_safetensors_metadata(const std::string& path);

/// The same in memory. `name`: what errors call it.
std::string to_safetensors(const TensorDict& tensors, const Metadata& metadata = {});
SafeTensors parse_safetensors(std::string bytes, const std::string& name);

/// The entry `name` of a file read from `path`; std::runtime_error with the names that exist if it is absent.
const at::Tensor& tensor_of(const SafeTensors& file, const std::string& name, const std::string& path);

}  // namespace prunex::io
