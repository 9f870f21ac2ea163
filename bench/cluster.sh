#!/usr/bin/env bash
# Runs a command once per rank on an emulated cluster: every node is a network namespace of its own, its interfaces hang
# on one bridge each, and every link is shaped in both directions. Wants root, `ip` and `tc`.
#
#   bench/cluster.sh NODES RANKS_PER_NODE MBIT [--interfaces I] [--burst KB] [--delay MS] [--cores C] -- COMMAND...
#
#   MBIT            rate of every link, each way, in Mbit/s; 0 = unshaped
#   --interfaces I  links per node: eth0, eth1, ..., each on a bridge of its own [1]
#   --burst KB      bytes that cross an idle link faster than its rate [256]
#   --delay MS      from every node to every other, one way, beside the time that the rate costs [0]
#   --cores C       share of a processor that every rank has to itself, 0.05 or more: as long as all of them together
#                   are fewer than there are processors, no rank takes time from another, nor does other work of the
#                   machine [no limit]
#
# MBIT and C may be lists, as 25,100: for node 0, 1, ..., the last holds for the rest.
#
#   bench/cluster.sh 2 2 200 -- build/release/prunex train --nodes 2 --ranks-per-node 2
#
# Ranks get torchrun's variables, GLOO_SOCKET_IFNAME (eth0,eth1,...) and OMP_NUM_THREADS (1 unless set). Shown are the
# standard output of rank 0 and everyone's standard error, that of the others as "[rank 3] ...". The exit status is the
# worst of the ranks'; 10 s after the first failure those still running are ended. 2: wrong usage, or not permitted here.
#
# Names, for those who want to cut a link while it runs: namespaces prunex-PID-node0, prunex-PID-node1, ... and
# prunex-PID-switch, which holds the bridges and the ports node0.eth0, ...; control groups prunex-PID-rank0, ...; PID is
# this script's. All of it goes when the script ends, however it ends.
set -euo pipefail

readonly cluster=prunex-$$
readonly grace=10
readonly usage='NODES RANKS_PER_NODE MBIT [--interfaces I] [--burst KB] [--delay MS] [--cores C] -- COMMAND...'
nodes='' ranks_per_node='' mbit='' interfaces=1 burst=256 delay=0 cores='' groups='' command=()
alive='' janitor='' timer='' worst=0
prefixers=() tickers=() cables=()
declare -A running=()

refuse() { printf 'cluster.sh: %s\n' "$*" >&2; exit 2; }
is_count() { [[ $1 =~ ^[1-9][0-9]{0,3}$ ]]; }
is_rates() { [[ $1 =~ ^[0-9]+(\.[0-9]+)?(,[0-9]+(\.[0-9]+)?)*$ ]]; }

# The entry of a list that holds for a node.
entry() {
  local list
  IFS=, read -ra list <<<"$1"
  echo "${list[$2 < ${#list[@]} ? $2 : -1]}"
}

