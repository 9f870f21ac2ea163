#include "prunex/data/shards.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "prunex/data/dataset.h"
#include "prunex/data/decode.h"
#include "prunex/data/tar.h"
#include "prunex/io/files.h"
#include "prunex/text/option.h"
#include "prunex/text/read_file.h"

namespace prunex::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostShards = 100'000;
constexpr int64_t kLargestIndex = int64_t{1} << 30;  // bytes

struct Sample {
  int64_t begin, size, label;
  std::string key;
};

/// Keys end to end, as a folder's paths.
class Shards final : public EncodedImages {
 public:
  void add(const std::string& path, const std::vector<Sample>& samples) {
    for (const Sample& sample : samples) {
      keys_ += sample.key;
      places_.push_back({paths_.size(), sample.begin, sample.size, keys_.size()});
    }
    paths_.push_back(path);
  }
  int64_t size() const override { return static_cast<int64_t>(places_.size()); }
  std::string name(int64_t i) const override { return paths_[places_[i].shard] + ": " + short_name(i); }
  std::string short_name(int64_t i) const override {
    const size_t begin = i == 0 ? 0 : places_[i - 1].key_end;
    return keys_.substr(begin, places_[i].key_end - begin);
  }
  std::string read(int64_t i) const override {
    return read_bytes(paths_[places_[i].shard], places_[i].begin, places_[i].size);
  }

 private:
  struct Place {
    size_t shard;
    int64_t begin, size;
    size_t key_end;
  };
  std::vector<std::string> paths_;
  std::string keys_;
  std::vector<Place> places_;
};

/// Up to the first dot of the file's name, and what is behind it, in small letters.
std::pair<std::string, std::string> key_and_ending(const std::string& name) {
  const size_t slash = name.rfind('/');
  const size_t dot = name.find('.', slash == std::string::npos ? 0 : slash);
  if (dot == std::string::npos) return {name, ""};
  std::string ending = name.substr(dot + 1);
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return {name.substr(0, dot), ending};
}

int64_t label_in(const std::string& path, const TarMember& member) {
  constexpr int64_t kMostDigits = 32;
  std::string text = member.size <= kMostDigits ? read_bytes(path, member.begin, member.size) : "";
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
  const auto label = text::number_in<int64_t>(text);
  if (label && *label >= 0 && *label < kMostClasses) return *label;
  throw std::invalid_argument(
      fmt::format("{}: {}: wanted a label, a number from 0 to {}", path, member.name, kMostClasses - 1));
}

/// Makes samples of a shard's members in their order.
class SampleReader {
 public:
  explicit SampleReader(const std::string& path) : path_(path) {}

  void take(const TarMember& member) {
    const auto [key, ending] = key_and_ending(member.name);
    if (key.empty() || key.ends_with('/')) return;  // what begins with a dot has no key, such as ._0000.jpg of macOS
    if (key != open_.key) {
      close();
      open_ = Open();
      open_.key = key;
    }
    if (ends_an_image(ending)) {
      refuse_second(open_.image.has_value(), "image", member);
      open_.image = member;
    } else if (ending == "cls") {
      refuse_second(open_.label.has_value(), "label", member);
      open_.label = label_in(path_, member);
    } else {
      const std::string last = ending.substr(ending.rfind('.') + 1);
      if (ends_an_image(last)) open_.dotted_image = member.name;
      open_.has_dotted_label = open_.has_dotted_label || last == "cls";
    }
  }

  std::vector<Sample> finish() {
    close();
    return std::move(samples_);
  }

 private:
  struct Open {
    std::string key;
    std::optional<TarMember> image;
    std::optional<int64_t> label;
    std::string dotted_image;  // KEY.mask.png, or a name with a dot in what was meant as its key
    bool has_dotted_label = false;
  };

  void refuse_second(bool there_is_one, const char* what, const TarMember& member) const {
    if (!there_is_one) return;
    throw std::invalid_argument(
        fmt::format("{}: {}: a second {} of key {}, wanted one", path_, member.name, what, open_.key));
  }

