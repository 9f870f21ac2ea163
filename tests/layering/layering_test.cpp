// Which room may include which: the lines prunex_room() of the CMakeLists.txt files.
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

const fs::path kRoot = PRUNEX_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ifstream file(kRoot / path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    found.push_back((*match)[1]);
  }
  return found;
}

struct Room {
  std::set<std::string> includes;  // besides itself and prunex/tensors.h
  std::string lists;               // the file that names its sources
};

const std::regex kRoomLine(R"re(prunex_room\((\w+)([^)]*)\))re");
const std::regex kRoomsOfLine(R"re(ROOMS ([a-z ]+))re");
const std::regex kTableRow(R"re(\n\| `(\w+)` \| ([^|]*) \|)re");
const std::regex kWord(R"re(([^\s]+))re");

std::map<std::string, Room> read_rooms() {
  std::map<std::string, Room> rooms;
  for (const char* folder : {"prunex", "report", "launch", "study", "plan"}) {
    const std::string lists = std::string(folder) + "/CMakeLists.txt", text = text_of(lists);
    for (std::sregex_iterator line(text.begin(), text.end(), kRoomLine), end; line != end; ++line) {
      Room& room = rooms[(*line)[1]];
      room.lists = lists;
      const std::string rest = (*line)[2];
      if (std::smatch list; std::regex_search(rest, list, kRoomsOfLine)) {
        for (const auto& name : matches(list[1], kWord)) room.includes.insert(name);
      }
    }
  }
  Room tools{.lists = "tools/prunex/CMakeLists.txt"};
  for (const auto& [name, room] : rooms) tools.includes.insert(name);
  rooms["tools"] = tools;
  return rooms;
}

const std::map<std::string, Room> kRooms = read_rooms();

/// "comm" of prunex/comm/meet/store.h, "report" of report/drawing.h, "" of prunex/tensors.h.
std::string room_of(const fs::path& path) {
  const std::vector<fs::path> parts(path.begin(), path.end());
  if (parts.front() != "prunex") return parts.front();
  return parts.size() > 2 ? parts[1].string() : "";
}

std::vector<fs::path> sources_in(const std::vector<std::string>& trees) {
  std::vector<fs::path> found;
  for (const auto& tree : trees) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / tree)) {
      const auto extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp") found.push_back(entry.path().lexically_relative(kRoot));
    }
  }
  return found;
}

