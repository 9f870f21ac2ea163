// TOML: configurations of runs and files of comparisons. What is read is written and read again.
#include <filesystem>

#include "prunex/text/option.h"
#include "prunex/text/settings.h"
#include "study/comparison.h"
#include "tests/fuzz/harness.h"

namespace prunex::fuzz {

void write_seeds(const std::string& directory) {
  for (const char* folder : {"compare", "examples"}) {
    for (const auto& entry : std::filesystem::directory_iterator(std::string(PRUNEX_SOURCE_DIR) + "/" + folder)) {
      if (entry.path().extension() != ".toml") continue;
      std::filesystem::copy_file(entry.path(), directory + "/" + entry.path().filename().string(),
                                 std::filesystem::copy_options::overwrite_existing);
    }
  }
  write_seed(directory, "strings",
             "a = \"x \\\"y\\\" \\u00e4\"\nb = 'C:\\'\nc = \"\"\"\nd\"\"\"\ne = [1, 2.5, \"f\"]\n");
  write_seed(directory, "others", "\xef\xbb\xbfg.h = 1\n[i]\nj = {k = 0x10}\nl = 2026-01-01T00:00:00Z\nm = inf\n");
}

const text::Option kAnyOption{.name = "any", .alternative = "epochs"};

}  // namespace prunex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace prunex;
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<text::Setting> settings;
  fuzz::expect_clear(size, [&] { settings = text::read_settings(text, "f.toml"); });
  for (const auto& setting : settings) {
    if (text::word_of(text::toml_of(setting.value)) != setting.value) fuzz::fail("another word");
  }
  fuzz::expect_clear(size, [&] {
    const auto comparison = study::read_comparison(
        fuzz::file_of(text), [](const std::string& name) { return name == "x" ? nullptr : &fuzz::kAnyOption; });
    const auto jobs = study::jobs_of(comparison, [](const auto&) { return 0.1; });
    for (const auto& job : study::timings_of(jobs, 8)) study::config_of(job, "runs");
    study::pilots_of(comparison);
  });
  return 0;
}
