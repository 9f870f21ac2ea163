// What a training run can be told.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prunex/comm/layout.h"
#include "prunex/data/load.h"
#include "prunex/data/partition.h"
#include "prunex/models/models.h"
#include "prunex/prune/plan.h"
#include "prunex/strategies/gradients/gradients.h"
#include "prunex/strategies/hsadmm/hsadmm.h"
#include "prunex/text/option.h"
#include "prunex/train/mixing.h"
#include "prunex/train/optimizer.h"

namespace prunex::train {

enum class LearningRateSchedule {
  kCosine,  ///< half a cosine to 0
  kStep,    ///< a tenth after half and after three quarters of the steps
  kConstant,
  kMilestones,  ///< times a factor at each of them; of the training alone
};

/// Arithmetic of the local steps; weights, state and evaluation are fp32.
enum class Precision {
  kAuto,  ///< bf16 if every rank's processor is faster in it, else fp32; tf32 on GPUs
  kFp32,
  kTf32,  ///< on GPUs alone
  kBf16,
};

/// What ranks of a node average, of strategies that exchange weights.
enum class InNode {
  kWeights,    ///< in every exchange, as nodes do
  kGradients,  ///< in every step: a node is one worker
};

/// What progress looks like on standard error.
enum class LogForm {
  kPlain,       ///< lines; on a terminal one that redraws itself
  kTimestamps,  ///< lines that begin with the time, UTC
  kJson,        ///< an object per line: events start, exchange, end
};

/// Products of two numbers of exchanges are counted, too.
inline constexpr double kMostExchanges = 1e9;
/// Exchange numbers that follow from the length of the run.
inline constexpr int64_t kAutomatic = -1;
inline constexpr int64_t kFirstPruning = 2;  ///< automatic `prune_start`, counted from `local_after`

/// Sparse training: a regulariser in the local steps.
struct SparseOptions {
  std::string penalty = "none";    ///< prune::penalty_names()
  double epochs = 0;               ///< of a phase of its own after the training; 0: during the training
  std::optional<double> strength;  ///< without: what is usual for the penalty
  double growth = 1e-4;            ///< growing: of the weakest unit, per epoch
  double loss_share = 0.2;         ///< group_lasso without a strength: the penalty's share of the loss at the start
  double warmup_epochs = 0;        ///< linear rise of the strength from 0
  int64_t refresh_every = 1;       ///< exchanges between new coefficients
  std::optional<double> learning_rate;  ///< of the own phase; without: as in training
  std::optional<LearningRateSchedule> schedule;
  double weight_decay = 0;  ///< of the own phase
};

/// Training after the last cut.
struct FinetuneOptions {
  double epochs = 0;
  std::optional<double> learning_rate;  ///< without: as in training
  std::optional<LearningRateSchedule> schedule;
};

/// Cuts by importance in the middle of training. They begin where fine-tuning does, or, without it, after `prune_at` of
/// the run.
struct ScheduledPruningOptions {
  std::string target;  ///< "ratio=R", "macs=M", "parameters=P" or "speed-up=X", as prunex prune has them; empty: none
  double below = 0;    ///< instead: all through training, units whose weights are all smaller; 0: off
  int64_t steps = 1;   ///< cuts to the target
  int64_t every = 1;   ///< exchanges between cuts; 0: all in one exchange, scored anew in each
  std::string importance = "l2";
  std::string normalizer;            ///< what makes groups comparable; empty: the importance's own
  int64_t importance_samples = 256;  ///< images that gradients and activations are of
  prune::PlanOptions plan;

  bool any() const { return !target.empty() || below > 0; }
};

/// How the ranks find and hear one another, and where they compute.
struct RankOptions {
  std::string device = "cpu";           ///< cpu, cuda
  std::vector<std::string> interfaces;  ///< network interfaces on which rails take turns; empty: found
  bool shared_memory = true;            ///< inside a node, where it works
  comm::PortRange ports;                ///< where ranks listen for each other, beside MASTER_PORT
  std::string secret_file;       ///< what all ranks know, and prove to each other; empty: PRUNEX_SECRET, or nothing
  bool encrypt = false;          ///< what leaves a process, but for shared memory
  double join_timeout = 300;     ///< seconds that the ranks have to come together
  double comm_timeout = 600;     ///< seconds to wait for a message
  double heartbeat_timeout = 5;  ///< seconds of silence after which a rank counts as lost; 0: off
};

/// Of a number of seconds.
std::chrono::milliseconds milliseconds(double seconds);

/// One field per option, with its default.
struct TrainOptions {
  data::DataOptions data;
  data::Partition partition;  ///< of the training images among nodes

