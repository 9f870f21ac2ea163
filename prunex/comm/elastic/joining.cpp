// How a node that was not there before comes into a run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>
#include <thread>
#include <utility>

#include "prunex/comm/elastic/elastic.h"
#include "prunex/comm/meet/store.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kHearEvery{20};
constexpr milliseconds kKnockAgain{200};  // when everybody is busy with a change
constexpr int kTriesForPort = 10;
constexpr int kTriesToJoin = 3;  // each costs the others time
constexpr size_t kMostStateBytes = size_t{64} << 30;

}  // namespace

/// What everybody hears of a node that is let in.
struct Elastic::Admission {
  Decision decision;
  Roster before;
  int node = 0;                              // the new one
  std::vector<std::vector<Endpoint>> doors;  // of all nodes, it included

  std::string text() const {
    std::string text = fmt::format("{}\n{}\n{} {}", decision.text(), before.text(), node, doors.size());
    for (const auto& ranks : doors) {
      text += fmt::format("\n{}", ranks.size());
      for (const Endpoint& door : ranks) text.append(" ").append(door.text());
    }
    return text;
  }

  static Admission from_text(const std::string& text) {
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    Admission admission{.decision = Decision::from_text(line)};
    size_t nodes = 0, ranks = 0;
    bool fits =
        admission.before.read(lines) && static_cast<bool>(lines >> admission.node >> nodes) && nodes <= text.size();
    admission.doors.resize(fits ? nodes : 0);
    for (auto& doors : admission.doors) {
      fits = fits && static_cast<bool>(lines >> ranks) && ranks <= text.size();
      doors.resize(fits ? ranks : 0);
      for (Endpoint& door : doors) fits = fits && door.read(lines);
    }
    if (!fits || admission.node < 0 || static_cast<size_t>(admission.node) >= nodes) {
      throw std::runtime_error("[comm] an admission that is none");
    }
    return admission;
  }
};

Elastic::Elastic(Hierarchy& ranks, const ElasticOptions& options, RunDoors run)
    : ranks_(ranks),
      options_(options),
      local_rank_(ranks.layout.local_rank()),
      ranks_of_(ranks.layout.node_sizes),
      token_(run.token),
      port_(run.port),
      run_(std::move(run)) {
  TORCH_CHECK(ranks.layout.nodes() == 1, "[comm] ", ranks.layout.nodes(), " nodes that join as one");
  open_door(approach(run_, options_.silence));
}

RunDoors Elastic::doors() const {
  RunDoors run{.token = token_, .port = port_};
  for (const int node : formed_.nodes) run.doors.push_back(door_of(node));
  return run;
}

std::optional<Endpoint> Elastic::entrance() const {
  return entrance_ ? std::optional(entrance_->endpoint()) : std::nullopt;
}

/// Or what newcomers hear there is that of the newest roster.
void Elastic::open_entrance() {
  if (ranks_.privacy.secret.empty() || options_.config.empty() || local_rank_ != 0) return;
  const LinkKey key = entrance_key(ranks_.privacy);
  const std::string& host = door_->endpoint().host;
  const auto open = [&](uint16_t port) {
    try {
      entrance_ = std::make_unique<Door>(Endpoint{host, port}, key, pause_of(options_), ranks_.ports);
    } catch (const std::runtime_error& error) {  // another node of this machine has it, or the launcher
      if (port == 0) say(fmt::format("no entrance for nodes that join: {}", error.what()));
    }
  };
  if (port_ != 0 && entrance_ && entrance_->endpoint().port != port_) open(port_);
  for (int i = 0; port_ != 0 && !entrance_ && i < kTriesForPort; ++i) {  // the launcher's store may be about to close
    if (i > 0) std::this_thread::sleep_for(kHearEvery);
    open(port_);
  }
  if (!entrance_) open(0);
  if (entrance_) entrance_->offer(std::make_shared<const std::string>(Invitation{doors(), options_.config}.text()));
}

int Elastic::contributors() const {
  int ranks = 0;
  for (const int node : formed_.nodes) {
    if (contributes(node)) ranks += ranks_of_[static_cast<size_t>(node)];
  }
  return ranks;
}

/// Who has just joined has nothing to contribute, until a transaction counts.
void Elastic::weigh() {
  std::erase_if(joined_at_,
                [this](const auto& joined) { return joined.second < committed_ || !formed_.has(joined.first); });
  const auto all = formed_.nodes.size(), working = all - joined_at_.size();
  if (working == 0) joined_at_.clear();
  ranks_.share = working == 0 || options_.join_at_once ? 1
                 : contributes()                       ? static_cast<double>(all) / static_cast<double>(working)
                                                       : 0;
}

