// What other commands measured, in place of what one would describe.
#pragma once

#include <string>

namespace prunex::plan {

/// Link and latency of a real network.
struct MeasuredNetwork {
  double link = 0;     ///< Mbit/s, each way, of a node, headers taken off
  double latency = 0;  ///< milliseconds of a message
  double gap = 0;  ///< root mean square of the relative differences between the measured seconds and those of the fit
};

/// Fits node bytes / link + steps of the ring x latency to the seconds in FILE, as `prunex bench all_reduce --json`
/// writes it, of the form sharded, or else leader, or flat: least squares of relative differences. The steps follow
/// from a node's bytes, 2(n-1)/n S of a ring of n. Throws std::invalid_argument that names the file.
MeasuredNetwork read_network(const std::string& path);

/// Images per second of one GPU.
struct GpuRate {
  std::string of;  ///< "resnet18 at 32, tf32"
  double images = 0;
};

/// Of gpu-kit/results/3-speed.txt: "NETWORK at SIDE, PRECISION: prunex N samples/s", or without side and precision; the
/// first in this precision, else the first. Throws std::invalid_argument that names the file, if it has no such line.
GpuRate read_gpu_rate(const std::string& path, const std::string& model, const std::string& precision);

}  // namespace prunex::plan
