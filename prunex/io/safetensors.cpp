#include "prunex/io/safetensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "prunex/io/atomic_file.h"

namespace prunex::io {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

using Json = nlohmann::ordered_json;  // keeps the order of the header

constexpr uint64_t kLargestHeader = 100'000'000;  // the limit of the reference implementation
constexpr const char* kMetadataKey = "__metadata__";

constexpr std::array<std::pair<const char*, at::ScalarType>, 10> kTypes = {{
    {"F64", at::kDouble},
    {"F32", at::kFloat},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I64", at::kLong},
    {"I32", at::kInt},
    {"I16", at::kShort},
    {"I8", at::kChar},
    {"U8", at::kByte},
    {"BOOL", at::kBool},
}};

// ---- writing

const char* name_of(at::ScalarType type, const std::string& tensor) {
  for (auto& [name, known] : kTypes) {
    if (known == type) return name;
  }
  throw std::invalid_argument(
      fmt::format("tensor {}: safetensors cannot hold values of type {}", tensor, c10::toString(type)));
}

// Wide types first, as the reference implementation does it: every tensor then starts at a multiple of its item size.
std::vector<const TensorDict::Item*> by_item_size(const TensorDict& tensors) {
  std::vector<const TensorDict::Item*> order;
  for (auto& item : tensors) order.push_back(&item);
  std::stable_sort(order.begin(), order.end(),
                   [](auto* a, auto* b) { return a->value().element_size() > b->value().element_size(); });
  return order;
}

Json describe(const TensorDict& tensors, const std::vector<const TensorDict::Item*>& order) {
  std::map<std::string, size_t> begin;
  size_t position = 0;
  for (auto* item : order) begin[item->key()] = std::exchange(position, position + item->value().nbytes());
  Json header = Json::object();
  for (auto& item : tensors) {
    const std::string& name = item.key();
    TORCH_CHECK(name != kMetadataKey, "[io] ", kMetadataKey, " cannot be the name of a tensor");
    header[name] = {{"dtype", name_of(item.value().scalar_type(), name)},
                    {"shape", item.value().sizes().vec()},
                    {"data_offsets", {begin[name], begin[name] + item.value().nbytes()}}};
  }
  return header;
}

std::string header_text(const Json& tensors, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  header.update(tensors);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// ---- reading

struct Entry {
  std::string name;
  at::ScalarType type;
  std::vector<int64_t> shape;
  uint64_t begin;
  uint64_t end;
};

/// Reads one file front to back and knows its name for the errors.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), stream_(path, std::ios::binary) {
    std::error_code error;
    size_ = std::filesystem::file_size(path, error);
    if (error || !stream_) fail("{}", error ? error.message() : "cannot be opened");
  }

  uint64_t size() const { return size_; }

  void read(void* target, uint64_t bytes) {
    stream_.read(static_cast<char*>(target), static_cast<std::streamsize>(bytes));
    if (!stream_) fail("ends early");
  }

  void seek(uint64_t position) { stream_.seekg(static_cast<std::streamoff>(position)); }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    std::string reason = fmt::format(format, std::forward<Args>(args)...);
    throw std::runtime_error(fmt::format("cannot read {}: {}", path_, reason));
  }

 private:
  std::string path_;
  std::ifstream stream_;
  uint64_t size_ = 0;
};

Json read_header(Reader& reader, uint64_t& length) {
  if (reader.size() < sizeof(length)) reader.fail("{} bytes are too few for a safetensors file", reader.size());
  reader.read(&length, sizeof(length));
  if (length > reader.size() - sizeof(length) || length > kLargestHeader) {
    reader.fail("header of {} bytes in a file of {}: not a safetensors file, or cut short", length, reader.size());
  }
  std::string text(length, '\0');
  reader.read(text.data(), length);
  Json header = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) reader.fail("the header is not a JSON object");
  return header;
}

at::ScalarType type_of(const Json& dtype, const std::string& tensor, const Reader& reader) {
  for (auto& [name, type] : kTypes) {
    if (dtype == name) return type;
  }
  reader.fail("tensor {} has dtype {}, which is not supported", tensor, dtype.dump());
}

std::vector<uint64_t> integers(const Json& list, const std::string& tensor, const Reader& reader) {
  bool good =
      list.is_array() && std::all_of(list.begin(), list.end(), [](auto& item) { return item.is_number_unsigned(); });
  if (!good) reader.fail("tensor {}: {} is not a list of non-negative integers", tensor, list.dump());
  return list.get<std::vector<uint64_t>>();
}

