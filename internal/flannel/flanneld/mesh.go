// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// wireguardKey is where flannel keeps the private key.
const wireguardKey = "/run/flannel/wgkey"

// meshConfig is how the mesh is built, by the network's configuration and the flags.
func (d *daemon) meshConfig() (mesh.Config, error) {
	b := d.conf.Backend
	cfg := mesh.Config{Backend: b.Type, Networks: d.conf.Networks(), Blackhole: d.cfg.Blackhole}
	switch b.Type {
	case "vxlan":
		seed := make([]byte, 16)
		if _, err := io.ReadFull(d.cfg.Entropy, seed); err != nil {
			return cfg, err
		}
		cfg.VTEPSeed = hex.EncodeToString(seed)
		cfg.VXLAN = mesh.VXLAN{
			VNI: uint32(b.VNI), Port: uint16(b.Port), GBP: b.GBP, Learning: b.Learning,
			DirectRouting: b.DirectRouting, MTU: b.MTU,
		}
	case "udp":
		cfg.UDP.Port = uint16(b.Port)
	case "ipip":
		cfg.IPIP.DirectRouting = b.DirectRouting
	case "extension":
		cfg.Extension = mesh.Extension{
			PreStartupCommand: b.PreStartupCommand, PostStartupCommand: b.PostStartupCommand,
			SubnetAddCommand: b.SubnetAddCommand, SubnetRemoveCommand: b.SubnetRemoveCommand,
			Network: d.conf.Network, NetworkV6: d.conf.IPv6Network,
		}
	case "wireguard":
		w := mesh.WireGuard{
			ListenPort: uint16(b.ListenPort), ListenPortV6: uint16(b.ListenPortV6), MTU: b.MTU,
			PersistentKeepaliveInterval: b.PersistentKeepaliveInterval, Mode: b.Mode,
			KeyFile: d.cfg.Getenv("WIREGUARD_KEY_FILE"),
		}
		if w.KeyFile == "" {
			w.KeyFile = wireguardKey
		}
		if b.PSK != "" { // plans have names of files, never keys
			w.PSKFile = filepath.Join(filepath.Dir(w.KeyFile), strings.TrimSuffix(filepath.Base(w.KeyFile), ".key")+".psk")
			err := os.MkdirAll(filepath.Dir(w.PSKFile), 0o755)
			if err == nil {
				err = atomicfile.Write(w.PSKFile, []byte(b.PSK+"\n"), 0o600, atomicfile.CrashSafe)
			}
			if err != nil {
				return cfg, err
			}
		}
		cfg.WireGuard = w
	}
	return cfg, nil
}
