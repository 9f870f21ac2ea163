// .pt2 files, byte for byte.
#include "prunex/program/pt2.h"

#include "tests/fuzz/harness.h"
#include "tests/program/graphs.h"

namespace prunex::fuzz {

constexpr int64_t kMostUnfolded = 1 << 18;  // of an archive's records, that memory may be measured by

void write_seeds(const std::string& directory) {
  program::write_pt2(directory + "/small", {program::Program(program::small_graph()), program::small_weights()});
}

}  // namespace prunex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace prunex;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz::expect_clear(size, [&] { program::parse_pt2(bytes, "input", fuzz::kMostUnfolded); });
  return 0;
}
