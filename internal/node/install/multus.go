// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/weft-net/weft/internal/cni"
)

// Multus requests the form of Multus's own installation: one plugin in 00-multus.conf, before the first network of
// another vendor. Its fields are Multus's keys, with Multus's defaults if they are empty.
type Multus struct {
	NamespaceIsolation     bool
	GlobalNamespaces       []string
	SystemNamespaces       []string
	MultusNamespace        string
	DefaultNetworks        []string
	ReadinessIndicatorFile string
	NetworkDir             string
	LogFile                string
	LogLevel               string
}

// multusConf is a single plugin's configuration: tools expect that under the name 00-multus.conf. A runtime reads it
// as a list of one plugin.
type multusConf struct {
	CNIVersion         string            `json:"cniVersion"`
	Name               string            `json:"name"`
	Type               string            `json:"type"`
	Mark               *mark             `json:"weft"`
	Socket             string            `json:"socket,omitempty"`
	Capabilities       map[string]bool   `json:"capabilities"`
	NamespaceIsolation bool              `json:"namespaceIsolation,omitempty"`
	GlobalNamespaces   string            `json:"globalNamespaces,omitempty"` // one string with commas, as Multus reads it
	SystemNamespaces   []string          `json:"systemNamespaces,omitempty"`
	MultusNamespace    string            `json:"multusNamespace,omitempty"`
	DefaultNetworks    []string          `json:"defaultNetworks,omitempty"`
	Readiness          string            `json:"readinessindicatorfile,omitempty"`
	NetworkDir         string            `json:"confDir,omitempty"`
	LogFile            string            `json:"logFile,omitempty"`
	LogLevel           string            `json:"logLevel,omitempty"`
	Delegates          []json.RawMessage `json:"delegates"`
}

// errMultus reports a configuration of Multus itself, which is not the cluster network.
var errMultus = errors.New("it is a configuration of Multus, not of the cluster's network")

// isMultus reports whether a plugin type is one of Multus's.
func isMultus(typ string) bool { return typ == "multus" || typ == "multus-shim" }

// before returns the form of a network with Multus's keys.
func (m *Multus) before(l agentList) multusConf {
	p := l.Plugins[0]
	return multusConf{
		CNIVersion: l.CNIVersion, Name: l.Name, Type: cni.ShimType, Mark: l.Mark, Socket: p.Socket,
		Capabilities:       p.Capabilities,
		NamespaceIsolation: m.NamespaceIsolation, GlobalNamespaces: strings.Join(m.GlobalNamespaces, ","),
		SystemNamespaces: m.SystemNamespaces, MultusNamespace: m.MultusNamespace, DefaultNetworks: m.DefaultNetworks,
		Readiness: m.ReadinessIndicatorFile, NetworkDir: m.NetworkDir, LogFile: m.LogFile,
		LogLevel: m.LogLevel, Delegates: p.Delegates,
	}
}
