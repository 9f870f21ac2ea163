// The zip file around a program: named records.
#pragma once

#include <c10/core/Storage.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace prunex::program {

/// Reads records. Errors are std::runtime_error without the path (read_pt2 adds it).
class ArchiveReader {
 public:
  explicit ArchiveReader(const std::string& path);
  ~ArchiveReader();

  bool has(const std::string& record) const;
  nlohmann::json json(const std::string& record) const;
  /// The record's bytes in storage of its own.
  c10::Storage storage(const std::string& record) const;

 private:
  struct Zip;
  std::unique_ptr<Zip> zip_;
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
  struct Zip;
  void check() const;

  std::unique_ptr<Zip> zip_;
};

}  // namespace prunex::program
