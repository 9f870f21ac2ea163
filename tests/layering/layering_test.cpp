// Which room may include which: the table of docs/design.md, section "Layout".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// What a room includes besides itself and prunex/tensors.h.
const std::map<std::string, std::set<std::string>> kRooms = {
    {"text", {}},
    {"program", {"io", "text"}},
    {"models", {"program"}},
    {"sparsity", {}},
    {"comm", {}},
    {"admm", {"sparsity"}},
    {"strategies", {"admm", "comm", "sparsity"}},
    {"channels", {"program", "sparsity"}},
    {"prune", {"channels", "program", "sparsity"}},
    {"data", {"io"}},
    {"io", {"text"}},
    {"train",
     {"admm", "channels", "comm", "data", "io", "models", "program", "prune", "sparsity", "strategies", "text"}},
    {"report", {"text"}},
    {"tools",
     {"admm", "channels", "comm", "data", "io", "models", "program", "prune", "report", "sparsity", "strategies",
      "text", "train"}},
};

const fs::path kRoot = PRUNEX_SOURCE_DIR;

/// "comm" of prunex/comm/gloo/store.h, "report" of report/svg.h, "" of prunex/tensors.h.
std::string room_of(const fs::path& path) {
  const std::vector<fs::path> parts(path.begin(), path.end());
  if (parts.front() != "prunex") return parts.front();
  return parts.size() > 2 ? parts[1].string() : "";
}

std::vector<fs::path> sources() {
  std::vector<fs::path> found;
  for (const char* tree : {"prunex", "report", "tools"}) {
    if (!fs::exists(kRoot / tree)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / tree)) {
      const auto extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp") found.push_back(entry.path().lexically_relative(kRoot));
    }
  }
  return found;
}

std::vector<std::string> includes(const fs::path& source, const std::regex& pattern) {
  std::vector<std::string> names;
  std::ifstream file(kRoot / source);
  for (std::string line; std::getline(file, line);) {
    if (std::smatch match; std::regex_search(line, match, pattern)) names.push_back(match[1]);
  }
  return names;
}

const std::regex kOwn(R"re(^\s*#\s*include\s*"([^"]+)")re");
const std::regex kAny(R"re(^\s*#\s*include\s*["<]([^">]+)[">])re");

TEST(Layering, EverySourceStandsInARoomOfTheTable) {
  ASSERT_GT(sources().size(), 10U);
  for (const auto& source : sources()) {
    if (room_of(source).empty()) continue;  // prunex/tensors.h, prunex/version.h
    EXPECT_TRUE(kRooms.contains(room_of(source))) << source;
  }
}

TEST(Layering, RoomsIncludeOnlyTheRoomsBelowThem) {
  for (const auto& source : sources()) {
    const std::string room = room_of(source);
    for (const auto& name : includes(source, kOwn)) {
      const std::string other = room_of(name);
      const bool allowed = other.empty() || other == room || (kRooms.contains(room) && kRooms.at(room).contains(other));
      EXPECT_TRUE(allowed) << source << " includes " << name;
    }
  }
}

TEST(Layering, AnIncludePathIsAFilePath) {
  for (const auto& source : sources()) {
    for (const auto& name : includes(source, kOwn)) {
      EXPECT_TRUE(fs::exists(kRoot / name)) << source << " includes " << name;
    }
  }
}

TEST(Layering, NoRoomIsADrawerForOddsAndEnds) {
  for (const auto& source : sources()) {
    for (const auto& part : source) {
      EXPECT_THAT((std::set<std::string>{"utils", "util", "common", "core", "misc", "helpers"}),
                  testing::Not(testing::Contains(part.stem().string())))
          << source;
    }
  }
}

TEST(Layering, HeadersAreLightToInclude) {
  for (const auto& source : sources()) {
    if (source.extension() != ".h") continue;
    for (const auto& name : includes(source, kAny)) {
      EXPECT_THAT((std::set<std::string>{"torch/torch.h", "torch/all.h", "torch/types.h", "ATen/ATen.h"}),
                  testing::Not(testing::Contains(name)))
          << source;
    }
  }
}

// What is written there must not end a run when nobody can read it; fmt::print throws.
TEST(Layering, OnlySayWritesToStandardError) {
  const std::regex stream(R"re(\b(stderr|cerr|clog)\b)re");
  int found = 0;
  for (const auto& source : sources()) {
    std::ifstream file(kRoot / source);
    for (std::string line; std::getline(file, line);) {
      if (!std::regex_search(line, stream)) continue;
      EXPECT_EQ(source, "prunex/say.h") << line;
      ++found;
    }
  }
  EXPECT_EQ(found, 1);
}

TEST(Layering, TheReportAndWhatItReadsWithNeedNoTorch) {
  for (const auto& source : sources()) {
    if (room_of(source) != "report" && room_of(source) != "text") continue;
    for (const auto& name : includes(source, kAny)) {
      EXPECT_THAT(name, testing::Not(testing::AnyOf(testing::StartsWith("ATen/"), testing::StartsWith("torch/"),
                                                    testing::StartsWith("c10/"))))
          << source;
    }
  }
}

}  // namespace
