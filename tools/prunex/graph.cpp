// prunex graph
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "prunex/channels/analysis.h"
#include "prunex/io/files.h"
#include "prunex/program/macs.h"
#include "prunex/program/pt2.h"
#include "prunex/train/images/images.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/help.h"

namespace prunex::tools {
namespace {

using nlohmann::ordered_json;

struct GraphCommand {
  ModelChoice model;
  std::string json;
  std::string save;
  bool quiet = false;  // nothing else is said, anyway
};

ordered_json to_json(const channels::DependencyGroup& group) {
  ordered_json slices = ordered_json::array();
  for (const auto& slice : group.slices) {
    ordered_json entry{{"tensor", slice.tensor}, {"axis", slice.axis}};
    if (!slice.index.empty()) entry["index"] = slice.index;
    slices.push_back(entry);
  }
  ordered_json json{{"name", group.name},
                    {"size", group.size},
                    {"kind", channels::name_of(group.kind)},
                    {"prunable", group.prunable}};
  if (!group.prunable) json["reason"] = group.reason;
  json["slices"] = slices;
  return json;
}

void print(const channels::DependencyGroup& group) {
  std::string row = fmt::format("{:<32} {:>6}  {:<7} {:<4} {:>3} slices", shorten(group.name, 32), group.size,
                                channels::name_of(group.kind), group.prunable ? "yes" : "no", group.slices.size());
  if (!group.reason.empty()) row += "  " + wrap(group.reason, row.size() + 2, row.size() + 2);
  fmt::print("{}\n", row);
}

/// What the file said of its images goes along.
void save(const GraphCommand& command, const program::Model& model) {
  program::ExtraFiles texts;
  const auto carried = train::carried_description(command.model.model, "", command.model.max_model_size << 20);
  if (carried) texts.emplace(data::kDescriptionName, data::description_json(carried->description));
  program::write_pt2(command.save, model, texts);
}

int run_graph(const GraphCommand& command) {
  refuse_same_file("json", command.json, "model", command.model.model);
  refuse_same_file("json", command.json, "save", command.save);
  expect_text_output("json", command.json);
  expect_output("save", command.save);
  const auto model = load_model(command.model, program::Batch::kAny);
  const auto& graph = model.program.graph();
  const channels::Analysis analysis(model.program);
  const auto& groups = analysis.groups();
  if (!command.save.empty()) save(command, model);
  if (!command.json.empty()) {
    ordered_json array = ordered_json::array();
    for (const auto& group : groups) array.push_back(to_json(group));
    io::write_file_atomically(command.json, array.dump(1) + "\n");
  }
  fmt::print("{:<32} {:>6}  {:<7} {}\n", "group", "units", "kind", "prunable");
  for (const auto& group : groups) print(group);
  fmt::print("{} groups, {} parameters, {:.2f} M MACs per image\n", groups.size(),
             program::parameter_count(model.weights), static_cast<double>(program::macs(graph)) / 1e6);
  return 0;
}

text::OptionList describe(GraphCommand& command) {
  text::OptionList list;
  describe_model(list, command.model);
  describe_input(list, command.model);
  list.add("json", text::text_value(command.json), "write the groups to this file");
  list.add("save", text::text_value(command.save), "write the program to this FILE.pt2");
  describe_quiet(list, command.quiet);
  return list;
}

}  // namespace

void add_graph(CLI::App& app, int& status) {
  auto command = std::make_shared<GraphCommand>();
  add_command(app,
              {.name = "graph",
               .help = "show which channels of a network must be pruned together",
               .options = describe(*command),
               .run = [command] { return run_graph(*command); }},
              status);
}

}  // namespace prunex::tools
