// prunex predict
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "prunex/data/decode.h"
#include "prunex/data/encoded_images.h"
#include "prunex/data/image_stream.h"
#include "prunex/data/loader.h"
#include "prunex/io/safetensors.h"
#include "prunex/say.h"
#include "prunex/text/json.h"
#include "prunex/text/one_line.h"
#include "prunex/text/read_file.h"
#include "prunex/train/batches.h"
#include "prunex/train/device.h"
#include "prunex/train/images/images.h"
#include "prunex/train/network.h"
#include "tools/prunex/commands.h"

namespace prunex::tools {
namespace {

struct PredictCommand {
  ModelChoice model;
  std::string device = "cpu";
  std::string weights, input, output;
  std::vector<double> mean, std;
  bool quiet = false;
};

/// What the network's files say, `mean` and `std` instead of theirs. `of_input`: what else is said where none does.
train::Carried normalization_of(const PredictCommand& command, const std::string& of_input = "") {
  auto carried = train::carried_description(command.model.model, command.weights, command.model.max_model_size << 20);
  if (!command.mean.empty()) {
    if (command.mean.size() != command.std.size()) {
      throw std::invalid_argument(fmt::format("`std`: got {} numbers, wanted {}, as many as `mean` has",
                                              command.std.size(), command.mean.size()));
    }
    train::Carried own = carried.value_or(train::Carried{});
    own.description.mean = command.mean;
    own.description.std = command.std;
    own.file = "`mean`";
    return own;
  }
  if (carried) return *carried;
  throw std::invalid_argument(
      fmt::format("`input` {}: {}{} does not say how pixels are normalised: wanted `mean` and `std`", command.input,
                  of_input, command.model.model));
}

/// Pixels become what the network takes.
at::Tensor normalised(const at::Tensor& pixels, const PredictCommand& command, const train::Carried& normalization) {
  data::Dataset images{.name = command.input, .images = pixels, .labels = at::zeros({pixels.size(0)}, at::kLong)};
  data::normalise_by(images, normalization.description, normalization.file);
  return data::evaluation_batch(images, 0, images.size()).images.contiguous();
}

/// Images whose files are read, instead of a tensor.
bool names_images(const std::string& input) {
  return std::filesystem::is_directory(input) || data::names_an_image(input);
}

constexpr int64_t kBatch = 64;

std::vector<at::Tensor> outputs_of(const program::Model& model, const at::Tensor& input) {
  const at::Tensor there = input.to(train::device_of(model.weights));
  auto outputs = model.program.run({there}, model.weights, program::Mode::kEval);
  for (at::Tensor& output : outputs) output = output.cpu();
  return outputs;
}

/// "output", "output_1", …
TensorDict named(const std::vector<at::Tensor>& outputs) {
  TensorDict result;
  for (size_t i = 0; i < outputs.size(); ++i)
    result.insert(i == 0 ? "output" : fmt::format("output_{}", i), outputs[i]);
  return result;
}

/// Throws std::invalid_argument for an output that would replace one of the images.
void refuse_image(const std::string& output, const data::EncodedImages& images) {
  std::error_code ignored;
  if (!std::filesystem::exists(output, ignored)) return;
  for (int64_t i = 0; i < images.size(); ++i) {
    if (!std::filesystem::equivalent(images.name(i), output, ignored)) continue;
    throw std::invalid_argument(
        fmt::format("`output`: got {}, which is an image of `input`: wanted another file", output));
  }
}

/// uint8[N, 3, size, size] of these images. Broken ones are named, zero, and not among `readable`, positions in the
/// result; throws std::invalid_argument for one that is all there is to read.
at::Tensor pixels_of(const data::ImageStream& stream, const comm::Range& images, int64_t size,
                     std::vector<int64_t>& readable) {
  const at::Tensor pixels = at::zeros({images.size(), size, size, 3}, at::kByte);
  for (int64_t i = 0; i < images.size(); ++i) {
    const int64_t number = images.begin + i;
    try {
      stream.plain(number, {pixels[i].data_ptr<uint8_t>(), size, size, 3});
      readable.push_back(i);
    } catch (const data::BrokenImage& error) {
      const std::string line =
          text::one_line(fmt::format("`input` {}: {}", stream.images().name(number), error.what()), text::kLongestPath);
      if (stream.images().size() == 1) throw std::invalid_argument(line);
      say(text::with_flags(fmt::format("prunex: warning: {}: left out\n", line)));
    }
  }
  return pixels.permute({0, 3, 1, 2});
}

/// Of images that could be read, in a batch with others. Throws std::invalid_argument for an output that has not a row
/// per image.
at::Tensor rows_of(const at::Tensor& output, const std::vector<int64_t>& readable, int64_t batch,
                   const std::string& input) {
  if (output.dim() == 0 || output.size(0) != batch) {
    throw std::invalid_argument(
        fmt::format("`input` {}: there are broken images, and the model's outputs have not a row for each: wanted a "
                    "folder without them",
                    input));
  }
  return output.index_select(0, at::tensor(readable, at::kLong));
}

struct Answers {
  std::vector<std::string> names;   ///< of the images that could be read
  std::vector<at::Tensor> outputs;  ///< a row for each of them
  bool is_whole = true;             ///< all could
};

/// Of all images of the folder, cut as test images are.
Answers predict_images(const PredictCommand& command, const program::Model& model) {
  const auto& graph = model.program.graph();
  const int64_t size = train::image_size_of(graph);
  const auto wanted = graph.values[graph.inputs.at(0)].shape;
  if (size == 0 || wanted[1].factor != 3) {
    throw std::invalid_argument(fmt::format("`input` {}: {} takes no square RGB images: wanted FILE.safetensors",
                                            command.input, command.model.model));
  }
  const train::Carried normalization = normalization_of(command);
  const data::Description& said = normalization.description;
  if (said.crop != 0 && said.crop != size && !command.quiet) {
    say(fmt::format("prunex: warning: {} was trained on images of {} x {}, {} takes {} x {}\n", normalization.file,
                    said.crop, said.crop, command.model.model, size, size));
  }
  const int64_t resize = train::resize_for(said, size);
  const data::ImageStream stream(data::list_images(command.input, "`input`"),
                                 {.size = size, .resize = resize > 0 ? resize : data::usual_resize(size)});
  refuse_image(command.output, stream.images());
  Answers answers;
  std::vector<std::vector<at::Tensor>> parts;  // of each output
  for (const comm::Range& batch : train::batches_of({0, stream.images().size()}, graph, kBatch)) {
    std::vector<int64_t> readable;
    const at::Tensor pixels = pixels_of(stream, batch, size, readable);
    auto outputs = outputs_of(model, normalised(pixels, command, normalization));
    for (const int64_t row : readable) answers.names.push_back(stream.images().name(batch.begin + row));
    parts.resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (static_cast<int64_t>(readable.size()) < batch.size()) {
        outputs[i] = rows_of(outputs[i], readable, batch.size(), command.input);
      }
      parts[i].push_back(outputs[i]);
    }
  }
  if (answers.names.empty()) {
    throw std::invalid_argument(fmt::format("`input` {}: no image of it can be read", command.input));
  }
  answers.is_whole = static_cast<int64_t>(answers.names.size()) == stream.images().size();
  for (const auto& part : parts) answers.outputs.push_back(at::cat(part));
  return answers;
}

/// As JSON, with U+FFFD for what is not UTF-8.
template <class Names>
std::string json_of(const Names& names) {
  return text::json_text(nlohmann::json(names));
}

void warn_of_other_names(const PredictCommand& command, const std::vector<std::string>& names) {
  const auto is_other = [](const std::string& name) { return !text::is_utf8(name); };
  const auto first = std::find_if(names.begin(), names.end(), is_other);
  if (first == names.end() || command.quiet) return;
  say(fmt::format("prunex: warning: {}: names in 'files' have U+FFFD for what is not UTF-8: {} of {}, such as {}\n",
                  command.output, std::count_if(first, names.end(), is_other), names.size(), json_of(*first)));
}

/// Of outputs that mean nothing.
void warn_of(const std::vector<at::Tensor>& outputs, const PredictCommand& command) {
  if (command.quiet) return;
  if (has_random_weights(command.model, command.weights)) {
    say(text::with_flags("prunex: warning: the weights are random: `weights` names trained ones\n"));
  }
  const auto has_nan = [](const at::Tensor& output) { return output.isnan().any().item<bool>(); };
  if (std::any_of(outputs.begin(), outputs.end(), has_nan)) {
    say(fmt::format("prunex: warning: {}: outputs that are not numbers\n", command.output));
  }
}

/// A line per image: its name, the class of the largest logit, or its number, and the share that softmax gives it.
void print_answers(const std::vector<std::string>& names, const at::Tensor& logits,
                   const std::vector<std::string>& classes) {
  const auto [share, answer] = at::softmax(logits.to(at::kDouble), 1).max(1);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    const std::string name = text::one_line(names[i], text::kLongestPath);
    if (share[row].isnan().item<bool>()) {
      fmt::print("{}  outputs that are not numbers\n", name);
      continue;
    }
    const auto number = static_cast<size_t>(answer[row].item<int64_t>());
    fmt::print("{}  {}  {:.1f} %\n", name,
               number < classes.size() ? text::one_line(classes[number]) : std::to_string(number),
               100 * share[row].item<double>());
  }
}

