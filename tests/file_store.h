// Where ranks find each other that are processes of a test.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "prunex/comm/store.h"

namespace prunex::tests {

/// One file per key in a folder that exists.
class FileStore final : public comm::Store {
 public:
  explicit FileStore(std::string folder) : folder_(std::move(folder)) {}

  void set(const std::string& key, const std::string& value) override {
    const auto path = path_of(key);
    std::ofstream(path + ".new") << value;
    std::filesystem::rename(path + ".new", path);
  }

  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!std::filesystem::exists(path_of(key))) {
      if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    std::ifstream file(path_of(key));
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  std::string path_of(std::string key) const {
    for (char& letter : key) {
      if (letter == '/' || letter == ' ') letter = '_';
    }
    return folder_ + "/" + key;
  }

  std::string folder_;
};

}  // namespace prunex::tests
