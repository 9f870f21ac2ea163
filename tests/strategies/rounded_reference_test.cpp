// Rounded messages between nodes against docs/strategies.md, "Rounded payloads", for all nodes in one process: which
// change is rounded where, to what, and what is kept of it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "prunex/comm/gloo/run_ranks.h"
#include "prunex/strategies/hsadmm.h"
#include "small_problem.h"

namespace prunex::strategies {
namespace {

constexpr int64_t kBlock = 128;

at::Tensor in_bf16(const at::Tensor& scale) {
  return scale.to(at::kBFloat16).to(at::kFloat);
}

/// The nearest of 2^bits - 1 levels from minus the largest magnitude to it, or of four around zero. In the middle of
/// two levels the last bit of a division in fp32 decides; that the level is the nearest one is checked against a list.
at::Tensor rounded_block(const at::Tensor& values, Payload payload) {
  const bool four = payload == Payload::kInt2;
  const double highest = four ? 1.5 : payload == Payload::kInt8 ? 127 : 7;
  const at::Tensor spacing =
      four ? 0.9957 * in_bf16(values.square().mean().sqrt()) : in_bf16(values.abs().max()) / highest;
  if (spacing.item<double>() == 0) return at::zeros_like(values);
  const at::Tensor codes = (values / spacing + highest).round().clamp(0, 2 * highest);
  const at::Tensor read = (codes - highest) * spacing;
  const at::Tensor levels = at::arange(-highest, highest + 0.5, at::kFloat) * spacing;
  const at::Tensor nearest = std::get<0>((values.unsqueeze(1) - levels).abs().min(1));
  EXPECT_LT((((values - read).abs() - nearest) / spacing).max().item<double>(), 1e-4) << name_of(payload);
  return read;
}

/// What is read of values of which the first `weights` belong to matrices, the others to vectors.
at::Tensor rounded(const at::Tensor& values, int64_t weights, Payload payload) {
  if (payload == Payload::kBf16) return values.to(at::kBFloat16).to(at::kFloat);
  at::Tensor read = values.to(at::kHalf).to(at::kFloat);
  if (payload == Payload::kFp16) return read;
  for (int64_t begin = 0; begin < weights; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, weights);
    read.slice(0, begin, end).copy_(rounded_block(values.slice(0, begin, end), payload));
  }
  return read;
}

/// Matrices, then vectors, in one line: rows follow one another, and in a row channels lie innermost.
class Line {
 public:
  explicit Line(const TensorDict& tensors) {
    for (const bool matrices : {true, false}) {
      for (const auto& item : tensors) {
        if ((item.value().dim() > 1) != matrices) continue;
        names_.push_back(item.key());
        for (int64_t row = 0; row < item.value().size(0); ++row)
          row_starts_.push_back(size_ + row * width(item.value()));
        size_ += item.value().numel();
        if (matrices) weights_ = size_;
      }
    }
    row_starts_.push_back(size_);
  }

  int64_t weights() const { return weights_; }
  at::Tensor of(const TensorDict& tensors) const {
    std::vector<at::Tensor> flat;
    for (const auto& name : names_) {
      const at::Tensor& tensor = tensors[name];
      flat.push_back((tensor.dim() == 4 ? tensor.permute({0, 2, 3, 1}) : tensor).reshape({-1}));
    }
    return at::cat(flat);
  }
  /// Writes to tensors what `of` reads from them.
  void write(const at::Tensor& line, TensorDict& tensors) const {
    int64_t begin = 0;
    for (const auto& name : names_) {
      at::Tensor& tensor = tensors[name];
      at::Tensor in_line = tensor.dim() == 4 ? tensor.permute({0, 2, 3, 1}) : tensor;
      in_line.copy_(line.slice(0, begin, begin + tensor.numel()).view(in_line.sizes()));
      begin += tensor.numel();
    }
  }

  /// Where the parts of the local ranks begin and end: whole rows, nearest to equal parts.
  std::vector<int64_t> parts(int rails) const {
    std::vector<int64_t> ends{0};
    for (int rail = 1; rail < rails; ++rail) {
      const int64_t wanted = size_ * rail / rails;
      ends.push_back(*std::min_element(row_starts_.begin(), row_starts_.end(), [&](int64_t a, int64_t b) {
        return std::abs(a - wanted) < std::abs(b - wanted);
      }));
    }
    ends.push_back(size_);
    return ends;
  }

 private:
  static int64_t width(const at::Tensor& tensor) { return tensor.numel() / tensor.size(0); }

  std::vector<std::string> names_;
  std::vector<int64_t> row_starts_;
  int64_t size_ = 0, weights_ = 0;
};

/// The rounded mean over nodes of changes since z, with what earlier messages left out.
class RoundedMean {
 public:
  RoundedMean(int nodes, Payload payload, const at::Tensor& like) : payload_(payload), returned_(at::zeros_like(like)) {
    for (int node = 0; node < nodes; ++node) sent_.push_back(at::zeros_like(like));
  }