/// The tensor `input` of the file, checked against what the program takes: floats as they are, bytes as pixels.
at::Tensor read_input(const PredictCommand& command, const program::Graph& graph) {
  const auto file = io::read_safetensors(command.input);
  const at::Tensor& input = io::tensor_of(file, "input", command.input);
  const auto& wanted = graph.values[graph.inputs.at(0)];
  const bool pixels = input.scalar_type() == at::kByte && wanted.dtype == at::kFloat && wanted.shape.size() == 4;
  bool fits = (pixels || input.scalar_type() == wanted.dtype) &&
              input.dim() == static_cast<int64_t>(wanted.shape.size()) && (!pixels || input.numel() > 0);
  std::vector<std::string> extents;
  if (fits && !wanted.shape.empty() && wanted.shape[0].per_image) graph.expect_batch("`input`", input.size(0));
  for (size_t d = 0; d < wanted.shape.size(); ++d) {
    const auto& extent = wanted.shape[d];
    extents.push_back(extent.per_image ? "batch" : std::to_string(extent.factor));
    fits = fits && (extent.per_image || input.size(static_cast<int64_t>(d)) == extent.factor);
  }
  if (fits && pixels) return normalised(input, command, normalization_of(command, "'input' is Byte, and "));
  if (fits && !command.mean.empty()) {
    throw std::invalid_argument(fmt::format("`mean`: 'input' of {} is {}, which is taken as it is: wanted Byte",
                                            command.input, at::toString(input.scalar_type())));
  }
  if (fits) return input;
  throw std::invalid_argument(fmt::format(
      "`input` {}: 'input' is {} of [{}], the model takes {} of [{}]", command.input, at::toString(input.scalar_type()),
      fmt::join(input.sizes(), ", "), at::toString(wanted.dtype), fmt::join(extents, ", ")));
}

