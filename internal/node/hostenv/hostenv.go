// SPDX-License-Identifier: Apache-2.0

// Package hostenv describes the host as the agent's process sees it: its boot, its identity, its namespaces, and the
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

// Namespaces returns the node's network namespace and, where it can be opened, that of the host's PID 1.
func Namespaces() ([]*netns.NS, error) {
	own, err := netns.Current()
	if err != nil {
		return nil, fmt.Errorf("network namespace of the node: %w", err)
	}
	all := []*netns.NS{own}
	if host, err := netns.Open("/proc/1/ns/net"); err == nil {
		all = append(all, host)
	}
	return all, nil
}

// MachineID distinguishes this host from another with the same node name, across boots; it is empty if the host has
// no ID. It is a hash of the machine ID, which is confidential.
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
