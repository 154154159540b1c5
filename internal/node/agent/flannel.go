// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/install"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// In mode flannel the agent does what flanneld, its CNI plugin and its installation do, by the same ConfigMap.

// readNetConf reads how flannel's network is configured.
func (a *agent) readNetConf() error {
	if a.cfg.Network.Mode != config.ModeFlannel {
		return nil
	}
	if a.store == nil {
		return model.Faultf(model.CodeInvalidConf, "set kubernetes.inCluster or kubernetes.kubeconfig",
			"network.mode %q needs a cluster that says the nodes' prefixes", config.ModeFlannel)
	}
	path := a.cfg.Flannel.NetConf
	text, err := os.ReadFile(path)
	if err != nil {
		return model.Faultf(model.CodeIO, "mount the ConfigMap kube-flannel-cfg there, or name another file", "flannel.netConf: %w", err)
	}
	conf, doubts, err := flannel.ParseNetConf(text)
	var f *model.Fault
	switch {
	case errors.As(err, &f):
		return model.Faultf(f.Code, f.Hint, "flannel.netConf %s: %s", path, f.Msg)
	case err != nil:
		return model.Faultf(model.CodeInvalidConf, "", "flannel.netConf %s: %w", path, err)
	}
	for _, d := range doubts {
		a.cfg.Log.Warn("flannel.netConf", "path", path, "field", d.Field, "doubt", d.Msg, "hint", d.Hint)
	}
	a.netConf = conf
	if conf.Backend.PSK == "" {
		return nil
	}
	err = os.MkdirAll(a.cfg.StateDir, 0o700)
	if err == nil {
		err = atomicfile.Write(a.pskFile(), []byte(conf.Backend.PSK+"\n"), 0o600, atomicfile.CrashSafe)
	}
	if err != nil {
		return model.Faultf(model.CodeIO, "", "key of flannel.netConf %s: %w", path, err)
	}
	return nil
}

// flannelMesh is what flannel's configuration says of the mesh.
func (a *agent) flannelMesh() mesh.Config {
	b, n := a.netConf.Backend, a.cfg.Network
	cfg := mesh.Config{Backend: b.Type, Networks: a.netConf.Networks(), Blackhole: n.Blackhole}
	switch b.Type {
	case "vxlan":
		cfg.Vxlan = mesh.Vxlan{VNI: uint32(b.VNI), Port: uint16(b.Port), GBP: b.GBP, Learning: b.Learning, DirectRouting: b.DirectRouting, MTU: b.MTU}
	case "udp":
		cfg.UDP.Port = uint16(b.Port)
	case "ipip":
		cfg.IPIP.DirectRouting = b.DirectRouting
	case "wireguard":
		cfg.Wireguard = mesh.Wireguard{
			ListenPort: uint16(b.ListenPort), ListenPortV6: uint16(b.ListenPortV6), MTU: b.MTU, Mode: b.Mode,
			PersistentKeepaliveInterval: b.PersistentKeepaliveInterval, KeyFile: n.WireguardKeyFile, PSKFile: n.WireguardPSKFile,
		}
		if b.PSK != "" {
			cfg.Wireguard.PSKFile = a.pskFile()
		}
	case "extension":
		cfg.Extension = mesh.Extension{
			PreStartupCommand: b.PreStartupCommand, PostStartupCommand: b.PostStartupCommand,
			SubnetAddCommand: b.SubnetAddCommand, SubnetRemoveCommand: b.SubnetRemoveCommand,
			Network: a.netConf.Network, NetworkV6: a.netConf.IPv6Network,
		}
	}
	if n.Masquerade {
		cfg.Masquerade, cfg.Keep, cfg.PortsInOrder = a.netConf.Networks(), n.NonMasqueradeCIDRs, !n.MasqueradeRandom
	}
	return cfg
}

// pskFile is where the key stands that net-conf.json has in it: plans have names of files, never keys.
func (a *agent) pskFile() string { return filepath.Join(a.cfg.StateDir, "flannel.psk") }

// placeFlannel keeps flannel's file and the agent's form of it in the runtime's directory.
func (a *agent) placeFlannel(ctx context.Context, c install.Config) error {
	parts, ctx := errgroup.WithContext(ctx)
	original := func() {
		if err := install.Original(ctx, c, a.cfg.Flannel.CNIConf); err != nil && ctx.Err() == nil {
			a.cfg.Log.Error("flannel.cniConf is not put in place", "path", a.cfg.Flannel.CNIConf, "err", err)
		}
	}
	original() // so that there is one to follow
	parts.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-a.cfg.After(placePeriod): // a ConfigMap's file changes a minute or so after it
				original()
			}
		}
	})
	parts.Go(func() error { return install.Follow(ctx, c, a.placed) })
	return parts.Wait()
}

// writeSubnetFile says to the plugin flannel what pods of this node get; written in one step, and when it changes.
func (a *agent) writeSubnetFile(t mesh.Topology) error {
	mtu := a.cfg.Network.MTU
	if mtu == 0 {
		mtu = t.PacketMTU()
	}
	env, err := a.netConf.SubnetEnv(t.PodCIDRs, mtu, a.cfg.Network.Masquerade)
	if err != nil {
		return fmt.Errorf("node %s: %w", a.cfg.Node, err)
	}
	path, text := a.cfg.Flannel.SubnetFile, env.String()
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return nil
	}
	err = os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = atomicfile.Write(path, []byte(text), 0o644, atomicfile.Durable)
	}
	if err != nil {
		return model.Faultf(model.CodeIO, "", "flannel.subnetFile: %w", err)
	}
	a.cfg.Log.Info("subnet file", "path", path, "subnet", env.Subnet, "subnet6", env.IPv6Subnet, "mtu", env.MTU)
	return nil
}
