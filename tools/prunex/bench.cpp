// prunex bench
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "launch/launch.h"
#include "prunex/comm/connect.h"
#include "prunex/comm/cost_model.h"
#include "prunex/io/files.h"
#include "prunex/stopwatch.h"
#include "prunex/strategies/exchange/rail_exchange.h"
#include "prunex/train/options.h"
#include "report/verdict.h"
#include "tools/prunex/commands.h"

namespace prunex::tools {
namespace {

using comm::Form;

struct BenchCommand {
  int nodes = 1, ranks_per_node = 1;
  std::vector<Form> forms = {Form::kFlat, Form::kLeader, Form::kSharded};
  std::string least = "64K", most = "64M";
  double factor = 4;
  int iterations = 10, warm_up = 2;
  bool check = true;
  double line_rate = 0;  // Mbit/s
  std::string json;
  train::RankOptions ranks;
  bool quiet = false;
};

struct Result {
  Form form;
  int64_t bytes = 0;
  double seconds = 0;      // median
  int64_t node_bytes = 0;  // sent by node 0
  int64_t wrong = 0;       // where results are checked
};

const std::vector<std::pair<std::string, Form>> kForms{
    {"flat", Form::kFlat}, {"leader", Form::kLeader}, {"sharded", Form::kSharded}};

std::string name_of(Form form) {
  return text::choice(form, kForms).write();
}

constexpr int64_t kMostBytes = int64_t{1} << 40;

/// "64K", "16M", "1G" or bytes.
int64_t bytes_of(const char* option, const std::string& size) {
  const std::string units = "KMG";
  const size_t unit = size.empty() ? std::string::npos : units.find(static_cast<char>(std::toupper(size.back())));
  const bool scaled = unit != std::string::npos;
  const auto number = text::number_in<int64_t>(scaled ? size.substr(0, size.size() - 1) : size).value_or(0);
  const int shift = scaled ? 10 * (static_cast<int>(unit) + 1) : 0;
  if (number > 0 && number <= kMostBytes >> shift && number << shift >= 4) return number << shift;
  throw std::invalid_argument(
      fmt::format("`{}`: got '{}', wanted bytes, from 4 to 1024G, such as 4096, 64K or 16M", option, size));
}

class AllReduceBench {
 public:
  AllReduceBench(const BenchCommand& command, comm::Hierarchy& ranks)
      : command_(command),
        ranks_(ranks),
        leader_(ranks, strategies::ExchangeForm::kLeader),
        sharded_(ranks, strategies::ExchangeForm::kSharded) {}

  Result measure(Form form, int64_t bytes) {
    Result result{.form = form, .bytes = bytes / 4 * 4};
    at::Tensor buffer = at::empty({bytes / 4}, at::TensorOptions().device(ranks_.device));
    std::vector<double> seconds;
    for (int i = -command_.warm_up; i < command_.iterations; ++i) {
      fill(buffer, i);
      const int64_t before = moved_to_nodes();
      ranks_.world->barrier();
      Stopwatch watch;
      reduce(form, buffer);
      const double took = watch.lap();
      result.node_bytes = moved_to_nodes() - before;
      if (command_.check) result.wrong += wrong(buffer, i);
      if (i >= 0) seconds.push_back(took);
    }
    return over_ranks(result, seconds);
  }

 private:
  void reduce(Form form, at::Tensor& buffer) {
    if (form == Form::kFlat) return ranks_.flat->all_reduce(buffer);
    (form == Form::kLeader ? leader_ : sharded_).sum_over_ranks(buffer);
  }

  int64_t moved_to_nodes() const { return comm::moved_by_exchanges(ranks_).sent_to_nodes; }

  /// Small whole numbers, so that sums are exact in any order.
  static at::Tensor pattern(int64_t count, int iteration) {
    return ((at::arange(count, at::kInt) + iteration) % 16).to(at::kFloat);
  }
  void fill(at::Tensor& buffer, int iteration) const {
    buffer.copy_(pattern(buffer.numel(), iteration) + static_cast<double>(ranks_.layout.rank));
  }
  int64_t wrong(const at::Tensor& buffer, int iteration) const {
    const int64_t world = ranks_.layout.world_size();
    const auto want = pattern(buffer.numel(), iteration) * world + static_cast<double>(world * (world - 1) / 2);
    return (buffer.cpu() != want).sum().item<int64_t>();
  }

