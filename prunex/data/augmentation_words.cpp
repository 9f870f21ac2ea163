#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <stdexcept>

#include "prunex/data/augment.h"
#include "prunex/text/option.h"

namespace prunex::data {
namespace {

/// Numbers behind colons: "randaugment:2:9". `to` writes them, empty if the word is not there.
struct Word {
  const char* name;
  const char* numbers;  // as help writes them
  std::vector<text::Range> ranges;
  bool whole;  // no fractions
  void (*read)(Augmentation& augmentation, const std::vector<double>& numbers);
  std::vector<double> (*write)(const Augmentation& augmentation);
  bool (*is_there)(const Augmentation& augmentation);
};

using Numbers = std::vector<double>;
constexpr int64_t kMostPixels = 1 << 14;

// In the order in which they are done.
const std::vector<Word>& words() {
  static const std::vector<Word> all{
      {"crop",
       ":PIXELS",
       {text::between(1, kMostPixels)},
       true,
       [](Augmentation& a, const Numbers& n) { a.padding = static_cast<int64_t>(n[0]); },
       [](const Augmentation& a) { return Numbers{static_cast<double>(a.padding)}; },
       [](const Augmentation& a) { return a.padding > 0; }},
      {"resized-crop",
       ":SIZE",
       {text::between(1, kMostPixels)},
       true,
       [](Augmentation& a, const Numbers& n) { a.crop_size = static_cast<int64_t>(n[0]); },
       [](const Augmentation& a) { return Numbers{static_cast<double>(a.crop_size)}; },
       [](const Augmentation& a) { return a.crop_size > 0; }},
      {"flip",
       "",
       {},
       true,
       [](Augmentation& a, const Numbers&) { a.flip = true; },
       [](const Augmentation&) { return Numbers{}; },
       [](const Augmentation& a) { return a.flip; }},
      {"color",
       ":STRENGTH",
       {text::share()},
       false,
       [](Augmentation& a, const Numbers& n) { a.color = n[0]; },
       [](const Augmentation& a) { return Numbers{a.color}; },
       [](const Augmentation& a) { return a.color > 0; }},
      {"randaugment",
       ":OPERATIONS:MAGNITUDE",
       {text::between(1, 14), text::between(0, kMostMagnitude)},
       true,
       [](Augmentation& a, const Numbers& n) {
         a.operations = static_cast<int64_t>(n[0]);
         a.magnitude = static_cast<int64_t>(n[1]);
       },
       [](const Augmentation& a) {
         return Numbers{static_cast<double>(a.operations), static_cast<double>(a.magnitude)};
       },
       [](const Augmentation& a) { return a.operations > 0; }},
      {"erase",
       ":SHARE",
       {text::share()},
       false,
       [](Augmentation& a, const Numbers& n) { a.erase = n[0]; },
       [](const Augmentation& a) { return Numbers{a.erase}; },
       [](const Augmentation& a) { return a.erase > 0; }},
  };
  return all;
}

std::string wanted_of(const Word& word) {
  return fmt::format("{}{}", word.name, word.numbers);
}

Numbers numbers_of(const Word& word, const std::vector<std::string>& parts, const std::string& got) {
  if (parts.size() != word.ranges.size() + 1) text::refuse_value(got, wanted_of(word));
  Numbers numbers;
  for (size_t i = 0; i < word.ranges.size(); ++i) {
    const auto number = text::number_in<double>(parts[i + 1]);
    if (!number || (word.whole && *number != std::floor(*number))) text::refuse_value(got, wanted_of(word));
    if (!word.ranges[i].holds(*number)) text::refuse_value(got, word.ranges[i].wanted_instead_of(*number));
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

const char* const kAugmentationWords =
    "none, or of crop:PIXELS or resized-crop:SIZE, flip, color:STRENGTH, randaugment:OPERATIONS:MAGNITUDE, erase:SHARE "
    "some in this order, with commas between";

Augmentation parse_augmentation(const std::string& text) {
  Augmentation augmentation;
  if (text == "none") return augmentation;
  size_t next = 0;
  for (const std::string& got : text::parts_of(text, ',')) {
    const auto parts = text::parts_of(got, ':');
    size_t i = 0;
    while (i < words().size() && words()[i].name != parts[0]) ++i;
    if (i == words().size()) text::refuse_value(got, kAugmentationWords);
    if (i < next) {
      throw std::invalid_argument(
          fmt::format("got '{}' behind '{}', wanted {}", got, words()[next - 1].name, kAugmentationWords));
    }
    words()[i].read(augmentation, numbers_of(words()[i], parts, got));
    next = i + 1;
  }
  if (augmentation.padding > 0 && augmentation.crop_size > 0)
    text::refuse_value(text, "crop or resized-crop, not both");
  return augmentation;
}

std::string to_string(const Augmentation& augmentation) {
  std::vector<std::string> there;
  for (const Word& word : words()) {
    if (!word.is_there(augmentation)) continue;
    there.emplace_back(word.name);
    for (const double number : word.write(augmentation)) there.back() += fmt::format(":{}", number);
  }
  return there.empty() ? "none" : fmt::format("{}", fmt::join(there, ","));
}

void check_augmentation(const Augmentation& augmentation, const Dataset& dataset) {
  const auto shape = dataset.image_shape();
  const auto refuse = [&](const std::string& wanted) {
    throw std::invalid_argument(fmt::format("`augment`: got {}, but the images of {} are {}: wanted {}",
                                            to_string(augmentation), dataset.name, fmt::join(shape, " x "), wanted));
  };
  const int64_t side = augmentation.crop_size;
  if (side > 0 && (shape[1] != side || shape[2] != side)) {
    refuse(shape[1] == shape[2] ? fmt::format("resized-crop:{}", shape[1]) : "no resized-crop, which makes squares");
  }
  if (augmentation.padding >= std::min(shape[1], shape[2])) refuse("a crop of fewer pixels than an image has");
  if ((augmentation.color > 0 || augmentation.operations > 0) && shape[0] != 1 && shape[0] != 3) {
    refuse("no color and randaugment, which are of grey and of RGB images");
  }
}

}  // namespace prunex::data
