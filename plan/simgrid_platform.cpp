#include "plan/simgrid_platform.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "report/verdict.h"

namespace prunex::plan {
namespace {

namespace s4u = simgrid::s4u;

using report::kBytesPerMbit;

constexpr double kWide = 1e15;  // bytes per second that nobody fills

s4u::LinkInRoute upwards(s4u::SplitDuplexLink* link) {
  return {link, s4u::LinkInRoute::Direction::UP};
}

s4u::Host* add_host(s4u::NetZone* zone, const std::string& name, double rate, double latency) {
  auto* host = zone->create_host(name, 1e9);
  auto* link = zone->create_split_duplex_link("link-" + name, rate);
  link->set_latency(latency);
  zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {upwards(link)}, true);
  return host;
}

/// Seals the zone, which then has a link of its own to the others.
void add_gate(s4u::NetZone* root, s4u::NetZone* zone, double rate, double latency) {
  auto* gate = zone->create_router("gate-" + zone->get_name());
  zone->seal();
  auto* link = root->create_split_duplex_link("between-" + zone->get_name(), rate);
  link->set_latency(latency);
  root->add_route(zone->get_netpoint(), nullptr, gate, nullptr, {upwards(link)}, true);
}

/// The engine, with a model in which flows get fair shares of what links have, and nothing else happens.
void make_engine() {
  static int argc = 2;
  static std::string name = "prunex", quiet = "--log=root.thresh:critical";
  static char* argv[] = {name.data(), quiet.data(), nullptr};
  static s4u::Engine engine(&argc, argv);
  for (const char* setting :
       {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0", "contexts/stack-size:64"}) {
    s4u::Engine::set_config(setting);
  }
}

}  // namespace

Platform make_platform(const Cluster& cluster, Latencies latencies) {
  make_engine();
  const double half = latencies == Latencies::kNone ? 0 : cluster.latency / 1e3 / 2;  // up and down
  Platform platform;
  auto* root = s4u::create_star_zone("root");
  for (int site = 0; site < cluster.sites; ++site) {
    auto* zone = s4u::create_star_zone(fmt::format("site{}", site));
    zone->set_parent(root);
    const int n = cluster.nodes / cluster.sites;
    for (int node = site * n; node < (site + 1) * n; ++node) {
      const double rate = cluster.goodput * cluster.link_of(node) * kBytesPerMbit;
      platform.nodes.push_back(add_host(zone, fmt::format("node{}", node), rate, half));
    }
    platform.others.push_back(add_host(zone, fmt::format("others{}", site), kWide, 0));
    const double rate = cluster.sites > 1 ? cluster.goodput * cluster.site_link.value() * kBytesPerMbit : kWide;
    const double wait = latencies == Latencies::kNone || cluster.sites == 1 ? 0 : cluster.site_latency / 1e3 / 2 - half;
    add_gate(root, zone, rate, std::max(0.0, wait));
  }
  auto* beyond = s4u::create_star_zone("beyond");
  beyond->set_parent(root);
  platform.outside = add_host(beyond, "outside", kWide, 0);
  add_gate(root, beyond, kWide, 0);
  root->seal();
  return platform;
}

double in_child(const std::function<double()>& simulate) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("plan: no pipe to a simulation");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("plan: cannot start a process for a simulation");
  if (child == 0) {
    const double seconds = simulate();
    _exit(write(ends[1], &seconds, sizeof(seconds)) == sizeof(seconds) ? 0 : 1);
  }
  close(ends[1]);
  double seconds = 0;
  const bool is_there = read(ends[0], &seconds, sizeof(seconds)) == sizeof(seconds);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!is_there || status != 0) throw std::runtime_error(fmt::format("plan: SimGrid ended with status {}", status));
  return seconds;
}

double run_actor(const Platform& platform, const std::function<void()>& work) {
  double seconds = 0;
  s4u::Actor::create("work", platform.nodes.front(), [&] {
    work();
    seconds = s4u::Engine::get_clock();
  });
  s4u::Engine::get_instance()->run();
  return seconds;
}

}  // namespace prunex::plan