int run_predict(const PredictCommand& command) {
  at::NoGradGuard no_grad;
  if (command.mean.empty() != command.std.empty()) throw std::invalid_argument("`mean` and `std`: wanted both or none");
  refuse_same_file("output", command.output, "input", command.input);
  refuse_same_file("output", command.output, "weights", command.weights);
  refuse_same_file("output", command.output, "model", command.model.model);
  expect_output("output", command.output);
  const auto device = chosen_device(command.device);
  text::expect_there("`input`", command.input);
  auto model = load_model(command.model);
  if (!command.weights.empty()) train::load_weights(model.weights, command.weights, model.program.graph().aliases);
  if (const size_t count = model.program.graph().inputs.size(); count != 1) {
    throw std::invalid_argument(fmt::format("{}: takes {} inputs, wanted one", command.model.model, count));
  }
  model = train::on_device(std::move(model), device);
  if (names_images(command.input)) {
    const auto [names, outputs, is_whole] = predict_images(command, model);
    warn_of(outputs, command);
    warn_of_other_names(command, names);
    const auto classes = normalization_of(command).description.classes;
    std::map<std::string, std::string> metadata{{"files", json_of(names)}};
    if (!classes.empty()) metadata["classes"] = json_of(classes);
    io::write_safetensors(command.output, named(outputs), metadata);
    const at::Tensor& logits = outputs[0];
    const bool by_image = logits.dim() == 2 && logits.size(0) == static_cast<int64_t>(names.size());
    if (by_image && logits.size(1) > 0) print_answers(names, logits, classes);
    return is_whole ? 0 : 1;
  }
  const auto outputs = outputs_of(model, read_input(command, model.program.graph()));
  warn_of(outputs, command);
  io::write_safetensors(command.output, named(outputs));
  return 0;
}

text::OptionList describe(PredictCommand& command) {
  text::OptionList list;
  describe_model(list, command.model);
  list.add("weights", text::text_value(command.weights), "FILE.safetensors instead of the model's own weights");
  list.add("input", text::text_value(command.input),
           "FILE.safetensors with 'input': uint8 pixels, or floats that are normalised; or an image file, or a folder "
           "of them, whose answers are also printed: in the metadata of `output` 'files' names them in order")
      .must();
  list.add("output", text::text_value(command.output),
           "FILE.safetensors to write, with 'output', and 'output_1', 'output_2' of further outputs; 'classes' in its "
           "metadata names those that the model knows")
      .must();
  list.add("mean", text::numbers(command.mean, "NUMBERS", {}),
           "of the pixels' channels, scaled to 0-1, instead of what the model says");
  list.add("std", text::numbers(command.std, "NUMBERS", text::above_zero()), "of the same");
  describe_device(list, command.device);
  describe_quiet(list, command.quiet);
  return list;
}

}  // namespace

void add_predict(CLI::App& app, int& status) {
  auto command = std::make_shared<PredictCommand>();
  add_command(app,
              {.name = "predict",
               .help = "run a model on images, or on the tensor 'input' of a safetensors file",
               .options = describe(*command),
               .run = [command] { return run_predict(*command); }},
              status);
}

}  // namespace prunex::tools
