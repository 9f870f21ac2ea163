#include "prunex/comm/gloo/device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gloo/transport/tcp/device.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>

namespace prunex::comm {
namespace {

std::set<std::string> usable_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::set<std::string> names;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool internet =
        entry->ifa_addr != nullptr && (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6);
    if (internet && (entry->ifa_flags & IFF_UP) != 0) names.insert(entry->ifa_name);
  }
  freeifaddrs(list);
  return names;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

std::shared_ptr<gloo::transport::Device> device_of_interface(const std::string& name) {
  check_interfaces({name});
  gloo::transport::tcp::attr attr;
  attr.iface = name;
  return gloo::transport::tcp::CreateDevice(attr);
}

bool is_loopback(const gloo::transport::Device& device) {
  return device.str().find("iface=lo,") != std::string::npos;
}

// Debian resolves the own name to 127.0.1.1, which no other machine can reach.
std::shared_ptr<gloo::transport::Device> device_of_host_name() {
  const auto name = host_name();
  std::string problem = "resolves to loopback";
  try {
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(name.c_str()));
    if (!is_loopback(*device)) return device;
  } catch (const std::exception&) {
    problem = "does not resolve to an address of this machine";
  }
  throw std::invalid_argument(
      fmt::format("--interface: host name {} {}; name the interface that reaches the other "
                  "machines, one of {}",
                  name, problem, fmt::join(usable_interfaces(), ", ")));
}

}  // namespace

std::string network_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code ignored;
  return host_name() + " " + boot + " " + std::filesystem::read_symlink("/proc/thread-self/ns/net", ignored).string();
}

void check_interfaces(const std::vector<std::string>& names) {
  const auto usable = usable_interfaces();
  for (const auto& name : names) {
    if (usable.count(name) > 0) continue;
    throw std::invalid_argument(
        fmt::format("--interface {}: no such interface with an address; there are {}", name, fmt::join(usable, ", ")));
  }
}

std::shared_ptr<gloo::transport::Device> make_device(const std::string& interface, bool one_machine) {
  if (!interface.empty()) return device_of_interface(interface);
  if (!one_machine) return device_of_host_name();
  return gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
}

// Gloo tells it in words only: "tcp, pci=, iface=eth0, speed=-1, addr=[10.0.0.1]".
std::string address_of(const gloo::transport::Device& device) {
  const std::string text = device.str();
  const auto begin = text.find("addr=[") + 6;
  return text.substr(begin, text.find(']', begin) - begin);
}

}  // namespace prunex::comm
