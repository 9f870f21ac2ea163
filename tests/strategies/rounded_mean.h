// Rounded messages between nodes as docs/strategies.md, "Rounded payloads", has them, for all nodes in one process:
// which change is rounded where, to what, and what is kept of it. With a quantiser of its own; the oracle of
// rounded_reference_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prunex/comm/layout.h"
#include "prunex/strategies/exchange/payload.h"
#include "prunex/tensors.h"

namespace prunex::strategies {

/// Matrices, then vectors, in one line: rows follow one another, and in a row channels lie innermost.
class Line {
 public:
  explicit Line(const TensorDict& like);

  int64_t weights() const { return weights_; }
  at::Tensor of(const TensorDict& tensors) const;
  TensorDict tensors_of(const at::Tensor& line) const;
  /// Where the parts of the local ranks begin and end: whole rows, nearest to equal parts.
  std::vector<int64_t> parts(int rails) const;

 private:
  TensorDict like_;
  std::vector<std::string> names_;
  std::vector<int64_t> row_starts_;
  int64_t size_ = 0, weights_ = 0;
};

/// The rounded mean over nodes of what is alive, with what earlier messages left out.
class RoundedMean {
 public:
  RoundedMean(const comm::Layout& shape, Payload payload, const TensorDict& like);

  /// changes[node] -> their mean where `alive` is not 0, 0 elsewhere; what is dead owes nothing from now on. What is
  /// alive of a part is shared by the nodes in their order.
  TensorDict operator()(const std::vector<TensorDict>& changes, const TensorDict& alive);

  /// What they left out of this tensor is not added to the next ones.
  void forget(const std::string& name);

  /// What a node's own messages, and the means that it sent to all, have left out so far.
  TensorDict sent(int node) const { return line_.tensors_of(owed_[static_cast<size_t>(node)].sent); }
  TensorDict returned(int node) const { return line_.tensors_of(owed_[static_cast<size_t>(node)].returned); }

 private:
  struct Owed {
    at::Tensor sent, returned;
  };
  at::Tensor mean_of_share(const std::vector<at::Tensor>& changes, size_t owner, const at::Tensor& share,
                           std::vector<Owed>& next) const;

  Payload payload_;
  Line line_;
  std::vector<int64_t> parts_;
  std::vector<Owed> owed_;  // of every node
};

}  // namespace prunex::strategies
