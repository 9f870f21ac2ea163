#include "tools/prunex/model_options.h"

#include <fmt/format.h>

#include <stdexcept>

#include "prunex/models/models.h"
#include "tools/prunex/checks.h"
#include "tools/prunex/shape.h"

namespace prunex::tools {
namespace {

/// The CIFAR ResNets; the others are torchvision's ImageNet networks.
bool is_for_cifar(const std::string& model) {
  return model == "resnet8" || model == "resnet20" || model == "resnet56";
}

}  // namespace

void add_model_options(CLI::App& app, ModelChoice& choice) {
  app.add_option("--model", choice.model, "a built-in network, or FILE.pt2")
      ->required()
      ->check(one_of(models::model_names(), ".pt2"))
      ->type_name("");
  add_model_limit(app, choice.max_model_size);
  app.add_option("--classes", choice.classes, "outputs of a built-in network; 0 = what it was made for")
      ->check(between(0, 1'000'000));
  app.add_option("--width", choice.width, "multiplies the channels of the CIFAR ResNets");
}

program::Model load_model(const ModelChoice& choice, program::Batch batch) {
  if (choice.model.ends_with(".pt2")) return program::read_pt2(choice.model, choice.max_model_size << 20, batch);
  const bool cifar = is_for_cifar(choice.model);
  const std::string input = !choice.input.empty() ? choice.input : cifar ? "1x3x32x32" : "1x3x224x224";
  const auto shape = parse_shape("--input", input);
  if (shape.size() != 4) {
    throw std::invalid_argument(fmt::format("--input: got '{}', wanted batch x channels x height x width", input));
  }
  return models::make_model(choice.model, {.classes = choice.classes > 0 ? choice.classes
                                                      : cifar            ? 10
                                                                         : 1000,
                                           .channels = shape[1],
                                           .height = shape[2],
                                           .width = shape[3],
                                           .multiplier = choice.width,
                                           .seed = choice.seed});
}

}  // namespace prunex::tools