parse() {
  [[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0; }
  [[ $# -ge 3 ]] || refuse "wanted $usage"
  nodes=$1 ranks_per_node=$2 mbit=$3
  shift 3
  while [[ $# -gt 0 && $1 != -- ]]; do
    case $1 in
      --interfaces) interfaces=${2:-}; shift $(($# < 2 ? 1 : 2)) ;;
      --burst) burst=${2:-}; shift $(($# < 2 ? 1 : 2)) ;;
      --delay) delay=${2:-none}; shift $(($# < 2 ? 1 : 2)) ;;
      --cores) cores=${2:-none}; shift $(($# < 2 ? 1 : 2)) ;;
      *) refuse "unknown option '$1', wanted --interfaces I, --burst KB, --delay MS, --cores C or -- COMMAND..." ;;
    esac
  done
  [[ $# -ge 2 ]] || refuse "no command: wanted -- COMMAND..."
  command=("${@:2}")
  is_count "$nodes" || refuse "NODES: got '$nodes', wanted a whole number from 1 on"
  is_count "$ranks_per_node" || refuse "RANKS_PER_NODE: got '$ranks_per_node', wanted a whole number from 1 on"
  is_rates "$mbit" || refuse "MBIT: got '$mbit', wanted Mbit/s, 0 for unshaped links"
  [[ -z $cores ]] || { is_rates "$cores" && [[ ! ,$cores, =~ ,0(\.0*|\.0[0-4][0-9]*)?, ]]; } ||
    refuse "--cores: got '$cores', wanted shares of a processor from 0.05 on"
  [[ $delay =~ ^[0-9]{1,4}(\.[0-9]+)?$ ]] || refuse "--delay: got '$delay', wanted milliseconds below 10000"
  is_count "$burst" || refuse "--burst: got '$burst', wanted kB"
  is_count "$interfaces" || refuse "--interfaces: got '$interfaces', wanted a whole number from 1 on"
}

# Whether links have a delay.
is_delayed() { [[ $delay =~ [1-9] ]]; }

check_machine() {
  local tool tools=(ip tc setsid ${cores:+chrt taskset perl})
  is_delayed && tools+=(python3)
  for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || refuse "needs '$tool' (Debian: iproute2, util-linux, perl, python3)"
  done
  [[ $EUID -eq 0 ]] || refuse "needs root, to make network namespaces"
}

# Where control groups that limit processors are made: of the first version of control groups or of the second.
find_groups() {
  local top=/sys/fs/cgroup
  if [[ -e $top/cgroup.controllers ]]; then
    must grep -qw cpu $top/cgroup.controllers
    must write +cpu $top/cgroup.subtree_control
    groups=$top
  else
    groups=$top/cpu
    [[ -e $groups/cgroup.procs ]] || refuse "--cores: found no control groups that limit processors"
  fi
}

# shellcheck disable=SC2317
write() { echo "$1" >"$2"; }

# The group of a rank, which may compute for its share of every 5 ms, or of as many as make it 1 ms, the least that the
# kernel knows; within that nothing else takes its turn, by the highest weight there is.
add_group() {
  local group=$groups/$cluster-rank$1 period quota
  read -r period quota < <(awk "BEGIN { p = $2 < 0.2 ? 1000 / $2 : 5000; printf \"%d %d\n\", p, p * $2 + 0.5 }")
  must mkdir "$group"
  if [[ -e $group/cpu.max ]]; then
    must write "$quota $period" "$group/cpu.max"
    must write 10000 "$group/cpu.weight"
  else
    must write "$period" "$group/cpu.cfs_period_us"
    must write "$quota" "$group/cpu.cfs_quota_us"
    must write 262144 "$group/cpu.shares"
  fi
}

# The kernel looks at the limits when it changes between processes, else at its own ticks, 4 ms apart, and lets who ran
# for so long wait for as many periods: so something small runs on every processor each millisecond, as long as this
# script does.
start_tickers() {
  # shellcheck disable=SC2016
  local processor ticker='select undef, undef, undef, 0.001 while getppid == $ARGV[0]'
  must chrt --fifo 1 true
  for processor in /sys/devices/system/cpu/cpu[0-9]*; do  # those that are off, or not ours, have no ranks
    taskset --cpu-list "${processor##*cpu}" chrt --fifo 1 perl -e "$ticker" "$$" {alive}>&- 2>/dev/null &
    tickers+=("$!")
  done
}

# Ends all processes of a cluster and removes its namespaces, with the links in them, and its groups. Runs in a shell of
# its own.
# shellcheck disable=SC2317
sweep() {
  local cluster=$1 groups=$2 spaces pids signal tries
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
  for ((tries = 0; tries < 40 && ${#groups} > 0; tries++)); do
    if rmdir "$groups/$cluster"-rank*; then break; fi  # a process that has just ended may still be counted
    sleep 0.05
  done
}

# shellcheck disable=SC2317
finish() {
  [[ -z $timer ]] || kill "$timer" 2>/dev/null || true
  exec {alive}>&-
  ((${#tickers[@]} == 0)) || kill "${tickers[@]}" 2>/dev/null || true
  ((${#cables[@]} == 0)) || kill "${cables[@]}" 2>/dev/null || true
  wait "$janitor" "${prefixers[@]}" "${tickers[@]}" "${cables[@]}" 2>/dev/null || true  # some may have ended long ago
}

# The janitor sweeps when the pipe from this script ends, so also if this script is killed.
start_janitor() {
  exec {alive}> >(exec setsid bash -c "$(declare -f sweep); cat >/dev/null; sweep $cluster $groups" 2>/dev/null)
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

# Segments of no more than half a burst pass the shaping whole, as through a network card that cuts packets itself: cut
# here, every packet costs the ranks a part of their processors.
shape() {
  local segment=$((burst * 512))
  [[ $3 =~ [1-9] ]] || return 0
  must ip -n "$1" link set "$2" gso_max_size $((segment < 65536 ? segment : 65536))
  must tc -n "$1" qdisc replace dev "$2" root tbf rate "${3}mbit" burst "${burst}k" latency 100ms
}

# Two ends in the switch's namespace, half of the delay apart: a way from node to node has two cables.
lay_cable() {
  local tries half
  half=$(awk "BEGIN { print $delay / 2 }")
  ip netns exec "$cluster-switch" "$(dirname "$0")/delay.py" "$1" "$2" "$half" {alive}>&- &
  cables+=("$!")
  for ((tries = 0; tries < 100; tries++)); do
    if ip -n "$cluster-switch" link show "$2" >/dev/null 2>&1; then return; fi
    kill -0 "$!" 2>/dev/null || refuse "--delay: cannot set up (delay.py, see above)"
    sleep 0.05
  done
  refuse "--delay: delay.py did not make interfaces within 5 s"
}

add_link() {
  local node=$1 interface=$2 space=$cluster-node$1 port=node$1.eth$2 rate
  rate=$(entry "$mbit" "$node")
  if is_delayed; then
    lay_cable "$port" "far$node.$interface"
    must ip -n "$cluster-switch" link set "far$node.$interface" netns "$space" name "eth$interface"
    must ip -n "$space" link set "eth$interface" mtu 9000
    must ip -n "$cluster-switch" link set "$port" mtu 9000
  else
    must ip -n "$cluster-switch" link add "$port" type veth peer name "eth$interface" netns "$space"
  fi
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
  if [[ -n $cores ]]; then
    add_group "$rank" "$(entry "$cores" "$node")"
    # shellcheck disable=SC2016
    rank_command=(bash -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$groups/$cluster-rank$rank" "${rank_command[@]}")
  fi
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

ended_rank() {
  local pid
  while true; do
    for pid in "${!running[@]}"; do kill -0 "$pid" 2>/dev/null || { echo "$pid"; return; }; done
    sleep 0.05
  done
}

# Returns when all ranks have ended, or some have failed and the others had their time.
wait_for_ranks() {
  local pid status
  while ((${#running[@]} > 0)); do
    status=0
    wait -n -p pid "${!running[@]}" ${timer:+"$timer"} || status=$?
    if [[ -z ${pid:-} ]]; then  # bash had noted its end before
      pid=$(ended_rank)
      status=0
      wait "$pid" || status=$?
    fi
    [[ $pid != "$timer" ]] || return 0
    note_end "$pid" "$status"
  done
}

parse "$@"
check_machine
[[ -z $cores ]] || find_groups
start_janitor
build
[[ -z $cores ]] || start_tickers
for ((rank = 0; rank < nodes * ranks_per_node; rank++)); do start_rank "$rank"; done
wait_for_ranks
exit "$worst"
