#include "prunex/data/load.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace prunex::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPixels = 3 * 32 * 32;

/// One of the two data sets. A record is `label_bytes` labels, the last of which counts, and three colour planes.
struct Format {
  std::string name;
  std::string folder;
  std::vector<std::string> train;
  std::string test;
  std::string names;  // of the classes, one per line; the file may be absent
  int64_t label_bytes;
  int64_t classes;
  std::vector<double> mean;  // of all pixels of the 50,000 training images
  std::vector<double> std;
};

Format cifar10() {
  return {.name = "cifar10",
          .folder = "cifar-10-batches-bin",
          .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
          .test = "test_batch.bin",
          .names = "batches.meta.txt",
          .label_bytes = 1,
          .classes = 10,
          .mean = {0.49139968, 0.48215841, 0.44653091},
          .std = {0.24703223, 0.24348513, 0.26158784}};
}

Format cifar100() {
  return {.name = "cifar100",
          .folder = "cifar-100-binary",
          .train = {"train.bin"},
          .test = "test.bin",
          .names = "fine_label_names.txt",
          .label_bytes = 2,
          .classes = 100,
          .mean = {0.50707516, 0.48654887, 0.44091784},
          .std = {0.26733429, 0.25643846, 0.27615047}};
}

fs::path find_folder(const std::string& given, const Format& format) {
  for (const fs::path& folder : {fs::path(given) / format.folder, fs::path(given)}) {
    if (fs::exists(folder / format.test)) return folder;
  }
  throw std::invalid_argument(fmt::format("`data_dir` {}: {} is neither in {} nor in {}", given, format.test,
                                          (fs::path(given) / format.folder).string(), given));
}

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

// uint8 [records, label bytes + pixels]
at::Tensor read_records(const fs::path& path, const Format& format) {
  std::error_code error;
  auto size = static_cast<int64_t>(fs::file_size(path, error));
  if (error) throw std::runtime_error(fmt::format("cannot read {}: {}", path.string(), error.message()));
  int64_t record = format.label_bytes + kPixels;
  if (size == 0 || size % record != 0) {
    throw std::runtime_error(fmt::format("{}: {} bytes, a multiple of {} is wanted: not {} data, or cut short",
                                         path.string(), size, record, format.name));
  }
  at::Tensor records = at::empty({size / record, record}, at::kByte);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error(fmt::format("cannot read {}: {}", path.string(), reason_of(errno)));
  stream.read(reinterpret_cast<char*>(records.data_ptr<uint8_t>()), size);
  if (!stream) throw std::runtime_error(fmt::format("cannot read {}: {} bytes expected", path.string(), size));
  return records;
}

void check_labels(const at::Tensor& labels, int64_t classes, const fs::path& path) {
  at::Tensor wrong = labels.ge(classes).nonzero();
  if (wrong.size(0) == 0) return;
  int64_t first = wrong[0].item<int64_t>();
  throw std::runtime_error(fmt::format("{}: image {} has label {}, 0 … {} is wanted", path.string(), first,
                                       labels[first].item<int64_t>(), classes - 1));
}

std::vector<std::string> read_names(const fs::path& path, int64_t classes) {
  if (fs::exists(path) && !fs::is_regular_file(path)) {
    throw std::runtime_error(fmt::format("{}: is not a regular file", path.string()));
  }
  std::ifstream stream(path);
  if (!stream && fs::exists(path)) {
    throw std::runtime_error(fmt::format("cannot read {}: {}", path.string(), reason_of(errno)));
  }
  std::vector<std::string> names;
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (names.empty() || static_cast<int64_t>(names.size()) == classes) return names;
  throw std::runtime_error(
      fmt::format("{}: {} names of classes, {} are wanted, one per line", path.string(), names.size(), classes));
}

Dataset read_files(const fs::path& folder, const std::vector<std::string>& files, const Format& format) {
  std::vector<at::Tensor> images, labels;
  for (auto& file : files) {
    at::Tensor records = read_records(folder / file, format);
    labels.push_back(records.select(1, format.label_bytes - 1).to(at::kLong));
    check_labels(labels.back(), format.classes, folder / file);
    images.push_back(records.narrow(1, format.label_bytes, kPixels).reshape({-1, 3, 32, 32}));
  }
  return {.name = format.name,
          .images = at::cat(images).contiguous(at::MemoryFormat::ChannelsLast),
          .labels = at::cat(labels),
          .classes = format.classes,
          .mean = format.mean,
          .std = format.std,
          .augmentation = {.padding = 4, .flip = true},
          .class_names = read_names(folder / format.names, format.classes)};
}

Datasets read(const std::string& given, const Format& format) {
  fs::path folder = find_folder(given, format);
  return {.train = read_files(folder, format.train, format), .test = read_files(folder, {format.test}, format)};
}

}  // namespace

Datasets read_cifar10(const std::string& folder) {
  return read(folder, cifar10());
}

Datasets read_cifar100(const std::string& folder) {
  return read(folder, cifar100());
}

}  // namespace prunex::data
