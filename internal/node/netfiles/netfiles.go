// SPDX-License-Identifier: Apache-2.0

// Package netfiles writes the files from which other vendors' plugins read this node's settings for pods: flannel's
// subnet.env and the MTU file of Calico's daemon. A file is replaced atomically, and only if it changes.
package netfiles

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
)

// WriteMTU writes the MTU of pods in the form of Calico's daemon. Without a path or an MTU it does nothing.
func WriteMTU(path string, mtu int, log *slog.Logger) error {
	if path == "" || mtu == 0 {
		return nil
	}
	text := strconv.Itoa(mtu)
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = atomicfile.Write(path, []byte(text), 0o644, atomicfile.CrashSafe)
	}
	if err != nil {
		return model.Errorf(model.CodeIO, "", "network.mtuFile: %w", err)
	}
	log.Info("MTU file is written", "path", path, "mtu", mtu)
	return nil
}

// WriteSubnet writes the subnet file of the flannel plugin.
func WriteSubnet(path string, env flannel.SubnetEnv, log *slog.Logger) error {
	text := env.String()
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = atomicfile.Write(path, []byte(text), 0o644, atomicfile.Durable)
	}
	if err != nil {
		return model.Errorf(model.CodeIO, "", "flannel.subnetFile: %w", err)
	}
	log.Info("subnet file is written", "path", path, "subnet", env.Subnet, "subnet6", env.IPv6Subnet, "mtu", env.MTU)
	return nil
}
