#!/usr/bin/env bash
# Runs a command once per rank on an emulated cluster: every node is a network namespace of its own, its interfaces hang
# on one bridge each, and every link is shaped in both directions. Wants root, `ip` and `tc`.
#
#   bench/cluster.sh NODES RANKS_PER_NODE MBIT [--interfaces I] [--first MBIT] [--burst KB] -- COMMAND...
#
#   MBIT            rate of every link, each way, in Mbit/s; 0 = unshaped
#   --interfaces I  links per node: eth0, eth1, ..., each on a bridge of its own [1]
#   --first MBIT    rate of node 0's links instead
#   --burst KB      bytes that cross an idle link faster than its rate [256]
#
#   bench/cluster.sh 2 2 200 -- build/release/prunex train --nodes 2 --ranks-per-node 2
#
# Ranks get torchrun's variables, GLOO_SOCKET_IFNAME (eth0,eth1,...) and OMP_NUM_THREADS (1 unless set). Shown are the
# standard output of rank 0 and everyone's standard error, that of the others as "[rank 3] ...". The exit status is the
# worst of the ranks'; 10 s after the first failure those still running are ended. 2: wrong usage, or not permitted here.
#
# Names, for those who want to cut a link while it runs: namespaces prunex-PID-node0, prunex-PID-node1, ... and
# prunex-PID-switch, which holds the bridges and the ports node0.eth0, ...; PID is this script's. All of it goes when the
# script ends, however it ends.
set -euo pipefail

readonly cluster=prunex-$$
readonly grace=10
nodes='' ranks_per_node='' mbit='' interfaces=1 first='' burst=256 command=()
alive='' janitor='' timer='' worst=0
prefixers=()
declare -A running=()

refuse() { printf 'cluster.sh: %s\n' "$*" >&2; exit 2; }
is_count() { [[ $1 =~ ^[1-9][0-9]{0,3}$ ]]; }
is_rate() { [[ $1 =~ ^[0-9]+(\.[0-9]+)?$ ]]; }

