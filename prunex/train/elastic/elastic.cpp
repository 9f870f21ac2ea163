#include "prunex/train/elastic/elastic.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <stdexcept>

#include "prunex/io/files.h"
#include "prunex/say.h"
#include "prunex/strategies/dictionaries.h"
#include "prunex/text/option.h"
#include "prunex/train/images/division.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

constexpr std::chrono::milliseconds kAnswersWithin{5'000};

bool is_divided(const TrainOptions& options) {
  return options.partition.kind != data::Partition::Kind::kIid || has_files_by_node(options.data);
}

/// So many have a batch each in a step of the images.
int most_nodes(const TrainOptions& options, int64_t images) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const int64_t with_batches = images / options.batch_size / options.ranks_per_node[0];
  const int64_t said = options.max_nodes > 0 ? options.max_nodes : kMost;
  return static_cast<int>(std::min({with_batches, said, kMost}));
}

}  // namespace

std::unique_ptr<comm::Elastic> make_elastic(const TrainOptions& options, comm::Hierarchy& ranks, int64_t images,
                                            const std::string& config, int64_t transactions) {
  if (!options.elastic) return nullptr;
  comm::ElasticOptions elastic{.silence = milliseconds(options.ranks.heartbeat_timeout),
                               .timeout = milliseconds(options.ranks.comm_timeout),
                               .least_nodes = options.min_nodes,
                               .most_nodes = most_nodes(options, images),
                               .transactions = transactions,
                               .join_at_once = facts_of(options.strategy).gradients,
                               .config = can_join(options) ? config : ""};
  elastic.say = [](const std::string& line) { say(text::with_flags(fmt::format("prunex: {}\n", line))); };
  if (!options.join.empty()) {
    return std::make_unique<comm::Elastic>(ranks, elastic, run_to_join(options, ranks.privacy));
  }
  auto made = std::make_unique<comm::Elastic>(ranks, elastic);
  const auto entrance = made->entrance();
  if (ranks.layout.rank == 0 && !options.quiet && entrance && !comm::is_loopback(entrance->host)) {
    say(text::with_flags(fmt::format("prunex: nodes join with `join` {} and the secret\n", comm::name_of(*entrance))));
  }
  return made;
}

std::optional<comm::RunDoors> doors_in(const std::string& run_directory) {
  const std::string path = run_directory + "/" + kDoorsFile;
  std::ifstream file(path);
  if (!file) return std::nullopt;
  try {
    return comm::RunDoors::from_text({std::istreambuf_iterator<char>(file), {}});
  } catch (const std::runtime_error&) {
    throw std::invalid_argument(fmt::format("{}: wanted the doors of a run, got something else", path));
  }
}

bool is_done(const std::string& run_directory) {
  namespace fs = std::filesystem;
  return fs::exists(run_directory + "/summary.json") && !fs::exists(run_directory + "/" + kDoorsFile);
}

std::string signs_of_beginning(const std::string& run_directory) {
  namespace fs = std::filesystem;
  std::string signs;
  for (const std::string& name : {std::string("summary.json"), std::string(kDoorsFile)}) {
    const std::string path = run_directory + "/" + name;
    std::error_code missing;
    const auto written = fs::last_write_time(path, missing);
    std::ifstream file(path);
    signs += fmt::format("{} {} {}\n", name, missing ? 0 : written.time_since_epoch().count(),
                         std::string{std::istreambuf_iterator<char>(file), {}});
  }
  return signs;
}

std::optional<comm::Endpoint> entrance_in(const std::string& join) {
  return std::filesystem::is_directory(join) ? std::nullopt : comm::endpoint_in(join);
}

comm::Invitation invitation_to(const TrainOptions& options, const comm::Endpoint& entrance,
                               const comm::Privacy& privacy) {
  if (privacy.secret.empty()) {
    throw std::invalid_argument(
        fmt::format("`join`: got {} without a secret, wanted `secret_file`, or the run's directory", options.join));
  }
  const auto patience = std::max(kAnswersWithin, milliseconds(options.ranks.heartbeat_timeout));
  return comm::ask_for_invitation(entrance, privacy, patience);
}

comm::RunDoors run_to_join(const TrainOptions& options, const comm::Privacy& privacy) {
  if (const auto entrance = entrance_in(options.join)) return invitation_to(options, *entrance, privacy).run;
  auto doors = doors_in(options.join);
  if (!doors) throw comm::NobodyThere(fmt::format("`join`: {} has no run that is under way", options.join));
  return std::move(*doors);
}

std::string directory_of_newcomer(const TrainOptions& options, const std::string& run_directory,
                                  const std::string& token, const std::string& config) {
  const auto is_of_run = [&token](const std::string& directory) {
    try {
      const auto doors = doors_in(directory);
      return doors && doors->token == token;
    } catch (const std::invalid_argument&) {
      return false;
    }
  };
  for (const std::string& directory : {run_directory, options.join}) {
    if (is_of_run(directory)) return directory;
  }
  std::string own = options.run_dir;
  if (own.empty()) {
    const auto path = std::filesystem::path(run_directory).lexically_normal();
    const bool is_below = !path.empty() && path.is_relative() && *path.begin() != "..";
    own = io::create_directory_beside(is_below ? path : "runs" / path.filename());
  } else {
    io::create_run_directory(own);
  }
  io::write_file_atomically(own + "/config.toml", config);
  return own;
}

