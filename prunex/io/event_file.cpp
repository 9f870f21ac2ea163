#include "prunex/io/event_file.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>

namespace prunex::io {
namespace {

// Wire types of protobuf, and what Event calls its fields.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
enum EventField : uint32_t { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
enum SummaryField : uint32_t { kValue = 1 };
enum ValueField : uint32_t { kTag = 1, kSimpleValue = 2 };

void add_varint(std::string& bytes, uint64_t number) {
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  bytes += static_cast<char>(number);
}

void add_key(std::string& bytes, uint32_t field, Wire wire) {
  add_varint(bytes, field << 3 | wire);
}

template <class T>
void add_little_endian(std::string& bytes, T number) {
  static_assert(std::endian::native == std::endian::little);
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void add_text(std::string& bytes, uint32_t field, std::string_view text) {
  add_key(bytes, field, kBytes);
  add_varint(bytes, text.size());
  bytes += text;
}

constexpr std::array<uint32_t, 256> kCastagnoli = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ ((sum & 1) != 0 ? 0x82f63b78U : 0U);
    table[byte] = sum;
  }
  return table;
}();

/// CRC-32C, masked as TFRecord wants it.
uint32_t masked_crc(std::string_view bytes) {
  uint32_t sum = ~0U;
  for (const char byte : bytes) sum = sum >> 8 ^ kCastagnoli[(sum ^ static_cast<uint8_t>(byte)) & 0xff];
  return std::rotr(~sum, 15) + 0xa282ead8U;
}

/// Length, its checksum, the bytes, theirs.
constexpr size_t kBefore = 12, kAround = 16;

std::string framed(const std::string& event) {
  std::string record;
  add_little_endian(record, static_cast<uint64_t>(event.size()));
  add_little_endian(record, masked_crc(record));
  record += event;
  add_little_endian(record, masked_crc(event));
  return record;
}

std::string event_at(double time) {
  std::string event;
  add_key(event, kWallTime, kFixed64);
  add_little_endian(event, time);
  return event;
}

template <class T>
T read(std::string_view bytes) {
  T number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

/// The bytes of the event that a file begins with; nothing unless they are whole.
std::optional<std::string_view> first_event(std::string_view file) {
  if (file.size() < kAround) return std::nullopt;
  const auto size = read<uint64_t>(file);
  if (size > file.size() - kAround) return std::nullopt;
  const std::string_view event = file.substr(kBefore, size);
  if (read<uint32_t>(file.substr(8)) != masked_crc(file.substr(0, 8))) return std::nullopt;
  if (read<uint32_t>(file.substr(kBefore + size)) != masked_crc(event)) return std::nullopt;
  return event;
}

/// Of an event as event_record() writes it: behind the time.
int64_t step_of(std::string_view event) {
  constexpr size_t kTime = 9;
  if (event.size() <= kTime || event[kTime] != (kStep << 3 | kVarint)) return 0;
  uint64_t step = 0;
  int shift = 0;
  for (const char byte : event.substr(kTime + 1, 9)) {
    step |= static_cast<uint64_t>(byte & 0x7f) << shift;
    shift += 7;
    if ((byte & 0x80) == 0) break;
  }
  return static_cast<int64_t>(step);
}

}  // namespace

std::string event_file_head(double time) {
  std::string event = event_at(time);
  add_text(event, kFileVersion, "brain.Event:2");
  return framed(event);
}

std::string event_record(double time, int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string event = event_at(time), summary;
  add_key(event, kStep, kVarint);
  add_varint(event, static_cast<uint64_t>(step));
  for (const auto& [tag, number] : scalars) {
    std::string value;
    add_text(value, kTag, tag);
    add_key(value, kSimpleValue, kFixed32);
    add_little_endian(value, static_cast<float>(number));
    add_text(summary, kValue, value);
  }
  add_text(event, kSummary, summary);
  return framed(event);
}

std::string_view events_until(std::string_view file, int64_t last) {
  size_t kept = 0;
  while (const auto event = first_event(file.substr(kept))) {
    if (step_of(*event) > last) break;
    kept += kAround + event->size();
  }
  return file.substr(0, kept);
}

}  // namespace prunex::io