Metadata read_metadata(const Json& json, const Reader& reader) {
  bool good = json.is_object() && std::all_of(json.begin(), json.end(), [](auto& value) { return value.is_string(); });
  if (!good) reader.fail("{} is not an object of strings", kMetadataKey);
  return json.get<Metadata>();
}

// The number of bytes, or nothing if it does not fit 63 bits.
bool bytes_of(const std::vector<uint64_t>& shape, uint64_t item_size, uint64_t& bytes) {
  constexpr uint64_t kLimit = std::numeric_limits<int64_t>::max();
  bytes = item_size;
  for (uint64_t extent : shape) {
    if (extent > kLimit || (extent != 0 && bytes > kLimit / extent)) return false;
    bytes *= extent;
  }
  return true;
}

Entry read_entry(const std::string& name, const Json& json, uint64_t data_size, const Reader& reader) {
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!json.is_object() || !json.contains(key)) reader.fail("tensor {} has no {}", name, key);
  }
  Entry entry{.name = name, .type = type_of(json["dtype"], name, reader), .shape = {}, .begin = 0, .end = 0};
  auto shape = integers(json["shape"], name, reader);
  auto offsets = integers(json["data_offsets"], name, reader);
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_size) {
    reader.fail("tensor {} lies at {} of {} bytes of data", name, json["data_offsets"].dump(), data_size);
  }
  uint64_t bytes = 0;
  if (!bytes_of(shape, c10::elementSize(entry.type), bytes) || bytes != offsets[1] - offsets[0]) {
    reader.fail("tensor {} of shape {} and dtype {} does not take {} bytes", name, json["shape"].dump(),
                json["dtype"].dump(), offsets[1] - offsets[0]);
  }
  entry.shape.assign(shape.begin(), shape.end());
  std::tie(entry.begin, entry.end) = std::pair(offsets[0], offsets[1]);
  return entry;
}

void check_coverage(std::vector<Entry> entries, uint64_t data_size, const Reader& reader) {
  std::sort(entries.begin(), entries.end(),
            [](auto& a, auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t position = 0;
  for (auto& entry : entries) {
    if (entry.begin < position) reader.fail("tensor {} overlaps the one before it", entry.name);
    if (entry.begin > position) reader.fail("the bytes before tensor {} belong to no tensor", entry.name);
    position = entry.end;
  }
  if (position != data_size) reader.fail("the last {} bytes belong to no tensor", data_size - position);
}

at::Tensor read_tensor(const Entry& entry, uint64_t data_begin, Reader& reader) {
  // Bytes other than 0 and 1 would be undefined as bool.
  bool is_bool = entry.type == at::kBool;
  at::Tensor tensor = at::empty(entry.shape, is_bool ? at::kByte : entry.type);
  reader.seek(data_begin + entry.begin);
  reader.read(tensor.data_ptr(), tensor.nbytes());
  return is_bool ? tensor.ne(0) : tensor;
}

}  // namespace

void write_safetensors(const std::string& path, const TensorDict& tensors, const Metadata& metadata) {
  auto order = by_item_size(tensors);
  std::string header = header_text(describe(tensors, order), metadata);
  uint64_t length = header.size();
  AtomicFile file(path);
  file.append(&length, sizeof(length));
  file.append(header);
  for (auto* item : order) {
    at::Tensor values = item->value().detach().cpu().contiguous();
    file.append(values.data_ptr(), values.nbytes());
  }
  file.commit();
}

SafeTensors read_safetensors(const std::string& path) {
  Reader reader(path);
  uint64_t length = 0;
  Json header = read_header(reader, length);
  uint64_t data_begin = sizeof(length) + length;
  SafeTensors result;
  std::vector<Entry> entries;
  for (auto& [name, json] : header.items()) {
    if (name == kMetadataKey) {
      result.metadata = read_metadata(json, reader);
    } else {
      entries.push_back(read_entry(name, json, reader.size() - data_begin, reader));
    }
  }
  check_coverage(entries, reader.size() - data_begin, reader);
  for (auto& entry : entries) result.tensors.insert(entry.name, read_tensor(entry, data_begin, reader));
  return result;
}

const at::Tensor& tensor_of(const SafeTensors& file, const std::string& name, const std::string& path) {
  if (const at::Tensor* tensor = file.tensors.find(name)) return *tensor;
  throw std::runtime_error(
      fmt::format("{} has no tensor {}, it holds: {}", path, name, fmt::join(file.tensors.keys(), ", ")));
}

}  // namespace prunex::io
