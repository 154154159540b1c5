// SPDX-License-Identifier: Apache-2.0

// Package hostenv is the machine as the agent's process finds it: its boot, its identity, its namespaces, and the
// mounts of the agent's container.
package hostenv

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/netns"
)

// Namespaces are the node's namespace and, where it can be seen, the machine's.
func Namespaces() ([]*netns.NS, error) {
	own, err := netns.Current()
	if err != nil {
		return nil, fmt.Errorf("network namespace of the node: %w", err)
	}
	all := []*netns.NS{own}
	if machine, err := netns.Open("/proc/1/ns/net"); err == nil {
		all = append(all, machine)
	}
	return all, nil
}

// MachineID tells this machine from another one that runs under the same name, over boots; empty where nothing does.
// What is told to others is not the machine's id itself, which is nobody's business.
func MachineID(root string) string {
	for _, file := range []string{filepath.Join(root, "/etc/machine-id"), "/sys/class/dmi/id/product_uuid"} {
		b, err := os.ReadFile(file)
		if id := bytes.TrimSpace(b); err == nil && len(id) >= 32 { // "uninitialized" is shorter
			sum := sha256.Sum256(append([]byte("weft "), id...))
			return hex.EncodeToString(sum[:8])
		}
	}
	return ""
}
