// A folder of one test's own.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace prunex::tests {

/// Made in the system's folder for temporary files, removed with all it holds.
class Scratch {
 public:
  Scratch() : path_((std::filesystem::temp_directory_path() / "prunex-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw std::filesystem::filesystem_error(path_, {});
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace prunex::tests
