// prunex predict
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <stdexcept>

#include "prunex/io/safetensors.h"
#include "prunex/train/network.h"
#include "tools/prunex/checks.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/model_options.h"

namespace prunex::tools {
namespace {

struct PredictCommand {
  ModelChoice model;
  std::string weights, input, output;
};

/// The tensor `input` of the file, checked against what the program takes.
at::Tensor read_input(const PredictCommand& command, const program::Graph& graph) {
  const auto file = io::read_safetensors(command.input);
  const at::Tensor& input = io::tensor_of(file, "input", command.input);
  const auto& wanted = graph.values[graph.inputs.at(0)];
  bool fits = input.scalar_type() == wanted.dtype && input.dim() == static_cast<int64_t>(wanted.shape.size());
  std::vector<std::string> extents;
  for (size_t d = 0; d < wanted.shape.size(); ++d) {
    const auto& extent = wanted.shape[d];
    extents.push_back(extent.per_image ? "batch" : std::to_string(extent.factor));
    fits = fits && (extent.per_image || input.size(static_cast<int64_t>(d)) == extent.factor);
  }
  if (fits) return input;
  throw std::invalid_argument(fmt::format(
      "--input {}: 'input' is {} of [{}], the model takes {} of [{}]", command.input, at::toString(input.scalar_type()),
      fmt::join(input.sizes(), ", "), at::toString(wanted.dtype), fmt::join(extents, ", ")));
}

int run_predict(const PredictCommand& command) {
  at::NoGradGuard no_grad;
  refuse_same_file("--output", command.output, "--input", command.input);
  if (!command.weights.empty()) refuse_same_file("--output", command.output, "--weights", command.weights);
  auto model = load_model(command.model);
  if (!command.weights.empty()) train::load_weights(model.weights, command.weights);
  const at::Tensor input = read_input(command, model.program.graph());
  TensorDict result;
  result.insert("output", model.program.run({input}, model.weights, program::Mode::kEval).front());
  io::write_safetensors(command.output, result);
  return 0;
}

}  // namespace

void add_predict(CLI::App& app, int& status) {
  auto* sub = app.add_subcommand("predict", "run a model on the tensor 'input' of a safetensors file");
  auto command = std::make_shared<PredictCommand>();
  add_model_options(*sub, command->model);
  sub->add_option("--weights", command->weights, "FILE.safetensors instead of the model's own weights");
  sub->add_option("--input", command->input, "FILE.safetensors with a tensor 'input'")->required();
  sub->add_option("--output", command->output, "FILE.safetensors to write, with a tensor 'output'")->required();
  sub->callback([command, &status] { status = run_predict(*command); });
}

}  // namespace prunex::tools
