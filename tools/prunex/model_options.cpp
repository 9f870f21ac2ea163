#include "tools/prunex/commands.h"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>
#include <utility>

#include "prunex/models/models.h"
#include "prunex/program/pt2.h"
#include "prunex/text/read_file.h"

namespace prunex::tools {
namespace {

/// "1x3x224x224": numbers of one or more joined by 'x'.
std::vector<int64_t> parse_shape(const std::string& text) {
  std::vector<int64_t> shape;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    int64_t extent = 0;
    const auto [next, error] = std::from_chars(at, end, extent);
    if (error != std::errc() || extent < 1 || (next != end && *next != 'x')) {
      throw std::invalid_argument(fmt::format("`input`: got '{}', wanted a shape such as 1x3x224x224", text));
    }
    shape.push_back(extent);
    if (next == end) return shape;
    at = next + 1;
  }
}

}  // namespace

void describe_model(text::OptionList& list, ModelChoice& choice) {
  const text::Condition built_in{"built-in networks", [&choice] {
                                   return choice.model.ends_with(".pt2") ? "the network of a file has its own" : "";
                                 }};
  list.add("model", text::one_of(choice.model, models::model_names(), ".pt2"), "a built-in network, or FILE.pt2")
      .must();
  describe_model_limit(list, choice.max_model_size,
                       {{"FILE.pt2", [&choice] {
                           return choice.model.ends_with(".pt2") ? "" : fmt::format("{} is built in", choice.model);
                         }}});
  list.add("classes", text::number(choice.classes, text::between(0, 1'000'000)),
           "outputs of a built-in network; 0 = what it was made for", {built_in});
  list.add("width", text::number(choice.width, text::above_zero()), "multiplies the channels of the CIFAR ResNets",
           {built_in});
  list.add("norm", text::choice(choice.norm, {{"batch", models::Norm::kBatch}, {"group", models::Norm::kGroup}}),
           "behind every convolution", {built_in});
}

void describe_input(text::OptionList& list, ModelChoice& choice) {
  list.add("input", text::text_value(choice.input), "input of a built-in network, such as 1x3x224x224",
           {{"built-in networks",
             [&choice] { return choice.model.ends_with(".pt2") ? "the network of a file has its own" : ""; }}});
}

void describe_model_limit(text::OptionList& list, int64_t& mebibytes, std::vector<text::Condition> conditions) {
  list.add("max-model-size", text::number(mebibytes, text::between(0, 0x1p40)),
           "MiB that the records of a FILE.pt2 may have together; 0: eight times the file", std::move(conditions));
}

bool has_random_weights(const ModelChoice& choice, const std::string& weights) {
  return weights.empty() && !choice.model.ends_with(".pt2");
}

program::Model load_model(const ModelChoice& choice, program::Batch batch) {
  if (choice.model.ends_with(".pt2")) {
    text::expect_there("`model`", choice.model);
    return program::read_pt2(choice.model, choice.max_model_size << 20, batch);
  }
  const bool cifar = models::is_for_cifar(choice.model);
  const std::string input = !choice.input.empty() ? choice.input : cifar ? "1x3x32x32" : "1x3x224x224";
  const auto shape = parse_shape(input);
  if (shape.size() != 4) {
    throw std::invalid_argument(fmt::format("`input`: got '{}', wanted batch x channels x height x width", input));
  }
  return models::make_model(choice.model, {.classes = choice.classes > 0 ? choice.classes
                                                      : cifar            ? 10
                                                                         : 1000,
                                           .channels = shape[1],
                                           .height = shape[2],
                                           .width = shape[3],
                                           .multiplier = choice.width,
                                           .norm = choice.norm,
                                           .seed = choice.seed});
}

}  // namespace prunex::tools
