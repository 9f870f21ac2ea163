// prunex eval
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "prunex/data/load.h"
#include "prunex/io/files.h"
#include "prunex/program/macs.h"
#include "prunex/program/pt2.h"
#include "prunex/say.h"
#include "prunex/text/read_file.h"
#include "prunex/train/device.h"
#include "prunex/train/evaluate.h"
#include "prunex/train/images/answers.h"
#include "prunex/train/images/images.h"
#include "prunex/train/network.h"
#include "tools/prunex/commands.h"

namespace prunex::tools {
namespace {

struct EvalCommand {
  std::string model;
  int64_t max_model_size = 0;
  data::DataOptions data;
  int64_t batch_size = 128;
  int threads = 1;
  std::string device = "cpu";
  std::string json, answers;
  bool quiet = false;
  bool names_images = false;  // by `dataset` or `test`
};

/// A network of other classes is not meant to be scored on the images that nobody named.
void expect_images_named(const EvalCommand& command, const std::optional<train::Carried>& carried,
                         const data::Dataset& images) {
  if (command.names_images || !carried || carried->description.classes.empty()) return;
  const auto& classes = carried->description.classes;
  if (classes == images.class_names) return;
  throw std::invalid_argument(
      fmt::format("`dataset`: got none, wanted that of the model's classes, {} to {}, or a `test` set", classes.front(),
                  classes.back()));
}

/// `test` by itself: nothing but the model says how its images are normalised.
data::Dataset test_file(const data::DataOptions& options, const std::optional<train::Carried>& carried,
                        const std::string& model) {
  if (!carried) {
    throw std::invalid_argument(
        fmt::format("`test` {}: {} does not say how images are normalised: `dataset`, what it was "
                    "trained on, is wanted too",
                    options.test, model));
  }
  data::Dataset test = data::is_streamed(options.test) ? data::open_test_stream(options, carried->description)
                                                       : data::read_image_file(options.test);
  data::normalise_by(test, carried->description, carried->file);
  return data::limited(test, options.test_limit, "`test_limit`");
}

/// Those that the network takes.
data::Dataset test_images(EvalCommand command, const program::Graph& graph) {
  const auto carried = train::carried_description(command.model, "", command.max_model_size << 20);
  train::complete_sizes(command.data, graph, carried);
  const bool alone = command.data.dataset.empty();
  train::RunImages images;
  if (alone) {
    images.sets.test = test_file(command.data, carried, command.model);
    const auto& names = images.sets.test.class_names;
    const bool by_order = !names.empty() && names != data::names_or_numbers({}, images.sets.test.classes);
    if (by_order && carried->description.classes.empty()) {
      images.remarks.push_back(
          fmt::format("warning: {} does not name its classes: the folders of {} are taken for its outputs in the order "
                      "of their names",
                      command.model, command.data.test));
    }
  } else {
    images = train::load_images(command.data, carried);
    expect_images_named(command, carried, images.sets.test);
  }
  train::check_fits(graph, images.sets.test, "`model` " + command.model);
  for (const auto& remark : images.remarks) {
    if (!command.quiet) say(fmt::format("prunex: {}\n", remark));
  }
  return images.sets.test;
}

std::string name_of_images(const data::DataOptions& options) {
  const std::string& set = options.test.empty() ? options.dataset : options.test;
  return set == "synthetic" ? "synthetic, images that are built in" : set;
}

int run_eval(const EvalCommand& command) {
  refuse_same_file("answers", command.answers, "json", command.json);
  for (const auto& [option, path] : {std::pair("answers", command.answers), std::pair("json", command.json)}) {
    refuse_same_file(option, path, "model", command.model);
    refuse_same_file(option, path, "test", command.data.test);
    refuse_same_file(option, path, "dataset", command.data.dataset);
    expect_text_output(option, path);
  }
  at::set_num_threads(command.threads);
  const auto device = chosen_device(command.device);
  text::expect_there("`model`", command.model);
  const auto model = train::on_device(program::read_pt2(command.model, command.max_model_size << 20), device);
  const auto test = test_images(command, model.program.graph());
  const auto answers = train::answers(model.program, model.weights, test);
  if (std::isnan(answers.loss)) {
    throw std::runtime_error(fmt::format("{}: the loss on the test images is not a number", command.model));
  }
  const int64_t batch_size = std::min(model.program.graph().batch_of(command.batch_size), test.size());
  const double milliseconds = train::milliseconds_per_batch(model.program, model.weights, test, batch_size);
  const int64_t parameters = program::parameter_count(model.weights), macs = program::macs(model.program.graph());
  const auto top5 = answers.top5_accuracy();
  fmt::print("accuracy {:.2f} %{}  loss {:.4f}  parameters {}  MACs {:.2f} M  {:.2f} ms per batch of {}  on {}\n",
             100 * answers.accuracy(), top5 ? fmt::format("  top-5 {:.2f} %", 100 * *top5) : "", answers.loss,
             parameters, static_cast<double>(macs) / 1e6, milliseconds, batch_size, name_of_images(command.data));
  if (!command.answers.empty()) io::write_file_atomically(command.answers, train::answers_json(answers, test));
  if (command.json.empty()) return 0;
  nlohmann::ordered_json json{
      {"accuracy", answers.accuracy()},         {"loss", answers.loss},    {"parameters", parameters}, {"macs", macs},
      {"milliseconds_per_batch", milliseconds}, {"batch_size", batch_size}};
  if (top5) json["top5_accuracy"] = *top5;
  io::write_file_atomically(command.json, json.dump(2) + "\n");
  return 0;
}

text::OptionList describe(EvalCommand& command) {
  text::OptionList list;
  list.add("model", text::text_value(command.model), "FILE.pt2").must();
  describe_model_limit(list, command.max_model_size);
  list.add("batch-size", text::number(command.batch_size, text::at_least(1)), "images per batch of the timing");
  list.add("threads", text::number(command.threads, text::between(1, train::kMostThreads)), "threads");
  describe_device(list, command.device);
  list.add("json", text::text_value(command.json), "write the result to this file");
  list.add("answers", text::text_value(command.answers),
           "write what images of every class are taken for, and the worst mistakes, to this file");
  describe_quiet(list, command.quiet);
  train::describe_data(list, command.data, train::ImageUse::kTesting);
  return list;
}

}  // namespace

void add_eval(CLI::App& app, int& status) {
  auto command = std::make_shared<EvalCommand>();
  const auto complete = [command](text::OptionList& options) {
    command->names_images = options.find("dataset")->given || !command->data.test.empty();
    if (!options.find("dataset")->given && !command->data.test.empty()) command->data.dataset.clear();
  };
  add_command(app,
              {.name = "eval",
               .help = "score a model on a test set",
               .options = describe(*command),
               .run = [command] { return run_eval(*command); },
               .complete = complete},
              status);
}

}  // namespace prunex::tools
