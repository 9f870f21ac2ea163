// Small safetensors files of images and pixels, written byte by byte.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace prunex::tests {

struct StoredTensor {
  std::string name, type;  ///< "images", "U8"
  std::vector<int64_t> shape;
  std::string bytes;
};

inline void write_tensors(const std::string& path, const std::vector<StoredTensor>& tensors) {
  nlohmann::ordered_json header;
  std::string data;
  for (const auto& [name, type, shape, bytes] : tensors) {
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::string length(sizeof size, '\0');
  std::memcpy(length.data(), &size, sizeof size);
  std::ofstream(path, std::ios::binary) << length << text << data;
}

/// `count` images of 3 x 32 x 32 pixels; every label of 0 … classes - 1 has a brightness of its own.
inline std::string pixels(int64_t count, int64_t classes) {
  std::string bytes;
  for (int64_t i = 0; i < count * 3 * 32 * 32; ++i) {
    const int64_t label = i / (3 * 32 * 32) % classes;
    bytes += static_cast<char>((label * 255 / classes + i * 7 % 31 + i / 1024 % 3 * 5) % 256);
  }
  return bytes;
}

/// A file for --dataset or --test, with the labels in turn.
inline void write_images(const std::string& path, int64_t count, int64_t classes) {
  std::string labels;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = i % classes;
    labels.append(reinterpret_cast<const char*>(&label), sizeof label);
  }
  write_tensors(path,
                {{"images", "U8", {count, 3, 32, 32}, pixels(count, classes)}, {"labels", "I64", {count}, labels}});
}

}  // namespace prunex::tests
