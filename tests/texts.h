// What a failing call says, what a file holds, and files that hold it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace prunex::tests {

/// The text of the exception that the call throws; "no exception" if it throws none.
inline std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no exception";
}

/// All of it; empty if it cannot be read.
inline std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Makes the folders on the way to it.
inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Of a file that grows: of its last line only a part may be there. 0 while there is none.
inline int64_t lines_written(const std::string& path) {
  const std::string text = text_of(path);
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace prunex::tests
