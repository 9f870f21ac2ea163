// The zip file around a program: named records.
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace prunex::program {

/// Reads records and holds them against the archive's CRC-32s. Errors are std::runtime_error without the path (read_pt2
/// adds it).
class ArchiveReader {
 public:
  /// Refuses an archive whose records are larger than `most_bytes` together; 0: than eight times the file, or 8 MiB.
  explicit ArchiveReader(const std::string& path, int64_t most_bytes = 0);
  /// `bytes` must outlive the reader.
  explicit ArchiveReader(std::string_view bytes, int64_t most_bytes = 0);
  ~ArchiveReader();

  int64_t limit() const;  ///< bytes of all records together
  bool has(const std::string& record) const;
  /// As text::parse_json: bounded in depth.
  nlohmann::json json(const std::string& record) const;
  /// The record's bytes in storage of its own.
  c10::Storage storage(const std::string& record) const;

 private:
  struct Archive;
  std::unique_ptr<Archive> archive_;
};

/// Writes records to a temporary file beside `path`; finish() renames it. Destroyed before that, it leaves nothing. The
/// bytes depend on nothing but the records.
class ArchiveWriter {
 public:
  explicit ArchiveWriter(const std::string& path);
  ~ArchiveWriter();

  void write(const std::string& record, const void* data, size_t bytes);
  void write(const std::string& record, const std::string& text) { write(record, text.data(), text.size()); }
  void finish();

 private:
  struct Archive;
  void check() const;

  std::unique_ptr<Archive> archive_;
};

}  // namespace prunex::program
