// JSON records: what `prunex report` reads of runs and comparisons, drawn to the end.
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "report/report.h"
#include "tests/fuzz/harness.h"
#include "tests/report/run_files.h"
#include "tests/texts.h"

namespace prunex::fuzz {
namespace {

namespace fs = std::filesystem;

// An input is a list of files, each behind a line of '@' and its place here.
constexpr std::array kFiles{"compare.json",     "verify.json",  "a/metrics.jsonl",   "a/summary.json",  "a/config.toml",
                            "a/structure.json", "a/trace.json", "a/0/metrics.jsonl", "a/0/summary.json"};

void write_files(const std::string& input) {
  for (const char* name : {"compare.json", "verify.json", "a"}) fs::remove_all(folder() + "/" + name);
  fs::create_directories(folder() + "/a/0");
  std::ofstream file;
  std::istringstream lines(input);
  for (std::string line; std::getline(lines, line);) {
    const bool begins = line.size() == 2 && line[0] == '@' && line[1] >= '0' && line[1] <= '8';
    if (begins) {
      file.close();
      file.clear();
      file.open(folder() + "/" + kFiles[static_cast<size_t>(line[1] - '0')], std::ios::binary);
    } else if (file.is_open()) {
      file << line << (lines.eof() ? "" : "\n");
    }
  }
}

/// The files below a directory as an input.
std::string input_of(const std::string& directory) {
  std::string input;
  for (size_t i = 0; i < kFiles.size(); ++i) {
    const auto path = directory + "/" + kFiles[i];
    if (fs::exists(path)) input += "@" + std::to_string(i) + "\n" + tests::text_of(path) + "\n";
  }
  return input;
}

}  // namespace

void write_seeds(const std::string& directory) {
  const std::string runs = folder() + "/seeds";
  tests::write_run(runs + "/a", {});
  tests::write_text(runs + "/a/structure.json", R"({"groups": [{"name": "g", "size": 4, "kept": [0, 2]}]})");
  tests::write_text(runs + "/a/trace.json", R"({"traceEvents": [{"ph": "X", "name": "local", "pid": 0, "tid": 0,
    "ts": 0, "dur": 2000, "args": {"exchange": 1}}]})");
  write_seed(directory, "run", input_of(runs));
  fs::remove_all(runs + "/a");
  tests::write_run(runs + "/a/0", {});
  tests::write_text(runs + "/compare.json", R"({"command": "prunex compare c.toml", "pilots": [{"name": "a",
    "rate": 0.1, "summary": {"validation_accuracy": 0.5}}], "timings": [], "runs": [{"name": "a", "seed": 0,
    "directory": "a/0", "state": "done", "options": {"strategy": "\"ddp\""}},
    {"name": "b", "seed": 0, "directory": "b/0", "state": "done", "options": {}, "summary": {"accuracy": 0.5,
    "nodes": 2, "ranks_per_node": [2, 1], "steps": 8, "seconds": {"local": 1, "total": 2}}, "exchanges": {"count": 2,
    "exchange": [1, 2], "step": [4, 8], "samples": [10, 20], "mask_changes": 0, "parameters": 9, "macs": 9,
    "inter_node_bytes": 9, "inter_node_bytes_bound": 9, "intra_node_bytes": 0, "loss": [2, 1], "keep": 1, "local": 1,
    "intra": 0, "project": 0, "inter": 0.1, "dual": 0, "evaluate": 0, "total": 2, "r_intra": 0, "s_intra": 0,
    "r_inter": 0, "s_inter": 0, "frozen": 0, "accuracy": [null, 0.5]}, "groups": [{"name": "g", "size": 4,
    "kept": [1]}]}]})");
  tests::write_text(runs + "/verify.json",
                    R"([{"name": "a", "mbit": 100, "computed_seconds": 2, "measured_seconds": 3}])");
  write_seed(directory, "comparison", input_of(runs));
}

}  // namespace prunex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace prunex;
  fuzz::write_files({reinterpret_cast<const char*>(data), size});
  fuzz::expect_clear(size, [] { report::make_report(report::find_runs({fuzz::folder()}), {"prunex report"}); });
  return 0;
}
