// What ranks say to each other, and when.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prunex/admm/residuals.h"
#include "prunex/sparsity/cut.h"
#include "prunex/sparsity/group.h"
#include "prunex/tensors.h"

namespace prunex::strategies {

/// Whether an interval of `steps` steps ends with this one, counted from 1; the last one may be shorter.
inline bool ends_interval(int64_t step, int64_t steps, int64_t total_steps) {
  return step % steps == 0 || step == total_steps;
}

/// The local SGD that runs between exchanges.
struct LocalSgd {
  int64_t steps = 50;                            ///< H: optimizer steps between exchanges; more saves bytes
  int64_t total_steps = 0;                       ///< of the run; the last exchange may come after fewer than H
  std::function<double(int64_t)> learning_rate;  ///< of step 1, 2, …: kappa needs the sum over an iteration
  double momentum = 0.9;         ///< of rules by which gradients add up, to 1 / (1 - momentum) of one; 0 of others
  int64_t exchanges_before = 0;  ///< of another strategy; exchanges count on from there
};

/// What the local optimizer adds to the gradient of the loss: rho1 (theta - anchor), Eq. 8; and where theta lives.
struct LocalTerms {
  TensorDict anchor;         ///< z_node - u of every parameter under a proximal term; empty: no term
  std::vector<double> rho1;  ///< one per entry of `anchor`
  TensorDict masks;          ///< from the freeze on: 0/1 per entry of the parameters that lost units; else empty
};

/// A stretch of an exchange on one rank: intra (sum over the node), project (node update), mask (scores, masks), pack,
/// inter (links between nodes, and what hides behind them), unpack, dual (duals, residuals, penalties, restart).
struct Phase {
  const char* name = "";
  double begin = 0;    ///< Stopwatch::now()
  double seconds = 0;  ///< waiting included
  int64_t bytes = 0;   ///< that it moved, where it moved some
};

/// A part of the gradients that leaves while backward makes the rest.
struct Bucket {
  int64_t bytes = 0;
  /// When it was whole: the share that had passed of the time in which a rank computes a step, from the end of the last
  /// wait for others to that of backward.
  double ready = 1;
};

/// What after_update() did. Of a step without an exchange only `exchanged` means something.
struct Exchange {
  bool exchanged = false;
  int64_t index = 0;         ///< from 1
  bool frozen = false;       ///< the masks are final
  bool converged = false;    ///< the residuals are below the tolerance: training may stop
  double keep = 1;           ///< kept units / all units of the groups
  int64_t mask_changes = 0;  ///< units whose global mask changed; 0 at the freeze
  std::vector<std::pair<std::string, admm::Residuals>> residuals;  ///< of the tensors in ADMM; empty without duals
  admm::Residuals own;  ///< this rank's part of them, of all tensors: of its theta, and of its rows of the node's model
  double rho1 = 0, rho2 = 0;  ///< means over the tensors in ADMM, as used in this exchange
  std::vector<Phase> phases;
  int64_t overlapped = 0;  ///< local steps that ran beside it: the weights it averages are those of so many steps ago
  std::vector<Bucket> buckets;  ///< in the order in which they leave, medians over the steps; empty if not measured
};

/// Everything an interrupted run needs to go on bit for bit after an exchange, by whose it is; shared, not copied.
struct State {
  // How the names begin of what has another meaning for a node that joins.
  static constexpr const char *kZ = "z/", *kZNode = "z_node/", *kC = "c/", *kCNode = "c_node/";

  /// The same on all ranks: "z/conv1.weight", "outer/…", "mask/…", "c/…", …; and "progress", whose first entry counts
  /// exchanges.
  TensorDict global;
  TensorDict node;  ///< the same on the ranks of a node: "z_node/…", "node_mask/…", "c_node/…", …
  TensorDict rank;  ///< a rank's own: "u/…", "v/…", …
};

/// A way of keeping replicas together, behind two hooks around the optimizer's update. One object per rank, which
/// borrows the Hierarchy that it is made with: that may not move. All ranks make equally many steps, and call both
/// hooks in each: which of them talk is the strategy's own matter (of those of gradients before_update, and ddp in
/// backward; of the others after_update). finish() is collective.
class Strategy {
 public:
  virtual ~Strategy() = default;

  /// For the optimizer; valid until the next exchange.
  virtual const LocalTerms& local_terms() const = 0;
  /// After backward, before the optimizer: may change gradients, or put other tensors in their place.
  virtual void before_update(Replica& replica) = 0;
  /// After the optimizer's step number `step`, counted from 1: may change weights, buffers and momentum.
  virtual Exchange after_update(Replica& replica, int64_t step) = 0;
  /// At the end of training: if the masks are not final, makes them so and applies them to the product.
  virtual void finish() = 0;
  /// z: what is evaluated, saved and shipped.
  virtual const Weights& product() const = 0;
  /// The units that are alive in the product.
  virtual const sparsity::Masks& masks() const = 0;
  /// The model was physically shrunk, the replica already: shrinks the strategy's own state alike. After an exchange.
  /// Where there are groups, once, after the exchange that froze their masks, to what the masks keep; else as often as
  /// one likes, each cut of what the one before has left.
  virtual void cut(const sparsity::Cut& cut, Replica& replica) = 0;
  virtual State state() const = 0;
  /// Whether the replicas, with their optimizers, are the same on all ranks after every step.
  virtual bool in_step() const { return false; }
  /// Makes a new strategy, made of the whole replica, one that saved `state`. `cut`: all that it had been given, as
  /// one, which the replica has lost already; or null.
  virtual void load(const State& state, const sparsity::Cut* cut, Replica& replica) = 0;
  /// Undoes an after_update() that a lost rank ended: `before` is what state() was then, copied. The groups of its
  /// ranks have been made anew meanwhile, where they were, for the nodes that are left; what those that are gone had is
  /// gone. The replica is the caller's.
  virtual void go_back(const State& before) = 0;
  /// The groups of its ranks have been made anew, where they were: nodes are gone (`lost`), and with them what only
  /// they had, or have come. A step that was under way is not made. Before go_back(), if that is called for.
  virtual void note_change([[maybe_unused]] bool lost) {}
};

using StrategyMaker = std::function<std::unique_ptr<Strategy>(Replica&)>;

/// `first` until it has reported `switch_after` exchanges, then what `make_second` makes of the weights as they are
/// then; its exchanges must count on from there. Groups, masks and their cut are the second one's. `make_first_again`
/// makes what goes back behind the switch, of weights that are as they were, without talking to other ranks. A run that
/// goes on after the switch needs the second one alone.
std::unique_ptr<Strategy> make_post_local(std::unique_ptr<Strategy> first, StrategyMaker make_first_again,
                                          StrategyMaker make_second, Replica& replica, int64_t switch_after);

}  // namespace prunex::strategies