  /// changes[node] -> their mean; shares of every part belong to nodes in their order.
  at::Tensor operator()(const std::vector<at::Tensor>& changes, const Line& line, const std::vector<int64_t>& parts) {
    at::Tensor mean = at::empty_like(returned_);
    const auto nodes = static_cast<int64_t>(changes.size());
    for (size_t part = 0; part + 1 < parts.size(); ++part) {
      const int64_t size = parts[part + 1] - parts[part];
      for (int64_t owner = 0; owner < nodes; ++owner) {
        const int64_t begin = parts[part] + size * owner / nodes, end = parts[part] + size * (owner + 1) / nodes;
        const int64_t weights = std::clamp<int64_t>(line.weights() - begin, 0, end - begin);
        mean.slice(0, begin, end).copy_(mean_of_share(changes, owner, begin, end, weights));
      }
    }
    return mean;
  }

 private:
  at::Tensor mean_of_share(const std::vector<at::Tensor>& changes, int64_t owner, int64_t begin, int64_t end,
                           int64_t weights) {
    at::Tensor sum = at::zeros({end - begin});
    for (size_t node = 0; node < changes.size(); ++node) {
      at::Tensor owed = sent_[node].slice(0, begin, end);
      const at::Tensor value = changes[node].slice(0, begin, end) + owed;
      const bool own = static_cast<int64_t>(node) == owner;
      const at::Tensor read = own ? value : rounded(value, weights, payload_);
      owed.copy_(value - read);
      sum += read;
    }
    at::Tensor owed = returned_.slice(0, begin, end);
    const at::Tensor value = sum / static_cast<double>(changes.size()) + owed;
    const at::Tensor read = rounded(value, weights, payload_);
    owed.copy_(value - read);
    return read;
  }

  Payload payload_;
  std::vector<at::Tensor> sent_;  // of every node
  at::Tensor returned_;           // of the owners
};

/// Local SGD or DiLoCo: from one z train apart, exchange, step.
class RoundedReference {
 public:
  RoundedReference(const comm::Layout& shape, const HsadmmOptions& options)
      : shape_(shape),
        options_(options),
        line_(SmallProblem(0, at::kFloat).initial_replica().weights.params),
        z_(line_.of(SmallProblem(0, at::kFloat).initial_replica().weights.params)),
        outer_(at::zeros_like(z_)),
        mean_(shape.nodes(), options.payload, z_) {
    for (int rank = 0; rank < shape.world_size(); ++rank) {
      problems_.emplace_back(rank, at::kFloat);
      replicas_.push_back(SmallProblem(0, at::kFloat).initial_replica());
    }
  }

  /// Steps first … last on all ranks, and an exchange.
  void iterate(int64_t first, int64_t last) {
    for (size_t rank = 0; rank < problems_.size(); ++rank)
      problems_[rank].train(replicas_[rank], LocalTerms(), first, last);
    std::vector<at::Tensor> changes;
    for (int node = 0; node < shape_.nodes(); ++node) changes.push_back(change_of(node));
    const int rails = *std::min_element(shape_.node_sizes.begin(), shape_.node_sizes.end());
    step(z_ + mean_(changes, line_, line_.parts(rails)));
    for (auto& replica : replicas_) line_.write(z_, replica.weights.params);
  }

  at::Tensor gap(const TensorDict& params) const { return (line_.of(params) - z_).abs().max(); }
  const at::Tensor& statistic(size_t rank) const { return replicas_[rank].weights.buffers["mean"]; }

 private:
  /// Of the mean over the node's ranks, which counts as many times as there are more of them than on average.
  at::Tensor change_of(int node) const {
    const int ranks = shape_.node_sizes[static_cast<size_t>(node)], first = shape_.first_rank(node);
    at::Tensor sum = at::zeros_like(z_);
    for (int rank = first; rank < first + ranks; ++rank) {
      sum += line_.of(replicas_[static_cast<size_t>(rank)].weights.params);
    }
    const double average = static_cast<double>(shape_.world_size()) / shape_.nodes();
    return (sum / ranks - z_) * (ranks / average);
  }

  /// z <- the mean, or DiLoCo's outer step towards it.
  void step(const at::Tensor& mean) {
    if (options_.outer_from == 0) {
      z_ = mean;
      return;
    }
    const at::Tensor gradient = z_ - mean;
    outer_ = options_.outer_momentum * outer_ + gradient;
    z_ = z_ - options_.outer_rate * gradient - options_.outer_rate * options_.outer_momentum * outer_;
  }

