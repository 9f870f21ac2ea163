#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "prunex/data/decode.h"
#include "prunex/data/encoded_images.h"
#include "prunex/text/one_line.h"

namespace prunex::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = int64_t{1} << 30;  // of one image's file

class OpenFile {
 public:
  /// Does not wait for the writer of a named pipe.
  explicit OpenFile(const std::string& path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenFile() {
    if (file_ >= 0) ::close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int number() const { return file_; }

 private:
  int file_;
};

/// Paths end to end: a million of strings of their own would take four times the memory.
class Folder final : public EncodedImages {
 public:
  explicit Folder(std::string root) : root_(std::move(root)) {
    while (root_.size() > 1 && root_.back() == '/') root_.pop_back();
  }

  void add(const std::string& path) {
    paths_ += path;
    ends_.push_back(paths_.size());
  }
  int64_t size() const override { return static_cast<int64_t>(ends_.size()); }
  std::string name(int64_t i) const override { return root_ + "/" + short_name(i); }
  std::string short_name(int64_t i) const override {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return paths_.substr(begin, ends_[i] - begin);
  }
  std::string read(int64_t i) const override { return read_bytes(name(i), 0, -1); }

 private:
  std::string root_, paths_;
  std::vector<size_t> ends_;
};

enum class FileKind { kImage, kUnread, kOther };

bool is_one_of(std::string ending, std::initializer_list<const char*> endings) {
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

/// Without the dot.
std::string ending_of(const fs::path& file) {
  return file.has_extension() ? file.extension().string().substr(1) : "";
}

FileKind kind_of(const fs::path& file) {
  if (names_an_image(file.string())) return FileKind::kImage;
  return is_one_of(ending_of(file), {"ppm", "bmp", "pgm", "tif", "tiff"}) ? FileKind::kUnread : FileKind::kOther;
}

std::vector<std::string> class_folders(const std::string& folder, const std::string& option) {
  std::vector<std::string> classes;
  std::error_code failure;
  fs::directory_iterator entries(folder, failure);
  if (failure) throw std::invalid_argument(fmt::format("{}: {}: {}", option, folder, failure.message()));
  for (const auto& entry : entries) {
    if (entry.is_directory(failure)) classes.push_back(entry.path().filename().string());
  }
  if (classes.empty()) {
    throw std::invalid_argument(fmt::format("{}: {}: no folders in it, wanted one per class", option, folder));
  }
  for (const auto& name : classes) {
    if (text::is_utf8(name)) continue;
    throw std::invalid_argument(fmt::format("{}: {}/{}: its name is not UTF-8: a network could not carry it", option,
                                            folder, text::one_line(name)));
  }
  std::sort(classes.begin(), classes.end());
  return classes;
}

/// Below `folder`, folders too, in the order of their paths.
std::vector<std::string> files_below(const fs::path& folder, const std::string& option) {
  constexpr int kDeepest = 32;  // links may go round
  std::vector<std::string> folders, files;
  const auto options = fs::directory_options::follow_directory_symlink;
  folders.push_back(folder.string());
  for (fs::recursive_directory_iterator entry(folder, options), end; entry != end; ++entry) {
    if (entry.depth() > kDeepest) {
      throw std::invalid_argument(
          fmt::format("{}: {}: more than {} folders in each other", option, entry->path().string(), kDeepest));
    }
    if (entry->is_directory()) folders.push_back(entry->path().string());
  }
  std::sort(folders.begin(), folders.end());
  for (const auto& one : folders) {
    const size_t first = files.size();
    for (const auto& entry : fs::directory_iterator(one)) {
      const FileKind kind = kind_of(entry.path());
      if (kind == FileKind::kOther || entry.is_directory()) continue;
      if (kind == FileKind::kUnread) {
        throw std::invalid_argument(fmt::format("{}: {}: wanted JPEG, PNG or WebP", option, entry.path().string()));
      }
      files.push_back(entry.path().string());
    }
    std::sort(files.begin() + static_cast<int64_t>(first), files.end());
  }
  return files;
}

int64_t label_of(const std::string& name, const std::vector<std::string>& classes, const std::string& where) {
  const auto found = std::find(classes.begin(), classes.end(), name);
  if (found != classes.end()) return found - classes.begin();
  throw std::invalid_argument(fmt::format("{}: a class that training does not have: '{}'", where, name));
}

}  // namespace

std::string read_bytes(const std::string& path, int64_t begin, int64_t size) {
  const auto failure = [] { return BrokenImage(std::strerror(errno)); };
  const OpenFile file(path);
  struct stat about;
  if (file.number() < 0 || ::fstat(file.number(), &about) != 0) throw failure();
  if (!S_ISREG(about.st_mode)) throw BrokenImage("not a file");
  if (size < 0) size = about.st_size - begin;
  if (size > kMostBytes) throw BrokenImage(fmt::format("{} bytes, wanted at most {}", size, kMostBytes));
  if (begin + size > about.st_size) throw BrokenImage("the file has become shorter");
  std::string bytes(static_cast<size_t>(size), '\0');
  for (int64_t done = 0; done < size;) {
    const ssize_t got = ::pread(file.number(), bytes.data() + done, static_cast<size_t>(size - done), begin + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw failure();
    if (got == 0) throw BrokenImage("the file has become shorter");
    done += got;
  }
  return bytes;
}

std::unique_ptr<EncodedImages> list_images(const std::string& path, const std::string& option) try {
  const fs::path parent = fs::is_directory(path) ? fs::path(path) : fs::path(path).parent_path();
  auto images = std::make_unique<Folder>(parent.empty() ? "." : parent.string());
  if (!fs::is_directory(path)) {
    images->add(fs::path(path).filename().string());
    return images;
  }
  for (const auto& file : files_below(parent, option)) images->add(fs::path(file).lexically_relative(parent).string());
  if (images->size() > 0) return images;
  throw std::invalid_argument(fmt::format("{}: {}: no images in it: wanted JPEG, PNG or WebP", option, path));
} catch (const fs::filesystem_error& error) {
  throw std::invalid_argument(fmt::format("{}: {}: {}", option, error.path1().string(), error.code().message()));
}

bool ends_an_image(std::string ending) {
  return is_one_of(std::move(ending), {"jpg", "jpeg", "png", "webp"});
}

bool names_an_image(const std::string& path) {
  return ends_an_image(ending_of(path));
}

Listing list_folder(const std::string& folder, const std::vector<std::string>& classes, const std::string& option) try {
  const auto found = class_folders(folder, option);
  Listing listing{.classes = classes.empty() ? found : classes, .labels = {}, .images = {}};
  auto images = std::make_unique<Folder>(folder);
  std::vector<int64_t> labels;
  for (const std::string& name : found) {
    const int64_t label = label_of(name, listing.classes, fmt::format("{}: {}", option, folder));
    const auto files = files_below(fs::path(folder) / name, option);
    if (files.empty()) {
      throw std::invalid_argument(fmt::format("{}: {}/{}: a class without images", option, folder, name));
    }
    for (const auto& file : files) images->add(file.substr(folder.size() + (folder.ends_with('/') ? 0 : 1)));
    labels.insert(labels.end(), files.size(), label);
  }
  listing.labels = at::tensor(labels, at::kLong);
  listing.images = std::move(images);
  return listing;
} catch (const fs::filesystem_error& error) {
  throw std::invalid_argument(fmt::format("{}: {}: {}", option, error.path1().string(), error.code().message()));
}

}  // namespace prunex::data
