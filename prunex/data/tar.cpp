#include "prunex/data/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "prunex/data/decode.h"
#include "prunex/data/encoded_images.h"
#include "prunex/text/option.h"

namespace prunex::data {
namespace {

constexpr int64_t kBlock = 512;
constexpr int64_t kPiece = 128 * kBlock;   // of what is behind the end, read at once
constexpr int64_t kLongestName = 1 << 16;  // and of a pax header

/// Fields by their place in a header (POSIX 1003.1, ustar).
struct Header {
  std::string block;

  std::string text(size_t at, size_t size) const {
    return std::string(block.c_str() + at, ::strnlen(block.c_str() + at, size));
  }
  char type() const { return block[156]; }
  bool is_file() const { return type() == '0' || type() == '\0' || type() == '7'; }
  bool is_link() const { return type() == '1' || type() == '2'; }
  /// Folders, labels, and what says more of other members.
  bool is_beside_files() const { return std::string_view("5VgK").find(type()) != std::string_view::npos; }
  bool is_end() const {
    return std::all_of(block.begin(), block.end(), [](char c) { return c == 0; });
  }
  std::string name() const {
    const std::string prefix = text(257, 5) == "ustar" && block[262] == 0 ? text(345, 155) : "";
    return prefix.empty() ? text(0, 100) : prefix + "/" + text(0, 100);
  }
};

std::optional<int64_t> octal(const std::string& digits) {
  int64_t number = 0;
  for (const char c : digits) {
    if (c == ' ') continue;
    if (c < '0' || c > '7') return std::nullopt;
    number = number * 8 + (c - '0');
  }
  return number;
}

/// In octal digits, or, where the first bit is set, in bytes: files of 8 GiB and more.
std::optional<int64_t> size_of(const Header& header) {
  const auto first = static_cast<unsigned char>(header.block[124]);
  if (first < 0x80) return octal(header.text(124, 12));
  int64_t size = 0;
  for (size_t i = 128; i < 136; ++i) {
    if (size >= int64_t{1} << 54) return std::nullopt;
    size = size * 256 + static_cast<unsigned char>(header.block[i]);
  }
  return size;
}

/// The sum of a header's bytes with blanks for the sum itself.
bool has_its_sum(const Header& header) {
  int64_t sum = 8 * ' ';
  for (size_t i = 0; i < header.block.size(); ++i) {
    if (i < 148 || i >= 156) sum += static_cast<unsigned char>(header.block[i]);
  }
  return octal(header.text(148, 8)) == sum;
}

/// The value of a key among pax records "LENGTH KEY=VALUE\n", of which LENGTH counts all bytes; empty if there is none.
/// Behind one that is damaged nothing is read.
std::string pax_value(const std::string& records, const std::string& key) {
  std::string value;
  for (size_t at = 0; at < records.size();) {
    const size_t blank = records.find(' ', at);
    if (blank == std::string::npos) break;
    const auto length = text::number_in<int64_t>(records.substr(at, blank - at));
    const size_t begin = blank + 1;
    if (!length || *length <= 0 || static_cast<size_t>(*length) > records.size() - at) break;
    const size_t end = at + static_cast<size_t>(*length) - 1;  // the line break
    if (end < begin || records[end] != '\n') break;
    const std::string record = records.substr(begin, end - begin);
    if (record.starts_with(key + "=")) value = record.substr(key.size() + 1);
    at = end + 1;
  }
  return value;
}

class TarReader {
 public:
  explicit TarReader(const std::string& path)
      : path_(path), size_(static_cast<int64_t>(std::filesystem::file_size(path))) {}

  std::vector<TarMember> members() {
    std::vector<TarMember> all;
    while (const auto header = next_header()) {
      const auto size = size_of(*header);
      if (!size) throw wrong("a size that is none");
      take(*header, *size, all);
    }
    if (all.empty()) throw wrong("no files in it, wanted a tar file");
    return all;
  }

 private:
  std::invalid_argument wrong(const std::string& what) const {
    return std::invalid_argument(fmt::format("{}: {}, at byte {}", path_, what, at_));
  }

  std::string bytes(int64_t begin, int64_t size) const {
    if (size > size_ - begin) throw wrong("the tar file is cut short");
    return read_bytes(path_, begin, size);
  }

  std::optional<Header> next_header() {
    if (at_ == size_) throw wrong("no end of a tar file: it is cut short, or was not closed");
    const Header header{bytes(at_, kBlock)};
    if (header.is_end()) {
      expect_nothing_behind();
      return std::nullopt;
    }
    if (!has_its_sum(header)) throw wrong("no tar header, or a damaged one");
    return header;
  }

  /// Behind the end are zeros, however many.
  void expect_nothing_behind() {
    for (; at_ < size_; at_ += kPiece) {
      const size_t found = bytes(at_, std::min(kPiece, size_ - at_)).find_first_not_of('\0');
      if (found == std::string::npos) continue;
      at_ += static_cast<int64_t>(found) / kBlock * kBlock;
      throw wrong("something behind the end of a tar file, such as another one: wanted one");
    }
  }

  void take(const Header& header, int64_t size, std::vector<TarMember>& all) {
    const int64_t begin = at_ + kBlock;
    const bool is_name = header.type() == 'L', is_pax = header.type() == 'x';
    if (is_name || is_pax) {
      if (size > kLongestName) throw wrong(fmt::format("a name or pax header of more than {} bytes", kLongestName));
      const std::string text = bytes(begin, size);
      name_ = is_name ? text.substr(0, text.find('\0')) : pax_value(text, "path");
      if (is_pax && !pax_value(text, "size").empty())
        throw wrong("a member of more than 8 GiB, or of a size in a pax header");
    } else {
      if (size > size_ - begin) throw wrong("the tar file is cut short");
      const std::string name = name_.empty() ? header.name() : name_;
      if (header.is_file()) {
        all.push_back({name, begin, size});
      } else if (!header.is_beside_files()) {
        const char* what = header.is_link() ? "a link, wanted a copy of its file" : "neither a file nor a folder";
        throw wrong(fmt::format("'{}' is {}", name, what));
      }
      if (header.type() != 'g' && header.type() != 'K') name_.clear();
    }
    at_ = begin + (size + kBlock - 1) / kBlock * kBlock;
    if (at_ > size_) at_ = size_;  // the last member without its padding
  }

  const std::string path_;
  const int64_t size_;
  int64_t at_ = 0;
  std::string name_;  // of the next member, if its header cannot hold it
};

}  // namespace

std::vector<TarMember> read_tar(const std::string& path) try {
  return TarReader(path).members();
} catch (const BrokenImage& error) {
  throw std::invalid_argument(fmt::format("{}: {}", path, error.what()));
} catch (const std::filesystem::filesystem_error& error) {
  throw std::invalid_argument(fmt::format("{}: {}", path, error.code().message()));
}

}  // namespace prunex::data
