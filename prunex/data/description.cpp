#include "prunex/data/description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "prunex/data/image_stream.h"
#include "prunex/text/json.h"

namespace prunex::data {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& source, const std::string& why) {
  throw std::invalid_argument(fmt::format("{}: {}: {}", source, kDescriptionName, why));
}

json parse(const std::string& text, const std::string& source) {
  json parsed;
  try {
    parsed = text::parse_json(text);
  } catch (const std::invalid_argument&) {
  }
  if (!parsed.is_object()) refuse(source, "is not a JSON object");
  return parsed;
}

template <class Value>
std::vector<Value> list(const json& object, const char* key, const std::string& source, const char* wanted) {
  if (!object.contains(key)) return {};
  try {
    return object[key].get<std::vector<Value>>();
  } catch (const json::exception&) {
    refuse(source, fmt::format("'{}' is no list of {}", key, wanted));
  }
}

int64_t pixels(const json& object, const char* key, const std::string& source) {
  constexpr int64_t kMost = 100'000;
  if (!object.contains(key)) return 0;
  const auto& value = object[key];
  if (value.is_number_unsigned() && value >= 1 && value <= kMost) return value.get<int64_t>();
  refuse(source, fmt::format("'{}' is no number of pixels from 1 to {}", key, kMost));
}

void check_numbers(const Description& description, const std::string& source) {
  const auto& mean = description.mean;
  const auto& std = description.std;
  if (mean.size() != std.size()) {
    refuse(source, fmt::format("'mean' has {} numbers, 'std' {}: wanted one per channel", mean.size(), std.size()));
  }
  const auto finite = [](double value) { return std::isfinite(value); };
  const auto above_zero = [](double value) { return std::isfinite(value) && value > 0; };
  if (!std::all_of(mean.begin(), mean.end(), finite)) refuse(source, "'mean' has a number that is not finite");
  if (!std::all_of(std.begin(), std.end(), above_zero)) refuse(source, "'std' has a number that is not above 0");
}

bool differ(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kRounding = 1e-6;
  return !std::equal(a.begin(), a.end(), b.begin(), b.end(),
                     [](double x, double y) { return std::abs(x - y) <= kRounding; });
}

}  // namespace

std::string description_json(const Description& description) {
  ordered_json json{{"normalization", {{"mean", description.mean}, {"std", description.std}}},
                    {"classes", description.classes}};
  if (description.resize > 0) json["resize"] = description.resize;
  if (description.crop > 0) json["crop"] = description.crop;
  json["input"] = "float, N x C x H x W, (pixels / 255 - mean) / std";
  return text::json_text(json);
}

Description parse_description(const std::string& text, const std::string& source) {
  const json object = parse(text, source);
  const json numbers = object.value("normalization", json::object());
  if (!numbers.is_object()) refuse(source, "'normalization' is not a JSON object");
  Description description{.mean = list<double>(numbers, "mean", source, "numbers"),
                          .std = list<double>(numbers, "std", source, "numbers"),
                          .classes = list<std::string>(object, "classes", source, "names"),
                          .resize = pixels(object, "resize", source),
                          .crop = pixels(object, "crop", source)};
  check_numbers(description, source);
  return description;
}

Description describe(const Dataset& dataset) {
  const auto shape = dataset.image_shape();
  const int64_t side = shape[1] == shape[2] ? shape[1] : 0;
  return {.mean = dataset.mean,
          .std = dataset.std,
          .classes = dataset.class_names,
          .resize = dataset.is_streamed() ? dataset.streamed.stream->options().resize : side,  // else tested whole
          .crop = side};
}

void normalise_by(Dataset& dataset, const Description& description, const std::string& source) {
  const auto channels = static_cast<size_t>(dataset.image_shape()[0]);
  if (description.mean.size() != channels) {
    throw std::invalid_argument(fmt::format("{}: normalises {} channels, the images of {} have {}", source,
                                            description.mean.size(), dataset.name, channels));
  }
  dataset.mean = description.mean;
  dataset.std = description.std;
  const bool fits = static_cast<int64_t>(description.classes.size()) == dataset.classes;
  if (dataset.class_names.empty() && fits) dataset.class_names = description.classes;
}

bool normalise_differently(const Description& a, const Description& b) {
  return differ(a.mean, b.mean) || differ(a.std, b.std);
}

std::string normalization_text(const Description& description) {
  return fmt::format("mean {:.4g}, std {:.4g}", fmt::join(description.mean, ", "), fmt::join(description.std, ", "));
}

std::vector<std::string> names_or_numbers(const std::vector<std::string>& names, int64_t count) {
  if (!names.empty()) return names;
  std::vector<std::string> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(std::to_string(i));
  return numbers;
}

}  // namespace prunex::data
