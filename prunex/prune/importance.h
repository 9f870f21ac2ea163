// How much the units of a group matter: the lowest scores are pruned first.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prunex/program/program.h"
#include "prunex/sparsity/group.h"
#include "prunex/tensors.h"

namespace prunex::prune {

/// How the entries of a group, one per slice that has a say, become one score.
enum class Reduction {
  kMean,
  kSum,
  kMax,
  kProduct,
  kFirst,  ///< the entry of the layer that makes the units
  kLast,   ///< the last entry in the order of the slices
};

/// By name: "mean", "sum", "max", "product", "first", "last".
const std::vector<std::pair<std::string, Reduction>>& reductions();

/// What the scores of one group are divided by, so that groups can be compared.
enum class Normalizer {
  kNone,
  kMean,
  kSum,
  kMax,
  kRange,     ///< (x - min) / (max - min + 1e-8)
  kGaussian,  ///< (x - mean) / (standard deviation + 1e-8)
  kMedian,    ///< x / (the score at position floor(size / 2) in ascending order + 1e-8)
  kLamp,      ///< x / the sum of all scores that sort behind it and its own (Lee et al. 2021)
};

/// "none", "mean", "sum", "max", "range", "gaussian", "median", "lamp"; else std::invalid_argument that lists them.
Normalizer normalizer_named(const std::string& name);
std::vector<std::string> normalizer_names();

/// double per unit of a group.
using UnitScores = std::vector<double>;

/// Where the divisor is zero, all scores are equal and stay so: no NaN comes of zeros.
void normalize(UnitScores& scores, Normalizer normalizer);

enum class Criterion {
  kMagnitude,       ///< sum of |w|^power
  kBatchNormScale,  ///< |gamma| (Liu et al. 2017)
  kFpgm,            ///< sum of the distances to the other units of the layer (He et al. 2019)
  kRandom,
  kTaylor,      ///< sum of |w g|; evidence: g, the gradient of the loss
  kHessian,     ///< sum of w^2 h; evidence: h, the mean of the squared gradients of single samples
  kObdc,        ///< sum of w^2 (f + 1e-10) over a layer's rows; evidence: f, as h, of labels that the model draws
  kActivation,  ///< mean |x| of the inputs that read the unit; evidence: by weight, per input channel
};

struct ImportanceOptions {
  Criterion criterion = Criterion::kMagnitude;
  double power = 2;  ///< p of |w|^p
  Reduction reduction = Reduction::kMean;
  Normalizer normalizer = Normalizer::kMean;
  bool bias = false;        ///< biases are entries, too
  bool signed_sum = false;  ///< Taylor: |sum of w g|
  uint64_t seed = 0;        ///< of kRandom
  /// The numbers of Torch-Pruning 1.6.1: depthwise convolutions, embeddings and norms but those of batches and layers
  /// have no say, nor has batch norm in Taylor; FPGM's distances are of |w|^power; units of grouped convolutions count
  /// once per group.
  bool tp_compat = false;
};

/// "l1", "l2" (or "group_norm"), "bn_scale", "lamp", "fpgm", "random", "taylor", "hessian", "obdc", "activation"; else
/// std::invalid_argument that lists them and names `option`.
ImportanceOptions importance_named(const std::string& name, const char* option = "`importance`");
std::vector<std::string> importance_names();

/// Whether the criterion needs evidence from data.
bool needs_evidence(Criterion criterion);

/// Throws std::invalid_argument for a reduction that has nothing to reduce.
void check(const ImportanceOptions& options);

/// Depends on the weights, and its evidence, only: the same on every rank that has the same.
class Importance {
 public:
  virtual ~Importance() = default;

  /// One score per unit for every group; empty where nothing in the group has a say. The groups may be what a cut left
  /// of the graph's (pruner.h), with weights cut alike.
  virtual std::vector<UnitScores> score(const std::vector<sparsity::Group>& groups, const Weights& weights) const = 0;

  /// Smaller tensors of the same scores, for scoring the same weights many times: they are cut on the axes 0 and 1 as
  /// the weights would be. What has no say is left out.
  virtual Weights condensed(const Weights& weights) const { return weights; }

  /// Whether scores come from evidence too, which is of the network as it was when it was measured.
  virtual bool has_evidence() const { return false; }
};

/// `evidence` is by parameter name, in the parameters' shapes unless the criterion says otherwise; what lacks evidence
/// has no say. Throws as check().
std::unique_ptr<Importance> make_importance(const ImportanceOptions& options, const program::Graph& graph,
                                            TensorDict evidence = TensorDict());

}  // namespace prunex::prune
