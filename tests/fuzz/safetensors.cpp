// Safetensors: what is read is written and read again.
#include "prunex/io/safetensors.h"

#include <ATen/ATen.h>

#include "tests/fuzz/harness.h"

namespace prunex::fuzz {
namespace {

std::string with_header(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
}

}  // namespace

void write_seeds(const std::string& directory) {
  TensorDict tensors;
  for (const auto type : {at::kByte, at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kBool}) {
    tensors.insert(c10::toString(type), at::arange(6).reshape({2, 3}).to(type));
  }
  tensors.insert("empty", at::empty({0, 3}));
  tensors.insert("scalar", at::scalar_tensor(7, at::kLong));
  io::write_safetensors(directory + "/types", tensors, {{"key", "value"}});
  io::write_safetensors(directory + "/none", TensorDict());
  write_seed(directory, "theirs",
             with_header(R"({"w":{"dtype":"U8","shape":[1,2],"data_offsets":[0,2]},"__metadata__":{"a":"b"}})", "xy"));
}

}  // namespace prunex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace prunex;
  const auto path = fuzz::file_of({reinterpret_cast<const char*>(data), size});
  io::SafeTensors read;
  bool good = false;
  fuzz::expect_clear(size, [&] {
    read = io::read_safetensors(path);
    good = true;
  });
  if (!good) return 0;
  const auto again = fuzz::folder() + "/again";
  io::write_safetensors(again, read.tensors, read.metadata);
  const auto back = io::read_safetensors(again);
  if (back.tensors.keys() != read.tensors.keys() || back.metadata != read.metadata) fuzz::fail("another file");
  return 0;
}