  std::string model = "resnet20";            ///< a built-in name, or FILE.pt2
  double width = 1.0;                        ///< multiplies the channels of the CIFAR ResNets
  models::Norm norm = models::Norm::kBatch;  ///< of built-in networks
  int64_t max_model_size = 0;  ///< MiB that the records of a FILE.pt2 may have together; 0: eight times the file
  std::string widths;          ///< structure.json of a run: a network as narrow, from scratch; empty: all channels
  std::string weights;         ///< FILE.safetensors to start from; empty: the model's own

  int nodes = 1;
  std::vector<int> ranks_per_node = {1};  ///< one number for all nodes, or one for each
  int sites = 1;                          ///< the nodes form so many equal shares, each behind one slow link
  int threads = 1;                        ///< per rank
  RankOptions ranks;
  bool elastic = false;         ///< when a node is lost, the others go on
  int min_nodes = 0;            ///< as long as so many are left; 0: as long as they are sure to be the only ones
  int max_nodes = 0;            ///< nodes that join wait while there are so many; 0: any number
  double straggler_factor = 0;  ///< of the median's time: by then a slow node exchanges what it has; 0: never
  std::string join;             ///< the run that this node comes into: its directory, or HOST:PORT; empty: none
  Precision precision = Precision::kAuto;
  bool cuda_graphs = true;  ///< local steps on a GPU as one CUDA graph, instead of kernel by kernel
  uint64_t seed = 0;

  double epochs = 10;        ///< passes over the training set by all ranks together
  int64_t exchanges = 0;     ///< if not 0: exactly so many exchanges instead of `epochs`
  int64_t local_steps = 50;  ///< H: optimizer steps between exchanges
  int64_t batch_size = 128;  ///< images per rank and step

  Optimizer optimizer = Optimizer::kSgd;
  std::optional<double> learning_rate, momentum, weight_decay, eps;  ///< without: what is usual, see optimizer_of()
  bool decay_vectors = true;                                         ///< or what has two dimensions or more alone
  double beta1 = 0.9, beta2 = 0.999;
  double clip_norm = 0;  ///< of a rank's gradient; 0: off
  LearningRateSchedule schedule = LearningRateSchedule::kCosine;
  std::vector<double> milestones;  ///< epochs from the start of the training
  double milestone_factor = 0.1;
  double warmup_epochs = 0;  ///< linear from 0
  int64_t warmup_steps = 0;  ///< instead
  double label_smoothing = 0;
  std::string teacher = "none";  ///< FILE.pt2 whose answers are learned beside the labels; whole: before the first cut
  double teacher_share = 0.5, teacher_temperature = 4;  ///< Teacher's
  MixOptions mix;
  double ema = 0;  ///< decay per step of the mean of products that ships; 0: off

