#include "prunex/io/safetensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "prunex/io/files.h"
#include "prunex/text/json.h"
#include "prunex/text/one_line.h"

namespace prunex::io {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

using Json = nlohmann::json;

constexpr uint64_t kLargestHeader = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMostDimensions = 64;            // of ATen's loops

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

// ---- checksums

constexpr const char* kChecksumsKey = "prunex.crc32";  // where they stand in the metadata
constexpr const char* kMetadataName = "__metadata__";

/// CRC-32 by name: of every tensor, and of the rest of the metadata under kMetadataName. 8 hexadecimal digits each.
using Checksums = std::map<std::string, std::string>;

uLong add_crc(uLong crc, const void* data, size_t bytes) {
  return bytes == 0 ? crc : crc32_z(crc, static_cast<const Bytef*>(data), bytes);
}

std::string digits(uLong crc) {
  return fmt::format("{:08x}", crc);
}

/// `head`: "NAME DTYPE SHAPE\n" as the header writes type and shape. The values are row-major.
std::string tensor_checksum(std::string_view head, const void* values, size_t bytes) {
  return digits(add_crc(add_crc(0, head.data(), head.size()), values, bytes));
}

/// Of lines KEY=VALUE, by key.
std::string metadata_checksum(const Metadata& metadata) {
  uLong crc = 0;
  for (const auto& [key, value] : metadata) {
    const std::string line = key + '=' + value + '\n';
    crc = add_crc(crc, line.data(), line.size());
  }
  return digits(crc);
}

Checksums parse_checksums(const std::string& text) {
  try {
    return text::parse_json(text).get<Checksums>();
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument("not a list of checksums");
  }
}

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

at::Tensor row_major(const at::Tensor& tensor) {
  return tensor.detach().cpu().contiguous();
}

std::string head_of(const std::string& name, const char* dtype, at::IntArrayRef shape) {
  return fmt::format("{} {} [{}]\n", name, dtype, fmt::join(shape, ","));
}

Metadata with_checksums(const TensorDict& tensors, Metadata metadata) {
  metadata.erase(kChecksumsKey);  // of the file that these were read from
  Checksums checksums{{kMetadataName, metadata_checksum(metadata)}};
  for (auto& item : tensors) {
    const auto& name = item.key();
    TORCH_CHECK(name != kMetadataName, "[io] ", kMetadataName, " cannot be the name of a tensor");
    const at::Tensor values = row_major(item.value());
    const auto head = head_of(name, name_of(values.scalar_type(), name), values.sizes());
    checksums[name] = tensor_checksum(head, values.const_data_ptr(), values.nbytes());
  }
  metadata[kChecksumsKey] = Json(checksums).dump();
  return metadata;
}

std::string header_text(const TensorDict& tensors, const std::vector<const TensorDict::Item*>& order,
                        const Metadata& metadata) {
  std::map<std::string, size_t> begin;
  size_t position = 0;
  for (auto* item : order) begin[item->key()] = std::exchange(position, position + item->value().nbytes());
  std::string text = fmt::format("{{\"{}\":{}", kMetadataName, Json(metadata).dump());
  for (auto& item : tensors) {
    const auto& name = item.key();
    const auto& tensor = item.value();
    text += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", Json(name).dump(),
                        name_of(tensor.scalar_type(), name), fmt::join(tensor.sizes(), ","), begin[name],
                        begin[name] + tensor.nbytes());
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// ---- reading

struct Entry {
  std::string name;
  at::ScalarType type = at::kByte;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
  std::string checksum;  ///< empty if the file has none
};

struct Header {
  Json json;
  std::vector<std::string> names;  ///< in the order of the file
  uint64_t data_begin = 0;
};

/// Reads one file front to back and knows its name for the errors.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    std::error_code error;
    size_ = std::filesystem::file_size(path, error);  // of a pipe there is none: opening one could wait for ever
    if (error) fail("{}", error.message());
    stream_ = std::make_unique<std::ifstream>(path, std::ios::binary);
    if (!*stream_) fail("cannot be opened");
  }
  Reader(std::string bytes, const std::string& name)
      : path_(name), size_(bytes.size()), stream_(std::make_unique<std::istringstream>(std::move(bytes))) {}

  uint64_t size() const { return size_; }

  void read(void* target, uint64_t bytes) {
    stream_->read(static_cast<char*>(target), static_cast<std::streamsize>(bytes));
    if (!*stream_) fail("ends early");
  }

