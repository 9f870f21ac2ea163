// Option rows of ranks: how many, how they are connected, what they outlive.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "prunex/train/options.h"
#include "prunex/train/strategy_choice.h"

namespace prunex::train {
namespace {

using text::between;
using text::number;
using text::OptionList;

const text::Range kSeconds{.least = 0.001, .most = 1e6, .wanted = "seconds from 0.001 to 1e6"};
const text::Range kSecondsOrOff{
    .least = 0.001, .most = 1e6, .or_zero = true, .wanted = "seconds from 0.001 to 1e6, or 0 for off"};

constexpr int64_t kLeastPort = 1024, kMostPort = 65535;  // that need no rights

/// "2" or "2,1".
text::OptionValue ranks_per_node(std::vector<int>& field) {
  const auto read = [&field](const std::string& list) {
    std::vector<int> numbers;
    for (const auto& word : text::split(list)) {
      const auto one = text::number_in<int64_t>(word);
      if (!one) text::refuse_value(list, "a number, or several such as 2,1");
      numbers.push_back(static_cast<int>(std::clamp<int64_t>(*one, -1, std::numeric_limits<int>::max())));
    }
    if (numbers.empty()) text::refuse_value(list, "a number, or several such as 2,1");
    field = numbers;
  };
  const auto check = [&field] {
    for (const int ranks : field) text::check_range(between(1, comm::kMostRanks), ranks);
  };
  return {.type = "TEXT",
          .read = read,
          .write = [&field] { return fmt::format("{}", fmt::join(field, ",")); },
          .check = check};
}

/// "20000-20031".
text::OptionValue port_range(comm::PortRange& field) {
  const auto read = [&field](const std::string& word) {
    const auto port_in = [](const std::string& text) { return text::number_in<int64_t>(text).value_or(0); };
    const auto hyphen = std::min(word.find('-'), word.size());
    const int64_t first = port_in(word.substr(0, hyphen)),
                  last = port_in(word.substr(std::min(hyphen + 1, word.size())));
    if (first < kLeastPort || last < first || last > kMostPort) {
      text::refuse_value(word, fmt::format("FIRST-LAST, ports from {} to {}", kLeastPort, kMostPort));
    }
    field = {static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
  };
  const auto write = [&field] { return field.any() ? "" : fmt::format("{}-{}", field.first, field.last); };
  return {.type = "FIRST-LAST", .read = read, .write = write};
}

/// Why local steps have no deadline.
std::string no_deadline(const TrainOptions& o) {
  const auto& facts = facts_of(o.strategy);
  if (facts.gradients) return o.strategy + " makes no steps but those of all";
  if (facts.controls) return o.strategy + "'s control variates are of a number of steps that all make";
  if (facts.one_node) return no_nodes(o);
  if (o.local_after > 0) return "before `local_after` all steps are those of all";
  if (o.in_node == InNode::kGradients) return "with `in_node` gradients a step is one of all ranks of a node";
  return o.overlap > 0 ? "with `overlap` nobody waits at once" : "";
}

}  // namespace

void describe_ranks(OptionList& list, TrainOptions& o) {
  using strategies::ExchangeForm;
  list.topic("Ranks");
  list.add("nodes", number(o.nodes, between(1, comm::kMostRanks)),
           "nodes; started on this machine unless a launcher did")
      .basic();
  list.add("ranks-per-node", ranks_per_node(o.ranks_per_node), "ranks on each node: one number, or one per node as 2,1")
      .basic();
  list.add(
      "sites", number(o.sites, text::at_least(1)), "the nodes form so many equal, consecutive shares behind slow links",
      {{"strategies that know nodes, and `exchange` sharded and leader", [&o] {
          if (const std::string why = no_nodes(o); !why.empty()) return why;
          return o.exchange.form == ExchangeForm::kFlat ? "`exchange` flat is one ring of all ranks" : std::string();
        }}});
  list.add("exchange",
           text::choice(
               o.exchange.form,
               {{"sharded", ExchangeForm::kSharded}, {"leader", ExchangeForm::kLeader}, {"flat", ExchangeForm::kFlat}}),
           "every local rank sends its shard, or one leader per node everything; flat: one ring of all ranks (ddp)",
           {{"strategies that sum whole tensors",
             [&o] { return facts_of(o.strategy).sums ? "" : o.strategy + " has one form of exchange"; }},
            {"", [&o] { return o.exchange.form == ExchangeForm::kLeader ? no_ranks_in_node(o) : ""; }}});
  list.add("threads", number(o.threads, between(1, kMostThreads)), "threads per rank").basic().resumable();
  describe_links(list, o.ranks);
  for (const char* option : {"interface", "ports", "secret-file", "encrypt"}) {
    list.find(option)->conditions.push_back(
        {"several ranks",
         [&o] { return may_have_nodes(o) || o.ranks_per_node.front() > 1 ? "" : "a single rank has no connections"; }});
  }
  list.find("no-shared-memory")->conditions.push_back({"several ranks in a node", [&o] {
                                                         return no_ranks_in_node(o);
                                                       }});
  list.add("elastic", text::flag(o.elastic), "when a node is lost, the others go on without it")
      .resumable()
      .of_all_ranks();
  list.add("min-nodes", number(o.min_nodes, between(0, comm::kMostRanks)),
           "end when fewer are left; 0: when these may be the smaller part; 1: never, of two either goes on",
           {{"`elastic`", [&o] { return o.elastic ? "" : "without `elastic` the run ends with any node"; }}})
      .resumable()
      .of_all_ranks();
  list.add("max-nodes", number(o.max_nodes, between(0, comm::kMostRanks)),
           "nodes that join wait while the run has so many; 0: any number",
           {{"`elastic`", [&o] { return o.elastic ? "" : "without `elastic` no node joins"; }}})
      .resumable()
      .of_all_ranks();
  list.add("straggler-factor", number(o.straggler_factor, {.least = 1, .or_zero = true}),
           "a node that needs so many times as long as the median exchanges the steps that it has made; 0: all wait",
           {{"strategies that exchange weights again and again", [&o] { return no_deadline(o); }},
            {"several nodes", [&o] { return may_have_nodes(o) ? "" : "one node waits for none"; }}})
      .resumable()
      .of_all_ranks();
  list.add("join", text::text_value(o.join),
           "elastic run that this node comes into, with its configuration: its directory, or HOST:PORT of one with a "
           "secret")
      .not_in_files();
}

void describe_links(OptionList& list, RankOptions& ranks) {
  list.add("interface", text::text_list(ranks.interfaces),
           "network interface, such as eth0; rails take turns on several: a,b")
      .circumstance();
  list.add("ports", port_range(ranks.ports),
           "where ranks listen for each other, beside MASTER_PORT, for a firewall to let through; without, where the "
           "kernel chooses")
      .circumstance();
  list.add("no-shared-memory", text::no_flag(ranks.shared_memory),
           "loopback inside a node, as where the ranks cannot see each other's processes")
      .resumable();
  list.add("secret-file", text::text_value(ranks.secret_file),
           "file with a secret that every rank has to prove to the others that it knows; else the variable "
           "PRUNEX_SECRET; only its owner may read it")
      .circumstance();
  list.add("encrypt", text::flag(ranks.encrypt),
           "TLS 1.3 on every connection between ranks, with keys made of the secret",
           {{"`device` cpu", [&ranks] { return ranks.device == "cpu" ? "" : "NCCL does not encrypt what it sends"; }}})
      .circumstance();
  list.add("join-timeout", number(ranks.join_timeout, kSeconds),
           "seconds that the ranks have to come together at the start")
      .circumstance();
  list.add("comm-timeout", number(ranks.comm_timeout, kSeconds), "seconds to wait for another rank's message")
      .circumstance();
  list.add("heartbeat-timeout", number(ranks.heartbeat_timeout, kSecondsOrOff),
           "seconds of silence after which a rank counts as lost; 0 = off")
      .circumstance();
  list.add("device", text::one_of(ranks.device, {"cpu", "cuda"}),
           "where to compute; cuda: the i-th rank of a machine on its i-th GPU, in turn")
      .basic();
}

}  // namespace prunex::train