void validate_elastic(const TrainOptions& options) {
  if (!options.elastic && !options.join.empty()) {
    throw std::invalid_argument(fmt::format("`join`: got {}, a run without `elastic`", options.join));
  }
  if (!options.elastic) return;
  const auto refuse = [](bool condition, const std::string& message) {
    if (condition) throw std::invalid_argument("`elastic`: " + message);
  };
  refuse(!facts_of(options.strategy).elastic,
         fmt::format("{} does not go on without a node; the other strategies do", options.strategy));
  refuse(options.overlap > 0, "got `overlap`; an exchange beside local steps cannot be made again");
  refuse(options.ranks.heartbeat_timeout == 0, "got `heartbeat_timeout` 0, and would not notice a loss");
  refuse(options.min_nodes > options.nodes,
         fmt::format("got `min_nodes` {}, more than the {} of `nodes`", options.min_nodes, options.nodes));
  refuse(options.max_nodes > 0 && options.max_nodes < options.nodes,
         fmt::format("got `max_nodes` {}, fewer than the {} of `nodes`", options.max_nodes, options.nodes));
  refuse(options.max_nodes > 0 && !can_join(options), "got `max_nodes`: " + no_newcomers(options));
}

std::string no_newcomers(const TrainOptions& options) {
  if (options.local_after > 0) return "no node joins a run that exchanges gradients first (`local_after`)";
  if (!takes_any_nodes(options)) return "no node joins a run on sites, or on nodes of different sizes";
  return is_divided(options) ? "no node joins a run whose nodes have images of their own" : "";
}

void check_elastic(const TrainOptions& options, const comm::Layout& layout) {
  if (!options.elastic) return;
  const bool divided = is_divided(options);
  if (!options.join.empty()) {
    text::refuse_if(!can_join(options), "`join`: " + no_newcomers(options));
    text::refuse_if(layout.nodes() != 1, fmt::format("`join`: got {}, wanted one node", comm::describe(layout)));
  }
  if (!takes_any_nodes(options)) {
    const comm::Layout wanted = shape_of(options);
    text::refuse_if(layout.node_sizes != wanted.node_sizes || layout.sites != wanted.sites,
                    fmt::format("`nodes`, `ranks_per_node`, `sites`: got {}, the launcher started {}",
                                comm::describe(wanted), comm::describe(layout)));
    return;
  }
  text::refuse_if(!layout.is_even() || layout.ranks_here() != options.ranks_per_node[0],
                  fmt::format("`ranks_per_node`: got {}, the launcher started {}", options.ranks_per_node[0],
                              comm::describe(layout)));
  if (!options.join.empty()) return;
  text::refuse_if(layout.nodes() < options.min_nodes, fmt::format("`min_nodes`: got {}, the launcher started {}",
                                                                  options.min_nodes, comm::describe(layout)));
  text::refuse_if(divided && layout.nodes() > options.nodes,
                  fmt::format("`nodes`: got {}, which have images of their own; the launcher started {}", options.nodes,
                              comm::describe(layout)));
}

namespace {

/// Copies, but of what is the replica's own.
strategies::State own_copies(const strategies::State& state, const Weights& replica) {
  std::set<const void*> theirs;
  for (const auto* tensors : {&replica.params, &replica.buffers}) {
    for (const auto& tensor : *tensors) theirs.insert(tensor.value().const_data_ptr());
  }
  strategies::State copies;
  for (const auto part : {&strategies::State::global, &strategies::State::node, &strategies::State::rank}) {
    for (const auto& tensor : state.*part) {
      const bool is_theirs = tensor.value().numel() > 0 && theirs.count(tensor.value().const_data_ptr()) > 0;
      if (!is_theirs) (copies.*part).insert(tensor.key(), tensor.value().clone());
    }
  }
  return copies;
}

}  // namespace

Undo::Undo(const Replica& replica) : updates_(replica.updates) {
  at::NoGradGuard no_grad;
  weights_ = {strategies::clones(replica.weights.params), strategies::clones(replica.weights.buffers)};
  for (const auto& part : replica.optimizer) optimizer_.push_back(strategies::clones(part.value()));
}

Undo::Undo(const strategies::Strategy& strategy, const Replica& replica, const ProductMean& mean) : Undo(replica) {
  at::NoGradGuard no_grad;
  exchanged_.emplace(Exchanged{own_copies(strategy.state(), replica.weights), mean.copy()});
}

void Undo::bring_back(strategies::Strategy& strategy, Replica& replica, ProductMean& mean) const {
  at::NoGradGuard no_grad;
  strategies::restore(replica.weights.params, weights_.params, "");
  strategies::restore(replica.weights.buffers, weights_.buffers, "");
  for (auto& theta : replica.weights.params) theta.value().mutable_grad().reset();
  size_t i = 0;
  for (auto& part : replica.optimizer) strategies::restore(part.value(), optimizer_[i++], "");
  replica.updates = updates_;
  if (!exchanged_) return;
  strategy.go_back(exchanged_->state);
  mean = exchanged_->mean.copy();
}

std::string to_json(const comm::Change& change, int64_t exchange) {
  return nlohmann::ordered_json{{"epoch", change.roster.epoch}, {"exchange", exchange},
                                {"nodes", change.roster.nodes}, {"lost", change.lost},
                                {"joined", change.joined},      {"seconds", change.seconds}}
      .dump();
}

}  // namespace prunex::train
