#include "prunex/comm/elastic/call.h"

#include <fmt/format.h>
#include <poll.h>

#include <charconv>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>

#include "prunex/comm/layout.h"

namespace prunex::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kSilent = "it is silent";
constexpr milliseconds kListen{20};

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
    if (message->text == words::kIn) return Answer{};
    if (message->text == words::kOut) return Answer{Presence::kThere, "", true};
    if (auto said = after(words::kSaid, message->text)) return Answer{Presence::kThere, std::move(*said)};
    std::istringstream place(after(words::kElsewhere, message->text).value_or(""));
    Endpoint elsewhere;
    if (elsewhere.read(place)) return Answer{.elsewhere = elsewhere};
  }
  if (ended) return Answer{Presence::kBroken};
  if (Clock::now() - heard_ > patience_) return Answer{Presence::kSilent};
  return std::nullopt;
}

namespace {

/// What comes in pieces behind its size. Nothing is kept of more than was said, nor said to be more than `most`.
class Parcel {
 public:
  explicit Parcel(size_t most) : most_(most) {}

  /// False for what does not belong there.
  bool take(const PeerMessage& message) {
    if (message.kind == MessageKind::kPing) return true;
    if (message.kind == MessageKind::kData) {
      text_ += message.text;
      return size_ && text_.size() <= *size_;
    }
    const auto bytes = after(words::kSize, message.text);
    if (!bytes || size_) return false;
    const char* end = bytes->data() + bytes->size();
    const auto [rest, error] = std::from_chars(bytes->data(), end, size_.emplace());
    return error == std::errc() && rest == end && *size_ <= most_;
  }
  bool whole() const { return size_ && text_.size() == *size_; }
  std::string open() { return std::move(text_); }

 private:
  const size_t most_;
  std::optional<size_t> size_;
  std::string text_;
};

PeerLink proven(const Endpoint& door, const LinkKey& key, milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  Link link(connect_to(door, deadline), Side::kCaller, key);
  try {
    link.prove_until(deadline);
  } catch (const LinkRefused& error) {
    throw std::runtime_error(Clock::now() < deadline ? error.what() : kSilent);
  }
  return PeerLink(std::move(link));
}

std::string fetch(PeerLink& link, size_t most_bytes, milliseconds patience, Clock::time_point end) {
  link.send({MessageKind::kNote, words::kFetch});
  Parcel parcel(most_bytes);
  for (auto heard = Clock::now(); Clock::now() - heard < patience;) {
    if (Clock::now() >= end) throw std::runtime_error("its link is too slow for what it offers");
    pollfd event = {link.fd(), link.events(), 0};
    poll(&event, 1, link.has_more() ? 0 : milliseconds_until(std::min(heard + patience, end)));
    const uint64_t before = link.received_bytes();
    const std::string broken = link.receive();
    if (link.received_bytes() > before) heard = Clock::now();
    while (const auto message = link.next()) {
      if (!parcel.take(*message)) throw std::runtime_error("it says what does not belong there");
      if (parcel.whole()) return parcel.open();
    }
    if (!broken.empty()) throw std::runtime_error(broken);
  }
  throw std::runtime_error(kSilent);
}

}  // namespace

std::string fetch_from(const Endpoint& door, const LinkKey& key, size_t most_bytes, milliseconds patience,
                       milliseconds limit) {
  const auto end = Clock::now() + limit;
  try {
    PeerLink link = proven(door, key, patience);
    return fetch(link, most_bytes, patience, end);
  } catch (const ConnectionRefused&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("[comm] the door at {}: {}", name_of(door), error.what()));
  }
}

namespace {

/// `ask` hears what it can in the time that is left.
template <class Ask>
Presence ask_again(milliseconds patience, Ask ask) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    const Presence presence = ask(milliseconds(milliseconds_until(deadline)));
    if (presence != Presence::kBroken) return presence;
    if (Clock::now() + kListen > deadline) return Presence::kSilent;
    std::this_thread::sleep_for(kListen);
  }
}

}  // namespace

Presence presence_at(const Endpoint& door, const LinkKey& key, milliseconds patience) {
  return ask_again(patience, [&](milliseconds left) {
    Call call(door, key, left);
    std::optional<Call::Answer> answer;
    while (!answer && !call.lives()) answer = call.hear(kListen);
    return call.lives() ? Presence::kThere : answer->presence;
  });
}

Presence presence_at(const Endpoint& door, const LinkKey& key, const Report& self, milliseconds patience) {
  return ask_again(patience, [&](milliseconds left) {
    Call call(door, key, words::kIsIn + self.text(), left);
    std::optional<Call::Answer> answer;
    while (!answer) answer = call.hear(kListen);
    return answer->is_out ? Presence::kWentOn : answer->presence;
  });
}

std::optional<Presence> RollCall::ask(const Endpoint& door, milliseconds patience) {
  constexpr milliseconds kAskAgain{100};  // it may be a long wait
  Asked& asked = asked_[door.text()];
  if (!asked.answer.valid()) {
    if (Clock::now() < asked.answered_at + kAskAgain) return std::nullopt;
    try {
      asked.answer = std::async(std::launch::async, [=, this] { return presence_at(door, key_, self_, patience); });
    } catch (const std::system_error&) {  // no thread to ask with: later
      return std::nullopt;
    }
  }
  if (asked.answer.wait_for(milliseconds(0)) != std::future_status::ready) return std::nullopt;
  asked.answered_at = Clock::now();
  return asked.last = asked.answer.get();
}

bool RollCall::is_there(const Endpoint& door) const {
  const auto asked = asked_.find(door.text());
  return asked != asked_.end() && asked->second.last == Presence::kThere;
}

}  // namespace prunex::comm
