#include "prunex/comm/elastic/call.h"

#include <fmt/format.h>
#include <poll.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "prunex/comm/layout.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

}  // namespace

std::optional<std::string> after(const char* word, const std::string& text) {
  if (!text.starts_with(word)) return std::nullopt;
  return text.substr(std::string_view(word).size());
}

std::string Newcomer::text() const {
  return fmt::format("{} {} {} {}", key, local_rank, ranks, door.text());
}

Newcomer Newcomer::from_text(const std::string& text) {
  Newcomer newcomer;
  std::istringstream fields(text);
  const bool fits = static_cast<bool>(fields >> newcomer.key >> newcomer.local_rank >> newcomer.ranks) &&
                    newcomer.door.read(fields) && newcomer.ranks > 0 && newcomer.ranks <= kMostRanks &&
                    newcomer.local_rank >= 0 && newcomer.local_rank < newcomer.ranks;
  if (!fits) throw std::runtime_error("[comm] a newcomer that is none");
  return newcomer;
}

Call::Call(const Endpoint& door, const LinkKey& key, milliseconds patience)
    : Call(door, key, std::string(words::kAsk), patience) {}

Call::Call(const Endpoint& door, const LinkKey& key, const Report& report, milliseconds patience)
    : Call(door, key, words::kSeek + report.text(), patience) {}

Call::Call(const Endpoint& door, const LinkKey& key, const Newcomer& newcomer, milliseconds patience)
    : Call(door, key, words::kJoin + newcomer.text(), patience) {}

Call::Call(const Endpoint& door, const LinkKey& key, const std::string& words, milliseconds patience)
    : patience_(patience) {
  try {
    Socket socket = connect_to(door, Clock::now() + patience);
    prefer_latency(socket.fd(), patience);
    link_.emplace(Link(std::move(socket), Side::kCaller, key));
  } catch (const ConnectionRefused&) {
    presence_ = Presence::kEnded;
    return;
  } catch (const std::runtime_error&) {
    presence_ = Presence::kSilent;
    return;
  }
  link_->send({MessageKind::kNote, words});
  heard_ = Clock::now();
}

std::optional<Call::Answer> Call::hear(milliseconds wait) {
  if (!link_) return Answer{presence_};
  pollfd descriptor = {link_->fd(), link_->events(), 0};
  poll(&descriptor, 1, static_cast<int>(wait.count()));
  const bool ended = !link_->receive().empty();
  while (const auto message = link_->next()) {
    lives_ = true;
    heard_ = Clock::now();
    if (message->kind != MessageKind::kNote) continue;
    if (message->text == words::kOut) return Answer{Presence::kThere, "", true};
    if (auto said = after(words::kSaid, message->text)) return Answer{Presence::kThere, std::move(*said)};
    std::istringstream place(after(words::kElsewhere, message->text).value_or(""));
    Endpoint elsewhere;
    if (elsewhere.read(place)) return Answer{.elsewhere = elsewhere};
  }
  if (ended) return Answer{Presence::kEnded};
  if (Clock::now() - heard_ > patience_) return Answer{Presence::kSilent};
  return std::nullopt;
}

std::string fetch_from(const Endpoint& door, const LinkKey& key, milliseconds patience) {
  PeerLink link(Link(connect_to(door, Clock::now() + patience), Side::kCaller, key));
  link.send({MessageKind::kNote, words::kFetch});
  std::string state;
  std::optional<uint64_t> size;
  for (auto heard = Clock::now(); Clock::now() - heard < patience;) {
    pollfd event = {link.fd(), link.events(), 0};
    poll(&event, 1, link.has_more() ? 0 : milliseconds_until(heard + patience));
    const std::string end = link.receive();
    while (const auto message = link.next()) {
      heard = Clock::now();
      if (message->kind == MessageKind::kData) state += message->text;
      if (message->kind != MessageKind::kNote) continue;
      if (const auto bytes = after(words::kSize, message->text)) size = std::strtoull(bytes->c_str(), nullptr, 10);
    }
    if (size && state.size() >= *size) return state;
    if (!end.empty()) throw std::runtime_error(fmt::format("[comm] the door at {}:{}: {}", door.host, door.port, end));
  }
  throw std::runtime_error(fmt::format("[comm] the door at {}:{} was silent", door.host, door.port));
}

Presence presence_at(const Endpoint& door, const LinkKey& key, milliseconds patience) {
  constexpr int kTries = 3;  // a connection that ends may be that of a process which is about to
  for (int i = 0; i < kTries; ++i) {
    Call call(door, key, patience);
    while (!call.lives()) {
      const auto answer = call.hear(milliseconds(20));
      if (!answer) continue;
      if (answer->presence == Presence::kSilent) return Presence::kSilent;
      break;
    }
    if (call.lives()) return Presence::kThere;
  }
  return Presence::kEnded;
}

}  // namespace prunex::comm
