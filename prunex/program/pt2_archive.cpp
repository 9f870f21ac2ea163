#include "prunex/program/pt2_archive.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "prunex/io/atomic_file.h"

namespace prunex::program {
namespace {

// The first line of what LibTorch says, without its stack trace.
std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

std::unique_ptr<caffe2::serialize::PyTorchStreamReader> open(const std::string& path) {
  if (!std::filesystem::exists(path)) throw std::runtime_error("no such file");
  if (!std::filesystem::is_regular_file(path)) throw std::runtime_error("is not a file");
  try {
    return std::make_unique<caffe2::serialize::PyTorchStreamReader>(path);
  } catch (const c10::Error& error) {
    throw std::runtime_error(
        fmt::format("is not a program saved by torch.export.save, or is truncated ({})", first_line(error)));
  }
}

}  // namespace

struct ArchiveReader::Zip {
  std::unique_ptr<caffe2::serialize::PyTorchStreamReader> reader;
};

ArchiveReader::ArchiveReader(const std::string& path) : zip_(std::make_unique<Zip>(Zip{open(path)})) {}
ArchiveReader::~ArchiveReader() = default;

bool ArchiveReader::has(const std::string& record) const {
  return zip_->reader->hasRecord(record);
}

nlohmann::json ArchiveReader::json(const std::string& record) const {
  const auto bytes = storage(record);
  const auto* text = static_cast<const char*>(bytes.data());
  try {
    return nlohmann::json::parse(text, text + bytes.nbytes());
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(fmt::format("{}: {}", record, error.what()));
  }
}

c10::Storage ArchiveReader::storage(const std::string& record) const {
  if (!has(record)) throw std::runtime_error(fmt::format("has no record '{}'", record));
  try {
    auto [data, size] = zip_->reader->getRecord(record);
    return {c10::Storage::use_byte_size_t(), size, std::move(data), nullptr, false};
  } catch (const c10::Error& error) {
    throw std::runtime_error(fmt::format("record '{}' cannot be read ({})", record, first_line(error)));
  }
}

// LibTorch's writer finishes the archive in its destructor, where a failed write would end the process: `failure` keeps
// the first one for check().
struct ArchiveWriter::Zip {
  explicit Zip(const std::string& path)
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

ArchiveWriter::ArchiveWriter(const std::string& path) : zip_(std::make_unique<Zip>(path)) {
  zip_->writer.setMinVersion(6);
}

ArchiveWriter::~ArchiveWriter() = default;

void ArchiveWriter::check() const {
  if (zip_->failure) std::rethrow_exception(zip_->failure);
}

void ArchiveWriter::write(const std::string& record, const void* data, size_t bytes) {
  zip_->writer.writeRecord(record, data, bytes);
  check();
}

void ArchiveWriter::finish() {
  zip_->writer.writeEndOfFile();
  check();
  zip_->file.commit();
}

}  // namespace prunex::program
