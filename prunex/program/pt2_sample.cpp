#include "prunex/program/pt2_sample.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

namespace prunex::program {
namespace {

// Writes the few pickle opcodes (protocol 2) that tensors need.
class Pickler {
 public:
  Pickler() : bytes_("\x80\x02", 2) {}

  void global(const std::string& module, const std::string& name) { bytes_ += "c" + module + "\n" + name + "\n"; }
  void mark() { bytes_ += '('; }
  void tuple() { bytes_ += 't'; }
  void empty_tuple() { bytes_ += ')'; }
  void empty_dict() { bytes_ += '}'; }
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

std::vector<int64_t> sizes_of(const Value& value, int64_t batch) {
  std::vector<int64_t> sizes;
  for (const auto& extent : value.shape) sizes.push_back(extent.per_image ? extent.factor * batch : extent.factor);
  return sizes;
}

std::vector<int64_t> row_major(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t axis = sizes.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * sizes[axis];
  return strides;
}

int64_t count(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (const auto size : sizes) product *= size;
  return product;
}

// torch._utils._rebuild_tensor_v2(storage, 0, sizes, strides, requires_grad = False, OrderedDict())
void pickle_tensor(Pickler& pickler, const Value& value, const std::string& key, int64_t batch) {
  const auto sizes = sizes_of(value, batch);
  pickler.global("torch._utils", "_rebuild_tensor_v2");
  pickler.mark();
  pickler.mark();
  pickler.text("storage");
  pickler.global("torch", fmt::format("{}Storage", c10::toString(value.dtype)));
  pickler.text(key);
  pickler.text("cpu");
  pickler.integer(count(sizes));
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

}  // namespace

std::string sample_inputs(const Graph& graph, int64_t batch) {
  Pickler pickler;
  pickler.mark();
  pickler.mark();
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    pickle_tensor(pickler, graph.values[graph.inputs[i]], std::to_string(i), batch);
  }
  pickler.tuple();
  pickler.empty_dict();
  pickler.tuple();
  const auto pickle = pickler.finish();

  std::string file;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t bytes) {
    file.append(static_cast<const char*>(data), bytes);
    return bytes;
  });
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("byteorder", "little", 6);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const auto& value = graph.values[graph.inputs[i]];
    const std::string zeros(count(sizes_of(value, batch)) * c10::elementSize(value.dtype), '\0');
    writer.writeRecord("data/" + std::to_string(i), zeros.data(), zeros.size());
  }
  writer.writeEndOfFile();
  return file;
}

}  // namespace prunex::program
