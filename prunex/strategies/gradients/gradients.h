// Strategies that make gradients equal on all ranks in every step, so that weights stay equal, too: DDP, top-k and
// PowerSGD; or on the ranks of a node.
#pragma once

#include <cstdint>
#include <memory>

#include "prunex/comm/hierarchy.h"
#include "prunex/strategies/exchange/payload.h"
#include "prunex/strategies/strategy.h"

namespace prunex::strategies {

/// When to speak of an exchange: these strategies talk in every step and report so many at once.
struct Reporting {
  int64_t steps = 50;       ///< per report
  int64_t total_steps = 0;  ///< of the run; the last report may be of fewer
};

/// What ranks begin with: rank 0's weights, or what they have, which is the same on all of them. Only the first is
/// collective.
enum class Begin { kBroadcast, kEqual };

// Distributed data parallel (ddp.cpp).

struct Buckets {
  int64_t first = 1 << 20;  ///< bytes: small, so that the first exchange starts early
  int64_t others = 25 << 20;
  bool several_backwards = false;  ///< per step, whose gradients add up: buckets leave in before_update() alone
};

struct DdpOptions {
  Reporting reporting;
  ExchangeOptions exchange;  ///< kFlat: as ordinary DDP has it; bf16 and fp16 halve the bytes and add up in fp32
  Buckets buckets = {};
  Begin begin = Begin::kBroadcast;
};

/// Throws std::invalid_argument for a payload that ddp does not have.
void check(const DdpOptions& options);

/// As torch.nn.parallel.DistributedDataParallel (arXiv 2006.15704): gradients go in buckets, from the last parameter
/// on; as soon as backward has made all of a bucket, another thread averages it. A second backward in a step then
/// throws std::logic_error, unless `buckets.several_backwards`.
std::unique_ptr<Strategy> make_ddp(Replica& replica, comm::Hierarchy& ranks, const DdpOptions& options);

/// What `between` is, with ranks that average their gradients inside their node in every step, as DDP: a node is then
/// one worker with a batch of all its ranks (in_node.cpp). `between` must exchange weights, and beside steps
/// (`overlap`) only where there are several nodes: throws std::invalid_argument.
std::unique_ptr<Strategy> make_averaging_in_node(std::unique_ptr<Strategy> between, Replica& replica,
                                                 comm::Hierarchy& ranks, const Reporting& reporting,
                                                 const Buckets& buckets = {});

// Every rank sends the largest entries of its gradients alone (top_k.cpp).

/// Of DGC's warm-up, section 3.3.
constexpr double kFirstDensity = 0.25;

/// Deep gradient compression (arXiv 1712.01887): momentum lives in the strategy, the optimizer must have none.
struct DgcOptions {
  double momentum = 0.9;
  int64_t warmup_steps = 0;  ///< from kFirstDensity the density falls to a smaller one over so many, exponentially
  double clip = 0;           ///< largest norm of all ranks' gradients together; each rank's is clipped at clip/sqrt(N)
};

struct TopKOptions {
  Reporting reporting;
  double density = 0.01;       ///< share of the entries that a rank sends of every matrix or filter bank, at least one
  bool error_feedback = true;  ///< keep what is not sent; without it this is a weak baseline
  bool dgc = false;
  DgcOptions dgc_options;
};

/// Throws std::invalid_argument for a density outside (0, 1], DGC without error feedback, a negative `dgc_clip`, or a
/// momentum outside [0, 1).
void check(const TopKOptions& options);

/// Sent are values (fp32) and places (int32); vectors (batch norm, biases) go whole. All ranks add up all ranks'
/// entries in the order of ranks.
std::unique_ptr<Strategy> make_top_k(Replica& replica, comm::Hierarchy& ranks, const TopKOptions& options);

/// Density at a step, from 1.
double density_at(const TopKOptions& options, int64_t step);

// Gradients as products of two thin matrices (powersgd.cpp).

struct PowerSgdOptions {
  Reporting reporting;
  int64_t rank = 2;            ///< columns of the factors
  int64_t start_after = 0;     ///< steps with whole gradients before
  double least_shrinkage = 2;  ///< tensors that would not shrink by this factor go whole
  uint64_t seed = 0;           ///< of the first factors, the same on all ranks
};

/// Throws std::invalid_argument for a rank below 1, a negative `powersgd_start`, or `least_shrinkage` below 0.
void check(const PowerSgdOptions& options);

/// PowerSGD (arXiv 1905.13727): one power iteration per step and tensor, from the last step's factor (warm start), with
/// error feedback, by its algorithms 1 and 2. Filter banks are matrices of out x rest; tensors that would hardly shrink
/// and vectors go whole. Two all-reduces per step.
std::unique_ptr<Strategy> make_powersgd(Replica& replica, comm::Hierarchy& ranks, const PowerSgdOptions& options);

}  // namespace prunex::strategies
