// prunex plan
#include "plan/plan.h"

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>

#include "prunex/comm/layout.h"
#include "prunex/io/files.h"
#include "prunex/say.h"
#include "report/format.h"
#include "report/report.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/version.h"

namespace prunex::tools {
namespace {

namespace fs = std::filesystem;

struct PlanCommand {
  std::vector<std::string> from;
  std::string cluster_file, json, output;
  plan::PlanOptions options;
  bool quiet = false;
  std::string line;  ///< that says all this
};

/// A comparison may be named by its record.
std::vector<std::string> directories_of(const std::vector<std::string>& from) {
  std::vector<std::string> directories;
  for (const fs::path path : from) {
    const bool is_record = path.filename() == "compare.json" && fs::is_regular_file(path);
    directories.push_back(is_record ? (path.has_parent_path() ? path.parent_path().string() : ".") : path.string());
  }
  return directories;
}

report::Findings find_runs(const PlanCommand& command) {
  try {
    return report::find_runs(directories_of(command.from));
  } catch (const std::invalid_argument& error) {
    const std::string why = error.what(), room = "report: ";
    throw std::invalid_argument("`from`: " + (why.starts_with(room) ? why.substr(room.size()) : why));
  }
}

int run_plan(const PlanCommand& command) {
  refuse_same_file("json", command.json, "output", command.output);
  const auto outputs = {std::pair("json", command.json), std::pair("output", command.output)};
  for (const auto& [option, path] : outputs) {
    refuse_same_file(option, path, "network", command.options.network);
    refuse_same_file(option, path, "gpu_kit", command.options.gpu_kit);
    refuse_same_file(option, path, "cluster", command.cluster_file);
  }
  const auto findings = find_runs(command);
  for (const auto& [option, path] : outputs) {
    report::refuse_record(fmt::format("`{}`", option), path, findings);
    expect_text_output(option, path);
  }
  for (const auto& run : findings.runs) {
    for (const auto& problem : run.problems) {
      if (!command.quiet) say(fmt::format("prunex: plan: {}\n", report::cleaned(problem)));
    }
  }
  const auto plan = plan::make_plan(findings.runs, command.options);
  if (!command.json.empty()) io::write_file_atomically(command.json, plan::to_json(plan, command.line));
  if (!command.output.empty()) {
    io::write_file_atomically(command.output, plan::to_html(plan, origin_of(command.line, command.output)));
  }
  fmt::print("{}", plan::to_text(plan));
  return 0;
}

void describe_cluster(text::OptionList& list, plan::PlanOptions& options) {
  auto& cluster = options.cluster;
  using text::number;
  list.topic("Cluster");
  const auto count = text::between(1, comm::kMostRanks);
  list.add("nodes", number(cluster.nodes, count), "machines");
  list.add("ranks-per-node", number(cluster.ranks_per_node, count), "processes, or GPUs, of each");
  const text::Condition sends{
      "`nodes`", [&cluster] { return cluster.nodes > 1 ? "" : "one of `nodes` sends nothing, wanted two or more"; }};
  const text::Condition not_measured{"no `network`",
                                     [&options] { return options.network.empty() ? "" : "`network` says it"; }};
  list.add("link", text::numbers(cluster.link, "MBIT,MBIT", text::above_zero()),
           "Mbit/s, each way, of a node; or a list, node by node, the last of which holds for the rest",
           {sends, not_measured});
  list.add("latency", number(cluster.latency, text::at_least(0)), "milliseconds of a message between nodes",
           {sends, not_measured});
  list.add("goodput", number(cluster.goodput, text::share()), "share of a link that the headers of TCP/IP leave",
           {sends, not_measured});
  list.add("network", text::text_value(options.network, "FILE.json"),
           "what `prunex bench all_reduce --json` measured, in place of link and latency", {sends});
  list.add("memory", number(cluster.memory, text::above_zero()), "GB/s that a rank adds up or copies in its node",
           {{"`ranks_per_node`", [&cluster] {
               return cluster.ranks_per_node > 1 ? "" : "one rank per node adds up nothing in it, wanted two or more";
             }}});
  list.add("sites", number(cluster.sites, count), "equal shares of the nodes, each behind one link");
  const text::Condition several{
      "`sites`", [&cluster] { return cluster.sites > 1 ? "" : "there is one of `sites`, wanted two or more"; }};
  list.add("site-link", number(cluster.site_link, text::above_zero()),
           "Mbit/s, each way, that a site's nodes share to other sites", {several});
  list.add("site-latency", number(cluster.site_latency, text::at_least(0)), "milliseconds of a message between sites",
           {several});
  list.add("other-flows", number(cluster.other_flows, text::between(0, 1000)),
           "connections of others, both ways, that share every link between sites, or else every node's", {sends});
  list.add("engine",
           text::choice(cluster.engine, {{"auto", plan::Engine::kAuto},
                                         {"closed-form", plan::Engine::kClosedForm},
                                         {"flows", plan::Engine::kFlows}}),
           "what messages take; flows: SimGrid; auto: flows where links differ or others send, else the closed form");
  list.add("straggler", number(cluster.straggler, text::at_least(1)),
           "times as long as the others the slowest node takes for a step");
  list.add("price-per-hour", number(cluster.price_per_hour, text::at_least(0)), "of a node, in any currency");
}

text::OptionList describe(PlanCommand& command) {
  using text::number;
  auto& options = command.options;
  text::OptionList list;
  list.add("from", text::texts(command.from), "run directories, comparisons, or folders that hold such at any depth")
      .must()
      .not_in_files();
  list.add("only", text::text_value(options.only), "runs whose name fits, such as 'r8-*'").not_in_files();
  list.add("cluster", text::text_value(command.cluster_file, "FILE"),
           "TOML with the options of the cluster; the command line wins")
      .not_in_files();
  list.add("local-steps", text::numbers(options.local_steps, "H,H", text::at_least(1)),
           "further intervals to predict, of what exchanges weights")
      .not_in_files();
  list.add("payload", text::text_list(options.payloads),
           "further payloads to predict: fp32,bf16,fp16,int8,int4,int2,int1")
      .not_in_files();
  list.add("batch-size", number(options.batch_size, text::at_least(1)),
           "images per rank and step; default: as recorded")
      .not_in_files();
  list.add("seconds-per-step", number(options.seconds_per_step, text::above_zero()),
           "of the dense network with that batch, on the processors of this cluster; default: as recorded")
      .not_in_files();
  const text::Condition not_given{"no `seconds_per_step`",
                                  [&options] { return options.seconds_per_step ? "`seconds_per_step` says it" : ""; }};
  list.add("gpu-kit", text::text_value(options.gpu_kit, "FILE"),
           "instead: the images per second of gpu-kit/results/3-speed.txt, of one GPU", {not_given})
      .not_in_files();
  list.add("overhead", text::flag(options.overhead),
           "count what recorded exchanges took between nodes that were one machine, beside the wire")
      .not_in_files();
  list.add("accuracy", number(options.accuracy, text::share()),
           "test accuracy, 0 to 1, to predict the time to; default: the best that all runs reach")
      .not_in_files();
  list.add("output", text::text_value(command.output), "also write a page with figures: FILE.html").not_in_files();
  list.add("json", text::text_value(command.json), "also write the plan to this file").not_in_files();
  list.add("quiet", text::flag(command.quiet), "no word on what could not be read").not_in_files();
  describe_cluster(list, options);
  return list;
}

}  // namespace

void add_plan(CLI::App& app, int& status) {
  auto command = std::make_shared<PlanCommand>();
  add_command(app,
              {.name = "plan",
               .help = "what recorded runs would take on another cluster: time, bytes, cost; what pays",
               .options = describe(*command),
               .run = [command] { return run_plan(*command); },
               .complete =
                   [command](text::OptionList& list) {
                     command->line = line_of("plan --from", command->from, list);  // which names the file
                     if (!command->cluster_file.empty()) apply_file(list, "plan", "cluster", command->cluster_file);
                   }},
              status);
}

}  // namespace prunex::tools
