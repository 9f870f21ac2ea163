// Checkpoints: what an interrupted run goes on from, bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "prunex/comm/hierarchy.h"
#include "prunex/sparsity/cut.h"
#include "prunex/strategies/strategy.h"
#include "prunex/tensors.h"
#include "prunex/train/options.h"

namespace prunex::train {

/// One rank's share of a checkpoint, by role.
struct Checkpoint {
  int64_t exchange = 0;
  TensorDict product;     ///< z by state-dict name: the same everywhere; a file of its own, for `weights`
  TensorDict node;        ///< the same on the ranks of a node
  TensorDict rank;        ///< this rank's own
  std::string structure;  ///< JSON of the cut; empty before it
  std::string progress;   ///< JSON of what the trainer has counted so far
};

// Checksums of what a run reads beside its options, among a node's tensors or a rank's own: a rank without a share of
// its own has those of its node, or none.
inline constexpr const char* kImagesChecksum = "images";
inline constexpr const char* kTeacherChecksum = "teacher";
inline constexpr const char* kProgramChecksum = "program";
/// Parameters among a rank's own tensors.
inline constexpr const char* kTheta = "theta/";

/// In the text of what a run says that is to go on and has none.
inline constexpr const char* kNoCheckpoint = "no complete checkpoint";
const at::Tensor* checksum_in(const Checkpoint& checkpoint, const std::string& name);

/// The checkpoints of a run, in DIR/checkpoint/<exchange>/: z.safetensors and node-<i>.safetensors, written by the
/// first rank of each node, and rank-<r>.safetensors; and DIR/config.toml, where a node's disk lacks it or has another
/// run's. Every file is written under a temporary name and carries a checksum and the run's configuration. A checkpoint
/// counts once all ranks have written; the last two are kept.
class Checkpoints {
 public:
  /// `config`: the resolved options, as lines `name = value`; a run goes on only from a checkpoint with the same ones.
  /// `elastic`: of any number of nodes. Ranks of a node that did not take part in it begin as of one that has just
  /// joined: with z, and nothing of their own.
  Checkpoints(std::string run_directory, std::string config, comm::Hierarchy& ranks, bool elastic = false);

  /// Whether this machine has something else in the run's directory than what rank 0 of a run that begins puts there.
  bool is_taken() const;

  /// Collective. If a rank cannot write its share, or has a `problem` already, nothing of this checkpoint stays and the
  /// ones before do. Then the first such rank is told why, the others are told "". Nothing is returned for success;
  /// then checkpoints of later exchanges, which a run had made that was gone back from, are removed. If a rank is lost
  /// meanwhile, an elastic run keeps nothing of this checkpoint either.
  std::optional<std::string> save(const Checkpoint& checkpoint, const std::string& problem = "");

  /// The newest checkpoint that all ranks have, or the one of `exchange` if that is not 0. What ranks that were killed
  /// left half-written is removed. Collective. Throws std::invalid_argument if there is none or an option differs,
  /// std::runtime_error if a file is damaged; then the message says which earlier one to ask for.
  Checkpoint load(int64_t exchange);

 private:
  std::string config_file() const;
  std::optional<std::string> saved_config() const;
  bool has_config() const;
  std::string folder(int64_t exchange) const;
  std::string node_file(int64_t exchange, int node) const;
  std::string rank_file(int64_t exchange, int rank) const;
  bool has_own(int64_t exchange) const;
  bool has_share(int64_t exchange, int node, int rank) const;
  std::string product_file(int64_t exchange) const;
  void check_options() const;
  bool complete_here(int64_t exchange) const;
  int64_t newest_here(int64_t at_most) const;
  int64_t newest_of_all(int64_t at_most);
  bool is_of_one_save(int64_t exchange);
  int64_t smallest(int64_t mine);
  std::string name_of_save(const TensorDict& product);
  void write_files(const Checkpoint& checkpoint, const std::string& saved) const;
  std::optional<int> first_with(const std::string& problem);
  void expect_nodes(int64_t exchange) const;
  bool is_whole(int64_t exchange) const;
  void remove(int64_t exchange) const;
  void remove_others(int64_t exchange) const;
  void remove_leftovers() const;

  std::string directory_;
  std::string config_;
  comm::Hierarchy& ranks_;
  bool elastic_;
  std::optional<int64_t> whole_;  // the exchange that was last loaded, or saved by all
};

/// Throws std::invalid_argument that names the first option in which `config` is not the run's whose configuration is
/// `saved`, though it may not differ.
void check_same_options(const std::string& saved, const std::string& config, const std::string& run_directory,
                        Among among = Among::kResume);

/// Throws std::invalid_argument if nothing is seen here that a run could go on from: Checkpoints::load() would.
void expect_checkpoint(const std::string& run_directory, int64_t exchange);

/// The strategy's state by role, and the replica's parameters and optimizer: a rank's own, unless replicas are in step.
/// Buffers are not in it: between exchanges they are z's.
void store_state(Checkpoint& checkpoint, const strategies::Strategy& strategy, const Replica& replica);

/// Back into a strategy and a replica of the same shapes. `cut`: what had been cut by then; null for nothing. Throws
/// std::invalid_argument, without the file, for tensors that are missing or of other shapes.
void load_state(const Checkpoint& checkpoint, const sparsity::Cut* cut, strategies::Strategy& strategy,
                Replica& replica);

}  // namespace prunex::train