  std::string strategy = "hsadmm";
  std::string preset;  ///< one of preset_names(), empty: none
  SparseOptions sparse;
  FinetuneOptions finetune;
  ScheduledPruningOptions pruning;
  std::string groups = "auto";  ///< coupled-inner where the strategy prunes by itself, else none
  bool heads = false;           ///< attention loses whole heads instead of equal positions of all heads
  double keep = 0.5;            ///< share of units kept per group
  std::string budget;  ///< instead: "macs=M", "parameters=P" or "speed-up=X" of the whole network; empty: `keep`
  std::string mask_importance = "norm";  ///< what ranks the units of groups: of all their weights, or by another name
  int64_t round_to = kAutomatic;         ///< coupled groups keep a multiple of so many units; automatic: by group size
  bool shrink = true;                    ///< cut the model when the masks are final; else train on, masked
  sparsity::KeepRamp keep_ramp = sparsity::KeepRamp::kCubic;
  int64_t prune_start = kAutomatic;   ///< k0: the first exchange that prunes; automatic: the second after `local_after`
  int64_t prune_end = kAutomatic;     ///< k1: the first at the final share; automatic: half of the run
  int64_t freeze_after = kAutomatic;  ///< automatic: prune_end; strategies::kNever
  double prune_at = 0.6;  ///< one_shot, and cuts to a target without fine-tuning: after this share of the run
  InNode in_node = InNode::kWeights;
  int64_t local_after = 0;  ///< exchanges during which gradients are averaged in every step: post-local SGD
  double dgc_warmup_epochs = 0;
  strategies::TopKOptions top_k;         ///< reporting, momentum and warm-up are filled in
  strategies::PowerSgdOptions powersgd;  ///< reporting and seed are filled in
  std::optional<int64_t> outer_from;     ///< without: 1 where outer steps are the strategy's own, 0 elsewhere
  std::optional<double> outer_momentum;  ///< without: 0.8 for H-SADMM, 0.9 elsewhere
  strategies::ExchangeOptions exchange;
  /// Of H-SADMM, which local_sgd, diloco, one_shot and hsadmm_flat are settings of; groups, exchange numbers and what
  /// ranks units are filled in from above.
  strategies::MaskOptions masks;
  strategies::ConsensusOptions consensus;
  strategies::AfterFreeze after_freeze = strategies::AfterFreeze::kNesterov;
  int64_t overlap = 0;          ///< local steps that run beside an exchange of weights
  strategies::OuterStep outer;  ///< its momentum and first exchange are those before, if they are given

  int64_t eval_every = 5;                 ///< exchanges between evaluations of z; 0: only at the end
  std::string run_dir;                    ///< empty: runs/<dataset>-<model>-<strategy>-<n>
  int64_t checkpoint_every = kAutomatic;  ///< exchanges between checkpoints; 0: none; automatic: by time
  double checkpoint_seconds = 300;        ///< between automatic ones, which go once the results are there
  std::string resume;                     ///< run directory to go on in, from its newest checkpoint
  int64_t resume_exchange = 0;            ///< go on from this checkpoint instead; 0: the newest
  bool trace = false;                     ///< write trace.json: when every rank did what
  bool tensorboard = false;               ///< write metrics as TensorBoard's events, too
  bool quiet = false;                     ///< no progress on standard error
  LogForm log = LogForm::kPlain;
};

/// Every option by name, bound to the fields of `options`: the one place where an option is declared.
text::OptionList describe(TrainOptions& options);
/// Parts of it, some for other commands, too.
void describe_recipe(text::OptionList& list, TrainOptions& options);
void describe_sparse_training(text::OptionList& list, TrainOptions& options);
void describe_strategies(text::OptionList& list, TrainOptions& options);
/// What a command does with images.
enum class ImageUse { kTraining, kPruning, kTesting };
/// Without the options that such a command does not read.
void describe_data(text::OptionList& list, data::DataOptions& data, ImageUse use = ImageUse::kTraining);
/// What is done to the training images among them.
void describe_augmentation(text::OptionList& list, data::DataOptions& data);
void describe_ranks(text::OptionList& list, TrainOptions& options);
void describe_links(text::OptionList& list, RankOptions& ranks);
inline constexpr double kMostThreads = 1024;  ///< per rank, of one kind
/// Names of those that a strategy under a loop of one's own takes.
std::vector<std::string> loop_options();

/// Whose configurations are compared.
enum class Among {
  kResume,  ///< those of a run and of what goes on with it
  kRanks,   ///< those of the ranks of a run: less may differ
};

struct OptionDifference {
  std::string option, one, other;  ///< its name, and the values that it has; "nothing" where it has none
};
/// The first of the options in one configuration that another has otherwise, of those that may not differ; one that the
/// other does not say only if there is no other, as it has an effect because of another. Those that only ranks must
/// share have their usual value where a configuration does not say.
std::optional<OptionDifference> first_difference(const std::string& one, const std::string& other, Among among);

/// Of `preset`; the empty one says nothing.
std::vector<std::string> preset_names();
/// Takes what the preset says of options that were not given, have an effect beside the others and a value that the
/// strategy has. Throws std::invalid_argument if that is nothing, but for a preset of a run that goes on.
void apply_preset(text::OptionList& list, const TrainOptions& options);

/// Throws std::invalid_argument that names the option, what was got and what is wanted.
void validate(const TrainOptions& options);

/// The nodes, ranks and sites of valid options; its rank does not matter.
comm::Layout shape_of(const TrainOptions& options);

}  // namespace prunex::train