  void close() {
    if (!open_.dotted_image.empty() && (!open_.image || open_.has_dotted_label)) {
      throw std::invalid_argument(fmt::format(
          "{}: {}: got the extension {}, all behind the name's first dot, wanted .jpg, .jpeg, .png or .webp", path_,
          open_.dotted_image, open_.dotted_image.substr(open_.key.size())));
    }
    if (open_.image && open_.label) {
      samples_.push_back({open_.image->begin, open_.image->size, *open_.label, open_.key});
    }
    if (open_.image.has_value() == open_.label.has_value()) return;
    throw std::invalid_argument(fmt::format("{}: {} has no {}", path_, open_.key,
                                            open_.image ? "label: wanted a member .cls behind or before its image"
                                                        : "image: wanted .jpg, .jpeg, .png or .webp beside .cls"));
  }

  const std::string path_;
  std::vector<Sample> samples_;
  Open open_;
};

std::vector<Sample> samples_of(const std::string& path) {
  SampleReader reader(path);
  for (const TarMember& member : read_tar(path)) reader.take(member);
  auto samples = reader.finish();
  if (samples.empty())
    throw std::invalid_argument(fmt::format("{}: no samples in it, wanted KEY.jpg and KEY.cls", path));
  return samples;
}

/// By which an index knows its shard: size and CRC-32 of the bytes at both ends.
std::string identity_of(const std::string& path) {
  constexpr int64_t kEnd = 1 << 16;
  const auto size = static_cast<int64_t>(fs::file_size(path));
  const int64_t part = std::min(size, kEnd);
  const std::string ends = read_bytes(path, 0, part) + read_bytes(path, size - part, part);
  return fmt::format("{} {:08x}", size, crc32_z(0, reinterpret_cast<const Bytef*>(ends.data()), ends.size()));
}

std::string index_name(const std::string& path) {
  return path + ".index";
}

const char* const kIndexBegin = "prunex index 2 of ";

/// Lines "BEGIN SIZE LABEL KEY" behind one that says of which shard, and how many they are.
std::string index_text(const std::string& path, const std::vector<Sample>& samples) {
  std::string text = fmt::format("{}{} {}\n", kIndexBegin, identity_of(path), samples.size());
  for (const Sample& sample : samples) {
    if (sample.key.find('\n') != std::string::npos) {
      throw std::invalid_argument(fmt::format(
          "{}: {}: a line break in the name, wanted none: an index has one line per sample", path, sample.key));
    }
    text += fmt::format("{} {} {} {}\n", sample.begin, sample.size, sample.label, sample.key);
  }
  return text;
}

Sample sample_in(const std::string& line, int64_t shard_size, const std::string& source) {
  std::vector<int64_t> numbers;
  size_t at = 0;
  while (numbers.size() < 3 && at != std::string::npos) {
    const size_t end = line.find(' ', at);
    const auto number = text::number_in<int64_t>(line.substr(at, end - at));
    if (!number || *number < 0) break;
    numbers.push_back(*number);
    at = end == std::string::npos ? end : end + 1;
  }
  if (numbers.size() < 3 || at == std::string::npos || numbers[0] > shard_size ||
      numbers[1] > shard_size - numbers[0] || numbers[2] >= kMostClasses) {
    throw std::invalid_argument(fmt::format("{}: damaged: '{}'", source, line.substr(0, 80)));
  }
  return {numbers[0], numbers[1], numbers[2], line.substr(at)};
}

std::string index_of(const std::string& source) try {
  return text::read_file(source, kLargestIndex);
} catch (const std::invalid_argument& error) {
  throw std::invalid_argument(fmt::format("{}: {}", source, error.what()));
}

std::vector<Sample> samples_in_index(const std::string& path) {
  const std::string source = index_name(path), text = index_of(source);
  const std::string wanted = kIndexBegin + identity_of(path) + " ";
  if (!text.starts_with(wanted)) {
    throw std::invalid_argument(fmt::format("{}: not of the {} beside it: `prunex data index` makes it anew", source,
                                            fs::path(path).filename().string()));
  }
  // It was given the shard's time: one of another time may say nothing of what the shard is between its ends.
  if (fs::last_write_time(source) != fs::last_write_time(path)) return samples_of(path);
  std::vector<Sample> samples;
  const auto size = static_cast<int64_t>(fs::file_size(path));
  const size_t line = text.find('\n');
  for (size_t begin = line + 1, end; line != std::string::npos && begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    if (end == std::string::npos) break;
    samples.push_back(sample_in(text.substr(begin, end - begin), size, source));
  }
  if (line == std::string::npos || text.back() != '\n' ||
      text.substr(wanted.size(), line - wanted.size()) != std::to_string(samples.size())) {
    throw std::invalid_argument(fmt::format("{}: cut short", source));
  }
  return samples;
}

