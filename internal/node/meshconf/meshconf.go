// SPDX-License-Identifier: Apache-2.0

// Package meshconf computes the configuration of the mesh's planner on this node, from the sections network and
// flannel of the agent's configuration and, in mode flannel, from flannel's net-conf.json. It also decides what the
// node publishes about itself.
package meshconf

import (
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// Config configures Settings.
type Config struct {
	Node     string
	StateDir string
	Network  config.Network
	Flannel  config.Flannel
	// Backends are those in addition to weft's own.
	Backends []mesh.Backend
	// Where the cluster's objects are; a node without any of these has no mesh.
	Kubernetes, Directory, Etcd bool
	// Random is the source of the random part of what this node publishes.
	Random io.Reader
	Log    *slog.Logger
}

// Settings are the mesh's settings on this node.
type Settings struct {
	cfg     Config
	seed    string
	netConf flannel.NetConf // in mode flannel
}

// New returns the settings; in mode flannel ReadNetConf completes them.
func New(cfg Config) *Settings { return &Settings{cfg: cfg, seed: randomText(cfg.Random)} }

// Check refuses an extension backend whose name could be one of weft's own or that has no function Peer, and a
// configured backend that this program does not have.
func (s *Settings) Check() error {
	const hint = "name it DOMAIN/NAME, as example.org/relay, and give it the function Peer"
	for _, b := range s.cfg.Backends {
		if !model.IsCustomBackend(b.Name) || b.Peer == nil {
			return model.Errorf(model.CodeInvalidConf, hint, "backend %q cannot be added", b.Name)
		}
	}
	if !model.IsCustomBackend(s.cfg.Network.Encapsulation) {
		return nil
	}
	cfg := s.Mesh()
	own, err := cfg.Find(s.cfg.Network.Encapsulation)
	if err == nil && own.Check != nil {
		if err = own.Check(cfg); err != nil {
			err = fmt.Errorf("backend %q: %w", own.Name, err)
		}
	}
	return err
}

// Mesh returns the mesh's configuration.
func (s *Settings) Mesh() mesh.Config {
	cfg := s.clusterMesh()
	if s.cfg.Network.Mode == config.ModeFlannel {
		cfg = s.flannelMesh()
	}
	if s.cfg.Network.Interface != "auto" {
		cfg.Interface = s.cfg.Network.Interface
	}
	if s.Publishes() || s.PublishesVTEP() {
		cfg.VTEPSeed, cfg.PublishVTEPOnly = s.seed, !s.Publishes()
	}
	return cfg
}

// clusterMesh returns the mesh's configuration from the section network.
func (s *Settings) clusterMesh() mesh.Config {
	n := s.cfg.Network
	cfg := mesh.Config{
		Backend: n.Encapsulation, Blackhole: n.Blackhole, Unmanaged: n.PodAddresses, Pools: n.FromPools(),
		BridgePods: n.Mode == config.ModeCluster && n.Design != config.DesignBridge,
		VXLAN: mesh.VXLAN{
			VNI: uint32(n.VNI), Port: uint16(n.VXLANPort), GBP: n.VXLANGBP, Learning: n.VXLANLearning,
			DirectRouting: n.DirectRouting, MTU: n.UnderlayMTU,
		},
		UDP: mesh.UDP{Port: uint16(n.UDPPort)}, IPIP: mesh.IPIP{DirectRouting: n.DirectRouting},
		WireGuard: mesh.WireGuard{
			ListenPort: uint16(n.WireguardPort), ListenPortV6: uint16(n.WireguardPortV6), MTU: n.UnderlayMTU,
			Mode:    n.WireguardMode,
			KeyFile: n.WireguardKeyFile, PSKFile: n.WireguardPSKFile,
			PersistentKeepaliveInterval: int(time.Duration(n.WireguardKeepalive) / time.Second),
		},
	}
	if len(s.cfg.Backends) > 0 {
		cfg.Backends = slices.Concat(mesh.Backends(), s.cfg.Backends)
	}
	if n.Masquerade {
		cfg.Masquerade, cfg.NoMasquerade, cfg.PreservePorts = n.ClusterCIDRs, n.NonMasqueradeCIDRs, !n.MasqueradeRandom
	}
	return cfg
}

// PublishesVTEP reports whether the node's object has the node's VtepMAC: only where no other source has it.
func (s *Settings) PublishesVTEP() bool {
	if s.cfg.Kubernetes {
		return s.Publishes()
	}
	return s.cfg.Directory && s.cfg.Flannel.Publish && !s.cfg.Network.Mode.OtherVendor()
}

// Publishes reports whether the node's object says how the node is reached.
func (s *Settings) Publishes() bool {
	mode := s.cfg.Network.Mode
	if !s.cfg.Kubernetes {
		// In a directory the node publishes nothing that its peers can compute themselves.
		return s.cfg.Directory && s.cfg.Flannel.Publish && !mode.OtherVendor() &&
			s.cfg.Network.Encapsulation == "wireguard"
	}
	return s.cfg.Flannel.Publish && (mode == config.ModeCluster || mode == config.ModeFlannel)
}

// randomText returns 16 random bytes in hexadecimal.
func randomText(random io.Reader) string {
	b := make([]byte, 16)
	if _, err := io.ReadFull(random, b); err != nil {
		return "" // no seed: addresses come from names
	}
	return hex.EncodeToString(b)
}
