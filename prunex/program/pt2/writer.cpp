#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "prunex/program/pt2.h"
#include "prunex/program/pt2/format.h"

namespace prunex::program {
namespace {

using Json = nlohmann::ordered_json;

// Writes the few pickle opcodes (protocol 2) that tensors need.
class Pickler {
 public:
  Pickler() : bytes_("\x80\x02", 2) {}

  void global(const std::string& module, const std::string& name) { bytes_ += "c" + module + "\n" + name + "\n"; }
  void mark() { bytes_ += '('; }
  void tuple() { bytes_ += 't'; }
  void empty_tuple() { bytes_ += ')'; }
  void empty_list() { bytes_ += ']'; }
  void appends() { bytes_ += 'e'; }
  void empty_dict() { bytes_ += '}'; }
  void set_items() { bytes_ += 'u'; }
  void reduce() { bytes_ += 'R'; }
  void persistent_id() { bytes_ += 'Q'; }
  void no() { bytes_ += '\x89'; }
  void integer(int64_t value) { number('J', value); }
  void text(const std::string& text) {
    number('X', static_cast<int64_t>(text.size()));
    bytes_ += text;
  }
  void integers(const std::vector<int64_t>& values) {
    mark();
    for (const auto value : values) integer(value);
    tuple();
  }
  std::string finish() { return bytes_ + "."; }

 private:
  void number(char opcode, int64_t value) {
    const auto narrow = static_cast<int32_t>(value);
    if (narrow != value) throw std::invalid_argument(fmt::format("a sample input of {} elements is too large", value));
    char bytes[sizeof narrow];
    std::memcpy(bytes, &narrow, sizeof narrow);
    bytes_ += opcode;
    bytes_.append(bytes, sizeof narrow);
  }

  std::string bytes_;
};

std::vector<int64_t> row_major(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t axis = sizes.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * sizes[axis];
  return strides;
}

// torch._utils._rebuild_tensor_v2(storage, 0, sizes, strides, requires_grad = False, OrderedDict())
void pickle_tensor(Pickler& pickler, const Value& value, const std::string& key, int64_t batch) {
  const auto sizes = sizes_of(value.shape, batch);
  pickler.global("torch._utils", "_rebuild_tensor_v2");
  pickler.mark();
  pickler.mark();
  pickler.text("storage");
  pickler.global("torch", fmt::format("{}Storage", c10::toString(value.dtype)));
  pickler.text(key);
  pickler.text("cpu");
  pickler.integer(c10::multiply_integers(sizes));
  pickler.tuple();
  pickler.persistent_id();
  pickler.integer(0);
  pickler.integers(sizes);
  pickler.integers(row_major(sizes));
  pickler.no();
  pickler.global("collections", "OrderedDict");
  pickler.empty_tuple();
  pickler.reduce();
  pickler.tuple();
  pickler.reduce();
}

/// Zeros for the graph's inputs, nested as its in_spec says: [version, {"type", "context", "children_spec"}].
class SampleInputs {
 public:
  SampleInputs(const Graph& graph, int64_t batch) : graph_(graph), batch_(batch) {}

  std::string pickle() {
    if (const Json spec = in_spec(); count(spec, 0) == static_cast<int64_t>(graph_.inputs.size())) {
      write(spec);
    } else {
      write_flat();
    }
    return pickler_.finish();
  }

 private:
  Json in_spec() const {
    const Json metadata = Json::parse(graph_.metadata.empty() ? "{}" : graph_.metadata);
    const Json text = Json::parse(metadata.value("in_spec", ""), nullptr, false);
    return text.is_array() && text.size() == 2 ? text[1] : Json();
  }

  static std::string kind_of(const Json& spec) {
    return spec.at("type").is_null() ? "" : spec["type"].get<std::string>();
  }

  static std::vector<std::string> keys_of(const Json& dict) {
    return Json::parse(dict.at("context").get<std::string>()).get<std::vector<std::string>>();
  }

  /// The leaves; -1 where it is none of tuples, lists and dicts of text.
  static int64_t count(const Json& spec, int depth) try {
    constexpr int kDeepest = 64;
    const std::string kind = kind_of(spec);
    if (kind.empty()) return 1;
    const auto& children = spec.at("children_spec");
    const bool is_dict = kind == "builtins.dict";
    const bool known =
        kind == "builtins.tuple" || kind == "builtins.list" || (is_dict && keys_of(spec).size() == children.size());
    int64_t leaves = known && depth < kDeepest ? 0 : -1;
    for (size_t i = 0; i < children.size() && leaves >= 0; ++i) {
      const int64_t below = count(children[i], depth + 1);
      leaves = below < 0 ? -1 : leaves + below;
    }
    return leaves;
  } catch (const Json::exception&) {
    return -1;
  }

  void write(const Json& spec) {
    const std::string kind = kind_of(spec);
    if (kind.empty()) return write_leaf();
    const bool is_dict = kind == "builtins.dict", is_list = kind == "builtins.list";
    const auto keys = is_dict ? keys_of(spec) : std::vector<std::string>();
    if (is_dict) pickler_.empty_dict();
    if (is_list) pickler_.empty_list();
    pickler_.mark();
    for (size_t i = 0; i < spec["children_spec"].size(); ++i) {
      if (is_dict) pickler_.text(keys[i]);
      write(spec["children_spec"][i]);
    }
    if (is_dict) return pickler_.set_items();
    if (is_list) return pickler_.appends();
    pickler_.tuple();
  }

  /// ((x0, x1, …), {})
  void write_flat() {
    pickler_.mark();
    pickler_.mark();
    while (next_ < graph_.inputs.size()) write_leaf();
    pickler_.tuple();
    pickler_.empty_dict();
    pickler_.tuple();
  }

  void write_leaf() {
    pickle_tensor(pickler_, graph_.values[graph_.inputs[next_]], std::to_string(next_), batch_);
    ++next_;
  }

  const Graph& graph_;
  const int64_t batch_;
  Pickler pickler_;
  size_t next_ = 0;
};

/// The bytes of torch.save((args, kwargs)) for the graph's inputs with `batch` images: compilers start from them.
std::string sample_inputs(const Graph& graph, int64_t batch) {
  const auto pickle = SampleInputs(graph, batch).pickle();

  std::string file;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t bytes) {
    file.append(static_cast<const char*>(data), bytes);
    return bytes;
  });
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("byteorder", "little", 6);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const auto& value = graph.values[graph.inputs[i]];
    const std::string zeros(c10::multiply_integers(sizes_of(value.shape, batch)) * c10::elementSize(value.dtype), '\0');
    writer.writeRecord("data/" + std::to_string(i), zeros.data(), zeros.size());
  }
  writer.writeEndOfFile();
  return file;
}

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
  archive.write("data/sample_inputs/model.pt", sample_inputs(graph, sample_batch(graph)));
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
