// What Slurm writes into its variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace prunex::comm {

/// The first of a list of hosts: node01 of "node[01-03,7],gpu5". Nothing for text that is no such list.
std::optional<std::string> first_host(const std::string& hosts);

/// Tasks of every node: 2, 2, 2, 1 of "2(x3),1". Nothing for text that is no such list.
std::optional<std::vector<int>> tasks_per_node(const std::string& text);

/// Where the ranks of a job step meet, the same on all of them: 15000 + (job + 1009 step) mod 15000. That is below the
/// ports that Linux hands out by itself; neighbouring jobs and the steps of one job get different ones.
uint16_t port_of_step(int64_t job, int64_t step);

}  // namespace prunex::comm
