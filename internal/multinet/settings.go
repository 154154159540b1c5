// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// Settings are the runtime's configuration of the agent, or of Multus: the keys are the same.
type Settings struct {
	Name string `json:"name"`
	// Socket is used by weft-cni, which would use the default for an invalid one.
	Socket    string            `json:"socket"`
	Delegates []json.RawMessage `json:"delegates"`
	// RuntimeConfig is what the runtime provides for the declared capabilities.
	RuntimeConfig map[string]any `json:"runtimeConfig"`
	Args          struct {
		CNI map[string]any `json:"cni"`
	} `json:"args"`

	// ClusterNetwork and DefaultNetworks name networks: a NetworkAttachmentDefinition, a configuration in ConfDir, a
	// directory or a file. Where there is a ClusterNetwork, Delegates do not count, as with Multus; DefaultNetworks are
	// added to both.
	ClusterNetwork  string   `json:"clusterNetwork"`
	DefaultNetworks []string `json:"defaultNetworks"`
	ConfDir         string   `json:"confDir"`
	CNIDir          string   `json:"cniDir"` // Multus' cache
	BinDir          string   `json:"binDir"`
	// ReadinessFile is a file that the cluster's network writes when it is ready.
	ReadinessFile string `json:"readinessindicatorfile"`
	// NamespaceIsolation keeps pods from networks of other namespaces than these.
	NamespaceIsolation bool     `json:"namespaceIsolation"`
	GlobalNamespaces   string   `json:"globalNamespaces"` // with commas between them
	SystemNamespaces   []string `json:"systemNamespaces"` // their pods get no DefaultNetworks
	MultusNamespace    string   `json:"multusNamespace"`
	AuxiliaryChain     string   `json:"auxiliaryCNIChainName"`
	// Parallel executes the foreign plugins of a pod's networks concurrently. The standard forbids that, so it is off by
	// default. The first network is always attached before the others.
	Parallel bool `json:"parallelNetworks"`

	// Root is where the agent sees the node's files.
	Root string `json:"-"`
}

// hostPrefix is where Multus' daemon sees the node's files: its configurations name them so.
const hostPrefix = "/host"

// seen returns a path of the configuration as the agent sees it.
func (s Settings) seen(path string) string {
	at := filepath.Join(s.Root, path)
	if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) && onNode(path) != path {
		return filepath.Join(s.Root, onNode(path))
	}
	return at
}

// onNode returns a path as the node has it.
func onNode(path string) string {
	if rest, ok := strings.CutPrefix(path, hostPrefix+"/"); ok {
		return "/" + rest
	}
	return path
}

// Multus' defaults.
const (
	defaultConfDir   = "/etc/cni/multus/net.d"
	defaultCNIDir    = "/var/lib/cni/multus"
	defaultNamespace = "kube-system"
)

const example = `"delegates": [{"type": "ptp", "ipam": {…}}]`

// maxDelegates bounds the networks that a configuration adds to every pod.
const maxDelegates = 64

// ParseSettings reads the configuration of a call. root is where the node's files are.
func ParseSettings(call cni.Call, root string) (Settings, error) {
	s := Settings{
		Root:    root,
		ConfDir: defaultConfDir, CNIDir: defaultCNIDir, MultusNamespace: defaultNamespace, GlobalNamespaces: "default",
		SystemNamespaces: []string{"kube-system"},
	}
	if err := cni.Decode("network "+call.Request.Network, call.Conf, &s); err != nil {
		return s, err
	}
	if s.ClusterNetwork != "" {
		s.Delegates = nil
	}
	if len(s.Delegates) == 0 && s.ClusterNetwork == "" {
		return s, model.Errorf(model.CodeInvalidConf, example, "network %s: delegates: missing or empty", s.Name)
	}
	if n := len(s.Delegates); n > maxDelegates {
		return s, model.Errorf(model.CodeInvalidConf, "", "network %s: delegates: %d networks, at most %d", s.Name, n,
			maxDelegates)
	}
	if n := len(s.DefaultNetworks); n > maxDelegates {
		return s, model.Errorf(model.CodeInvalidConf, "", "network %s: defaultNetworks: %d networks, at most %d", s.Name, n,
			maxDelegates)
	}
	return s, nil
}

// mayUse reports whether a pod of one namespace may use a network of another.
func (s Settings) mayUse(pod, network string) bool {
	if !s.NamespaceIsolation || pod == network {
		return true
	}
	for name := range strings.SplitSeq(s.GlobalNamespaces, ",") {
		if strings.TrimSpace(name) == network {
			return true
		}
	}
	return false
}

// system reports whether pods of the namespace get no default networks.
func (s Settings) system(namespace string) bool {
	return slices.Contains(s.SystemNamespaces, namespace)
}
