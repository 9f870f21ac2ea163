// Records of .pt2 files in an archive that is whole: its checksums hide them from what changes bytes of the file. What
// is read is written.
#include <caffe2/serialize/inline_container.h>

#include <filesystem>
#include <map>

#include "prunex/program/pt2.h"
#include "tests/fuzz/harness.h"
#include "tests/program/graphs.h"

namespace prunex::fuzz {
namespace {

// An input is the place of a record in the archive's order, a letter from 'a' on, and its bytes.
using Records = std::map<std::string, std::string>;

Records records_of(const std::string& path) {
  caffe2::serialize::PyTorchStreamReader reader(path);
  Records records;
  for (const auto& name : reader.getAllRecords()) {
    if (name.starts_with(".data/")) continue;  // the writer's own
    const auto [data, size] = reader.getRecord(name);
    records.emplace(name, std::string(static_cast<const char*>(data.get()), size));
  }
  return records;
}

const Records& small_network() {
  static const Records records = [] {
    const auto path = folder() + "/small";
    program::write_pt2(path, {program::Program(program::small_graph()), program::small_weights()});
    return records_of(path);
  }();
  return records;
}

void write_archive(const std::string& path, size_t place, const std::string& bytes) {
  caffe2::serialize::PyTorchStreamWriter writer(path);
  writer.setMinVersion(6);
  size_t i = 0;
  for (const auto& [name, content] : small_network()) {
    const auto& written = i++ == place ? bytes : content;
    writer.writeRecord(name, written.data(), written.size());
  }
  writer.writeEndOfFile();
}

}  // namespace

void write_seeds(const std::string& directory) {
  char letter = 'a';
  for (const auto& [name, content] : small_network()) {
    write_seed(directory, std::string("record-") + letter, letter + content);
    ++letter;
  }
}

}  // namespace prunex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace prunex;
  if (size == 0) return -1;
  const auto path = fuzz::folder() + "/archive";
  fuzz::write_archive(path, data[0] - 'a', {reinterpret_cast<const char*>(data) + 1, size - 1});
  fuzz::expect_clear(std::filesystem::file_size(path), [&] {
    const auto model = program::read_pt2(path);
    program::write_pt2(fuzz::folder() + "/again", model);
  });
  return 0;
}
