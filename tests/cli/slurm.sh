#!/usr/bin/env bash
# slurm.sh FOLDER COMMAND…: runs the command on a Slurm of one node that lives in FOLDER as long as it does. As root.
set -euo pipefail
folder=$1
shift
export PATH=$PATH:/usr/sbin SLURM_CONF=$folder/slurm.conf
host=$(hostname -s)

# So many free ports below those that the kernel hands out to anybody while the daemons start.
free_ports() {
  python3 - "$1" <<'PYTHON'
import random, socket, sys

sockets = []
while len(sockets) < int(sys.argv[1]):
    sockets.append(socket.socket())
    try:
        sockets[-1].bind(("127.0.0.1", random.randrange(30000, 32768)))
    except OSError:
        sockets.pop()
print(*(s.getsockname()[1] for s in sockets))
PYTHON
}

# A daemon that ends writes its state: who removes the folder must not meet it there.
stop_daemon() {
  local pid tries
  pid=$(cat "$folder/$1.pid" 2>/dev/null) || return 0
  kill "$pid" 2>/dev/null || return 0
  for ((tries = 0; tries < 200; ++tries)); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true
}

stop() {
  local status=$? daemon
  for daemon in slurmd slurmctld munged; do stop_daemon "$daemon"; done
  ((status == 0)) || tail -n 30 "$folder"/*.log >&2 || true
}

getent hosts "$host" >/dev/null || export MASTER_ADDR=127.0.0.1
read -r controller_port node_port < <(free_ports 2)
mkdir -p "$folder/state" "$folder/spool"
(umask 077 && head -c 1024 /dev/urandom >"$folder/key")
cat >"$SLURM_CONF" <<CONF
ClusterName=prunex
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
SlurmctldPort=$controller_port
SlurmdPort=$node_port
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
FirstJobId=$((1 + RANDOM % 10000))
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
trap stop EXIT
munged --force --socket="$folder/munge.socket" --key-file="$folder/key" --pid-file="$folder/munged.pid" \
  --log-file="$folder/munged.log" --seed-file="$folder/seed"
slurmctld -f "$SLURM_CONF"
slurmd -f "$SLURM_CONF" -N "$host"
for ((tries = 0; ; ++tries)); do
  state=$(sinfo --noheader --format=%T 2>&1) || true
  [[ $state != idle ]] || break
  ((tries < 600)) || { echo "slurm.sh: the node is not idle after a minute: $state" >&2; exit 1; }
  sleep 0.1
done
"$@"
