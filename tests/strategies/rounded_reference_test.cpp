// Rounded messages between nodes against docs/strategies.md, "Rounded payloads", for all nodes in one process: which
// change is rounded where, and what is kept of it. The numbers that a message can hold are listed, not computed.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gradient_runs.h"
#include "prunex/comm/gloo/run_ranks.h"
#include "prunex/strategies/hsadmm.h"
#include "small_problem.h"

namespace prunex::strategies {
namespace {

constexpr int64_t kBlock = 128;

/// The nearest of the levels that a block's scale allows: 2^bits - 1 from -scale to scale, or four around zero.
at::Tensor rounded_block(const at::Tensor& values, Payload payload) {
  const auto in_bf16 = [](const at::Tensor& scale) { return scale.to(at::kBFloat16).to(at::kFloat); };
  at::Tensor levels;
  if (payload == Payload::kInt2) {
    levels = at::tensor({-1.5f, -0.5f, 0.5f, 1.5f}) * (0.9957f * in_bf16(values.square().mean().sqrt()));
  } else {
    const int64_t highest = payload == Payload::kInt8 ? 127 : 7;
    levels = at::arange(-highest, highest + 1) * (in_bf16(values.abs().max()) / highest);
  }
  return levels.index_select(0, (values.unsqueeze(1) - levels).abs().argmin(1));
}

/// What is read of values of which the first `weights` belong to matrices, the others to vectors.
at::Tensor rounded(const at::Tensor& values, int64_t weights, Payload payload) {
  if (payload == Payload::kBf16) return values.to(at::kBFloat16).to(at::kFloat);
  at::Tensor read = values.to(at::kHalf).to(at::kFloat);
  if (payload == Payload::kFp16) return read;
  for (const auto& block : read.slice(0, 0, weights).split(kBlock)) {
    if (block.numel() == 0) continue;
    const int64_t begin = block.storage_offset();
    block.copy_(rounded_block(values.slice(0, begin, begin + block.numel()), payload));
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
        for (int64_t row = 0; row < item.value().size(0); ++row) row_starts_.push_back(size_ + row * width(item.value()));
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
  RoundedMean(int nodes, Payload payload, const at::Tensor& like)
      : payload_(payload), returned_(at::zeros_like(like)) {
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

/// The exchanges of local SGD or DiLoCo: from one z train apart, round, step.
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

  /// Steps first … last and an exchange; the new z goes to all ranks.
  void iterate(int64_t first, int64_t last) {
    for (size_t rank = 0; rank < problems_.size(); ++rank) problems_[rank].train(replicas_[rank], {}, first, last);
    std::vector<at::Tensor> changes;
    for (int node = 0; node < shape_.nodes(); ++node) {
      const int ranks = shape_.node_sizes[static_cast<size_t>(node)], begin = shape_.first_rank(node);
      at::Tensor sum = at::zeros_like(z_);
      for (int rank = begin; rank < begin + ranks; ++rank) sum += theta(rank);
      changes.push_back((sum / ranks - z_) * (ranks * shape_.nodes() / static_cast<double>(shape_.world_size())));
    }
    const int rails = *std::min_element(shape_.node_sizes.begin(), shape_.node_sizes.end());
    step(z_ + mean_(changes, line_, line_.parts(rails)));
  }

  const at::Tensor& z() const { return z_; }
  at::Tensor line_of(const TensorDict& tensors) const { return line_.of(tensors); }
  const Replica& replica(size_t rank) const { return replicas_[rank]; }
  /// The common weights of all ranks, which follow z.
  void restart(const TensorDict& z) {
    for (auto& replica : replicas_) replica.weights.params = clones(z);
  }

 private:
  at::Tensor theta(int rank) const { return line_.of(replicas_[static_cast<size_t>(rank)].weights.params); }

  /// DiLoCo's outer step, where it is asked for.
  void step(const at::Tensor& mean) {
    if (options_.outer_from == 0) {
      z_ = mean;
      return;
    }
    const at::Tensor gradient = z_ - mean;
    outer_ = options_.outer_momentum * outer_ + gradient;
    z_ = z_ - options_.outer_rate * (gradient + options_.outer_momentum * outer_);
  }

  comm::Layout shape_;
  HsadmmOptions options_;
  std::vector<SmallProblem> problems_;
  std::vector<Replica> replicas_;
  Line line_;
  at::Tensor z_, outer_;
  RoundedMean mean_;
};

}  // namespace
}  // namespace prunex::strategies
