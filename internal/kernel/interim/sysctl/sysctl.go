// SPDX-License-Identifier: Apache-2.0

// Package sysctl reads and writes settings below /proc/sys inside a namespace. Names have slashes
// ("net/ipv4/ip_forward"), since link names may have dots.
package sysctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

const root = "/proc/sys"

// Value is a setting's value; Missing when the namespace has no such setting.
type Value struct {
	Text    string
	Missing bool
}

// Read reads settings inside ns in one visit.
func Read(ns *netns.NS, names []string) (map[string]Value, error) {
	out := make(map[string]Value, len(names))
	if len(names) == 0 {
		return out, nil
	}
	err := ns.Do(func() error {
		for _, name := range names {
			path, err := file(name)
			if err != nil {
				return err
			}
			text, err := slurp(path)
			switch {
			case errors.Is(err, os.ErrNotExist):
				out[name] = Value{Missing: true}
			case err != nil:
				return fmt.Errorf("sysctl %s: %w", name, err)
			default:
				out[name] = Value{Text: strings.Join(strings.Fields(text), " ")}
			}
		}
		return nil
	})
	return out, err
}

// Pair is a setting to write.
type Pair struct{ Name, Value string }

// Write writes settings inside ns in one visit.
func Write(ns *netns.NS, pairs []Pair) error {
	if len(pairs) == 0 {
		return nil
	}
	return ns.Do(func() error {
		for _, p := range pairs {
			path, err := file(p.Name)
			if err == nil {
				err = spill(path, p.Value)
			}
			if err != nil {
				return fmt.Errorf("sysctl %s = %s: %w", p.Name, p.Value, err)
			}
		}
		return nil
	})
}

// file is the setting's path. Names come from configurations, so one that leaves /proc/sys is refused.
func file(name string) (string, error) {
	path := filepath.Join(root, name)
	if !strings.HasPrefix(path, root+"/") || path != root+"/"+name {
		return "", fmt.Errorf("sysctl %q: not a name below %s", name, root)
	}
	return path, nil
}

// slurp reads a small file with three system calls: os.ReadFile would make six and register it for polling.
func slurp(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func spill(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(value))
	return errors.Join(err, unix.Close(fd))
}
