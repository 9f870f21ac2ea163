// prunex train
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "launch/launch.h"
#include "launch/stop_signals.h"
#include "prunex/comm/connect.h"
#include "prunex/comm/meet/socket.h"
#include "prunex/comm/watch/signals.h"
#include "prunex/io/files.h"
#include "prunex/say.h"
#include "prunex/strategies/exchange/payload.h"
#include "prunex/train/elastic/elastic.h"
#include "prunex/train/prepare.h"
#include "prunex/train/run/checkpoint.h"
#include "prunex/train/strategy_choice.h"
#include "prunex/train/trainer.h"
#include "tools/prunex/command_line.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/help.h"
#include "tools/prunex/standard_streams.h"

namespace prunex::tools {
namespace {

using train::TrainOptions;

struct TrainCommand {
  TrainOptions options;
  std::string config;
  bool check = false;
};

constexpr const char* kExamples = R"(Examples:
  prunex train --nodes 2
  prunex train --dataset cifar10 --data-dir data --model resnet20 --nodes 2 --epochs 20
  prunex train --model net.pt2 --dataset train.safetensors --test test.safetensors --keep 0.7
  prunex train --strategy diloco --payload int4 --nodes 2 --lr 0.05
  prunex train --config experiment.toml --check
  prunex train --resume runs/cifar10-resnet20-hsadmm-1
  prunex train --join node0:29500 --secret-file secret)";

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

/// A single node sends nothing to others.
void warn_of_idle_payload(const TrainOptions& options) {
  if (options.nodes > 1 || options.elastic || options.exchange.payload == strategies::Payload::kFp32) return;
  say(text::with_flags("prunex: warning: `payload` is for what crosses nodes, and there is one\n"));
}

/// On rank 0; ranks that meet on loopback are this machine's.
void warn_if_open(const comm::Hierarchy& ranks, bool elastic) {
  const std::string address = elastic ? comm::address_of_doors(ranks) : ranks.address;
  if (ranks.layout.rank != 0 || address.empty() || comm::is_loopback(address)) return;
  if (!ranks.privacy.secret.empty()) return;
  say(fmt::format("prunex: warning: without --secret-file whoever reaches {} can join this run, read and change it\n",
                  address));
}

std::string row(const char* what, const std::string& text) {
  return fmt::format("{:<9} {}\n", what, wrap(text, 10, 10));
}

std::string length_of(const train::RunPreview& plan, const train::TrainOptions& options) {
  const auto& length = plan.length;
  std::vector<std::string> phases;
  for (const auto& phase : length.phases) phases.push_back(fmt::format("{} {}", phase.name, phase.steps));
  const std::string parts = phases.size() == 1 ? "" : fmt::format(" ({})", fmt::join(phases, ", "));
  return fmt::format("{} steps{}, {} per epoch; {} exchanges of {} steps", length.steps, parts, length.steps_per_epoch,
                     length.exchanges, options.local_steps);
}

std::string budget_of(const train::TrainOptions& options) {
  return options.budget.empty() ? fmt::format("{}", options.keep) : options.budget;
}

std::string pruning_of(const train::RunPreview& plan, const train::TrainOptions& options) {
  if (plan.last_cut) {
    const auto& pruning = options.pruning;
    const auto when = [](int64_t exchange) {
      return exchange == 0 ? "before the first step" : fmt::format("after exchange {}", exchange);
    };
    const auto cuts = pruning.steps == 1 ? "one cut" : fmt::format("{} cuts", pruning.steps);
    if (plan.first_cut == plan.last_cut)
      return fmt::format("to {} in {}, {}", pruning.target, cuts, when(*plan.last_cut));
    return fmt::format("to {} in {}, the first {}, the last {}", pruning.target, cuts, when(*plan.first_cut),
                       when(*plan.last_cut));
  }
  if (options.pruning.below > 0) {
    const int64_t every = options.pruning.every;
    return fmt::format("units below {}, after every {}", options.pruning.below,
                       every == 1 ? "exchange" : fmt::format("{} exchanges", every));
  }
  if (plan.groups.empty()) return "nothing";
  int64_t units = 0, kept = 0;
  for (const auto& group : plan.groups) {
    units += group.size;
    kept += std::llround(group.keep * static_cast<double>(group.size));
  }
  const auto& length = plan.length;
  const int64_t open = train::last_open_exchange(options, length);
  const std::string goal = plan.one_budget ? fmt::format("one budget for all, --keep {}", budget_of(options))
                                           : fmt::format("{} are kept", kept);
  std::string text = fmt::format("{}: {} groups of {} units, {}; ", plan.group_words, plan.groups.size(), units, goal);
  const bool freezes = open != strategies::kNever;
  const int64_t stable = options.masks.freeze_when_stable;
  if (options.strategy == "one_shot") {
    text += fmt::format("all at once in exchange {}", open + 1);
  } else {
    text += options.keep_ramp == sparsity::KeepRamp::kHard
                ? fmt::format("all at once in exchange {}", options.local_after + 1)
                : fmt::format("prune-start {}, prune-end {}", length.prune_start, length.prune_end);
    if (freezes) text += fmt::format(", masks are chosen for good in exchange {}", open + 1);
    if (!freezes && stable == 0) text += ", masks are never final";
    if (stable > 0) {
      text += fmt::format("{} once {} in a row changed no mask", freezes ? ", or" : ", masks are final",
                          stable == 1 ? "one exchange" : fmt::format("{} exchanges", stable));
    }
  }
  if (freezes && open >= length.exchanges) text += ", which the run does not reach";
  return text;
}

std::string traffic_of(const train::RunPreview& plan, const train::TrainOptions& options) {
  if (options.nodes == 1) return "nothing leaves the node";
  const auto mb = static_cast<double>(plan.exchange_bytes) / 1e6;
  const std::string payload = strategies::name_of(options.exchange.payload);
  if (plan.gradients) {
    const bool falls = options.top_k.dgc && options.dgc_warmup_epochs > 0;
    const std::string more = falls ? ", more while the density falls" : "";
    return fmt::format("{} {:.3g} MB per {} steps and node, gradients in {}{}",
                       options.strategy == "powersgd" ? "at most" : "about", mb, options.local_steps, payload, more);
  }
  const std::string before =
      options.local_after > 0 ? fmt::format("; in the first {} gradients, in every step", options.local_after) : "";
  return fmt::format("about {:.3g} MB per exchange and node in {} while the network is whole{}", mb, payload, before);
}

/// What --check prints: the network, the data, the length of the run, what is pruned when, and what is sent.
std::string plan_text(const train::RunPreview& plan, const train::TrainOptions& options) {
  return row("network", fmt::format("{} for {} images, {} classes: {} parameters, {:.2f} M MACs per image",
                                    options.model, fmt::join(plan.image, "x"), plan.classes, plan.size.parameters,
                                    static_cast<double>(plan.size.macs) / 1e6)) +
         row("images", fmt::format("{}: {} for training, {} held out, {} for the test", options.data.dataset,
                                   plan.training_images, plan.validation_images, plan.test_images)) +
         row("ranks", fmt::format("{}, {}, {} images in every step of all{}", comm::describe(train::shape_of(options)),
                                  options.strategy, plan.length.images_per_step,
                                  options.in_node == train::InNode::kGradients ? "; a node steps as one worker" : "")) +
         row("length", length_of(plan, options)) + row("pruned", pruning_of(plan, options)) +
         row("sent", traffic_of(plan, options));
}

/// The ranks that train: all that the launcher started, or of a node that joins those of this machine.
comm::Layout shape_to_start(const TrainOptions& options) {
  return options.join.empty() ? train::shape_of(options) : comm::Layout::even(1, options.ranks_per_node[0]);
}

/// Where the ranks of a launcher have been before; the run may be going on without them.
std::string run_to_come_back_to(const TrainOptions& options) {
  const std::string& directory = options.resume.empty() ? options.run_dir : options.resume;
  const bool may = options.elastic && options.join.empty() && !directory.empty();
  return may && train::doors_in(directory) ? directory : "";
}

/// Whether a launcher starts a rank again when the others have come to the end without it.
bool is_late(const TrainOptions& options) {
  const bool late =
      options.elastic && options.resume.empty() && !options.run_dir.empty() && train::is_done(options.run_dir);
  if (late) say(fmt::format("prunex: the run in {} is done\n", options.run_dir));
  return late;
}

/// `before`: the run that these ranks were in, if they join it on their own.
comm::Hierarchy connect(const TrainOptions& options, const std::optional<comm::Environment>& environment,
                        comm::ConnectOptions connection, const std::string& before = "") {
  if (!options.join.empty()) {
    const auto run = train::run_to_join(options, connection.privacy);
    const auto interface = comm::interface_towards(run, connection.heartbeat_timeout);  // NobodyThere
    if (!interface.empty() && connection.interfaces.empty()) connection.interfaces = {interface};
  }
  if (!options.join.empty() && environment && environment->world_size > environment->seat.local_size) {
    if (environment->seat.local_size == 1) return comm::connect(comm::Environment(), connection);
    if (!before.empty()) {
      throw std::invalid_argument(fmt::format(
          "{}: the run goes on without this node, and a launcher's nodes of several ranks do not come back by "
          "themselves: wanted prunex train --join {}, started on this machine alone",
          before, before));
    }
    throw std::invalid_argument(
        fmt::format("`join`: got {} ranks of several nodes, wanted those of one", environment->world_size));
  }
  const bool any = environment && train::takes_any_nodes(options);
  const auto wanted = any ? std::nullopt : std::optional(shape_to_start(options));
  return comm::connect(environment.value_or(comm::Environment()), connection, wanted);
}

/// Comes back to the run where it was before, or trains from the beginning or a checkpoint. Nothing if the run ended
/// without this rank.
std::optional<train::Summary> train_or_join(TrainOptions options, const std::optional<comm::Environment>& environment,
                                            const comm::ConnectOptions& connection, const std::string& config,
                                            train::StopRequest& stop, comm::Hierarchy& ranks) {
  if (environment && is_late(options)) return std::nullopt;
  const std::string before = environment ? run_to_come_back_to(options) : "";
  if (!before.empty() && train::can_join(options)) {
    options.join = before;
    try {
      ranks = connect(options, environment, connection, before);
      return train::train(options, ranks, config, &stop);
    } catch (const comm::NobodyThere&) {
      options.join.clear();
      if (is_late(options)) return std::nullopt;
    }
  }
  ranks = connect(options, environment, connection);
  if (environment && options.elastic && options.join.empty() && options.resume.empty()) {
    // only where the directory is seen are there doors
    const bool has_checkpoint = !before.empty() && std::filesystem::exists(before + "/checkpoint");
    options.resume = comm::broadcast_text(*ranks.world, has_checkpoint ? before : "");
  }
  if (!options.quiet) warn_if_open(ranks, options.elastic);
  return train::train(options, ranks, config, &stop);
}

/// Where a run begins that may not go on from what is there. An elastic one goes on while it is not done.
void expect_free_directory(const TrainOptions& options) {
  if (!options.resume.empty() || !options.join.empty() || options.run_dir.empty()) return;
  if (!options.elastic || train::is_done(options.run_dir)) io::check_new_or_empty(options.run_dir, "`run_dir`");
}

/// As another process of this executable is to be called; of an elastic run with its directory, so that lost nodes find
/// it.
int launch_train(const TrainOptions& options, const comm::Layout& shape, const comm::ConnectOptions& connection,
                 const Invocation& invocation) {
  std::vector<std::string> words = launch::words_of(invocation.argv);
  const launch::BlockedSignals signals = launch::signals_of_launcher();
  expect_device(connection);
  launch::LaunchOptions launch{
      .shape = shape, .threads = options.threads, .elastic = options.elastic, .privacy = connection.privacy};
  if (options.elastic && options.join.empty()) {
    std::string directory = options.resume.empty() ? options.run_dir : options.resume;
    expect_free_directory(options);
    if (directory.empty()) {
      directory = io::create_next_run_directory("runs", {options.data.dataset, options.model, options.strategy});
      words.insert(words.end(), {"--run-dir", directory});
    }
    if (train::can_join(options)) launch.words_to_join = {"--join", directory};
    // what an earlier part of the run has left says nothing of this one
    launch.has_begun = [directory, before = train::signs_of_beginning(directory)] {
      return train::signs_of_beginning(directory) != before;
    };
  }
  return launch::launch_ranks(launch, words, signals);
}

int run_train(const TrainCommand& command, const std::string& config, const Invocation& invocation) {
  const auto& options = command.options;
  train::validate(options);
  const auto environment = comm::read_environment();
  const comm::Layout shape = shape_to_start(options);
  if (!environment) launch::expect_room_for(shape);
  comm::ConnectOptions connection = connect_options(options.ranks);
  if (!environment && !options.quiet) warn_of_idle_payload(options);
  if (!environment) warn_if_oversubscribed(options, shape.world_size());
  if (command.check) {
    expect_device(connection);
    if (!options.resume.empty()) train::expect_checkpoint(options.resume, options.resume_exchange);
    expect_free_directory(options);
    const train::RunPreview plan = train::check(options);
    for (const auto& remark : plan.remarks) say(text::with_flags(fmt::format("prunex: {}\n", remark)));
    fmt::print("{}", plan_text(plan, options));
    return 0;
  }
  connection.reports = true;
  connection.report_signal = SIGUSR1;
  comm::block_signal(SIGUSR1);  // in the launcher, so that ranks start with it blocked, and in theirs

  if (!environment && shape.world_size() > 1) {
    return launch_train(options, shape, connection, invocation);
  }
  train::StopRequest stop;
  const char* ends = options.elastic ? "this node leaves after this exchange, or the run ends there with a checkpoint"
                                     : "the run ends after this exchange, with a checkpoint";
  const bool says = !options.quiet && (!environment || environment->rank == 0);
  const launch::StopSignals signals([&stop](int signal) { return stop.ask(signal); }, says ? ends : "");
  expect_device(connection);
  comm::Hierarchy ranks;
  try {
    const auto summary = train_or_join(options, environment, connection, config, stop, ranks);
    if (summary && ranks.layout.rank == 0) print_result(*summary);
    return 0;
  } catch (const train::Interrupted& end) {
    if (ranks.layout.rank == 0 || end.leaves) say(text::with_flags(fmt::format("prunex: {}\n", end.what())));
    return 128 + end.signal;
  }
}

/// Takes what the run in a directory was started with; returns it.
std::string apply_directory(text::OptionList& list, const std::string& option, const std::string& directory) {
  return apply_file(list, "train", option, directory + "/config.toml");
}

/// What the run that is joined was started with, but for what belongs to the machine that says so.
std::string apply_run(text::OptionList& list, const TrainOptions& options) {
  const auto entrance = train::entrance_in(options.join);
  if (!entrance) return apply_directory(list, "join", options.join);
  const auto privacy = comm::read_privacy(options.ranks.secret_file, false);
  for (const char* of_machine : {"interface", "secret-file"}) list.find(of_machine)->given = true;
  std::string config = train::invitation_to(options, *entrance, privacy).config;
  list.apply(config, fmt::format("`join` {}", options.join), "train");
  return config;
}

/// A run that goes on has its directory, and so has one that is joined where the directory is seen.
void refuse_other_directory(const TrainOptions& options, const char* option, const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (options.run_dir.empty()) return;
  if (fs::weakly_canonical(options.run_dir, ignored) == fs::weakly_canonical(directory, ignored)) return;
  throw std::invalid_argument(fmt::format("`run_dir`: got {} beside `{}` {}, which says where the results are",
                                          options.run_dir, option, directory));
}

std::set<std::string> given_in(const text::OptionList& list) {
  std::set<std::string> given;
  for (const auto& option : list.all()) {
    if (option.given) given.insert(option.name);
  }
  return given;
}

/// What files and presets say beside the command line; returns the resolved configuration.
std::string complete(text::OptionList& list, TrainCommand& command) {
  auto& options = command.options;
  std::string saved, of_run;  // of the run that is to go on
  if (!command.config.empty()) apply_file(list, "train", "config", command.config);
  const auto asked = given_in(list);
  if (!options.resume.empty()) {
    refuse_other_directory(options, "resume", options.resume);
    saved = apply_directory(list, "resume", of_run = options.resume);
  }
  if (!options.join.empty()) {
    if (!options.resume.empty() && options.resume != options.join) {
      throw std::invalid_argument(fmt::format("`resume`: got {} beside `join` {}", options.resume, options.join));
    }
    if (!train::entrance_in(options.join)) refuse_other_directory(options, "join", options.join);
    saved = apply_run(list, options);
    of_run = options.join;
    options.resume.clear();  // a rank of a run that was gone on with, come back
    options.resume_exchange = 0;
    list.find("resume-exchange")->given = false;
  }
  for (auto& option : list.all()) {  // whatever a run was begun with, it goes on
    if (option.given && !asked.contains(option.name)) option.is_kept = true;
  }
  train::apply_preset(list, options);
  list.check();  // what was said, before what the strategy adds
  list.refuse_idle();
  options = train::with_defaults(options);
  std::string config = list.configuration();
  const bool joins = !options.join.empty();
  if (!of_run.empty()) {
    train::check_same_options(saved, config, of_run, joins ? train::Among::kRanks : train::Among::kResume);
  }
  return config;
}

text::OptionList describe(TrainCommand& command) {
  text::OptionList list = train::describe(command.options);  // the last topic is the run
  list.add("config", text::text_value(command.config), "FILE.toml with any of these options as name = value; flags win")
      .basic()
      .not_in_files();
  list.add("check", text::flag(command.check),
           "look whether options, data and network would do, and print the plan; nothing is started")
      .basic()
      .not_in_files();
  return list;
}

}  // namespace

void add_train(CLI::App& app, Invocation invocation, int& status) {
  auto command = std::make_shared<TrainCommand>();
  auto config = std::make_shared<std::string>();
  auto& app_of_train =
      add_command(app,
                  {.name = "train",
                   .help = "train, prune while training, and leave a small model",
                   .options = describe(*command),
                   .run = [command, config, invocation] { return run_train(*command, *config, invocation); },
                   .complete = [command, config](text::OptionList& list) { *config = complete(list, *command); },
                   .last_wins = true,  // scripts append overrides
                   .examples = kExamples},
                  status);
  app_of_train.get_option("--config")->multi_option_policy(CLI::MultiOptionPolicy::Throw);  // not one line of the first
}

}  // namespace prunex::tools
