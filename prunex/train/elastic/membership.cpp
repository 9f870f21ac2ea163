// What a rank's run does when nodes are lost, and when they join.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "prunex/say.h"
#include "prunex/train/elastic/handover.h"
#include "prunex/train/rank_trainer.h"

namespace prunex::train {

/// Goes on with the ranks that are left.
comm::Change RankTrainer::regroup() {
  comm::Change change;
  do {
    add_traffic(resumed_.traffic, ranks_);
    change = elastic_->regroup();
    go_on(change);
  } while (!agree_in_node());
  return change;
}

/// Ranks of a node that make steps together tell each other how many they have made. False if a node was lost
/// meanwhile.
bool RankTrainer::agree_in_node() {
  if (!steps_in_node()) return true;
  at::Tensor least = at::tensor({-steps_made_}, at::kLong);
  try {
    ranks_.node->all_reduce(least, comm::Reduce::kMax);
  } catch (const std::runtime_error&) {
    if (!has_lost()) throw;
    return false;
  }
  steps_of_node_ = -least.item<int64_t>();
  return true;
}

/// Steps first … last, each of which all ranks have that average gradients, or none: if a node is lost, they make again
/// what not all of them had.
void RankTrainer::make_together(int64_t first, int64_t last) {
  for (int64_t step = first; step <= last;) {
    std::erase_if(begins_, [step](const StepBegin& begin) { return begin.step >= step || begin.step < step - 1; });
    Replica& replica = network_.replica();
    const bool all = is_transaction(step);
    begins_.push_back({step, all ? Undo(*strategy_, replica, mean_) : Undo(replica), cursor_, interval_});
    try {
      local_step(step);
      if (all) {
        elastic_->enter(transactions_up_to(step));
        interval_.steps_of_all += ranks_.layout.world_size();
      }
      interval_.pace.made_step();
      ++step;
    } catch (const std::runtime_error&) {
      if (!has_lost()) throw;
      if (!all) steps_made_ = step - 1;
      const int64_t transactions = regroup().transactions;
      step = all ? go_back(transactions) : go_back_in_node();
    }
  }
}

/// To where so many transactions count. The step to go on with, whose images are now those of the ranks that are left.
int64_t RankTrainer::go_back(int64_t transactions) {
  const int64_t step = transactions + 1 - summary_.exchanges;
  bring_back(step);
  divide();
  return step;
}

/// To what all ranks of the node have. The step to go on with; until the next exchange a node keeps its share of the
/// images, since others may be in other steps.
int64_t RankTrainer::go_back_in_node() {
  const int64_t step = steps_of_node_ + 1;
  bring_back(step);
  return step;
}

void RankTrainer::bring_back(int64_t step) {
  const auto begin = std::find_if(begins_.begin(), begins_.end(), [step](const auto& one) { return one.step == step; });
  TORCH_CHECK(begin != begins_.end(), "[train] no way back to step ", step);
  begin->undo.bring_back(*strategy_, network_.replica(), mean_);
  cursor_ = begin->cursor;
  interval_ = begin->interval;
  loss_.reset();
  evaluated_.reset();
  steps_made_ = step - 1;
}

/// Lets the node in that waits, unless it has gone.
void RankTrainer::admit() {
  bool is_agreed = false;
  try {
    const std::string state =
        to_bytes({snapshot(), run_->directory(), arithmetic_, contributors()}, run_->config(), *ranks_.node);
    auto traffic = resumed_.traffic;
    add_traffic(traffic, ranks_);
    const int64_t epoch = elastic_->roster().epoch;
    const comm::Change change = elastic_->admit(state);
    if (change.roster.epoch == epoch) return;
    resumed_.traffic = std::move(traffic);
    go_on(change);
    is_agreed = agree_in_node();
  } catch (const std::runtime_error&) {
    if (!has_lost()) throw;
  }
  if (!is_agreed) regroup();
  if (is_transaction(last_step_ + 1)) divide();  // else with the next exchange: others may have gone on
}

/// The groups are others. A loss costs its local steps from the last exchange that counts to the next one.
void RankTrainer::go_on(const comm::Change& change) {
  strategy_->note_change(!change.lost.empty());
  division_is_due_ = true;
  moved_ = {};
  const bool counts = change.transactions > transactions_up_to(steps_made_);  // the exchange that is under way
  const int64_t exchange = summary_.exchanges + (counts ? 1 : 0);
  const int64_t begin = counts ? steps_made_ : last_step_;  // of the steps whose images stay divided as they are
  const int64_t end = std::min((begin / options_.local_steps + 1) * options_.local_steps, length_.steps);
  const int64_t steps_lost = is_transaction(begin + 1) ? 1 : end - begin;
  summary_.nodes_lost += static_cast<int64_t>(change.lost.size());
  summary_.nodes_joined += static_cast<int64_t>(change.joined.size());
  summary_.images_lost += change.ranks_lost * options_.batch_size * steps_lost;
  run_->go_on(change, exchange, summary_, length_.exchanges);
  run_->publish(elastic_->doors());
}

/// The images from here on are divided among the ranks that train. Who does not yet follows the first of them. If the
/// ranks change again before the next step, it is as if they had changed once: some may not have seen the first time.
void RankTrainer::divide() {
  divide_among(contributes() ? ranks_.layout.rank : 0, contributors());
  division_is_due_ = false;
}

void RankTrainer::divide_among(int rank, int ranks) {
  if (!division_) feed_->loader().divide(rank, ranks, cursor_);
}

/// Whose images come next; and the one after it.
data::Cursor RankTrainer::take_step() {
  const data::Loader& loader = feed_->loader();
  const bool ends = cursor_.step >= loader.steps_in(cursor_.epoch);  // less than a step was left to divide
  const data::Cursor taken = ends ? data::Cursor{cursor_.epoch + 1, 0} : cursor_;
  cursor_ = loader.after(taken);
  return taken;
}

/// The local steps that the others make before the first exchange of a node that has joined.
void RankTrainer::pass_by(int64_t step) {
  take_step();
  steps_made_ = step;
}

/// Comes into a run: ready for all that follows, it waits to be let in and takes over what all have.
void RankTrainer::join(const std::string& config, StopRequest* stop) {
  strategy_ = make_own_strategy(0);
  elastic_ = make_elastic(options_, ranks_, data_.train.size(), config, 0);
  size_t lost = elastic_->join().lost.size();
  bool is_agreed = agree_in_node();
  Handover handover;
  double megabytes = 0;
  std::string directory;
  for (bool fetched = false; !fetched;) {
    for (; !is_agreed; is_agreed = agree_in_node()) lost += elastic_->regroup().lost.size();
    try {
      std::string state = elastic_->fetch();
      megabytes = static_cast<double>(state.size()) / 1e6;
      handover = take_over(std::move(state), config, *ranks_.node);
      if (directory.empty() && ranks_.layout.local_rank() == 0) {
        directory = directory_of_newcomer(options_, handover.run_directory, elastic_->doors().token, config);
      }
      directory = comm::broadcast_text(*ranks_.node, directory);
      fetched = true;
    } catch (const std::runtime_error&) {
      if (!has_lost()) throw;
      is_agreed = false;
    }
  }
  if (ranks_.layout.local_rank() == 0 && !options_.quiet) {
    const std::string own = directory == handover.run_directory ? "" : fmt::format(", and writes to {}", directory);
    say(fmt::format("prunex: node {} joins {} after exchange {}, with {:.2f} MB of what the others have{}\n",
                    elastic_->node(), handover.run_directory, handover.checkpoint.exchange, megabytes, own));
  }
  arithmetic_ = handover.arithmetic;  // whatever this node's processors would have chosen
  run_.emplace(options_, config, ranks_, stop, directory);
  strategy_->note_change(false);
  divide_among(0, handover.ranks);
  restore(handover.checkpoint);
  if (is_transaction(last_step_ + 1)) divide();  // it takes part at once
  summary_.nodes_joined += 1;
  summary_.nodes_lost += static_cast<int64_t>(lost);
}

}  // namespace prunex::train
