#include <fmt/format.h>

#include <stdexcept>

#include "prunex/program/pt2.h"
#include "prunex/program/pt2_archive.h"

namespace prunex::program {
namespace {

constexpr size_t kMostBytes = 1 << 20;

}  // namespace

std::optional<std::string> read_extra_file(const std::string& path, const std::string& name) {
  const std::string record = "extra/" + name;
  try {
    const ArchiveReader archive(path);
    if (!archive.has(record)) return std::nullopt;
    const c10::Storage bytes = archive.storage(record);
    if (bytes.nbytes() <= kMostBytes) return std::string(static_cast<const char*>(bytes.data()), bytes.nbytes());
    throw std::runtime_error(
        fmt::format("record '{}' has {} bytes, at most {} are wanted", record, bytes.nbytes(), kMostBytes));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace prunex::program
