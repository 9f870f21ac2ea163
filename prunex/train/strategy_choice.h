// Strategies by name, with what the run says of its length.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "prunex/channels/analysis.h"
#include "prunex/comm/hierarchy.h"
#include "prunex/sparsity/group.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "prunex/strategies/strategy.h"
#include "prunex/train/options.h"
#include "prunex/train/pruning/mask_choice.h"
#include "prunex/train/schedule.h"

namespace prunex::train {

/// In the order of docs/strategies.md.
const std::vector<std::string>& strategy_names();

/// What is so of a strategy whatever it is told. Whoever wants to know something of strategies asks for it here.
struct StrategyFacts {
  std::string name;
  bool prunes = false;      ///< by masks, unless told otherwise
  bool gradients = false;   ///< exchanges gradients in every step instead of weights in every exchange
  bool duals = false;       ///< ADMM's
  bool outer_step = false;  ///< takes a Nesterov step with the mean of the weights, unless told otherwise
  bool controls = false;    ///< sends control variates beside the weights
  bool one_node = false;    ///< takes all ranks for one node
  bool sums = true;         ///< what it exchanges is summed tensor by tensor: `exchange` has an effect
  bool overlaps = false;    ///< exchanges while backward still runs
  bool elastic = false;     ///< goes on when nodes are lost
  strategies::Payload narrowest = strategies::Payload::kFp32;  ///< the most rounded one it has

  /// Whether it exchanges weights and nothing else: only then are there masks and outer steps.
  bool weights_alone() const { return !gradients && !controls; }
};
/// Throws std::invalid_argument that lists the names.
const StrategyFacts& facts_of(const std::string& strategy);

/// Why its strategy knows no nodes; empty if it does.
std::string no_nodes(const TrainOptions& options);
/// Whether there are several nodes, or may be some day.
bool may_have_nodes(const TrainOptions& options);
/// Why nothing crosses nodes; empty if something does, or may some day.
std::string no_other_nodes(const TrainOptions& options);
/// Why no rank has another one in its node; empty if one has.
std::string no_ranks_in_node(const TrainOptions& options);
/// Whether it has duals and a pull towards z that is not 0.
bool pulls(const TrainOptions& options);
/// Whether these options make it take an outer step.
bool has_outer_step(const TrainOptions& options);

/// `groups`; auto is coupled-inner for strategies that prune by themselves and none for the others.
std::string group_words(const TrainOptions& options);

/// `round_to`, as limits have it.
int64_t multiple_of_units(const TrainOptions& options);

/// What `groups` names in a network, with `keep` and `round_to`.
std::vector<sparsity::Group> groups_to_prune(const channels::Analysis& analysis, const TrainOptions& options);

/// The options with what the strategy sets unless told otherwise: prunetrain is ddp with a group lasso and cuts of what
/// it has driven to zero.
TrainOptions with_defaults(TrainOptions options);

/// The last exchange that may change masks; the next one cuts the network. strategies::kNever if none does.
int64_t last_open_exchange(const TrainOptions& options, const RunLength& length);

/// Throws std::invalid_argument for options that the strategy does not have.
void validate_strategy(const TrainOptions& options);

/// What a strategy needs to know of the run.
struct RunPlan {
  RunLength length;
  std::function<double(int64_t)> learning_rate;  ///< of step 1, 2, …
  MaskedUnits masked;
  int64_t exchanges_done = 0;  ///< of a run that goes on: the strategy's state is loaded next
};

/// Collective: broadcasts rank 0's weights.
std::unique_ptr<strategies::Strategy> make_strategy(const TrainOptions& options, const RunPlan& plan, Replica& replica,
                                                    comm::Hierarchy& ranks);

}  // namespace prunex::train
