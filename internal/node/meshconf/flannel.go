// SPDX-License-Identifier: Apache-2.0

package meshconf

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// In mode flannel the agent replaces flanneld, its CNI plugin and its installation, with the same ConfigMap.

// ReadNetConf reads flannel's network configuration.
func (s *Settings) ReadNetConf() error {
	if s.cfg.Network.Mode != config.ModeFlannel {
		return nil
	}
	if !s.cfg.Kubernetes && !s.cfg.Directory && !s.cfg.Etcd {
		return model.Errorf(model.CodeInvalidConf, "set kubernetes.inCluster or kubernetes.kubeconfig",
			"network.mode %q needs a cluster that assigns podCIDRs to nodes", config.ModeFlannel)
	}
	path := s.cfg.Flannel.NetConf
	text, err := os.ReadFile(path)
	if err != nil {
		return model.Errorf(model.CodeIO, "mount the ConfigMap kube-flannel-cfg there, or name another file",
			"flannel.netConf: %w", err)
	}
	conf, warnings, err := flannel.ParseNetConf(text)
	var f *model.Error
	switch {
	case errors.As(err, &f):
		return model.Errorf(f.Code, f.Hint, "flannel.netConf %s: %s", path, f.Msg)
	case err != nil:
		return model.Errorf(model.CodeInvalidConf, "", "flannel.netConf %s: %w", path, err)
	}
	for _, d := range warnings {
		s.cfg.Log.Warn("flannel.netConf has a warning", "path", path, "field", d.Field, "warning", d.Msg, "hint", d.Hint)
	}
	s.netConf = conf
	if conf.Backend.PSK == "" {
		return nil
	}
	err = os.MkdirAll(s.cfg.StateDir, 0o700)
	if err == nil {
		err = atomicfile.Write(s.pskFile(), []byte(conf.Backend.PSK+"\n"), 0o600, atomicfile.CrashSafe)
	}
	if err != nil {
		return model.Errorf(model.CodeIO, "", "key of flannel.netConf %s: %w", path, err)
	}
	return nil
}

// flannelMesh returns the mesh's configuration from flannel's.
func (s *Settings) flannelMesh() mesh.Config {
	b, n := s.netConf.Backend, s.cfg.Network
	cfg := mesh.Config{Backend: b.Type, Networks: s.netConf.Networks(), Blackhole: n.Blackhole}
	switch b.Type {
	case "vxlan":
		cfg.VXLAN = mesh.VXLAN{
			VNI: uint32(b.VNI), Port: uint16(b.Port), GBP: b.GBP, Learning: b.Learning,
			DirectRouting: b.DirectRouting, MTU: b.MTU,
		}
	case "udp":
		cfg.UDP.Port = uint16(b.Port)
	case "ipip":
		cfg.IPIP.DirectRouting = b.DirectRouting
	case "wireguard":
		cfg.WireGuard = mesh.WireGuard{
			ListenPort: uint16(b.ListenPort), ListenPortV6: uint16(b.ListenPortV6), MTU: b.MTU, Mode: b.Mode,
			PersistentKeepaliveInterval: b.PersistentKeepaliveInterval, KeyFile: n.WireguardKeyFile, PSKFile: n.WireguardPSKFile,
		}
		if b.PSK != "" {
			cfg.WireGuard.PSKFile = s.pskFile()
		}
	case "extension":
		cfg.Extension = mesh.Extension{
			PreStartupCommand: b.PreStartupCommand, PostStartupCommand: b.PostStartupCommand,
			SubnetAddCommand: b.SubnetAddCommand, SubnetRemoveCommand: b.SubnetRemoveCommand,
			Network: s.netConf.Network, NetworkV6: s.netConf.IPv6Network,
		}
	}
	if n.Masquerade {
		cfg.Masquerade, cfg.NoMasquerade, cfg.PreservePorts = s.netConf.Networks(), n.NonMasqueradeCIDRs, !n.MasqueradeRandom
	}
	return cfg
}

// pskFile returns the file for the key in net-conf.json: plans contain names of files, never keys.
func (s *Settings) pskFile() string { return filepath.Join(s.cfg.StateDir, "flannel.psk") }

// SubnetEnv returns the subnet file of the flannel plugin. A configured MTU takes precedence over the mesh's.
func (s *Settings) SubnetEnv(podCIDRs []netip.Prefix, mtu int) (flannel.SubnetEnv, error) {
	env, err := s.netConf.SubnetEnv(podCIDRs, cmp.Or(s.cfg.Network.MTU, mtu), s.cfg.Network.Masquerade)
	if err != nil {
		err = fmt.Errorf("node %s: %w", s.cfg.Node, err)
	}
	return env, err
}
