#include "prunex/comm/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

namespace prunex::comm {
namespace {

int number(const char* name, std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) return value;
  throw std::invalid_argument(fmt::format("{}={}: wanted a whole number from {} to {}", name, text, least, most));
}

constexpr int kMostRanks = 1 << 20;

int number_or(const Lookup& lookup, const char* name, int least, int fallback) {
  const char* text = lookup(name);
  return text == nullptr ? fallback : number(name, text, least, kMostRanks);
}

std::string text_or(const Lookup& lookup, const char* name, const std::string& fallback) {
  const char* text = lookup(name);
  return text == nullptr ? fallback : text;
}

void read_master(const Lookup& lookup, Environment& environment) {
  const char* address = lookup("MASTER_ADDR");
  const char* port = lookup("MASTER_PORT");
  if (address == nullptr || port == nullptr) {
    throw std::invalid_argument(fmt::format("RANK and WORLD_SIZE are set but {} is not: wanted where the ranks meet",
                                            address == nullptr ? "MASTER_ADDR" : "MASTER_PORT"));
  }
  environment.master_address = address;
  environment.master_port = static_cast<uint16_t>(number("MASTER_PORT", port, 1, 65535));
}

}  // namespace

std::optional<Environment> read_environment() {
  return read_environment([](const char* name) -> const char* { return std::getenv(name); });
}

std::optional<Environment> read_environment(const Lookup& lookup) {
  const char* rank = lookup("RANK");
  const char* world_size = lookup("WORLD_SIZE");
  if (rank == nullptr || world_size == nullptr) return std::nullopt;
  Environment environment;
  environment.world_size = number("WORLD_SIZE", world_size, 1, kMostRanks);
  environment.rank = number("RANK", rank, 0, environment.world_size - 1);
  Seat& seat = environment.seat;
  seat.local_size = number_or(lookup, "LOCAL_WORLD_SIZE", 1, 1);
  seat.local_rank = number_or(lookup, "LOCAL_RANK", 0, environment.rank % seat.local_size);
  if (lookup("GROUP_RANK") != nullptr) seat.node = number_or(lookup, "GROUP_RANK", 0, 0);
  environment.store_hosted = text_or(lookup, "TORCHELASTIC_USE_AGENT_STORE", "False") == "True";
  environment.restart_count = number_or(lookup, "TORCHELASTIC_RESTART_COUNT", 0, 0);
  environment.interface = text_or(lookup, "GLOO_SOCKET_IFNAME", "");
  if (environment.world_size > 1) read_master(lookup, environment);
  return environment;
}

}  // namespace prunex::comm
