// Ports: which addresses the sockets of a process listen on, and free ones.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace prunex::tests {

/// As /proc/net/tcp and tcp6 write them: "0100007F" is 127.0.0.1, eight or 32 zeros are any address. Empty for a
/// process that has ended.
inline std::set<std::string> listening_addresses(int process) {
  const std::string folder = "/proc/" + std::to_string(process);
  std::set<std::string> inodes;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(folder + "/fd", error)) {
    const auto target = std::filesystem::read_symlink(file, error).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  std::set<std::string> addresses;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream lines(folder + table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retries, user, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retries >> user >> timeout >> inode;
      if (state == "0A" && inodes.count(inode) > 0) addresses.insert(local.substr(0, local.find(':')));
    }
  }
  return addresses;
}

inline const std::string kLoopback = "0100007F";

inline bool is_free(int port) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool free = bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(listener);
  return free;
}

/// A port from `least` on, not the one of another run of this test.
inline int free_port(int least) {
  int port = least + getpid() % 10000;
  while (!is_free(port)) ++port;
  return port;
}

}  // namespace prunex::tests
