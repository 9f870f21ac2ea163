#include "prunex/comm/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "prunex/comm/layout.h"

namespace prunex::comm {
namespace {

/// The variables of one launcher, whose presence `sign` gives away.
class Variables {
 public:
  Variables(const Lookup& lookup, const char* sign) : lookup_(lookup), sign_(sign) {}

  bool has(const char* name) const { return lookup_(name) != nullptr; }

  std::string text(const char* name, const char* meaning) const {
    const char* text = lookup_(name);
    if (text != nullptr) return text;
    throw std::invalid_argument(fmt::format("{} set but {} is not: wanted {}", sign_, name, meaning));
  }
  std::string text_or(const char* name, const std::string& fallback) const {
    const char* text = lookup_(name);
    return text == nullptr ? fallback : text;
  }

  int64_t number(const char* name, int64_t least, int64_t most) const {
    const auto text = this->text(name, "a whole number");
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) return value;
    throw std::invalid_argument(fmt::format("{}={}: wanted a whole number from {} to {}", name, text, least, most));
  }
  int count(const char* name, int least, int most = kMostRanks) const {
    return static_cast<int>(number(name, least, most));
  }
  int count_or(const char* name, int least, int fallback) const { return has(name) ? count(name, least) : fallback; }

 private:
  const Lookup& lookup_;
  const char* sign_;
};

void read_master(const Variables& variables, Environment& environment) {
  environment.master_address = variables.text("MASTER_ADDR", "the machine where the ranks meet");
  environment.master_port = static_cast<uint16_t>(variables.number("MASTER_PORT", 1, 65535));
}

std::optional<Environment> read_torchrun(const Lookup& lookup) {
  const Variables variables(lookup, "RANK and WORLD_SIZE are");
  if (!variables.has("RANK") || !variables.has("WORLD_SIZE")) return std::nullopt;
  Environment environment;
  environment.world_size = variables.count("WORLD_SIZE", 1);
  environment.rank = variables.count("RANK", 0, environment.world_size - 1);
  Seat& seat = environment.seat;
  seat.local_size = variables.count_or("LOCAL_WORLD_SIZE", 1, 1);
  seat.local_rank = variables.count_or("LOCAL_RANK", 0, environment.rank % seat.local_size);
  if (variables.has("GROUP_RANK")) seat.node = variables.count("GROUP_RANK", 0);
  environment.store_secret = variables.text_or(kStoreSecret, "");
  if (!environment.store_secret.empty()) {
    environment.store_host = StoreHost::kLauncher;
  } else if (variables.text_or("TORCHELASTIC_USE_AGENT_STORE", "False") == "True") {
    environment.store_host = StoreHost::kTorchrun;
  }
  environment.restart_count = variables.count_or("TORCHELASTIC_RESTART_COUNT", 0, 0);
  environment.ranks_before = variables.count_or(kRanksBefore, 0, 0);
  if (environment.world_size > 1) read_master(variables, environment);
  return environment;
}

std::optional<Environment> read_open_mpi(const Lookup& lookup) {
  const Variables variables(lookup, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are");
  if (!variables.has("OMPI_COMM_WORLD_RANK") || !variables.has("OMPI_COMM_WORLD_SIZE")) return std::nullopt;
  Environment environment;
  environment.world_size = variables.count("OMPI_COMM_WORLD_SIZE", 1);
  if (environment.world_size == 1) return std::nullopt;
  environment.rank = variables.count("OMPI_COMM_WORLD_RANK", 0, environment.world_size - 1);
  environment.seat.local_size = variables.count("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
  environment.seat.local_rank = variables.count("OMPI_COMM_WORLD_LOCAL_RANK", 0, environment.seat.local_size - 1);
  read_master(variables, environment);
  return environment;
}

// The first variable is the step's, the second one the whole job's, which old versions set for a step too.
const char* either(const Variables& variables, const char* of_step, const char* of_job) {
  return variables.has(of_step) ? of_step : of_job;
}

int tasks_on_node(const Variables& variables, int node) {
  const char* name = either(variables, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  const auto text = variables.text(name, "the tasks of every node");
  const auto tasks = tasks_per_node(text);
  if (tasks && static_cast<size_t>(node) < tasks->size()) return (*tasks)[node];
  throw std::invalid_argument(
      fmt::format("{}={}: wanted the tasks of every node up to SLURM_NODEID={}, such as 2(x3),1", name, text, node));
}

void read_slurm_master(const Variables& variables, Environment& environment) {
  const char* name = either(variables, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  if (variables.has("MASTER_ADDR")) {
    environment.master_address = variables.text_or("MASTER_ADDR", "");
  } else if (const auto host = first_host(variables.text(name, "the hosts"))) {
    environment.master_address = *host;
  } else {
    throw std::invalid_argument(
        fmt::format("{}={}: wanted hosts such as node[01-03,7],gpu5", name, variables.text_or(name, "")));
  }
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  environment.master_port =
      variables.has("MASTER_PORT")
          ? static_cast<uint16_t>(variables.number("MASTER_PORT", 1, 65535))
          : port_of_step(variables.number("SLURM_JOB_ID", 0, kMost), variables.number("SLURM_STEP_ID", 0, kMost));
}

// A batch script, which is task 0 of its job too, is in no step. An interactive shell is a step with one task.
std::optional<Environment> read_slurm(const Lookup& lookup) {
  const Variables variables(lookup, "SLURM_STEP_ID and SLURM_PROCID are");
  if (!variables.has("SLURM_STEP_ID") || !variables.has("SLURM_PROCID")) return std::nullopt;
  Environment environment;
  environment.world_size = variables.count(either(variables, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), 1);
  if (environment.world_size == 1) return std::nullopt;
  environment.rank = variables.count("SLURM_PROCID", 0, environment.world_size - 1);
  const int node = variables.count("SLURM_NODEID", 0);
  const int tasks = tasks_on_node(variables, node);
  environment.seat = {node, variables.count("SLURM_LOCALID", 0, tasks - 1), tasks};
  read_slurm_master(variables, environment);
  return environment;
}

/// Half of what a launcher sets would be taken for none, and every rank for a run of its own.
void refuse_halves(const Lookup& lookup) {
  const auto refuse = [&](const char* size, const char* rank) {
    const std::string sign = fmt::format("{} is", size);
    const Variables variables(lookup, sign.c_str());
    if (variables.has(size) && variables.count(size, 1) > 1) variables.text(rank, "this rank's number");
  };
  refuse("WORLD_SIZE", "RANK");
  refuse("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
  if (lookup("RANK") != nullptr) Variables(lookup, "RANK is").text("WORLD_SIZE", "the number of ranks");
  const Variables mpich(lookup, "PMI_SIZE is");
  if (!mpich.has("PMI_SIZE") || mpich.count("PMI_SIZE", 1) == 1) return;
  throw std::invalid_argument(fmt::format(
      "PMI_SIZE={}: this MPI's mpirun does not say what ranks must know: wanted that of Open MPI, torchrun or srun",
      mpich.text_or("PMI_SIZE", "")));
}

constexpr size_t kMostNodes = 1 << 20;

/// Takes a whole number above 0 off the front.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 1) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view front) {
  const bool found = text.starts_with(front);
  if (found) text.remove_prefix(front.size());
  return found;
}

/// 1 without "(xN)".
std::optional<int> take_repeats(std::string_view& text) {
  if (!take(text, "(x")) return 1;
  const auto count = take_number(text);
  return take(text, ")") ? count : std::nullopt;
}

// Words between commas.
std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

}  // namespace

std::optional<Environment> read_environment() {
  return read_environment([](const char* name) -> const char* { return std::getenv(name); });
}

// In a Slurm job mpirun starts its ranks through a step of one task per node, whose variables they see too; so does
// torchrun where it was started by srun.
std::optional<Environment> read_environment(const Lookup& lookup) {
  auto environment = read_torchrun(lookup);
  if (!environment) environment = read_open_mpi(lookup);
  if (!environment) environment = read_slurm(lookup);
  if (!environment) refuse_halves(lookup);
  const bool elsewhere = environment && environment->store_host != StoreHost::kLauncher;
  if (elsewhere) environment->interfaces = list_of(Variables(lookup, "").text_or("GLOO_SOCKET_IFNAME", ""));
  return environment;
}

std::optional<std::string> first_host(const std::string& hosts) {
  std::string host;
  for (size_t i = 0; i < hosts.size() && hosts[i] != ','; ++i) {
    if (hosts[i] != '[') {
      host += hosts[i];
      continue;
    }
    const auto first = hosts.find_first_of("-,]", i), end = hosts.find(']', i);
    if (end == std::string::npos || first == i + 1) return std::nullopt;
    host += hosts.substr(i + 1, first - i - 1);
    i = end;
  }
  return host.empty() ? std::nullopt : std::optional(host);
}

std::optional<std::vector<int>> tasks_per_node(const std::string& text) {
  std::vector<int> tasks;
  std::string_view rest = text;
  do {
    const auto number = take_number(rest);
    const auto repeats = number ? take_repeats(rest) : std::nullopt;
    if (!repeats || tasks.size() + static_cast<size_t>(*repeats) > kMostNodes) return std::nullopt;
    tasks.insert(tasks.end(), static_cast<size_t>(*repeats), *number);
  } while (take(rest, ","));
  return rest.empty() ? std::optional(tasks) : std::nullopt;
}

uint16_t port_of_step(int64_t job, int64_t step) {
  return static_cast<uint16_t>(15000 + (job + 1009 * step) % 15000);
}

}  // namespace prunex::comm