std::vector<fs::path> sources() {
  return sources_in({"prunex", "report", "launch", "study", "plan", "tools"});
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

TEST(Layering, EverySourceStandsInARoomThatListsIt) {
  ASSERT_GT(sources().size(), 100U);
  for (const auto& source : sources()) {
    const std::string room = room_of(source);
    if (room.empty()) continue;  // prunex/tensors.h, prunex/version.h
    ASSERT_TRUE(kRooms.contains(room)) << source;
    if (source.extension() != ".cpp") continue;
    const fs::path folder = room == "tools"                          ? "tools/prunex"
                            : source.string().starts_with("prunex/") ? "prunex/" + room
                                                                     : room;
    const auto listed = matches(text_of(kRooms.at(room).lists), std::regex(R"re(([\w/]+\.cpp))re"));
    EXPECT_THAT(listed, testing::Contains(source.lexically_relative(folder).string())) << source;
  }
}

// The lines "| `comm` | – | … |" of "One direction".
TEST(Layering, TheTableInTheDesignIsTheOneThatIsBuilt) {
  const std::string design = text_of("docs/design.md");
  const size_t begin = design.find("### One direction");
  const std::string table = design.substr(begin, design.find("\n## ", begin) - begin);
  std::map<std::string, std::string> rows;
  for (std::sregex_iterator row(table.begin(), table.end(), kTableRow), end; row != end; ++row) {
    rows[(*row)[1]] = (*row)[2];
  }
  EXPECT_EQ(rows.size(), kRooms.size());
  for (const auto& [name, room] : kRooms) {
    if (name == "tools" || name == "train") {
      EXPECT_EQ(rows[name], "all of the above");
      continue;
    }
    std::string includes;
    for (const auto& other : room.includes) includes += (includes.empty() ? "" : ", ") + other;
    EXPECT_EQ(rows[name], includes.empty() ? "–" : includes) << name;
  }
}

bool defines(const std::string& text, const std::string& function) {
  const std::string name = function.substr(function.rfind(':') + 1);
  return std::regex_search(text, std::regex("\\b" + name + "\\b[({< ]"));
}

// docs/algorithm.md, section 8: rows `what | functions | files`.
TEST(Pages, EveryEquationStandsWhereTheTableSaysSo) {
  const std::string page = text_of("docs/algorithm.md"), table = page.substr(page.find("## 8."));
  const std::regex row(R"re(\n\| ([^|]*) \| ([^|]*`[^|]*) \| ([^|]*`[^|]*) \|)re"), quoted(R"re(`([^`]+)`)re");
  int rows = 0;
  for (std::sregex_iterator line(table.begin(), table.end(), row), end; line != end; ++line, ++rows) {
    std::string sources;
    for (const auto& file : matches((*line)[3], quoted)) {
      EXPECT_TRUE(fs::is_regular_file(kRoot / file)) << file;
      sources += text_of(file);
    }
    for (const auto& function : matches((*line)[2], quoted)) EXPECT_TRUE(defines(sources, function)) << function;
  }
  EXPECT_GT(rows, 20);
}

// docs/design.md, "Theta's way": rows `number | what happens | function`.
TEST(Pages, EveryFunctionOnThetasWayIsThere) {
  std::string sources;
  for (const auto& file : fs::recursive_directory_iterator(kRoot / "prunex")) {
    if (file.path().extension() == ".cpp") sources += text_of(file.path());
  }
  const auto functions = matches(text_of("docs/design.md"), std::regex(R"re(\n\| \d+ \| [^|]* \| `([\w:]+)`)re"));
  EXPECT_EQ(functions.size(), 25U);
  for (const auto& function : functions) EXPECT_TRUE(defines(sources, function)) << function;
}

TEST(Layering, InstalledHeadersIncludeInstalledHeaders) {
  const std::string lists = text_of("prunex/CMakeLists.txt");
  const auto installed = matches(lists.substr(lists.find("prunex_library(HEADERS")), std::regex(R"re(([\w/]+\.h))re"));
  ASSERT_GT(installed.size(), 20U);
  for (const auto& header : installed) {
    ASSERT_TRUE(fs::exists(kRoot / "prunex" / header)) << header;
    for (const auto& name : includes("prunex/" + header, kOwn)) {
      EXPECT_THAT(installed, testing::Contains(name.substr(name.find('/') + 1))) << header;
    }
  }
}

TEST(Layering, RoomsIncludeOnlyTheRoomsBelowThem) {
  for (const auto& source : sources()) {
    const std::string room = room_of(source);
    for (const auto& name : includes(source, kOwn)) {
      const std::string other = room_of(name);
      const bool allowed =
          other.empty() || other == room || (kRooms.contains(room) && kRooms.at(room).includes.contains(other));
      EXPECT_TRUE(allowed) << source << " includes " << name;
    }
  }
}

TEST(Layering, AnIncludePathIsAFilePath) {
  auto all = sources(), others = sources_in({"tests", "bench", "examples", "python/src"});
  all.insert(all.end(), others.begin(), others.end());
  for (const auto& source : all) {
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

// Flags are syntax of the command, which makes them of fields in backticks: text::with_flags.
TEST(Layering, TheLibraryNamesOptionsAsFieldsAndNotAsFlags) {
  const std::regex literal(R"re("((?:[^"\\]|\\.)*)")re"), flag(R"re((?:^|[^\w-])--[a-z])re");
  const std::regex of_launchers("srun --distribution|mpirun --map-by");
  size_t literals = 0;
  for (const auto& source : sources()) {
    if (*source.begin() != "prunex") continue;
    std::ifstream file(kRoot / source);
    for (std::string line; std::getline(file, line);) {
      for (const auto& text : matches(line, literal)) {
        EXPECT_FALSE(std::regex_search(std::regex_replace(text, of_launchers, ""), flag)) << source << ": " << line;
        ++literals;
      }
    }
  }
  EXPECT_GT(literals, 1000U);
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