/// Errors of one shard name the option.
template <class Work>
auto about(const std::string& option, const std::string& path, const Work& work) {
  try {
    return work();
  } catch (const fs::filesystem_error& error) {
    throw std::invalid_argument(fmt::format("{}: {}: {}", option, path, error.code().message()));
  } catch (const BrokenImage& error) {
    throw std::invalid_argument(fmt::format("{}: {}: {}", option, path, error.what()));
  } catch (const std::exception& error) {
    throw std::invalid_argument(fmt::format("{}: {}", option, error.what()));
  }
}

/// As a shell pads them: all as wide as the wider end, if one of both begins with 0.
size_t width_of(const std::string& first, const std::string& last) {
  const auto is_padded = [](const std::string& number) { return number.size() > 1 && number.front() == '0'; };
  return is_padded(first) || is_padded(last) ? std::max(first.size(), last.size()) : 1;
}

/// "0000..0099" or "a,b"; empty if it is neither.
std::vector<std::string> alternatives_of(const std::string& braced) {
  std::vector<std::string> all;
  const size_t dots = braced.find("..");
  if (dots == std::string::npos) return braced.find(',') == std::string::npos ? all : text::parts_of(braced, ',');
  const std::string first = braced.substr(0, dots), last = braced.substr(dots + 2);
  const auto from = text::number_in<int64_t>(first), to = text::number_in<int64_t>(last);
  if (!from || !to || *from < 0 || *from > *to || *to - *from >= static_cast<int64_t>(kMostShards)) return all;
  const size_t width = width_of(first, last);
  for (int64_t i = *from; i <= *to; ++i) all.push_back(fmt::format("{:0{}}", i, width));
  return all;
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& pattern, const std::string& option) {
  std::vector<std::string> names{""};
  size_t at = 0;
  for (size_t open; (open = pattern.find('{', at)) != std::string::npos;) {
    const size_t close = pattern.find('}', open);
    const auto alternatives = close == std::string::npos ? std::vector<std::string>()
                                                         : alternatives_of(pattern.substr(open + 1, close - open - 1));
    if (alternatives.empty() || names.size() > kMostShards / alternatives.size()) {
      throw std::invalid_argument(
          fmt::format("{}: got {}, wanted such as train-{{0000..0099}}.tar or {{a,b}}.tar", option, pattern));
    }
    std::vector<std::string> longer;
    for (const auto& name : names) {
      for (const auto& one : alternatives) longer.push_back(name + pattern.substr(at, open - at) + one);
    }
    names = std::move(longer);
    at = close + 1;
  }
  for (auto& name : names) name += pattern.substr(at);
  return names;
}

Listing list_shards(const std::string& pattern, const std::string& option) {
  Listing listing;
  auto images = std::make_unique<Shards>();
  std::vector<int64_t> labels;
  for (const std::string& path : expand_braces(pattern, option)) {
    const auto samples =
        about(option, path, [&] { return fs::exists(index_name(path)) ? samples_in_index(path) : samples_of(path); });
    for (const Sample& sample : samples) labels.push_back(sample.label);
    images->add(path, samples);
  }
  listing.labels = at::tensor(labels, at::kLong);
  listing.images = std::move(images);
  return listing;
}

int64_t write_shard_indices(const std::string& pattern, const std::string& option) {
  int64_t count = 0;
  for (const std::string& path : expand_braces(pattern, option)) {
    count += about(option, path, [&] {
      const auto time = fs::last_write_time(path);
      const auto samples = samples_of(path);
      io::write_file_atomically(index_name(path), index_text(path, samples));
      // the shard's own, not that of a clock that goes behind; a shard that changes from here on is younger
      std::error_code ignored;
      fs::last_write_time(index_name(path), time, ignored);
      return static_cast<int64_t>(samples.size());
    });
  }
  return count;
}

}  // namespace prunex::data
