// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"strings"

	"github.com/weft-net/weft/internal/netns"
)

// bootID names this boot of the machine.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// ownNamespaces are the node's namespace and, where it can be seen, the machine's.
func ownNamespaces() ([]*netns.NS, error) {
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
