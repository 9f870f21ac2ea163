// Runs that go on when nodes are lost: what a rank keeps to make an exchange or a step again, and who takes part.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prunex/comm/elastic/elastic.h"
#include "prunex/strategies/strategy.h"
#include "prunex/tensors.h"
#include "prunex/train/options.h"
#include "prunex/train/product_mean.h"

namespace prunex::train {

/// Of `elastic`; null without it. `images`: of the training set, of which every node must get a batch in a step;
/// `config`: what newcomers take over; `transactions`: that the run has made before. With `join`, of a node that is to.
/// Throws comm::NobodyThere if the run has ended. Collective.
std::unique_ptr<comm::Elastic> make_elastic(const TrainOptions& options, comm::Hierarchy& ranks, int64_t images,
                                            const std::string& config, int64_t transactions);

/// The file of a run directory that says where the run is joined, as long as it is under way.
inline constexpr const char* kDoorsFile = "doors";

/// Where the run in the directory is joined; nothing if nobody says so. Throws std::invalid_argument for a file that is
/// none.
std::optional<comm::RunDoors> doors_in(const std::string& run_directory);

/// Whether the elastic run in the directory has come to its end: its results are there, and nobody joins it.
bool is_done(const std::string& run_directory);
/// Another text once it has come so far that others join it, and once it has come to its end.
std::string signs_of_beginning(const std::string& run_directory);

/// HOST:PORT where a private run is entered, if that is what `join` says: a directory of this name is one.
std::optional<comm::Endpoint> entrance_in(const std::string& join);

/// What the entrance in `join` says of its run. Throws std::invalid_argument without a secret, comm::NobodyThere,
/// std::runtime_error that says why there is no answer.
comm::Invitation invitation_to(const TrainOptions& options, const comm::Endpoint& entrance,
                               const comm::Privacy& privacy);

/// The run that `join` names. Throws comm::NobodyThere if it has ended, and as doors_in() and invitation_to().
comm::RunDoors run_to_join(const TrainOptions& options, const comm::Privacy& privacy);

/// Where a node that has joined writes: the run's directory, if it sees that, else a new one of this name below its own
/// working directory, or at `run_dir`, with the configuration.
std::string directory_of_newcomer(const TrainOptions& options, const std::string& run_directory,
                                  const std::string& token, const std::string& config);

/// Throws std::invalid_argument that names what does not go with `elastic`.
void validate_elastic(const TrainOptions& options);

/// Why no node can join the elastic run; empty if one can.
std::string no_newcomers(const TrainOptions& options);
inline bool can_join(const TrainOptions& options) {
  return no_newcomers(options).empty();
}

/// Whether the run may begin, and go on from a checkpoint, on any number of nodes; else on those of its options alone.
inline bool takes_any_nodes(const TrainOptions& options) {
  return options.elastic && options.sites == 1 && options.ranks_per_node.size() == 1;
}

/// An elastic run may begin, or go on, with another number of nodes than its options plan with. Throws
/// std::invalid_argument for nodes of other sizes, fewer than `min_nodes`, or more than images are divided among.
void check_elastic(const TrainOptions& options, const comm::Layout& layout);

/// Everything that an exchange or a step changes, copied before it.
class Undo {
 public:
  Undo(const strategies::Strategy& strategy, const Replica& replica, const ProductMean& mean);
  /// Of a step in which the strategy changes nothing of its own.
  explicit Undo(const Replica& replica);

  /// Once the ranks that are left have connected anew.
  void bring_back(strategies::Strategy& strategy, Replica& replica, ProductMean& mean) const;

 private:
  Weights weights_;
  std::vector<TensorDict> optimizer_;
  int64_t updates_;
  struct Exchanged {
    strategies::State state;
    ProductMean mean;
  };
  std::optional<Exchanged> exchanged_;  // what exchanges change beside the replica
};

/// One line of membership.jsonl. `exchange`: the last one that all have.
std::string to_json(const comm::Change& change, int64_t exchange);

}  // namespace prunex::train
