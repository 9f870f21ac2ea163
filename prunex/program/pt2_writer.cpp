#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "prunex/program/pt2.h"
#include "prunex/program/pt2_archive.h"
#include "prunex/program/pt2_graph.h"
#include "prunex/program/pt2_sample.h"

namespace prunex::program {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kSampleBatch = 2;

// Writes tensors under numbered names and remembers which name stands for which weight.
class TensorWriter {
 public:
  TensorWriter(ArchiveWriter& archive, std::string folder, std::string prefix)
      : archive_(archive), folder_(std::move(folder)), prefix_(std::move(prefix)) {}

  void write(const std::string& name, const at::Tensor& tensor, bool is_param) {
    const auto record = fmt::format("{}_{}", prefix_, records_++);
    const auto dense = tensor.detach().cpu().contiguous();
    archive_.write(folder_ + record, dense.const_data_ptr(), dense.nbytes());
    config_[name] = {{"path_name", record},
                     {"is_param", is_param},
                     {"use_pickle", false},
                     {"tensor_meta", write_tensor_meta(tensor)}};
  }

  // A tied weight names its owner's record.
  void write(const std::string& name, const std::string& owner, const TensorDict& tensors, bool is_param) {
    if (!config_.contains(owner)) write(owner, tensors[owner], is_param);
    if (!config_.contains(name)) config_[name] = Json(config_[owner]);
  }

  void finish(const std::string& record) { archive_.write(folder_ + record, Json{{"config", config_}}.dump()); }

 private:
  ArchiveWriter& archive_;
  std::string folder_, prefix_;
  int64_t records_ = 0;
  Json config_ = Json::object();
};

void write(ArchiveWriter& archive, const Model& model, const ExtraFiles& extra_files) {
  const auto& graph = model.program.graph();
  const auto document = write_graph(graph, model.weights).dump();
  TensorWriter weights(archive, "data/weights/", "weight");
  for (const auto role : {Role::kParameter, Role::kBuffer}) {
    const bool is_param = role == Role::kParameter;
    const auto& tensors = is_param ? model.weights.params : model.weights.buffers;
    for (const auto& value : graph.values) {
      if (value.role == role) weights.write(value.weight, graph.owner(value.weight), tensors, is_param);
    }
  }
  weights.finish("model_weights_config.json");
  TensorWriter constants(archive, "data/constants/", "tensor");
  for (const auto& [name, tensor] : graph.constants) constants.write(name, tensor, false);
  constants.finish("model_constants_config.json");
  archive.write("models/model.json", document);
  archive.write("data/sample_inputs/model.pt", sample_inputs(graph, kSampleBatch));
  for (const auto& [name, text] : extra_files) archive.write("extra/" + name, text);
  archive.write("archive_format", "pt2");
  archive.write("archive_version", "0");
  archive.write("byteorder", "little");
  archive.finish();
}

}  // namespace

void write_pt2(const std::string& path, const Model& model, const ExtraFiles& extra_files) {
  ArchiveWriter archive(path);
  try {
    write(archive, model, extra_files);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace prunex::program
