// prunex eval
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "prunex/data/load.h"
#include "prunex/io/atomic_file.h"
#include "prunex/program/macs.h"
#include "prunex/program/pt2.h"
#include "prunex/train/evaluate.h"
#include "prunex/train/network.h"
#include "tools/prunex/checks.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/data_options.h"

namespace prunex::tools {
namespace {

struct EvalCommand {
  std::string model;
  int64_t max_model_size = 0;
  data::DataOptions data;
  int64_t batch_size = 128;
  int threads = 1;
  std::string json;
};

int run_eval(const EvalCommand& command) {
  at::set_num_threads(command.threads);
  const auto data = data::load_datasets(command.data);
  const auto model = program::read_pt2(command.model, command.max_model_size << 20);
  train::check_fits(model.program.graph(), data.test, "--model " + command.model);
  const auto score = train::evaluate(model.program, model.weights, data.test);
  const int64_t batch_size = std::min(command.batch_size, data.test.size());
  const double milliseconds = train::milliseconds_per_batch(model.program, model.weights, data.test, batch_size);
  const int64_t parameters = program::parameter_count(model.weights), macs = program::macs(model.program.graph());
  fmt::print("accuracy {:.2f} %  loss {:.4f}  parameters {}  MACs {:.2f} M  {:.2f} ms per batch of {}\n",
             100 * score.accuracy, score.loss, parameters, static_cast<double>(macs) / 1e6, milliseconds, batch_size);
  if (command.json.empty()) return 0;
  const nlohmann::ordered_json json{{"accuracy", score.accuracy},
                                    {"loss", score.loss},
                                    {"parameters", parameters},
                                    {"macs", macs},
                                    {"milliseconds_per_batch", milliseconds},
                                    {"batch_size", batch_size}};
  io::write_file_atomically(command.json, json.dump(2) + "\n");
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, int& status) {
  auto* sub = app.add_subcommand("eval", "score a model on a test set");
  auto command = std::make_shared<EvalCommand>();
  sub->add_option("--model", command->model, "FILE.pt2")->required();
  add_model_limit(*sub, command->max_model_size);
  add_data_options(*sub, command->data);
  sub->add_option("--batch-size", command->batch_size, "images per batch of the timing")->check(above_zero());
  sub->add_option("--threads", command->threads, "threads")->check(between(1, kMostThreads));
  sub->add_option("--json", command->json, "write the result to this file");
  sub->callback([command, &status] { status = run_eval(*command); });
}

}  // namespace prunex::tools
