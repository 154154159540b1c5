// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"maps"
	"os"
	"path/filepath"
)

const flannelType = "flannel"

// flannelSubject is the plugin that delegates to bridge with the subnet of flanneld's subnet.env, which the kit writes.
func flannelSubject() *subject {
	env := func(w *world) string { return filepath.Join(w.dir, "subnet.env") }
	return &subject{
		typ: flannelType, role: mainPlugin, delegates: true, needs: []string{"veth", "bridge"},
		prepareNode: func(w *world) error {
			const text = "FLANNEL_NETWORK=10.23.0.0/16\nFLANNEL_SUBNET=10.23.0.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
			return os.WriteFile(env(w), []byte(text), 0o600)
		},
		conf: func(w *world, _ *pod) map[string]any {
			ipam := maps.Clone(w.ipam)
			delete(ipam, "subnet")
			return map[string]any{
				"subnetFile": env(w), "dataDir": filepath.Join(w.data(), "flannel"), "ipam": ipam,
				"delegate": map[string]any{"bridge": "kitbr0"},
			}
		},
		exhaust: func(w *world) error { return os.Remove(env(w)) },
	}
}
