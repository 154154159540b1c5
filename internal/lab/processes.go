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
)

// markVar is set in the environment of every process a lab starts; its value is the state directory.
const markVar = "WEFT_LAB"

// process is a running process. Its start time tells it from a later one with the same number.
type process struct {
	pid, parent int
	start       uint64 // clock ticks since boot
}

// readProcess reads /proc/PID/stat. A zombie counts as gone.
func readProcess(pid int) (process, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	// The name is in parentheses and may hold anything.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return process{}, false
	}
	parent, _ := strconv.Atoi(f[1])
	start, err := strconv.ParseUint(f[19], 10, 64)
	return process{pid: pid, parent: parent, start: start}, err == nil
}

// pid files hold "PID START".
func writePID(path string, p process) error {
	return replaceFile(path, fmt.Appendf(nil, "%d %d\n", p.pid, p.start))
}

// readPID reads a pid file; false when there is none or the process is gone.
func readPID(path string) (process, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return process{}, false
	}
	var want process
	if _, err := fmt.Sscan(string(b), &want.pid, &want.start); err != nil {
		return process{}, false
	}
	have, ok := readProcess(want.pid)
	return have, ok && have.start == want.start
}

// inhabitants are the processes in one of the namespaces (by inode), those with the mark in their environment, and all
// their descendants. This process and its forebears are never among them.
func inhabitants(namespaces map[uint64]bool, mark string) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := map[int]process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all[pid] = p
		}
	}
	for pid := os.Getpid(); pid != 0; {
		p := all[pid]
		delete(all, pid)
		pid = p.parent
	}
	found := map[int]bool{}
	for pid := range all {
		found[pid] = namespaces[netnsOf(pid)] || hasMark(pid, mark)
	}
	var out []process
	for pid, p := range all {
		for up := pid; up != 0; up = all[up].parent {
			if found[up] {
				out = append(out, p)
				break
			}
		}
	}
	return out, nil
}

func netnsOf(pid int) uint64 {
	var st syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st); err != nil {
		return 0
	}
	return st.Ino
}

func hasMark(pid int, mark string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(append([]byte{0}, b...), []byte("\x00"+markVar+"="+mark+"\x00"))
}

// killAll kills what find finds until it finds nothing.
func killAll(ctx context.Context, find func() ([]process, error)) error {
	deadline := time.Now().Add(10 * time.Second)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		left, err := find()
		if err != nil || len(left) == 0 {
			return err
		}
		for _, p := range left {
			kill(p)
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("processes: %d still run after SIGKILL, the first is %d: %w", len(left), left[0].pid, ctx.Err())
		}
		time.Sleep(wait)
	}
}

func kill(p process) {
	handle, err := os.FindProcess(p.pid) // holds a pidfd, so the process cannot be replaced by another any more
	if err != nil {
		return
	}
	defer func() { _ = handle.Release() }()
	if now, ok := readProcess(p.pid); ok && now.start == p.start {
		_ = handle.Signal(os.Kill)
	}
}

// namespacesBelow are the inodes of the network namespaces bound below the state directory, but never that of this
// process.
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

// mountsBelow lists what is mounted below a directory, the topmost mounts last.
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

// unmountAll takes away everything mounted below the directory, the last mounted first.
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
	return fmt.Errorf("unmount: %s is mounted over and over", dir)
}
