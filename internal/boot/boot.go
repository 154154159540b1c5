// SPDX-License-Identifier: Apache-2.0

// Package boot tells boots of the machine apart: what was made in an earlier one is gone, whatever files say.
package boot

import (
	"fmt"
	"os"
	"strings"
)

// ID names this boot: the kernel's random/boot_id, a UUID as text.
func ID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
