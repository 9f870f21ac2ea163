#include "tests/program/pt2_files.h"

#include <caffe2/serialize/inline_container.h>

namespace prunex::program {

std::string stored_pt2(const std::string& name) {
  return std::string(PRUNEX_TEST_DATA "/pt2/") + name + ".pt2";
}

void copy_pt2(const std::string& from, const std::string& to, const std::string& record,
              const std::function<void(nlohmann::json&)>& edit) {
  caffe2::serialize::PyTorchStreamReader reader(from);
  caffe2::serialize::PyTorchStreamWriter writer(to);
  writer.setMinVersion(6);
  for (const auto& name : reader.getAllRecords()) {
    if (name.starts_with(".data/")) continue;  // the writer's own
    const auto [data, size] = reader.getRecord(name);
    std::string bytes(static_cast<const char*>(data.get()), size);
    if (name == record) {
      auto json = nlohmann::json::parse(bytes);
      edit(json);
      bytes = json.dump();
    }
    writer.writeRecord(name, bytes.data(), bytes.size());
  }
  writer.writeEndOfFile();
}

}  // namespace prunex::program
