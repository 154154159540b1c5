// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/confdir"
	"github.com/weft-net/weft/internal/model"
)

// annotations is the capability by which a runtime passes the pod's annotations to a plugin.
const annotations = "io.kubernetes.cri.pod-annotations"

// agentList is the agent's conflist of a network: one plugin, weft-cni, with the network as its delegate.
type agentList struct {
	CNIVersion  string   `json:"cniVersion"`
	CNIVersions []string `json:"cniVersions"`
	// Name is the network's own, so that the runtime's cached results of existing pods stay valid.
	Name         string `json:"name"`
	DisableCheck bool   `json:"disableCheck,omitempty"`
	DisableGC    bool   `json:"disableGC,omitempty"`
	// Inlined keeps the runtime from appending the plugins of the network's folder, which are already in the delegate.
	Inlined bool          `json:"loadOnlyInlinedPlugins"`
	Mark    *mark         `json:"weft"`
	Plugins []agentPlugin `json:"plugins"`
}

// mark marks a file as made by weft, and names its source.
type mark struct {
	DerivedFrom string `json:"derivedFrom"`
}

type agentPlugin struct {
	Type         string            `json:"type"`
	Socket       string            `json:"socket,omitempty"`
	Capabilities map[string]bool   `json:"capabilities"`
	Delegates    []json.RawMessage `json:"delegates"`
}

// Configurations from which no agent's conflist is derived.
var (
	errLoopback = errors.New("it is the loopback network, which every pod has")
	errAgent    = errors.New("it is the agent's conflist")
)

// derive returns the agent's conflist of a configuration file.
func derive(path string, b []byte, c Config) ([]byte, error) {
	list, err := confdir.Parse(b, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	n, err := cni.ParseNetwork(list.Bytes)
	if err != nil {
		return nil, err
	}
	if len(n.Plugins) == 1 && n.Plugins[0].Type == loopback {
		return nil, errLoopback
	}
	caps := map[string]bool{annotations: true}
	for _, p := range n.Plugins {
		if p.Type == cni.ShimType {
			return nil, errAgent
		}
		if c.Multus != nil && isMultus(p.Type) {
			return nil, errMultus
		}
		for name, declared := range p.Capabilities {
			if declared {
				caps[name] = true
			}
		}
	}
	conflist := agentList{
		CNIVersion: "1.0.0", CNIVersions: since("1.0.0"), Name: n.Name, DisableCheck: n.DisableCheck, DisableGC: n.DisableGC,
		Inlined: true, Mark: &mark{filepath.Base(path)},
		Plugins: []agentPlugin{{cni.ShimType, c.Socket, caps, []json.RawMessage{list.Bytes}}},
	}
	var out []byte
	if c.Multus != nil {
		out, err = json.MarshalIndent(c.Multus.before(conflist), "", "  ")
	} else {
		out, err = json.MarshalIndent(conflist, "", "  ")
	}
	if err != nil {
		return nil, err
	}
	return append(out, '\n'), nil
}

// since returns the versions of the protocol from v on.
func since(v string) []string {
	return slices.DeleteFunc(cni.Versions(), func(w string) bool { return !cni.AtLeast(w, v) })
}

// derivedFrom returns the source of a file that weft made.
func derivedFrom(b []byte) (string, bool) {
	var list struct {
		Mark *mark `json:"weft"`
	}
	if json.Unmarshal(b, &list) != nil || list.Mark == nil || list.Mark.DerivedFrom == "" {
		return "", false
	}
	return list.Mark.DerivedFrom, true
}

// nameBefore returns a file name that sorts before another: the runtime uses the first file of its directory.
func nameBefore(other string, multus bool) (string, error) {
	names := []string{"00-weft.conflist", "+weft.conflist"}
	if multus {
		names = []string{"00-multus.conf", "+multus.conf"}
	}
	for _, name := range names {
		if name < other {
			return name, nil
		}
	}
	return "", model.Errorf(model.CodeInvalidConf, "rename the file so that it begins with a digit or a letter",
		"configuration file %s: no name sorts before it", other)
}