  void seek(uint64_t position) { stream_->seekg(static_cast<std::streamoff>(position)); }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    std::string reason = fmt::format(format, std::forward<Args>(args)...);
    throw std::runtime_error(fmt::format("cannot read {}: {}", path_, reason));
  }

 private:
  std::string path_;
  uint64_t size_ = 0;
  std::unique_ptr<std::istream> stream_;
};

Header read_header(Reader& reader) {
  uint64_t length = 0;
  if (reader.size() < sizeof(length)) reader.fail("{} bytes are too few for a safetensors file", reader.size());
  reader.read(&length, sizeof(length));
  if (length > reader.size() - sizeof(length) || length > kLargestHeader) {
    reader.fail("header of {} bytes in a file of {}: not a safetensors file, or cut short", length, reader.size());
  }
  std::string text(length, '\0');
  reader.read(text.data(), length);
  Header header{.data_begin = sizeof(length) + length};
  try {
    header.json = text::parse_json(text);
  } catch (const std::invalid_argument& error) {
    reader.fail("the header is not a JSON object: {}", error.what());
  }
  if (!header.json.is_object()) reader.fail("the header is not a JSON object");
  header.names = text::member_names(text);
  return header;
}

at::ScalarType type_of(const Json& dtype, const std::string& tensor, const Reader& reader) {
  for (auto& [name, type] : kTypes) {
    if (dtype == name) return type;
  }
  reader.fail("tensor {} has dtype {}, which is not supported", tensor, text::one_line(dtype.dump()));
}

std::vector<uint64_t> integers(const Json& list, const std::string& tensor, const Reader& reader) {
  bool good =
      list.is_array() && std::all_of(list.begin(), list.end(), [](auto& item) { return item.is_number_unsigned(); });
  if (!good) reader.fail("tensor {}: {} is not a list of non-negative integers", tensor, text::one_line(list.dump()));
  return list.get<std::vector<uint64_t>>();
}

Metadata read_metadata(const Json& json, const Reader& reader) {
  bool good = json.is_object() && std::all_of(json.begin(), json.end(), [](auto& value) { return value.is_string(); });
  if (!good) reader.fail("{} is not an object of strings", kMetadataName);
  return json.get<Metadata>();
}

// Nothing if sizes or strides do not fit 63 bits. Strides count an extent of 0 as 1.
std::optional<uint64_t> bytes_of(const std::vector<uint64_t>& shape, uint64_t item_size) {
  constexpr uint64_t kLimit = std::numeric_limits<int64_t>::max();
  uint64_t bytes = item_size;
  for (uint64_t extent : shape) {
    if (extent > kLimit || bytes > kLimit / std::max<uint64_t>(extent, 1)) return std::nullopt;
    bytes *= std::max<uint64_t>(extent, 1);
  }
  return std::find(shape.begin(), shape.end(), 0) == shape.end() ? bytes : 0;
}

Entry read_entry(const std::string& key, const Json& json, uint64_t data_size, const Reader& reader) {
  const std::string name = text::one_line(key);
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!json.is_object() || !json.contains(key)) reader.fail("tensor {} has no {}", name, key);
  }
  Entry entry{.name = key, .type = type_of(json["dtype"], name, reader)};
  auto shape = integers(json["shape"], name, reader);
  auto offsets = integers(json["data_offsets"], name, reader);
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_size) {
    reader.fail("tensor {} lies at {} of {} bytes of data", name, text::one_line(json["data_offsets"].dump()),
                data_size);
  }
  if (shape.size() > kMostDimensions) {
    reader.fail("tensor {} has {} dimensions, wanted at most {}", name, shape.size(), kMostDimensions);
  }
  if (bytes_of(shape, c10::elementSize(entry.type)) != offsets[1] - offsets[0]) {
    reader.fail("tensor {} of shape {} and dtype {} does not take {} bytes", name, text::one_line(json["shape"].dump()),
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
    const auto name = text::one_line(entry.name);
    if (entry.begin < position) reader.fail("tensor {} overlaps the one before it", name);
    if (entry.begin > position) reader.fail("the bytes before tensor {} belong to no tensor", name);
    position = entry.end;
  }
  if (position != data_size) reader.fail("the last {} bytes belong to no tensor", data_size - position);
}

/// What the file says of its own bytes; nothing if prunex did not write it.
std::optional<Checksums> take_checksums(Metadata& metadata, const Reader& reader) {
  const auto found = metadata.extract(kChecksumsKey);
  if (found.empty()) return std::nullopt;
  Checksums checksums;
  try {
    checksums = parse_checksums(found.mapped());
  } catch (const std::invalid_argument& error) {
    reader.fail("is damaged: {}: {}", kChecksumsKey, error.what());
  }
  if (checksums[kMetadataName] != metadata_checksum(metadata)) {
    reader.fail("is damaged: the checksum of {} does not match", kMetadataName);
  }
  checksums.erase(kMetadataName);
  return checksums;
}

