// prunex train
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <thread>

#include "prunex/comm/connect.h"
#include "prunex/comm/watch/signals.h"
#include "prunex/say.h"
#include "prunex/train/check.h"
#include "prunex/train/trainer.h"
#include "tools/prunex/checks.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/config_file.h"
#include "tools/prunex/launch.h"
#include "tools/prunex/standard_streams.h"
#include "tools/prunex/stop_signals.h"
#include "tools/prunex/train_help.h"
#include "tools/prunex/train_options.h"

namespace prunex::tools {
namespace {

using train::TrainOptions;

/// PruneX (arXiv 2512.14628), section 5.1.5 and algorithm 1, with the corrected equations. --local-steps is up to the
/// data: the paper has 5 to 10 epochs.
constexpr const char* kPaper = R"(groups = "channel"
keep = 0.5
keep-schedule = "hard"
mask-rule = "union"
exchange = "leader"
penalty = "residual"
rho1 = 0.0015
rho2 = 0.00015
rho1-max = 10
rho2-max = 10
start-from = "theta"
aux = "admm"
after-freeze = "admm"
lr = 0.001
lr-schedule = "constant"
warmup-epochs = 0
momentum = 0.9
weight-decay = 0.0001
batch-size = 128
)";

std::string result_of(const train::Summary& summary) {
  const auto mega = [](int64_t count) { return static_cast<double>(count) / 1e6; };
  std::string text = fmt::format("accuracy {:.2f} %  parameters {} of {}  MACs {:.2f} M of {:.2f} M\n",
                                 100 * summary.accuracy, summary.parameters_compact, summary.parameters_dense,
                                 mega(summary.macs_compact), mega(summary.macs_dense));
  if (summary.shape.nodes() == 1) return text;
  return text + fmt::format("sent between nodes, per node: {:.2f} MB; per-step DDP {:.2f} MB\n",
                            mega(summary.bytes.inter_node), mega(train::ddp_bytes(summary)));
}

/// The run directory has it all: a launcher is not to start a finished run again for want of a reader.
void print_result(const train::Summary& summary) {
  std::fputs(result_of(summary).c_str(), stdout);
  const std::string problem = output_problem();
  if (problem.empty()) return;
  say(fmt::format("prunex: warning: {}; the results are in the run's summary.json\n", problem));
  forget_output();
}

void warn_if_oversubscribed(const TrainOptions& options, int ranks_here) {
  const int64_t cores = std::thread::hardware_concurrency();
  const int64_t wanted = static_cast<int64_t>(ranks_here) * options.threads;
  if (cores == 0 || wanted <= cores || options.quiet) return;
  const auto who = ranks_here == 1 ? "threads" : "ranks x threads";
  const auto advice =
      options.threads > 1 ? fmt::format("; try --threads {}", std::max<int64_t>(1, cores / ranks_here)) : "";
  say(fmt::format("prunex: warning: {} {} on {} cores: they will wait for one another{}\n", wanted, who, cores,
                  advice));
}

int run_train(TrainCommand& command, const std::string& config, const Invocation& invocation) {
  auto& options = command.options;
  take_words(command);
  train::validate(options);
  const auto environment = comm::read_environment();
  const comm::Layout shape = train::shape_of(options);
  if (!environment) expect_room_for(shape);
  if (command.device == "cuda") {
    comm::check_gpu();  // before ranks are started
    command.gloo.device = at::kCUDA;
  }
  if (!environment) warn_if_oversubscribed(options, shape.world_size());
  if (command.check) {
    const train::Plan plan = train::check(options);
    for (const auto& remark : plan.remarks) say(fmt::format("prunex: {}\n", remark));
    if (!options.quiet) fmt::print("{}", plan_text(plan, options));
    return 0;
  }
  if (!command.interface.empty()) command.gloo.interfaces = CLI::detail::split(command.interface, ',');
  command.gloo.join_timeout = milliseconds_of(command.join_timeout);
  command.gloo.timeout = milliseconds_of(command.comm_timeout);
  command.gloo.heartbeat_timeout = milliseconds_of(command.heartbeat_timeout);
  command.gloo.announce = true;
  command.gloo.reports = true;
  command.gloo.shared_memory = !command.no_shared_memory;
  command.gloo.report_signal = SIGUSR1;
  comm::block_signal(SIGUSR1);  // in the launcher, so that ranks start with it blocked, and in theirs

  if (!environment && shape.world_size() > 1) {
    return launch({shape, options.threads}, invocation.argv);
  }
  train::StopRequest stop;
  const StopSignals signals(stop, !options.quiet && (!environment || environment->rank == 0));
  auto ranks = comm::connect(environment.value_or(comm::Environment()), command.gloo, shape);
  try {
    const auto summary = train::train(options, ranks, config, &stop);
    if (ranks.layout.rank == 0) print_result(summary);
    return 0;
  } catch (const train::Interrupted& end) {
    if (ranks.layout.rank == 0) say(fmt::format("prunex: {}\n", end.what()));
    return 128 + end.signal;
  }
}

}  // namespace

void add_train(CLI::App& app, Invocation invocation, int& status) {
  auto* sub = app.add_subcommand("train", "train, prune while training, and leave a small model");
  sub->option_defaults()->always_capture_default();
  sub->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // scripts append overrides
  auto command = std::make_shared<TrainCommand>();
  add_train_options(*sub, *command);
  explain_train(*sub);
  sub->callback([sub, command, invocation, &status] {
    apply_config(*sub);
    const auto& options = command->options;
    if (!options.resume.empty()) apply_config_file(*sub, "--resume", options.resume + "/config.toml");
    if (options.resume.empty() && options.resume_exchange != 0) {
      throw std::invalid_argument("--resume-exchange: needs --resume, which says where to go on");
    }
    if (command->preset == "paper") apply_config_text(*sub, "--preset paper", kPaper);
    status = run_train(*command, configuration_of(*sub), invocation);
  });
}

}  // namespace prunex::tools
