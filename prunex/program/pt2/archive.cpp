#include "prunex/program/pt2/format.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <zip.h>

#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "prunex/io/files.h"
#include "prunex/text/json.h"

namespace prunex::program {
namespace {

// Torch stores records as they are; a file that was packed again by another tool may be smaller than its records.
constexpr int64_t kMostUnfolding = 8;
constexpr int64_t kSmallFile = 1 << 20;
struct CloseZip {
  void operator()(zip_t* zip) const { zip_discard(zip); }
};
struct CloseEntry {
  void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};
using Zip = std::unique_ptr<zip_t, CloseZip>;

struct Error {
  Error() { zip_error_init(&error); }
  ~Error() { zip_error_fini(&error); }
  zip_error_t error;
};

Zip open(zip_source_t* source, Error& error) {
  zip_t* zip = source ? zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error.error) : nullptr;
  if (zip) return Zip(zip);
  const std::string text = zip_error_strerror(&error.error);
  zip_source_free(source);
  throw std::runtime_error(fmt::format("is not a program saved by torch.export.save, or is truncated ({})", text));
}

uint64_t size_of(const std::string& path) {
  if (!std::filesystem::exists(path)) throw std::runtime_error("no such file");
  if (!std::filesystem::is_regular_file(path)) throw std::runtime_error("is not a file");
  return std::filesystem::file_size(path);
}

Zip open(const std::string& path) {
  Error error;
  return open(zip_source_file_create(path.c_str(), 0, -1, &error.error), error);
}

Zip open(std::string_view bytes) {
  Error error;
  return open(zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error.error), error);
}

int64_t limit_of(uint64_t file_bytes, int64_t most_bytes) {
  return most_bytes > 0 ? most_bytes : kMostUnfolding * std::max(static_cast<int64_t>(file_bytes), kSmallFile);
}

}  // namespace

struct ArchiveReader::Archive {
  Archive(prunex::program::Zip opened, int64_t most_bytes) : zip(std::move(opened)), limit(most_bytes) {
    if (zip_get_num_entries(zip.get(), 0) < 1) throw std::runtime_error("is an empty archive");
    const std::string first = stat(0).name;
    folder = first.substr(0, first.find('/') + 1);
    check_sizes();
  }

  prunex::program::Zip zip;
  int64_t limit;
  std::string folder;  // "NAME/", in which all records are

  zip_stat_t stat(zip_uint64_t index) const {
    zip_stat_t stat;
    constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE;
    if (zip_stat_index(zip.get(), index, 0, &stat) != 0 || (stat.valid & kNeeded) != kNeeded) {
      throw std::runtime_error("has a record without a name or a size");
    }
    return stat;
  }

  void check_sizes() const {
    uint64_t total = 0;
    const auto most = static_cast<uint64_t>(limit);
    for (zip_int64_t i = 0; i < zip_get_num_entries(zip.get(), 0); ++i) {
      const auto size = stat(static_cast<zip_uint64_t>(i)).size;
      if (size > most - total) {
        throw std::runtime_error(
            fmt::format("its records unfold to more than {} bytes: `max_model_size` allows more", limit));
      }
      total += size;
    }
  }

  zip_int64_t locate(const std::string& record) const {
    return zip_name_locate(zip.get(), (folder + record).c_str(), 0);
  }
};

ArchiveReader::ArchiveReader(const std::string& path, int64_t most_bytes) {
  const auto limit = limit_of(size_of(path), most_bytes);
  archive_ = std::make_unique<Archive>(open(path), limit);
}

ArchiveReader::ArchiveReader(std::string_view bytes, int64_t most_bytes)
    : archive_(std::make_unique<Archive>(open(bytes), limit_of(bytes.size(), most_bytes))) {}

ArchiveReader::~ArchiveReader() = default;

int64_t ArchiveReader::limit() const {
  return archive_->limit;
}

bool ArchiveReader::has(const std::string& record) const {
  return archive_->locate(record) >= 0;
}

nlohmann::json ArchiveReader::json(const std::string& record) const {
  const auto bytes = storage(record);
  try {
    return text::parse_json({static_cast<const char*>(bytes.data()), bytes.nbytes()});
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("record '{}': {}", record, error.what()));
  }
}

c10::Storage ArchiveReader::storage(const std::string& record) const {
  const auto index = archive_->locate(record);
  if (index < 0) throw std::runtime_error(fmt::format("has no record '{}'", record));
  const auto fail = [&](const char* why) {
    throw std::runtime_error(fmt::format("record '{}' cannot be read ({})", record, why));
  };
  const std::unique_ptr<zip_file_t, CloseEntry> entry(
      zip_fopen_index(archive_->zip.get(), static_cast<zip_uint64_t>(index), 0));
  if (!entry) fail(zip_strerror(archive_->zip.get()));
  const auto size = archive_->stat(static_cast<zip_uint64_t>(index)).size;
  auto bytes = at::empty({static_cast<int64_t>(size)}, at::kByte).storage();
  const auto read = zip_fread(entry.get(), bytes.mutable_data(), size);
  if (read < 0) fail(zip_file_strerror(entry.get()));
  char beyond = 0;  // the checksum is compared at the end
  const auto more = zip_fread(entry.get(), &beyond, 1);
  if (more < 0) fail(zip_file_strerror(entry.get()));
  if (static_cast<zip_uint64_t>(read) != size || more != 0) fail("its size is not the one that the archive states");
  return bytes;
}

// LibTorch's writer finishes the archive in its destructor, where a failed write would end the process: `failure` keeps
// the first one for check().
struct ArchiveWriter::Archive {
  explicit Archive(const std::string& path)
      : file(path), writer([this](const void* data, size_t bytes) {
          append(data, bytes);
          return bytes;
        }) {}

  void append(const void* data, size_t bytes) noexcept {
    if (failure) return;
    try {
      file.append(data, bytes);
    } catch (...) {
      failure = std::current_exception();
    }
  }

  io::AtomicFile file;
  std::exception_ptr failure;
  caffe2::serialize::PyTorchStreamWriter writer;
};

ArchiveWriter::ArchiveWriter(const std::string& path) : archive_(std::make_unique<Archive>(path)) {
  archive_->writer.setMinVersion(6);
}

ArchiveWriter::~ArchiveWriter() = default;

void ArchiveWriter::check() const {
  if (archive_->failure) std::rethrow_exception(archive_->failure);
}

void ArchiveWriter::write(const std::string& record, const void* data, size_t bytes) {
  archive_->writer.writeRecord(record, data, bytes);
  check();
}

void ArchiveWriter::finish() {
  archive_->writer.writeEndOfFile();
  check();
  archive_->file.commit();
}

}  // namespace prunex::program