void expect_checksums(std::vector<Entry>& entries, Checksums checksums, const Reader& reader) {
  for (auto& entry : entries) {
    const auto found = checksums.extract(entry.name);
    if (found.empty()) reader.fail("is damaged: tensor {} has no checksum", text::one_line(entry.name));
    entry.checksum = found.mapped();
  }
  if (checksums.empty()) return;
  reader.fail("is damaged: tensor {} is missing", text::one_line(checksums.begin()->first));
}

at::Tensor read_tensor(const Entry& entry, uint64_t data_begin, Reader& reader) {
  // Bytes other than 0 and 1 would be undefined as bool.
  bool is_bool = entry.type == at::kBool;
  at::Tensor tensor = at::empty(entry.shape, is_bool ? at::kByte : entry.type);
  reader.seek(data_begin + entry.begin);
  reader.read(tensor.data_ptr(), tensor.nbytes());
  const auto head = head_of(entry.name, name_of(entry.type, entry.name), tensor.sizes());
  if (!entry.checksum.empty() && tensor_checksum(head, tensor.const_data_ptr(), tensor.nbytes()) != entry.checksum) {
    reader.fail("tensor {} is damaged: its checksum does not match", text::one_line(entry.name));
  }
  return is_bool ? tensor.ne(0) : tensor;
}

/// `append(const void*, size_t)` gets one piece after the other.
template <class Append>
void write(const TensorDict& tensors, const Metadata& metadata, const Append& append) {
  const auto order = by_item_size(tensors);
  const std::string header = header_text(tensors, order, with_checksums(tensors, metadata));
  const uint64_t length = header.size();
  append(&length, sizeof(length));
  append(header.data(), header.size());
  for (const auto* item : order) {
    const at::Tensor values = row_major(item->value());
    append(values.const_data_ptr(), values.nbytes());
  }
}

SafeTensors read(Reader& reader) {
  const Header header = read_header(reader);
  const uint64_t data_size = reader.size() - header.data_begin;
  SafeTensors result;
  std::vector<Entry> entries;
  std::set<std::string_view> seen;
  for (auto& name : header.names) {
    if (!seen.insert(name).second) reader.fail("{} is there twice", text::one_line(name));
    if (name == kMetadataName) {
      result.metadata = read_metadata(header.json[name], reader);
    } else {
      entries.push_back(read_entry(name, header.json[name], data_size, reader));
    }
  }
  check_coverage(entries, data_size, reader);
  if (auto checksums = take_checksums(result.metadata, reader)) expect_checksums(entries, *checksums, reader);
  for (auto& entry : entries) result.tensors.insert(entry.name, read_tensor(entry, header.data_begin, reader));
  return result;
}

}  // namespace

void write_safetensors(const std::string& path, const TensorDict& tensors, const Metadata& metadata) {
  AtomicFile file(path);
  write(tensors, metadata, [&file](const void* data, size_t bytes) { file.append(data, bytes); });
  file.commit();
}

std::string to_safetensors(const TensorDict& tensors, const Metadata& metadata) {
  std::string bytes;
  write(tensors, metadata,
        [&bytes](const void* data, size_t count) { bytes.append(static_cast<const char*>(data), count); });
  return bytes;
}

SafeTensors read_safetensors(const std::string& path) {
  Reader reader(path);
  return read(reader);
}

Metadata read_safetensors_metadata(const std::string& path) {
  Reader reader(path);
  const Header header = read_header(reader);
  if (!header.json.contains(kMetadataName)) return {};
  Metadata metadata = read_metadata(header.json[kMetadataName], reader);
  take_checksums(metadata, reader);
  return metadata;
}

SafeTensors parse_safetensors(std::string bytes, const std::string& name) {
  Reader reader(std::move(bytes), name);
  return read(reader);
}

const at::Tensor& tensor_of(const SafeTensors& file, const std::string& name, const std::string& path) {
  if (const at::Tensor* tensor = file.tensors.find(name)) return *tensor;
  constexpr size_t kNamed = 20;
  auto names = file.tensors.keys();
  const std::string more = names.size() > kNamed ? fmt::format(" and {} more", names.size() - kNamed) : "";
  names.resize(std::min(names.size(), kNamed));
  for (auto& known : names) known = text::one_line(known);
  throw std::runtime_error(
      fmt::format("{} has no tensor {}, it holds: {}{}", path, name, fmt::join(names, ", "), more));
}

}  // namespace prunex::io
