// prunex bench
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "prunex/comm/connect.h"
#include "prunex/comm/cost_model.h"
#include "prunex/io/atomic_file.h"
#include "prunex/stopwatch.h"
#include "prunex/strategies/rail_exchange.h"
#include "tools/prunex/checks.h"
#include "tools/prunex/choices.h"
#include "tools/prunex/commands.h"
#include "tools/prunex/launch.h"

namespace prunex::tools {
namespace {

using comm::Form;

struct BenchCommand {
  int nodes = 1, ranks_per_node = 1;
  std::vector<std::string> forms = {"flat", "leader", "sharded"};
  std::string least = "64K", most = "64M";
  double factor = 4;
  int iterations = 10, warm_up = 2;
  bool check = true;
  double line_rate = 0;  // Mbit/s
  std::string json;
  std::string interfaces;
  bool no_shared_memory = false;
  double join_timeout = 300;
  std::string device = "cpu";
};

struct Result {
  Form form;
  int64_t bytes = 0;
  double seconds = 0;      // median
  int64_t node_bytes = 0;  // sent by node 0
  int64_t wrong = 0;
};

const char* name_of(Form form) {
  switch (form) {
    case Form::kFlat:
      return "flat";
    case Form::kLeader:
      return "leader";
    case Form::kSharded:
      return "sharded";
  }
  return "";
}

Form form_of(const std::string& name) {
  if (name == "flat") return Form::kFlat;
  return name == "leader" ? Form::kLeader : Form::kSharded;
}

constexpr int64_t kMostBytes = int64_t{1} << 40;

/// "64K", "16M", "1G" or bytes.
int64_t bytes_of(const char* option, const std::string& text) {
  const std::string units = "KMG";
  const size_t unit = text.empty() ? std::string::npos : units.find(static_cast<char>(std::toupper(text.back())));
  const bool scaled = unit != std::string::npos;
  const auto number = whole_number(scaled ? text.substr(0, text.size() - 1) : text).value_or(0);
  const int shift = scaled ? 10 * (static_cast<int>(unit) + 1) : 0;
  if (number > 0 && number <= kMostBytes >> shift && number << shift >= 4) return number << shift;
  throw std::invalid_argument(
      fmt::format("{}: got '{}', wanted bytes, from 4 to 1024G, such as 4096, 64K or 16M", option, text));
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
  if (command.line_rate <= 0 || layout.nodes() == 1) return {};
  const comm::ClusterShape shape{layout.nodes(), layout.ranks_here()};
  const double link = command.line_rate * 1e6 / 8;
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

void print_line(const Result& result, const Expected& expected, int world_size) {
  const double algorithm = static_cast<double>(result.bytes) / result.seconds / 1e9;
  const auto text = [](double value, int digits) { return fmt::format("{:.{}f}", value, digits); };
  const auto or_dash = [&](double value) { return value > 0 ? text(value, 1) : std::string("-"); };
  fmt::print(fmt::runtime(kRow), name_of(result.form), result.bytes, result.bytes / 4, "float",
             text(result.seconds * 1e6, 1), text(algorithm, 4), text(algorithm * 2 * (world_size - 1) / world_size, 4),
             result.wrong, or_dash(expected.bound * 1e6), or_dash(expected.model * 1e6),
             or_dash(100 * expected.bound / result.seconds));
  std::fflush(stdout);
}

int measure_all(const BenchCommand& command, comm::Hierarchy& ranks) {
  const int64_t least = bytes_of("-b", command.least), most = bytes_of("-e", command.most);
  const bool prints = ranks.layout.rank == 0;
  AllReduceBench bench(command, ranks);
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  if (prints) print_head();
  int64_t wrong = 0;
  for (int64_t bytes = least; bytes <= most;
       bytes = std::max<int64_t>(bytes + 4, std::llround(static_cast<double>(bytes) * command.factor))) {
    for (const auto& name : command.forms) {
      const Form form = form_of(name);
      const Result result = bench.measure(form, bytes);
      const Expected times = expected(command, result, ranks.layout);
      if (prints) print_line(result, times, ranks.layout.world_size());
      json.push_back({{"form", name_of(form)},
                      {"bytes", result.bytes},
                      {"seconds", result.seconds},
                      {"bound_seconds", times.bound},
                      {"model_seconds", times.model},
                      {"node_bytes", result.node_bytes},
                      {"wrong", result.wrong}});
      wrong += result.wrong;
    }
  }
  if (prints && !command.json.empty()) io::write_file_atomically(command.json, json.dump(2) + "\n");
  ranks.world->barrier();
  if (wrong > 0) throw std::runtime_error(fmt::format("bench: {} wrong entries", wrong));
  return 0;
}

int run_bench(BenchCommand& command, const Invocation& invocation) {
  if (bytes_of("-b", command.least) > bytes_of("-e", command.most)) {
    throw std::invalid_argument(fmt::format("-b: got {}, wanted at most -e, {}", command.least, command.most));
  }
  at::set_num_threads(1);
  comm::ConnectOptions options{.join_timeout = milliseconds_of(command.join_timeout),
                               .shared_memory = !command.no_shared_memory,
                               .announce = true};
  if (command.device == "cuda") {
    comm::check_gpu();  // before ranks are started
    options.device = at::kCUDA;
  }
  if (!command.interfaces.empty()) options.interfaces = CLI::detail::split(command.interfaces, ',');
  const auto shape = comm::Layout::even(command.nodes, command.ranks_per_node);
  const auto environment = comm::read_environment();
  if (!environment) expect_room_for(shape);
  if (!environment && shape.world_size() > 1) return launch({shape, 1}, invocation.argv);
  auto ranks = comm::connect(environment.value_or(comm::Environment()), options);
  return measure_all(command, ranks);
}

}  // namespace

void add_bench(CLI::App& app, Invocation invocation, int& status) {
  auto* sub = app.add_subcommand("bench", "measure communication");
  sub->require_subcommand(1);
  auto* all_reduce = sub->add_subcommand("all_reduce", "sums over all ranks, by form and size; results are verified");
  auto command = std::make_shared<BenchCommand>();
  all_reduce->add_option("--nodes", command->nodes, "nodes to start here, unless a launcher did")
      ->check(between(1, comm::kMostRanks));
  all_reduce->add_option("--ranks-per-node", command->ranks_per_node, "ranks on each")
      ->check(between(1, comm::kMostRanks));
  all_reduce->add_option("--form", command->forms, "several with commas")
      ->delimiter(',')
      ->check(one_of({"flat", "leader", "sharded"}))
      ->type_name("");
  all_reduce->add_option("-b,--begin", command->least, "smallest size in bytes; K, M and G are powers of 1024");
  all_reduce->add_option("-e,--end", command->most, "largest size");
  all_reduce->add_option("-f,--factor", command->factor, "from one size to the next")->check(between(1, 1e6));
  all_reduce->add_option("-n,--iterations", command->iterations, "timed; the median counts")->check(above_zero());
  all_reduce->add_option("-w,--warm-up", command->warm_up, "not timed")->check(zero_or_more());
  all_reduce->add_option("-c,--check", command->check, "verify every result: 0 or 1");
  all_reduce->add_option("--line-rate", command->line_rate, "of a node's interface, Mbit/s: adds bound and model")
      ->check(zero_or_more());
  all_reduce->add_option("--interface", command->interfaces, "network interfaces, such as eth0 or eth0,eth1");
  all_reduce->add_flag("--no-shared-memory", command->no_shared_memory, "loopback inside a node");
  all_reduce->add_option("--join-timeout", command->join_timeout, "seconds that the ranks have to come together")
      ->check(seconds());
  all_reduce->add_option("--device", command->device, "where the buffers lie: cpu or cuda")
      ->check(one_of({"cpu", "cuda"}))
      ->type_name("");
  all_reduce->add_option("--json", command->json, "write the results to this file");
  all_reduce->callback([command, invocation, &status] { status = run_bench(*command, invocation); });
}

}  // namespace prunex::tools
