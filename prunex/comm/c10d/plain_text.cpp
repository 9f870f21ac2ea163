#include "prunex/comm/c10d/plain_text.h"

namespace prunex::comm {

std::string plain_text(const std::string& gloo_error) {
  const auto place = gloo_error.starts_with('[') ? gloo_error.find("] ") : std::string::npos;
  const auto text = place == std::string::npos ? gloo_error : gloo_error.substr(place + 2);
  for (const char* end : {"closed by peer", "Socket closed", "Broken pipe", "reset by peer", "pair closure"}) {
    if (text.find(end) != std::string::npos) return "its connection closed";
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace prunex::comm
