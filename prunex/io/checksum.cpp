#include "prunex/io/checksum.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

namespace prunex::io {
namespace {

class Fnv {
 public:
  void add(const void* data, size_t size) {
    const char* bytes = static_cast<const char*>(data);
    for (; size >= 8; bytes += 8, size -= 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes, 8);
      mix(word);
    }
    for (; size > 0; ++bytes, --size) mix(static_cast<unsigned char>(*bytes));
  }
  void add(const std::string& text) {
    add(text.data(), text.size());
    mix(text.size());
  }
  uint64_t value() const { return hash_; }

 private:
  void mix(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x100000001b3ULL;
    hash_ ^= hash_ >> 29;  // a plain FNV step over words would never carry high bits down
  }

  uint64_t hash_ = 0xcbf29ce484222325ULL;
};

}  // namespace

std::string checksum(const TensorDict& tensors, const std::string& text) {
  Fnv hash;
  hash.add(text);
  for (const auto& item : tensors) {
    const at::Tensor values = item.value().detach().cpu().contiguous();
    hash.add(fmt::format("{} {} {}", item.key(), at::toString(values.scalar_type()), fmt::join(values.sizes(), "x")));
    hash.add(values.const_data_ptr(), values.nbytes());
  }
  return fmt::format("{:016x}", hash.value());
}

}  // namespace prunex::io
