// Files of prunex compare, and what is wrong with them.
#pragma once

#include <stdexcept>
#include <string>

#include "prunex/train/options.h"
#include "study/comparison.h"
#include "tests/scratch.h"
#include "tests/texts.h"

namespace prunex::study {

inline constexpr const char* kFile = R"(seeds = [0, 1]
[common]
dataset = "synthetic"
width = 1.1
epochs = 8
[pilot]
epochs = 1
validation = 100
[[run]]
name = "first"
strategy = "ddp"
rates = [0.05, 0.1]
[[run]]
name = "second"
no-shrink = true
epochs = 2
seeds = [7, 8, 9]
)";

/// The options of prunex train.
inline const text::Option* option_of(const std::string& name) {
  static train::TrainOptions options;
  static text::OptionList known = train::describe(options);
  return known.find(name);
}

inline Comparison read(const tests::Scratch& scratch, const std::string& text) {
  tests::write_text(scratch / "c.toml", text);
  return read_comparison(scratch / "c.toml", option_of);
}

inline std::string refusal(const std::string& text) {
  const tests::Scratch scratch;
  try {
    read(scratch, text);
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

inline constexpr const char* kTwoSeeds = R"([pilot]
validation = 100
seeds = [7, 8]
[[run]]
name = "a"
rates = [0.1, 0.2]
)";

}  // namespace prunex::study
