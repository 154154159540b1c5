# SPDX-License-Identifier: Apache-2.0
#
# Names, addresses and small helpers of one cluster. To be sourced, with $name set.
#
# All that a cluster creates on the host has its name: the network namespaces wk-NAME and wk-NAME-nodeN, the cgroups
# wk-NAME… and the directory $dir. So the next `down` finds everything, however the last command ended. Clusters can
# use the same addresses: their networks are separate.
prefix=wk-$name
top=${WEFT_KUBE_STATE:-${TMPDIR:-/tmp}/weft-kube}
dir=$top/$name
pki=$dir/pki
bin=$KUBE_BIN

CONTROL_IP=10.90.0.1
POD_CIDR=10.244.0.0/16
SERVICE_CIDR=10.96.0.0/16
# Of a cluster with IPv6.
CONTROL_IP6=fd90::1
POD_CIDR6=fd44::/56
SERVICE_CIDR6=fd96::/112

node_ip() { echo 10.90.0.$((10 + ${1#node})); }
node_ip6() { echo fd90::$((10 + ${1#node})); }
# The cluster's address families: ipv4, ipv6 or both.
families() { cat "$dir/families" 2>/dev/null || echo ipv4; }
has_ipv4() { [ "$(families)" != ipv6 ]; }
has_ipv6() { [ "$(families)" != ipv4 ]; }
# of_families IPV4 IPV6: what belongs to the cluster's families, with a comma between both.
of_families() {
	case $(families) in
	ipv4) echo "$1" ;;
	ipv6) echo "$2" ;;
	both) echo "$1,$2" ;;
	esac
}
# first_family IPV4 IPV6: what belongs to the cluster's first family.
first_family() { if has_ipv4; then echo "$1"; else echo "$2"; fi; }
api() { echo "https://$(first_family "$CONTROL_IP" "[$CONTROL_IP6]"):6443"; }
api_service_ip() { first_family 10.96.0.1 fd96::1; }
dns_ip() { first_family 10.96.0.10 fd96::a; }
node_names() { [ ! -f "$dir/nodes" ] || cat "$dir/nodes"; }
say() { echo "kube: $*" >&2; }
die() { say "$@"; exit 1; }

# inside NETNS COMMAND...: not `ip netns exec`, which mounts a /sys without cgroups over the host's.
inside() { local ns=$1; shift; nsenter --net="/run/netns/$ns" "$@"; }
kc() { inside "$prefix" "$bin/kubectl" --kubeconfig "$pki/admin.kubeconfig" "$@"; }

# until_true SECONDS COMMAND...
until_true() {
	local end=$((SECONDS + $1)); shift
	until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || return 1; sleep 0.1; done
}

# The mounted cgroup hierarchies: several of version 1, or the one of version 2.
hierarchies() { awk '$3=="cgroup"{print $2} $3=="cgroup2" && $2=="/sys/fs/cgroup"{print $2}' /proc/mounts; }

# The hierarchy that is used to find processes.
counting() { [ -d /sys/fs/cgroup/pids ] && echo /sys/fs/cgroup/pids || echo /sys/fs/cgroup; }

# group PATH: creates a cgroup in every hierarchy.
group() {
	local h c
	while read -r h; do
		mkdir -p "$h/$1"
		# In version 1 a new cpuset has no processors, and nothing can run in it.
		if [ -e "$h/cpuset.mems" ]; then
			local p=$h part
			for part in ${1//\// }; do
				for c in cpus mems; do [ -n "$(cat "$p/$part/cpuset.$c")" ] || cat "$p/cpuset.$c" >"$p/$part/cpuset.$c"; done
				p=$p/$part
			done
		fi
		# In version 2 controllers are handed down on request.
		if [ -e "$h/cgroup.controllers" ]; then
			for c in $(cat "$h/cgroup.controllers"); do echo "+$c" >"$h/cgroup.subtree_control" 2>/dev/null || true; done
			[ "${1%/*}" = "$1" ] || for c in $(cat "$h/${1%/*}/cgroup.controllers"); do echo "+$c" >"$h/${1%/*}/cgroup.subtree_control" 2>/dev/null || true; done
		fi
	done < <(hierarchies)
}

# members GROUP: the processes in it and below.
members() { find "$(counting)/$1" -name cgroup.procs -exec cat {} + 2>/dev/null || true; }

# kill_group GROUP: kills its processes by PID and waits until it is empty.
kill_group() {
	local i all
	for i in $(seq 200); do
		all=$(members "$1")
		[ -n "$all" ] || return 0
		# shellcheck disable=SC2086 # one word for each process
		kill -9 $all 2>/dev/null || true
		sleep 0.05
	done
	die "processes of $1 do not end: $all"
}

drop_group() {
	local h
	while read -r h; do [ ! -d "$h/$1" ] || find "$h/$1" -depth -type d -exec rmdir {} \; ; done < <(hierarchies; echo /sys/fs/cgroup/unified)
}

# start GROUP LOG NETNS COMMAND...: in the background, in a cgroup and a new session.
start() {
	local g=$1 log=$2 ns=$3; shift 3
	group "$g"
	# shellcheck disable=SC2016 # for the inner shell
	setsid bash -c 'h=$1; shift; echo $$ >"$h/cgroup.procs"; exec "$@"' start "$(counting)/$g" nsenter --net="/run/netns/$ns" "$@" >>"$log" 2>&1 </dev/null 8>&- &
	until_true 10 grep -q . "$(counting)/$g/cgroup.procs" || die "$g did not start: see $log"
}
