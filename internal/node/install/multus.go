// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/weft-net/weft/internal/cni"
)

// Multus asks for the form that Multus' own installation has: one plugin in 00-multus.conf, in front of the first
// network of another vendor. Its fields are Multus' keys, with Multus' defaults where they are empty.
type Multus struct {
	NamespaceIsolation     bool
	GlobalNamespaces       []string
	SystemNamespaces       []string
	MultusNamespace        string
	DefaultNetworks        []string
	ReadinessIndicatorFile string
	NetworkDir             string
}

// multusConf is a single plugin's configuration: that is what tools expect under the name 00-multus.conf. A runtime
// makes a list of one of it.
type multusConf struct {
	CNIVersion         string            `json:"cniVersion"`
	Name               string            `json:"name"`
	Type               string            `json:"type"`
	Mark               *mark             `json:"weft"`
	Socket             string            `json:"socket,omitempty"`
	Capabilities       map[string]bool   `json:"capabilities"`
	NamespaceIsolation bool              `json:"namespaceIsolation,omitempty"`
	GlobalNamespaces   string            `json:"globalNamespaces,omitempty"` // one text with commas, as Multus reads it
	SystemNamespaces   []string          `json:"systemNamespaces,omitempty"`
	MultusNamespace    string            `json:"multusNamespace,omitempty"`
	DefaultNetworks    []string          `json:"defaultNetworks,omitempty"`
	Readiness          string            `json:"readinessindicatorfile,omitempty"`
	NetworkDir         string            `json:"confDir,omitempty"`
	Delegates          []json.RawMessage `json:"delegates"`
}

// errMultus tells of a configuration of Multus' own, which is nobody's cluster network.
var errMultus = errors.New("it is a configuration of Multus, not of the cluster's network")

// isMultus tells whether a plugin type is one of Multus'.
func isMultus(typ string) bool { return typ == "multus" || typ == "multus-shim" }

// before is the form of a network with Multus' keys.
func (m *Multus) before(l agentList) multusConf {
	p := l.Plugins[0]
	return multusConf{
		CNIVersion: l.CNIVersion, Name: l.Name, Type: cni.ShimType, Mark: l.Mark, Socket: p.Socket,
		Capabilities:       p.Capabilities,
		NamespaceIsolation: m.NamespaceIsolation, GlobalNamespaces: strings.Join(m.GlobalNamespaces, ","),
		SystemNamespaces: m.SystemNamespaces, MultusNamespace: m.MultusNamespace, DefaultNetworks: m.DefaultNetworks,
		Readiness: m.ReadinessIndicatorFile, NetworkDir: m.NetworkDir, Delegates: p.Delegates,
	}
}
