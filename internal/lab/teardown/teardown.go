// SPDX-License-Identifier: Apache-2.0

// Package teardown finds and ends what runs and is mounted in the state directory of a lab.
package teardown

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/sandbox/process"
)

// Variable is an environment variable of all processes that a lab starts; its value is the state directory. It is not the
// one by which users choose a lab: whatever runs in a shell that exports that is not the lab's.
const Variable = "WEFT_LAB_PROCESS"

// Of reports whether a process has something of a lab, besides its namespace.
type Of func(pid int) bool

// Lab is Of the whole lab in dir.
func Lab(dir string) Of { return func(pid int) bool { return inLab(pid, dir) } }

// Node is Of one node of the lab in dir: the processes of the lab that have the node's directory in an argument.
func Node(dir, nodeDir string) Of {
	return func(pid int) bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err == nil && bytes.Contains(b, []byte(nodeDir+"/")) && inLab(pid, dir)
	}
}

// Processes returns the processes in one of the namespaces (by inode), those that are of the lab or the node, and all
// their descendants, but never this process and its ancestors.
func Processes(namespaces map[uint64]bool, of Of) ([]process.ID, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all, parent := map[int]process.ID{}, map[int]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := process.Read(pid); ok {
			all[pid], parent[pid] = p, parentOf(pid)
		}
	}
	for pid := os.Getpid(); pid != 0; pid = parent[pid] {
		delete(all, pid)
	}
	found := map[int]bool{}
	for pid := range all {
		found[pid] = namespaces[NetNS(pid)] || of(pid)
	}
	var out []process.ID
	for pid, p := range all {
		for up := pid; up != 0; up = parent[up] {
			if found[up] {
				out = append(out, p)
				break
			}
		}
	}
	return out, nil
}

func parentOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "\nPPid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	parent, _ := strconv.Atoi(line)
	return parent
}

// NetNS returns the inode of a process's network namespace, or 0.
func NetNS(pid int) uint64 { return inode(fmt.Sprintf("/proc/%d/ns/net", pid)) }

// inLab reports whether a process belongs to the lab in dir: Variable is set to dir in its environment, and it sees the
// same directory there. In another mount namespace the path may be that of another lab.
func inLab(pid int, dir string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !bytes.Contains(append([]byte{0}, b...), []byte("\x00"+Variable+"="+dir+"\x00")) {
		return false
	}
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, dir))
	if err != nil {
		return true // it sees no directory there: the lab's was removed, or it is a container
	}
	ours, err := os.Stat(dir)
	return err == nil && os.SameFile(ours, theirs)
}

// Kill kills the processes that find returns, until there are none.
func Kill(ctx context.Context, find func() ([]process.ID, error)) error {
	deadline := time.Now().Add(10 * time.Second)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		left, err := find()
		if err != nil || len(left) == 0 {
			return err
		}
		for _, p := range left {
			if err := p.Signal(syscall.SIGKILL); err != nil {
				return err
			}
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%d processes survive SIGKILL, the first is %d: %w", len(left), left[0].PID, ctx.Err())
		}
		time.Sleep(wait)
	}
}

// Namespaces returns the inodes of network namespaces that are mounted in a directory, but never this process's own.
func Namespaces(dir string) (map[uint64]bool, error) {
	points, err := Mounts(dir)
	if err != nil {
		return nil, err
	}
	out := map[uint64]bool{}
	for _, p := range points {
		if ino := inode(p.Path); p.Kind == "nsfs" && ino != 0 && ino != NetNS(os.Getpid()) {
			out[ino] = true
		}
	}
	return out, nil
}

// NodeNamespaces returns those of a node: its own, unless it is not mounted, and those of the pods in the node's directory.
func NodeNamespaces(ns, nodeDir string) (map[uint64]bool, error) {
	out, err := Namespaces(nodeDir)
	if err != nil {
		return nil, err
	}
	all, err := Namespaces(filepath.Dir(ns))
	if ino := inode(ns); all[ino] {
		out[ino] = true
	}
	return out, err
}

// inode returns the inode of a file, or 0.
func inode(path string) uint64 {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return 0
	}
	return st.Ino
}

// Mount is a mount point and the type of its file system.
type Mount struct{ Path, Kind string }

// Mounts lists the mounts in a directory, in the order in which they were mounted.
func Mounts(dir string) ([]Mount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var out []Mount
	for line := range strings.Lines(string(b)) {
		left, right, _ := strings.Cut(line, " - ")
		f, kind := strings.Fields(left), strings.Fields(right)
		if len(f) < 5 || len(kind) < 1 {
			continue
		}
		path := strings.TrimSuffix(unescape.Replace(f[4]), "//deleted")
		if rel, err := filepath.Rel(dir, path); err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../") {
			out = append(out, Mount{Path: path, Kind: kind[0]})
		}
	}
	return out, nil
}

// Unmount unmounts everything in a directory, the last mount first.
func Unmount(dir string) error {
	for range 100 {
		points, err := Mounts(dir)
		if err != nil || len(points) == 0 {
			return err
		}
		var problems []error
		for i := len(points) - 1; i >= 0; i-- {
			if err := syscall.Unmount(points[i].Path, syscall.MNT_DETACH); err != nil {
				problems = append(problems, fmt.Errorf("unmount %s: %w", points[i].Path, err))
			}
		}
		if len(problems) == len(points) {
			return errors.Join(problems...)
		}
	}
	return fmt.Errorf("unmount: %s still has mounts", dir)
}
