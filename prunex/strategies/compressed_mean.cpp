#include "prunex/strategies/compressed_mean.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace prunex::strategies {
namespace {

Extent extent_of(comm::Range range, Extent whole) {
  const int64_t weights = std::clamp<int64_t>(whole.weights - range.begin, 0, range.size());
  return {weights, range.size() - weights};
}

/// Whose entries are whose, and where their bytes lie in a message of all shares.
struct Shares {
  std::vector<comm::Range> entries, bytes;
  std::vector<Extent> extents;

  Shares(const Codec& codec, Extent whole, int ranks) : entries(comm::parts({0, whole.size()}, ranks)) {
    int64_t end = 0;
    for (const auto& range : entries) {
      extents.push_back(extent_of(range, whole));
      bytes.push_back({end, end + codec.bytes(extents.back())});
      end = bytes.back().end;
    }
  }
};

class MeanExchange {
 public:
  MeanExchange(comm::Communicator& group, const Codec& codec, at::Tensor& buffer, Extent extent, Feedback* feedback)
      : group_(group),
        codec_(codec),
        buffer_(buffer),
        feedback_(feedback),
        shares_(codec, extent, group.size()),
        message_(at::empty({shares_.bytes.back().end}, at::kByte)) {}

  void run() {
    take_feedback();
    for (int owner = 0; owner < group_.size(); ++owner) {
      if (owner != group_.rank()) encode(owner, feedback_ ? feedback_->sent : at::Tensor());
    }
    add_up(receive());
    encode(group_.rank(), feedback_ ? feedback_->returned : at::Tensor());
    group_.all_gather_parts(message_, shares_.bytes);
    for (int owner = 0; owner < group_.size(); ++owner) decode(owner, values(buffer_, owner));
  }

 private:
  static float* values(const at::Tensor& buffer, const comm::Range& range) {
    return buffer.mutable_data_ptr<float>() + range.begin;
  }
  float* values(const at::Tensor& buffer, int owner) const {
    return values(buffer, shares_.entries[static_cast<size_t>(owner)]);
  }
  uint8_t* bytes(int owner) const {
    return message_.mutable_data_ptr<uint8_t>() + shares_.bytes[static_cast<size_t>(owner)].begin;
  }

  /// Means that were left out of a share that is another's now go back to where they came from: everyone's values.
  void take_feedback() {
    if (feedback_ == nullptr) return;
    buffer_.add_(feedback_->sent);
    feedback_->sent.zero_();
    for (int owner = 0; owner < group_.size(); ++owner) {
      if (owner == group_.rank()) continue;
      const auto& theirs = shares_.entries[static_cast<size_t>(owner)];
      at::Tensor returned = comm::slice(feedback_->returned, theirs);
      comm::slice(buffer_, theirs).add_(returned, group_.size());
      returned.zero_();
    }
  }

  /// Writes a share's bytes; `left_out`, unless undefined, <- what they do not say.
  void encode(int owner, const at::Tensor& left_out) {
    const auto extent = shares_.extents[static_cast<size_t>(owner)];
    codec_.encode(values(buffer_, owner), extent, bytes(owner));
    if (!left_out.defined()) return;
    decode(owner, values(left_out, owner));
    at::Tensor rest = comm::slice(left_out, shares_.entries[static_cast<size_t>(owner)]);
    at::sub_out(rest, comm::slice(buffer_, shares_.entries[static_cast<size_t>(owner)]), rest);
  }
  void decode(int owner, float* values) const {
    codec_.decode(bytes(owner), shares_.extents[static_cast<size_t>(owner)], values);
  }

  at::Tensor receive() {
    const auto length = shares_.bytes[static_cast<size_t>(group_.rank())].size();
    at::Tensor received = at::empty({group_.size(), length}, at::kByte);
    group_.all_to_all(received, message_, shares_.bytes);
    return received;
  }

  /// My share <- mean over ranks, with what the last mean left out.
  void add_up(const at::Tensor& received) {
    const auto me = static_cast<size_t>(group_.rank());
    at::Tensor share = comm::slice(buffer_, shares_.entries[me]);
    at::Tensor sum = at::zeros_like(share), theirs = at::empty_like(share);
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank()) {
        sum.add_(share);
        continue;
      }
      codec_.decode(received[rank].const_data_ptr<uint8_t>(), shares_.extents[me], theirs.mutable_data_ptr<float>());
      sum.add_(theirs);
    }
    at::div_out(share, sum, at::scalar_tensor(group_.size(), sum.options()));
    if (feedback_ != nullptr) share.add_(comm::slice(feedback_->returned, shares_.entries[me]));
  }

  comm::Communicator& group_;
  const Codec& codec_;
  at::Tensor& buffer_;
  Feedback* feedback_;
  const Shares shares_;
  at::Tensor message_;
};

}  // namespace

void compressed_mean(comm::Communicator& group, const Codec& codec, at::Tensor& buffer, Extent extent,
                     Feedback* feedback) {
  TORCH_CHECK(buffer.scalar_type() == at::kFloat && buffer.dim() == 1 && buffer.is_contiguous(),
              "[strategies] compressed mean of ", buffer.scalar_type(), " ", buffer.sizes());
  TORCH_CHECK(buffer.numel() == extent.size(), "[strategies] compressed mean of ", buffer.numel(), " entries, not ",
              extent.size());
  if (group.size() == 1 || buffer.numel() == 0) return;
  MeanExchange(group, codec, buffer, extent, feedback).run();
}

int64_t compressed_mean_bytes(const Codec& codec, Extent extent, comm::Place place) {
  const Shares shares(codec, extent, place.size);
  const int64_t mine = shares.bytes[static_cast<size_t>(place.rank)].size();
  return shares.bytes.back().end - mine + (place.size - 1) * mine;
}

}  // namespace prunex::strategies