parse() {
  [[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0; }
  [[ $# -ge 3 ]] || refuse "wanted NODES RANKS_PER_NODE MBIT [--interfaces I] [--first MBIT] [--burst KB] -- COMMAND..."
  nodes=$1 ranks_per_node=$2 mbit=$3
  shift 3
  while [[ $# -gt 0 && $1 != -- ]]; do
    case $1 in
      --interfaces) interfaces=${2:-}; shift $(($# < 2 ? 1 : 2)) ;;
      --first) first=${2:-none}; shift $(($# < 2 ? 1 : 2)) ;;
      --burst) burst=${2:-}; shift $(($# < 2 ? 1 : 2)) ;;
      *) refuse "unknown option '$1', wanted --interfaces I, --first MBIT, --burst KB or -- COMMAND..." ;;
    esac
  done
  [[ $# -ge 2 ]] || refuse "no command: wanted -- COMMAND..."
  command=("${@:2}")
  is_count "$nodes" || refuse "NODES: got '$nodes', wanted a whole number from 1 on"
  is_count "$ranks_per_node" || refuse "RANKS_PER_NODE: got '$ranks_per_node', wanted a whole number from 1 on"
  is_rate "$mbit" || refuse "MBIT: got '$mbit', wanted Mbit/s, 0 for unshaped links"
  is_rate "${first:-0}" || refuse "--first: got '$first', wanted Mbit/s, 0 for unshaped links"
  is_count "$burst" || refuse "--burst: got '$burst', wanted kB"
  is_count "$interfaces" || refuse "--interfaces: got '$interfaces', wanted a whole number from 1 on"
}

check_machine() {
  local tool
  for tool in ip tc setsid; do
    command -v "$tool" >/dev/null || refuse "needs '$tool' (Debian: iproute2, util-linux)"
  done
  [[ $EUID -eq 0 ]] || refuse "needs root, to make network namespaces"
}

# Ends all processes of a cluster and removes its namespaces, with the links in them. Runs in a shell of its own.
# shellcheck disable=SC2317
sweep() {
  local cluster=$1 spaces pids signal tries
  mapfile -t spaces < <(ip netns list | grep -o "^$cluster-[a-z]*[0-9]*")
  for signal in TERM KILL; do
    for ((tries = 0; tries < 40; tries++)); do
      mapfile -t pids < <(for space in "${spaces[@]}"; do ip netns pids "$space"; done)
      [[ ${#pids[@]} -gt 0 ]] || break
      ((tries > 0)) || kill -"$signal" "${pids[@]}" 2>/dev/null
      sleep 0.05
    done
  done
  for space in "${spaces[@]}"; do ip netns delete "$space"; done
}

# shellcheck disable=SC2317
finish() {
  [[ -z $timer ]] || kill "$timer" 2>/dev/null || true
  exec {alive}>&-
  wait "$janitor" "${prefixers[@]}" 2>/dev/null || true  # some may have ended long ago
}

# The janitor sweeps when the pipe from this script ends, so also if this script is killed.
start_janitor() {
  exec {alive}> >(exec setsid bash -c "$(declare -f sweep); cat >/dev/null; sweep $cluster" 2>/dev/null)
  janitor=$!
  trap finish EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

# One step of the construction; what it has to say is the reason of a refusal.
must() {
  local message
  message=$("$@" 2>&1 {alive}>&-) || refuse "cannot set up ($*): ${message//$'\n'/; }"
}

address() { echo "10.$((70 + $2)).$(($1 / 250)).$(($1 % 250 + 1))"; }

shape() {
  [[ $3 =~ [1-9] ]] || return 0
  must tc -n "$1" qdisc replace dev "$2" root tbf rate "${3}mbit" burst "${burst}k" latency 100ms
}

add_link() {
  local node=$1 interface=$2 space=$cluster-node$1 port=node$1.eth$2 rate=$mbit
  ((node > 0)) || rate=${first:-$mbit}
  must ip -n "$cluster-switch" link add "$port" type veth peer name "eth$interface" netns "$space"
  must ip -n "$cluster-switch" link set "$port" master "wire$interface" up
  must ip -n "$space" address add "$(address "$node" "$interface")/16" dev "eth$interface"
  must ip -n "$space" link set "eth$interface" up
  shape "$cluster-switch" "$port" "$rate"
  shape "$space" "eth$interface" "$rate"
}

build() {
  local node interface
  must ip netns add "$cluster-switch"
  for ((interface = 0; interface < interfaces; interface++)); do
    must ip -n "$cluster-switch" link add "wire$interface" type bridge
    must ip -n "$cluster-switch" link set "wire$interface" up
  done
  for ((node = 0; node < nodes; node++)); do
    must ip netns add "$cluster-node$node"
    must ip -n "$cluster-node$node" link set lo up
    for ((interface = 0; interface < interfaces; interface++)); do add_link "$node" "$interface"; done
  done
}

interface_names() {
  local names=eth0 interface
  for ((interface = 1; interface < interfaces; interface++)); do names+=,eth$interface; done
  echo "$names"
}

start_rank() {
  local rank=$1 node=$(($1 / ranks_per_node))
  local rank_command=(ip netns exec "$cluster-node$node" env RANK="$rank" WORLD_SIZE=$((nodes * ranks_per_node))
    LOCAL_RANK=$((rank % ranks_per_node)) LOCAL_WORLD_SIZE="$ranks_per_node" GROUP_RANK="$node"
    MASTER_ADDR="$(address 0 0)" MASTER_PORT=29500 GLOO_SOCKET_IFNAME="$(interface_names)"
    OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" "${command[@]}")
  if ((rank == 0)); then
    "${rank_command[@]}" {alive}>&- &
  else
    local errors
    exec {errors}> >(exec {alive}>&- sed -u "s/^/[rank $rank] /" >&2)
    prefixers+=("$!")
    "${rank_command[@]}" {alive}>&- >/dev/null 2>&"$errors" {errors}>&- &
    exec {errors}>&-
  fi
  running[$!]=$rank
}

note_end() {
  local pid=$1 status=$2
  unset "running[$pid]"
  ((status <= worst)) || worst=$status
  if ((status != 0)) && [[ -z $timer ]]; then
    sleep "$grace" {alive}>&- &
    timer=$!
  fi
}

# Returns when all ranks have ended, or some have failed and the others had their time.
wait_for_ranks() {
  local pid status
  while ((${#running[@]} > 0)); do
    status=0
    wait -n -p pid "${!running[@]}" ${timer:+"$timer"} || status=$?
    [[ $pid != "$timer" ]] || return 0
    note_end "$pid" "$status"
  done
}

parse "$@"
check_machine
start_janitor
build
for ((rank = 0; rank < nodes * ranks_per_node; rank++)); do start_rank "$rank"; done
wait_for_ranks
exit "$worst"
