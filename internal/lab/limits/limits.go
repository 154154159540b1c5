// SPDX-License-Identifier: Apache-2.0

// Package limits compares what a lab needs of this host's kernel with the kernel's limits, before anything is created.
package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/weft-net/weft/internal/model"
)

// Lab is what a lab will run.
type Lab struct {
	Nodes, Pods int
}

// What a node and a pod need. The agent has three inotify instances and the sandbox runtime one. A lab of 100 nodes without
// pods had 20 threads and 48 files per node; both are doubled, because busy processes have more. The watches of a node and
// what a pod needs are estimates.
const (
	inotifyPerNode = 4
	watchesPerNode = 24
	threadsPerNode = 40
	filesPerNode   = 120
	threadsPerPod  = 8
	filesPerPod    = 24
	// spareInstances, spareThreads and spareFiles are for other programs of this host.
	spareInstances = 8
	spareThreads   = 500
	spareFiles     = 1000
)

// need is what the lab needs of one limit.
type need struct {
	sysctl string // the name of the limit, as sysctl has it
	unit   string
	count  int // for the lab, without what is in use
	inUse  func(proc string) int
	setTo  func(need int) int // the value that the hint recommends
}

// needs lists the limits. Neighbor entries are those of pods at their node: the nodes' own are permanent and do not count.
func (l Lab) needs() []need {
	twice := func(n int) int { return 2 * n }
	none := func(string) int { return 0 }
	out := []need{
		{
			sysctl: "fs.inotify.max_user_instances", unit: "inotify instances", count: l.Nodes*inotifyPerNode + spareInstances,
			inUse: inotifyInstances, setTo: func(n int) int { return max(1024, 2*n) },
		},
		{
			sysctl: "fs.inotify.max_user_watches", unit: "inotify watches", count: l.Nodes*watchesPerNode + l.Pods, inUse: none,
			setTo: twice,
		},
		{sysctl: "user.max_net_namespaces", unit: "network namespaces", count: l.Nodes + l.Pods + 1, inUse: none, setTo: twice},
		{sysctl: "user.max_pid_namespaces", unit: "PID namespaces", count: l.Pods, inUse: none, setTo: twice},
		{sysctl: "fs.file-max", unit: "open files", count: l.Nodes*filesPerNode + l.Pods*filesPerPod + spareFiles, inUse: openFiles, setTo: twice},
	}
	for _, name := range []string{"kernel.pid_max", "kernel.threads-max"} {
		out = append(out, need{
			sysctl: name, unit: "threads", count: l.Nodes*threadsPerNode + l.Pods*threadsPerPod + spareThreads, inUse: threads,
			setTo: twice,
		})
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		// A pod has an entry for its gateway, and its node has one for the pod.
		out = append(out, need{
			sysctl: "net." + family + ".neigh.default.gc_thresh3", unit: "neighbor entries", count: 2*l.Pods + l.Nodes, inUse: none,
			setTo: func(n int) int { return max(4096, 2*n) },
		})
	}
	return out
}

// Check returns an error that names each limit that is too small for the lab, with its value, what is needed and the command
// that raises it; nil if all suffice. proc is the mount point of procfs. A limit that this kernel does not have, or
// that cannot be read, is not checked.
func (l Lab) Check(proc string) error {
	var problems, commands []string
	for _, n := range l.needs() {
		limit, ok := read(filepath.Join(proc, "sys", path(n.sysctl)))
		if !ok {
			continue
		}
		used := n.inUse(proc)
		if total := used + n.count; total > limit {
			problems = append(problems, fmt.Sprintf("%s is %d, and %d %s are needed (%d are in use)", n.sysctl, limit, total,
				n.unit, used))
			commands = append(commands, fmt.Sprintf("%s=%d", n.sysctl, n.setTo(total)))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return model.Errorf(model.CodeLimited, "sysctl -w "+strings.Join(commands, " ")+", or choose fewer --nodes or pods",
		"%d nodes and %d pods do not fit on this host: %s", l.Nodes, l.Pods, strings.Join(problems, "; "))
}

// path returns a sysctl's path below /proc/sys.
func path(sysctl string) string { return strings.ReplaceAll(sysctl, ".", "/") }

// read reads the first number of a file. The kernel prints limits beyond 64 bits for some; they are no limit.
func read(path string) (int, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	f := strings.Fields(string(b))
	if len(f) == 0 {
		return 0, false
	}
	n, err := strconv.Atoi(f[0])
	return n, err == nil
}

// openFiles returns the number of open files of the host.
func openFiles(proc string) int {
	n, _ := read(filepath.Join(proc, "sys/fs/file-nr"))
	return n
}

// threads returns the number of threads of the host: the fourth field of loadavg is RUNNING/TOTAL.
func threads(proc string) int {
	b, err := os.ReadFile(filepath.Join(proc, "loadavg"))
	f := strings.Fields(string(b))
	if err != nil || len(f) < 4 {
		return 0
	}
	_, total, _ := strings.Cut(f[3], "/")
	n, _ := strconv.Atoi(total)
	return n
}

// inotifyInstances counts the inotify instances of this user's processes.
func inotifyInstances(proc string) int {
	dirs, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	n := 0
	for _, dir := range dirs {
		var st syscall.Stat_t
		if syscall.Stat(dir, &st) != nil || int(st.Uid) != os.Geteuid() {
			continue
		}
		fds, _ := os.ReadDir(filepath.Join(dir, "fd"))
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(dir, "fd", fd.Name())); err == nil && to == "anon_inode:inotify" {
				n++
			}
		}
	}
	return n
}