  /// Every iteration took as long as on its slowest rank; bytes are those of node 0, errors those of all.
  Result over_ranks(Result result, const std::vector<double>& seconds) {
    at::Tensor slowest = at::tensor(seconds, at::kDouble);
    ranks_.world->all_reduce(slowest, comm::Reduce::kMax);
    result.seconds = slowest.median().item<double>();
    at::Tensor sums = at::tensor({ranks_.layout.node() == 0 ? result.node_bytes : 0, result.wrong}, at::kLong);
    ranks_.world->all_reduce(sums);
    result.node_bytes = sums[0].item<int64_t>();
    result.wrong = sums[1].item<int64_t>();
    return result;
  }

  const BenchCommand& command_;
  comm::Hierarchy& ranks_;
  strategies::RailExchange leader_, sharded_;
};

/// Seconds that the fewest bytes take at the nominal rate, and what docs/communication.md predicts; 0 without a rate.
struct Expected {
  double bound = 0, model = 0;
};

Expected expected(const BenchCommand& command, const Result& result, const comm::Layout& layout) {
  if (command.line_rate == 0) return {};
  const comm::ClusterShape shape{layout.nodes(), layout.ranks_here()};
  const double link = command.line_rate * report::kBytesPerMbit;
  const auto bytes = static_cast<double>(result.bytes);
  return {comm::least_node_bytes(bytes, shape) / link,
          comm::predicted_seconds(result.form, bytes, shape, {.link = link})};
}

/// 100 columns.
constexpr const char* kRow = "{:>7} {:>11} {:>10} {:>5} {:>10} {:>8} {:>8} {:>5} {:>9} {:>9} {:>8}\n";

void print_head() {
  const auto row = fmt::runtime(kRow);
  fmt::print(row, "form", "size", "count", "type", "time", "algbw", "busbw", "wrong", "bound", "model", "of bound");
  fmt::print(row, "", "(B)", "(elements)", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(%)");
}

void print_line(const Result& result, const Expected& expected, int world_size, bool checked) {
  const double algorithm = static_cast<double>(result.bytes) / result.seconds / 1e9;
  const auto text = [](double value, int digits) { return fmt::format("{:.{}f}", value, digits); };
  const auto or_dash = [&](double value) { return value > 0 ? text(value, 1) : std::string("-"); };
  fmt::print(fmt::runtime(kRow), name_of(result.form), result.bytes, result.bytes / 4, "float",
             text(result.seconds * 1e6, 1), text(algorithm, 4), text(algorithm * 2 * (world_size - 1) / world_size, 4),
             checked ? std::to_string(result.wrong) : "-", or_dash(expected.bound * 1e6), or_dash(expected.model * 1e6),
             or_dash(100 * expected.bound / result.seconds));
  std::fflush(stdout);
}

void refuse_idle_rate(const BenchCommand& command, int nodes) {
  if (command.line_rate == 0 || nodes > 1) return;
  throw std::invalid_argument("`line_rate`: one node sends nothing over its interface: wanted `nodes` 2 or more");
}

int measure_all(const BenchCommand& command, comm::Hierarchy& ranks) {
  refuse_idle_rate(command, ranks.layout.nodes());
  const int64_t least = bytes_of("b", command.least), most = bytes_of("e", command.most);
  const bool prints = ranks.layout.rank == 0;
  AllReduceBench bench(command, ranks);
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  if (prints) print_head();
  int64_t wrong = 0;
  for (int64_t bytes = least; bytes <= most;
       bytes = std::max<int64_t>(bytes + 4, std::llround(static_cast<double>(bytes) * command.factor))) {
    for (const Form form : command.forms) {
      const Result result = bench.measure(form, bytes);
      const Expected times = expected(command, result, ranks.layout);
      if (prints) print_line(result, times, ranks.layout.world_size(), command.check);
      json.push_back({{"form", name_of(form)}, {"bytes", result.bytes}, {"seconds", result.seconds}});
      if (command.line_rate > 0) json.back().update({{"bound_seconds", times.bound}, {"model_seconds", times.model}});
      json.back()["node_bytes"] = result.node_bytes;
      if (command.check) json.back()["wrong"] = result.wrong;
      wrong += result.wrong;
    }
  }
  if (prints && !command.json.empty()) io::write_file_atomically(command.json, json.dump(2) + "\n");
  ranks.world->barrier();
  if (wrong > 0) throw std::runtime_error(fmt::format("bench: {} wrong entries", wrong));
  return 0;
}

int run_bench(const BenchCommand& command, const Invocation& invocation) {
  if (bytes_of("b", command.least) > bytes_of("e", command.most)) {
    throw std::invalid_argument(fmt::format("`b`: got {}, wanted at most `e`, {}", command.least, command.most));
  }
  at::set_num_threads(1);
  auto options = connect_options(command.ranks);
  options.announce = !command.quiet;
  const auto shape = comm::Layout::even(command.nodes, command.ranks_per_node);
  const auto environment = comm::read_environment();
  if (!environment || environment->rank == 0) {  // who writes it
    refuse_same_file("json", command.json, "secret_file", command.ranks.secret_file);
    expect_text_output("json", command.json);
  }
  if (!environment) refuse_idle_rate(command, command.nodes);
  if (!environment) launch::expect_room_for(shape);
  if ((environment ? environment->world_size : shape.world_size()) == 1) {
    throw std::invalid_argument("bench: one rank sends nothing: wanted `nodes` 2 or `ranks_per_node` 2, or more");
  }
  if (!environment && shape.world_size() > 1) {
    const launch::BlockedSignals signals = launch::signals_of_launcher();
    expect_device(options);
    return launch::launch_ranks({.shape = shape, .privacy = options.privacy}, launch::words_of(invocation.argv),
                                signals);
  }
  expect_device(options);
  auto ranks = comm::connect(environment.value_or(comm::Environment()), options);
  return measure_all(command, ranks);
}

text::OptionList describe(BenchCommand& command) {
  using text::number;
  text::OptionList list;
  const auto ranks = text::between(1, comm::kMostRanks);
  list.add("nodes", number(command.nodes, ranks), "nodes to start here, unless a launcher did");
  list.add("ranks-per-node", number(command.ranks_per_node, ranks), "ranks on each");
  list.add("form", text::choices(command.forms, kForms), "several with commas");
  list.add("begin", text::text_value(command.least), "smallest size in bytes; K, M and G are powers of 1024")
      .short_form('b');
  list.add("end", text::text_value(command.most), "largest size").short_form('e');
  list.add("factor", number(command.factor, text::between(1, 1e6)), "from one size to the next").short_form('f');
  list.add("iterations", number(command.iterations, text::at_least(1)), "timed; the median counts").short_form('n');
  list.add("warm-up", number(command.warm_up, text::at_least(0)), "not timed").short_form('w');
  list.add("check", text::switch_value(command.check), "verify every result: 0 or 1").short_form('c');
  list.add("line-rate", number(command.line_rate, text::at_least(0)),
           "of a node's interface, Mbit/s: adds bound and model");
  train::describe_links(list, command.ranks);
  list.add("json", text::text_value(command.json), "write the results to this file");
  describe_quiet(list, command.quiet);
  return list;
}

}  // namespace

void add_bench(CLI::App& app, Invocation invocation, int& status) {
  auto* sub = app.add_subcommand("bench", "measure communication");
  sub->require_subcommand(1);
  auto command = std::make_shared<BenchCommand>();
  add_command(*sub,
              {.name = "all_reduce",
               .help = "sums over all ranks, by form and size; results are verified",
               .options = describe(*command),
               .run = [command, invocation] { return run_bench(*command, invocation); }},
              status);
}

}  // namespace prunex::tools
