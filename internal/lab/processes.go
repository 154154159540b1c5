// SPDX-License-Identifier: Apache-2.0

package lab

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

// labVar is an environment variable of all processes of a lab; its value is the state directory.
const labVar = "WEFT_LAB"

// labProcesses returns the processes in one of the namespaces (by inode), the processes with labVar set to dir, and all
// their descendants, but never this process and its ancestors.
func labProcesses(namespaces map[uint64]bool, dir string) ([]process.ID, error) {
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
		found[pid] = namespaces[netnsOf(pid)] || inLab(pid, dir)
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

func netnsOf(pid int) uint64 {
	var st syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st); err != nil {
		return 0
	}
	return st.Ino
}

// inLab reports whether a process belongs to the lab in dir: labVar is set to dir in its environment, and it sees the
// same directory there. In another mount namespace the path may be that of another lab.
func inLab(pid int, dir string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !bytes.Contains(append([]byte{0}, b...), []byte("\x00"+labVar+"="+dir+"\x00")) {
		return false
	}
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, dir))
	if err != nil {
		return true // it sees no directory there: the lab's was removed, or it is a container
	}
	ours, err := os.Stat(dir)
	return err == nil && os.SameFile(ours, theirs)
}

// killAll kills the processes that find returns, until there are none.
func killAll(ctx context.Context, find func() ([]process.ID, error)) error {
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

// namespacesBelow returns the inodes of network namespaces that are mounted in the state directory, but never this
// process's own.
func (d Dir) namespacesBelow() (map[uint64]bool, error) {
	points, err := mountsBelow(string(d))
	if err != nil {
		return nil, err
	}
	own := netnsOf(os.Getpid())
	out := map[uint64]bool{}
	for _, p := range points {
		var st syscall.Stat_t
		if p.kind == "nsfs" && syscall.Stat(p.path, &st) == nil && st.Ino != own {
			out[st.Ino] = true
		}
	}
	return out, nil
}

type mountPoint struct{ path, kind string }

// mountsBelow lists the mounts in a directory, in the order in which they were mounted.
func mountsBelow(dir string) ([]mountPoint, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var out []mountPoint
	for line := range strings.Lines(string(b)) {
		left, right, _ := strings.Cut(line, " - ")
		f, kind := strings.Fields(left), strings.Fields(right)
		if len(f) < 5 || len(kind) < 1 {
			continue
		}
		path := strings.TrimSuffix(unescape.Replace(f[4]), "//deleted")
		if rel, err := filepath.Rel(dir, path); err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../") {
			out = append(out, mountPoint{path: path, kind: kind[0]})
		}
	}
	return out, nil
}

// unmountAll unmounts everything in a directory, the last mount first.
func unmountAll(dir string) error {
	for range 100 {
		points, err := mountsBelow(dir)
		if err != nil || len(points) == 0 {
			return err
		}
		var problems []error
		for i := len(points) - 1; i >= 0; i-- {
			if err := syscall.Unmount(points[i].path, syscall.MNT_DETACH); err != nil {
				problems = append(problems, fmt.Errorf("unmount %s: %w", points[i].path, err))
			}
		}
		if len(problems) == len(points) {
			return errors.Join(problems...)
		}
	}
	return fmt.Errorf("unmount: %s still has mounts", dir)
}
