#include "tests/device/small_runs.h"

#include <ATen/ATen.h>

#include <filesystem>

#include "prunex/comm/connect.h"
#include "prunex/io/safetensors.h"
#include "prunex/program/pt2.h"
#include "tests/train/small_network.h"

namespace prunex::tests {
namespace {

using strategies::Payload;
using train::TrainOptions;

constexpr char kConfig[] = "seed=0\n";

void write_inputs(const Scratch& folder) {
  if (std::filesystem::exists(folder / "network.pt2")) return;
  program::write_pt2(folder / "network.pt2", train::small_network());
  const auto images = train::noise_images(84);
  const auto write = [&](const char* name, int64_t begin, int64_t end) {
    TensorDict tensors;
    tensors.insert("images", images.images.slice(0, begin, end).contiguous());
    tensors.insert("labels", images.labels.slice(0, begin, end).clone());
    io::write_safetensors(folder / name, tensors, {});
  };
  write("train.safetensors", 0, 64);
  write("test.safetensors", 64, 84);
}

SmallRun of_strategy(const std::string& strategy, Payload payload = Payload::kFp32) {
  return {strategy + "_" + strategies::name_of(payload), [=](TrainOptions& options) {
            options.strategy = strategy;
            options.exchange.payload = payload;
          }};
}

/// The paper's rules.
void set_paper(TrainOptions& options) {
  options.masks.rule = strategies::MaskRule::kUnion;
  options.consensus.penalty.rule = admm::PenaltyRule::kFixed;
  options.consensus.penalty.rho1 = 0.02;
  options.consensus.penalty.rho2 = 0.01;
  options.consensus.start_from = strategies::StartFrom::kTheta;
  options.consensus.aux = strategies::AuxTensors::kAdmm;
  options.after_freeze = strategies::AfterFreeze::kAdmm;
}

void add_strategies(std::vector<SmallRun>& runs) {
  for (const auto payload : {Payload::kFp32, Payload::kBf16, Payload::kFp16, Payload::kInt8, Payload::kInt4,
                             Payload::kInt2, Payload::kInt1}) {
    runs.push_back(of_strategy("hsadmm", payload));
  }
  for (const auto payload : {Payload::kFp32, Payload::kInt8, Payload::kInt2}) {
    runs.push_back(of_strategy("diloco", payload));
  }
  for (const char* strategy : {"hsadmm_flat", "local_sgd", "one_shot", "prunetrain", "top_k", "powersgd"}) {
    runs.push_back(of_strategy(strategy));
  }
  for (const char* strategy : {"scaffold", "ddp"}) {
    for (const auto payload : {Payload::kFp32, Payload::kBf16}) {
      runs.push_back(of_strategy(strategy, payload));
    }
  }
}

/// How H-SADMM prunes and agrees.
void add_rules(std::vector<SmallRun>& runs) {
  runs.push_back({"hsadmm_as_the_paper", set_paper});
  runs.push_back({"hsadmm_as_the_paper_int8", [](TrainOptions& options) {
                    set_paper(options);
                    options.exchange.payload = Payload::kInt8;
                  }});
  runs.push_back({"hsadmm_admm_after_the_freeze_masked", [](TrainOptions& options) {
                    options.after_freeze = strategies::AfterFreeze::kAdmm;
                    options.shrink = false;
                  }});
  runs.push_back({"hsadmm_budget", [](TrainOptions& options) { options.budget = "macs=0.6"; }});
  runs.push_back({"hsadmm_masks_by_gradients", [](TrainOptions& options) { options.mask_importance = "taylor"; }});
  runs.push_back({"hsadmm_average_after_the_freeze_int8", [](TrainOptions& options) {
                    options.after_freeze = strategies::AfterFreeze::kAverage;
                    options.exchange.payload = Payload::kInt8;
                  }});
  for (const char* groups : {"coupled", "filter", "channel", "shape"}) {
    runs.push_back({std::string("hsadmm_") + groups, [=](TrainOptions& options) { options.groups = groups; }});
  }
  for (const auto rule : {admm::PenaltyRule::kResidual, admm::PenaltyRule::kGeometric}) {
    runs.push_back({rule == admm::PenaltyRule::kResidual ? "hsadmm_residual_penalty" : "hsadmm_geometric_penalty",
                    [=](TrainOptions& options) {
                      options.after_freeze = strategies::AfterFreeze::kAdmm;
                      options.consensus.penalty.rule = rule;
                    }});
  }
}

/// Who sends what to whom, and when.
void add_exchanges(std::vector<SmallRun>& runs) {
  runs.push_back(
      {"hsadmm_leader", [](TrainOptions& options) { options.exchange.form = strategies::ExchangeForm::kLeader; }});
  runs.push_back({"hsadmm_uneven_nodes_int4", [](TrainOptions& options) {
                    options.ranks_per_node = {2, 1};
                    options.exchange.payload = Payload::kInt4;
                  }});
  runs.push_back({"hsadmm_two_sites", [](TrainOptions& options) {
                    options.nodes = 4;
                    options.ranks_per_node = {1};
                    options.sites = 2;
                  }});
  runs.push_back({"ddp_flat", [](TrainOptions& options) {
                    options.strategy = "ddp";
                    options.exchange.form = strategies::ExchangeForm::kFlat;
                  }});
  runs.push_back({"top_k_deep_gradient_compression", [](TrainOptions& options) {
                    options.strategy = "top_k";
                    options.top_k.density = 0.1;
                    options.top_k.dgc = true;
                    options.top_k.dgc_options.clip = 0.5;
                  }});
  runs.push_back({"diloco_overlapped_int2", [](TrainOptions& options) {
                    options.strategy = "diloco";
                    options.overlap = 1;
                    options.exchange.payload = Payload::kInt2;
                  }});
  runs.push_back({"hsadmm_overlapped", [](TrainOptions& options) {
                    options.overlap = 1;
                    options.exchanges = 8;  // some of them after the freeze
                  }});
  runs.push_back({"local_sgd_int4", [](TrainOptions& options) {
                    options.strategy = "local_sgd";
                    options.exchange.payload = Payload::kInt4;
                  }});
  runs.push_back({"post_local_int2", [](TrainOptions& options) {
                    options.strategy = "diloco";
                    options.local_after = 2;
                    options.exchange.payload = Payload::kInt2;
                  }});
}

SmallRun of_optimizer(const char* name, train::Optimizer rule) {
  return {std::string("optimizer_") + name, [rule](TrainOptions& options) {
            options.optimizer = rule;
            options.clip_norm = 0.5;
            options.label_smoothing = 0.1;
            options.mix = {.mixup = 0.5, .cutmix = 1};
            options.ema = 0.9;
          }};
}

void add_recipes(std::vector<SmallRun>& runs) {
  using train::Optimizer;
  runs.push_back({"bf16_arithmetic", [](TrainOptions& options) { options.precision = train::Precision::kBf16; }});
  runs.push_back(
      {"cropped_and_mirrored", [](TrainOptions& options) { options.data.augment = {{.padding = 1, .flip = true}}; }});
  runs.push_back(of_optimizer("sgd", Optimizer::kSgd));
  runs.push_back(of_optimizer("nesterov", Optimizer::kNesterov));
  runs.push_back(of_optimizer("adamw", Optimizer::kAdamW));
  runs.push_back(of_optimizer("lamb", Optimizer::kLamb));
  runs.push_back(of_optimizer("muon", Optimizer::kMuon));
  runs.push_back({"taught_by_a_file", [](TrainOptions& options) { options.teacher = options.model; }});
  runs.push_back({"muon_masked_after_the_freeze", [](TrainOptions& options) {
                    options.optimizer = Optimizer::kMuon;
                    options.shrink = false;
                  }});
  runs.push_back({"ddp_lamb_clipped", [](TrainOptions& options) {
                    options.strategy = "ddp";
                    options.optimizer = Optimizer::kLamb;
                    options.clip_norm = 0.5;
                  }});
}

void add_cuts(std::vector<SmallRun>& runs) {
  for (const char* importance : {"l2", "taylor", "hessian", "obdc", "activation", "lamp"}) {
    runs.push_back({std::string("cut_by_") + importance, [importance](TrainOptions& options) {
                      options.strategy = "local_sgd";
                      options.pruning.target = "ratio=0.4";
                      options.pruning.importance = importance;
                      options.pruning.steps = 2;
                    }});
  }
  runs.push_back({"powersgd_cut", [](TrainOptions& options) {
                    options.strategy = "powersgd";
                    options.pruning.target = "macs=0.5";
                  }});
  runs.push_back({"diloco_int2_cut_and_taught", [](TrainOptions& options) {
                    options.strategy = "diloco";
                    options.exchange.payload = Payload::kInt2;
                    options.pruning.target = "macs=0.5";
                    options.teacher = "whole";
                  }});
  for (const char* penalty : {"bn_scale", "group_bn_scale", "group_norm", "growing", "group_lasso"}) {
    runs.push_back({std::string("sparse_") + penalty, [penalty](TrainOptions& options) {
                      options.strategy = "local_sgd";
                      options.sparse.penalty = penalty;
                      options.pruning.target = "ratio=0.3";
                    }});
  }
}

}  // namespace

std::vector<SmallRun> small_runs() {
  std::vector<SmallRun> runs;
  add_strategies(runs);
  add_rules(runs);
  add_exchanges(runs);
  add_recipes(runs);
  add_cuts(runs);
  return runs;
}

TrainOptions options_of(const SmallRun& run, const Scratch& folder, const std::string& directory) {
  write_inputs(folder);
  TrainOptions options;
  options.model = folder / "network.pt2";
  options.data.dataset = folder / "train.safetensors";
  options.data.test = folder / "test.safetensors";
  options.nodes = 2;
  options.ranks_per_node = {2};
  options.exchanges = 5;
  options.local_steps = 2;
  options.batch_size = 4;
  options.round_to = 1;
  options.precision = train::Precision::kFp32;
  options.eval_every = 2;
  options.checkpoint_every = 5;
  options.quiet = true;
  options.run_dir = folder / directory;
  run.set(options);
  return options;
}

train::Summary run_on(c10::DeviceType device, const TrainOptions& options, const train::GraphMaker& make_graph) {
  train::Summary of_rank_0;
  comm::run_ranks(train::shape_of(options),
                  [&](comm::Hierarchy& ranks) {
                    const auto summary = train::train(options, ranks, kConfig, nullptr, make_graph);
                    if (ranks.layout.rank == 0) of_rank_0 = summary;
                  },
                  {.shared_memory = false, .device = device, .heartbeat_timeout = std::chrono::milliseconds(0)});
  return of_rank_0;
}

}  // namespace prunex::tests
