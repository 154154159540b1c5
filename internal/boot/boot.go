// SPDX-License-Identifier: Apache-2.0

// Package boot identifies the host's current boot: kernel state of an earlier boot is gone, although files may describe
// it.
package boot

import (
	"fmt"
	"os"
	"strings"
)

// ID returns the kernel's random/boot_id, a UUID as text.
func ID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