std::optional<NewNode> Elastic::next_newcomer() const {
  if (options_.most_nodes > 0 && static_cast<int>(formed_.nodes.size()) >= options_.most_nodes) return std::nullopt;
  for (const NewNode& node : door_->newcomers()) {
    if (static_cast<int>(node.size()) == ranks_of_[static_cast<size_t>(node_)]) return node;
    door_->answer(node, "");
  }
  return std::nullopt;
}

/// One node at a time: those who were there stay a majority, or the half with the lowest number.
Elastic::Admission Elastic::admission_of(const NewNode& node) {
  Admission admission{.decision = {.roster = {formed_.epoch + 1, formed_.nodes}, .committed = committed_},
                      .before = formed_,
                      .node = static_cast<int>(doors_.size()),
                      .doors = doors_};
  Decision& decision = admission.decision;
  decision.roster.nodes.push_back(admission.node);
  auto& doors = admission.doors.emplace_back();
  for (const Newcomer& rank : node) doors.push_back(rank.door);
  decision.store = open_store(decision.roster, static_cast<int>(node.size()));
  return admission;
}

void Elastic::introduce(const Admission& admission) {
  doors_ = admission.doors;
  ranks_of_.clear();
  for (const auto& doors : doors_) ranks_of_.push_back(static_cast<int>(doors.size()));
}

Change Elastic::admit(std::string state) {
  const auto newcomer = leads() ? next_newcomer() : std::nullopt;
  const std::string text = broadcast_text(*ranks_.world, newcomer ? admission_of(*newcomer).text() : "");
  if (text.empty()) return {.roster = formed_, .transactions = committed_};
  const Admission admission = Admission::from_text(text);
  introduce(admission);
  if (local_rank_ == 0) door_->offer(std::make_shared<const std::string>(std::move(state)));
  ranks_.world->barrier();  // who agrees to the roster knows that all know its doors
  if (newcomer) door_->answer(*newcomer, text);
  return settle(admission.decision);
}

Change Elastic::join() {
  for (int tries = 1;; ++tries) {
    const Admission admission = knock();
    introduce(admission);
    node_ = admission.node;
    formed_ = admission.before;
    agreed_.clear();
    seen_ = formed_.epoch;
    committed_ = admission.decision.committed;
    run_ = doors();
    try {
      return settle(admission.decision);
    } catch (const LeftBehind&) {  // whoever let it in was lost, or it cannot reach all of them
      if (ranks_.layout.world_size() > 1) throw;
      if (tries == kTriesToJoin) {
        throw LeftBehind(fmt::format(
            "[comm] was let in {} times and left behind each time: can it connect to all ranks of the run?", tries));
      }
    }
  }
}

/// Goes from door to door until it is let in.
Elastic::Admission Elastic::knock() {
  Newcomer self{.key = broadcast_text(*ranks_.world, random_secret()),
                .local_rank = local_rank_,
                .ranks = ranks_.layout.world_size(),
                .door = door_->endpoint()};
  if (local_rank_ == 0) say("waits to be let into the run");
  for (;; std::this_thread::sleep_for(kKnockAgain)) {
    bool somebody = false;
    std::vector<Endpoint> doors = run_.doors;
    for (size_t i = 0; i < doors.size(); ++i) {
      Call call(doors[i], door_key(), self, options_.silence);
      std::optional<Call::Answer> answer;
      while (!answer) answer = call.hear(kHearEvery);
      somebody = somebody || call.lives() || answer->elsewhere;
      if (answer->is_out) throw LeftBehind("[comm] the run takes nodes of other numbers of ranks only");
      if (!answer->message.empty()) return Admission::from_text(answer->message);
      if (call.lives()) {  // it may have been let in, and nobody is to wait for it
        open_door(self.door.host);
        self.door = door_->endpoint();
      }
      const bool follow = answer->elsewhere && doors.size() < 2 * run_.doors.size() + 1;
      if (follow) doors.insert(doors.begin() + static_cast<std::ptrdiff_t>(i) + 1, *answer->elsewhere);
    }
    if (!somebody) throw NobodyThere(kNobodyAtTheDoors);
  }
}

/// The others wait for this node in the next transaction, but not beyond the timeout.
std::string Elastic::fetch() {
  const auto end = Clock::now() + options_.timeout / 2;
  std::string state;
  std::vector<int> donors;
  for (const int node : formed_.nodes) {
    if (joined_at_.count(node) == 0) donors.push_back(node);
  }
  for (size_t i = 0; local_rank_ == 0 && state.empty() && i < donors.size(); ++i) {
    const int donor = donors[(static_cast<size_t>(node_) + i) % donors.size()];
    try {
      state = fetch_from(door_of(donor), door_key(), kMostStateBytes, options_.silence,
                         std::chrono::duration_cast<milliseconds>(end - Clock::now()));
    } catch (const std::runtime_error& error) {
      say(error.what());
    }
  }
  state = broadcast_text(*ranks_.node, state);
  if (state.empty()) throw std::runtime_error("[comm] no node gives what a newcomer needs");
  return state;
}

}  // namespace prunex::comm
