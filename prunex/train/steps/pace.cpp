#include "prunex/train/steps/pace.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace prunex::train {

void Pace::begin(int64_t steps, double now) {
  steps_ = steps;
  made_ = 0;
  begin_ = last_ = now;
}

void Pace::made_step(double now) {
  made_ += 1;
  last_ = now;
}

bool Pace::is_late(double now) const {
  if (!has_deadline() || usual_ == 0 || made_ == 0) return false;
  const double with_another = (now - begin_) * static_cast<double>(made_ + 1) / static_cast<double>(made_);
  return with_another > factor_ * usual_ * static_cast<double>(steps_);
}

int64_t Pace::agree(comm::Hierarchy& ranks, int contributors) {
  if (!has_deadline()) return steps_ * contributors;
  const auto& layout = ranks.layout;
  const at::Tensor mine = at::tensor({static_cast<double>(made_), last_ - begin_}, at::kDouble);
  at::Tensor all = at::empty({layout.world_size(), 2}, at::kDouble);
  ranks.world->all_gather(all, mine);

  double everybody = 0, here = 0;
  std::vector<double> seconds;  // of a step, by rank
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const double made = all[rank][0].item<double>();
    everybody += made;
    const int place = rank - layout.first_rank(layout.node());
    if (place >= 0 && place < layout.ranks_here()) here += made;
    if (made > 0) seconds.push_back(all[rank][1].item<double>() / made);
  }
  if (!seconds.empty()) {
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>((seconds.size() - 1) / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    usual_ = *middle;
  }
  ranks.share = everybody == 0 ? 1 : here / layout.ranks_here() * layout.world_size() / everybody;
  return static_cast<int64_t>(everybody);
}

}  // namespace prunex::train