  comm::Layout shape_;
  HsadmmOptions options_;
  std::vector<SmallProblem> problems_;
  std::vector<Replica> replicas_;
  Line line_;
  at::Tensor z_, outer_;
  RoundedMean mean_;
};

/// 3 local steps, 6 exchanges, the last one short; the last three of them with final masks, which keep everything. The
/// outer step multiplies by powers of two: a last bit that differs would now and then round to another fp16.
HsadmmOptions without_masks(Payload payload, int64_t outer_from) {
  HsadmmOptions options = default_options();
  options.groups.clear();
  options.penalty.kappa = 0;
  options.after_freeze = AfterFreeze::kAverage;
  options.outer_from = outer_from;
  options.outer_rate = options.outer_momentum = 0.5;
  options.payload = payload;
  return options;
}

TensorDict z_of(const Snapshot& snapshot) {
  TensorDict z;
  for (const auto& name : snapshot.theta.keys()) z.insert(name, snapshot.state["z/" + name]);
  return z;
}

void expect_reference(const comm::Layout& shape, const HsadmmOptions& options) {
  const auto ours = run_on_ranks(shape, options, LocalPhase::kTrain, at::kFloat);
  RoundedReference reference(shape, options);
  for (int64_t k = 0; k < 6; ++k) {
    reference.iterate(3 * k + 1, std::min<int64_t>(3 * k + 3, 17));
    for (size_t rank = 0; rank < ours.size(); ++rank) {
      const Snapshot& own = ours[rank][static_cast<size_t>(k)];
      EXPECT_LT(reference.gap(z_of(own)).item<double>(), 1e-5) << "rank " << rank << ", exchange " << k + 1;
      EXPECT_LT((own.buffers["mean"] - reference.statistic(rank)).abs().max().item<double>(), 1e-5)
          << "statistics stay each rank's own: rank " << rank;
    }
  }
}

void expect_reference_everywhere(int64_t outer_from) {
  for (const comm::Layout& shape :
       {comm::Layout::even(2, 2), comm::Layout::even(3, 1), comm::Layout{.node_sizes = {2, 1}}}) {
    for (const Payload payload : {Payload::kBf16, Payload::kFp16, Payload::kInt8, Payload::kInt4, Payload::kInt2}) {
      SCOPED_TRACE(comm::describe(shape) + ", " + name_of(payload));
      expect_reference(shape, without_masks(payload, outer_from));
    }
  }
}

TEST(RoundedExchange, OfLocalSgdIsItsReference) {
  expect_reference_everywhere(0);
}

TEST(RoundedExchange, OfDiLoCoIsItsReference) {
  expect_reference_everywhere(1);
}

/// 18,000 weights and 90 entries of a vector.
Replica wide_replica() {
  Replica replica;
  replica.weights.params.insert("first", at::ones({150, 100}));
  replica.weights.params.insert("second", at::ones({60, 50}));
  replica.weights.params.insert("bias", at::ones({90}));
  replica.momentum = zeros_like(replica.weights.params);
  return replica;
}

/// What every node sends to others in one exchange.
std::vector<int64_t> bytes_of_nodes(const comm::Layout& shape, Payload payload) {
  HsadmmOptions options = without_masks(payload, 0);
  options.local_steps = options.total_steps = 1;
  std::vector<int64_t> sent(static_cast<size_t>(shape.world_size())), nodes(static_cast<size_t>(shape.nodes()));
  comm::run_ranks(shape, [&](comm::Hierarchy& ranks) {
    Replica replica = wide_replica();
    make_hsadmm(replica, ranks, options)->after_update(replica, 1);
    sent[static_cast<size_t>(ranks.layout.rank)] = comm::moved_by_exchanges(ranks).sent_to_nodes;
  });
  for (int node = 0; node < shape.nodes(); ++node) {
    for (int rank = 0; rank < shape.node_sizes[static_cast<size_t>(node)]; ++rank) {
      nodes[static_cast<size_t>(node)] += sent[static_cast<size_t>(shape.first_rank(node) + rank)];
    }
  }
  return nodes;
}

// 2(M-1)/M R, R = n/4 + n/64 for int2, n/2 + n/64 for int4, and so on; a share may end within a block, and then needs a
// scale and a byte of codes more.
TEST(RoundedExchange, SendsTheFormulaBetweenThreeNodesOfTwoRanks) {
  constexpr double kWeights = 18000, kVectors = 90, kShares = 6;
  for (const auto& [payload, per_weight] :
       std::vector<std::pair<Payload, double>>{{Payload::kBf16, 2},
                                               {Payload::kFp16, 2},
                                               {Payload::kInt8, 1 + 1.0 / 64},
                                               {Payload::kInt4, 1.0 / 2 + 1.0 / 64},
                                               {Payload::kInt2, 1.0 / 4 + 1.0 / 64}}) {
    const double R = per_weight * kWeights + 2 * kVectors;
    const auto nodes = bytes_of_nodes(comm::Layout::even(3, 2), payload);
    const auto total = static_cast<double>(nodes[0] + nodes[1] + nodes[2]);
    EXPECT_GE(total, 3 * 4.0 / 3 * R) << name_of(payload);
    EXPECT_LE(total, 3 * 4.0 / 3 * (R + 3 * kShares)) << name_of(payload);
    for (const int64_t sent : nodes) EXPECT_NEAR(static_cast<double>(sent), 4.0 / 3 * R, 0.03 * R) << name_of(payload);
  }
}

}  // namespace
}  // namespace prunex::strategies
