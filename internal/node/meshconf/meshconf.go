// SPDX-License-Identifier: Apache-2.0

// Package meshconf is the mesh's configuration on this node: what the parts network and flannel of the agent's
// configuration, and flannel's net-conf.json in mode flannel, mean for the planner of the mesh, and what the node
// publishes of itself.
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

// Config is that of Settings.
type Config struct {
	Node     string
	StateDir string
	Network  config.Network
	Flannel  config.Flannel
	// Backends are those beside weft's own.
	Backends []mesh.Backend
	// Where the cluster's objects are; none of them is a node without a mesh.
	Kubernetes, Directory, Etcd bool
	// Random seeds what this node publishes first.
	Random io.Reader
	Log    *slog.Logger
}

// Settings are the mesh's on this node.
type Settings struct {
	cfg     Config
	seed    string
	netConf flannel.NetConf // in mode flannel
}

// New returns the settings; in mode flannel ReadNetConf completes them.
func New(cfg Config) *Settings { return &Settings{cfg: cfg, seed: randomText(cfg.Random)} }

// Check refuses back ends that could be taken for weft's own or reach nobody, and the name of one that this program
// does not have.
func (s *Settings) Check() error {
	const hint = "name it DOMAIN/NAME, as example.org/relay, and give it the function Peer"
	for _, b := range s.cfg.Backends {
		if !model.OwnBackend(b.Name) || b.Peer == nil {
			return model.Faultf(model.CodeInvalidConf, hint, "back end %q cannot be added", b.Name)
		}
	}
	if !model.OwnBackend(s.cfg.Network.Encapsulation) {
		return nil
	}
	cfg := s.Mesh()
	own, err := cfg.Find(s.cfg.Network.Encapsulation)
	if err == nil && own.Check != nil {
		if err = own.Check(cfg); err != nil {
			err = fmt.Errorf("back end %q: %w", own.Name, err)
		}
	}
	return err
}

// Mesh is what the configuration says of the mesh.
func (s *Settings) Mesh() mesh.Config {
	cfg := s.clusterMesh()
	if s.cfg.Network.Mode == config.ModeFlannel {
		cfg = s.flannelMesh()
	}
	if s.cfg.Network.Interface != "auto" {
		cfg.Interface = s.cfg.Network.Interface
	}
	if s.Publishes() || s.PublishesVtep() {
		cfg.VtepSeed, cfg.VtepAlone = s.seed, !s.Publishes()
	}
	return cfg
}

// clusterMesh is what the part network says of it.
func (s *Settings) clusterMesh() mesh.Config {
	n := s.cfg.Network
	cfg := mesh.Config{
		Backend: n.Encapsulation, Blackhole: n.Blackhole, Brought: n.PodAddresses, Pools: n.FromPools(),
		Beside: n.Mode == config.ModeCluster && n.Design != config.DesignBridge,
		Vxlan: mesh.Vxlan{
			VNI: uint32(n.VNI), Port: uint16(n.VxlanPort), GBP: n.VxlanGBP, Learning: n.VxlanLearning,
			DirectRouting: n.DirectRouting, MTU: n.UnderlayMTU,
		},
		UDP: mesh.UDP{Port: uint16(n.UDPPort)}, IPIP: mesh.IPIP{DirectRouting: n.DirectRouting},
		Wireguard: mesh.Wireguard{
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
		cfg.Masquerade, cfg.Keep, cfg.PortsInOrder = n.ClusterCIDRs, n.NonMasqueradeCIDRs, !n.MasqueradeRandom
	}
	return cfg
}

// PublishesVtep reports whether the node's object says the node's VtepMAC, where there is one that nothing else says.
func (s *Settings) PublishesVtep() bool {
	if s.cfg.Kubernetes {
		return s.Publishes()
	}
	return s.cfg.Directory && s.cfg.Flannel.Publish && s.cfg.Network.Mode != config.ModeMultus
}

// Publishes reports whether the node's object says how the node is reached.
func (s *Settings) Publishes() bool {
	mode := s.cfg.Network.Mode
	if !s.cfg.Kubernetes {
		// In a directory nothing is told that everybody could say by himself.
		return s.cfg.Directory && s.cfg.Flannel.Publish && mode != config.ModeMultus &&
			s.cfg.Network.Encapsulation == "wireguard"
	}
	return s.cfg.Flannel.Publish && (mode == config.ModeCluster || mode == config.ModeFlannel)
}

// randomText is 16 random bytes as text.
func randomText(random io.Reader) string {
	b := make([]byte, 16)
	if _, err := io.ReadFull(random, b); err != nil {
		return "" // no seed: addresses come from names
	}
	return hex.EncodeToString(b)
}
