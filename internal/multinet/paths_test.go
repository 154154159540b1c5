// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestPermittedPaths: a NetworkAttachmentDefinition names no file of the node beyond what is permitted, wherever and
// however the key is written; where nothing is said about paths, any will do.
func TestPermittedPaths(t *testing.T) {
	permitted := []string{"/var/lib/cni", "/etc/resolv.conf", "/data/", "/run/cni"}
	for config, want := range map[string]string{
		`{"type":"macvlan","ipam":{"type":"host-local","dataDir":"/var/lib/cni/mine"}}`:                               "",
		`{"type":"macvlan","ipam":{"type":"host-local","dataDir":"/var/lib/cni"}}`:                                    "",
		`{"type":"macvlan","ipam":{"type":"host-local","dataDir":"/var/run/cni/mine"}}`:                               "",
		`{"type":"macvlan","ipam":{"type":"host-local","dataDir":"/var/running/cni"}}`:                                `ipam.dataDir "/var/running/cni"`,
		`{"type":"macvlan","ipam":{"type":"dhcp","daemonSocketPath":"/run/cni/dhcp.sock"}}`:                           "",
		`{"type":"macvlan","ipam":{"type":"dhcp","daemonSocketPath":"/run/containerd/containerd.sock"}}`:              `ipam.daemonSocketPath "/run/containerd/containerd.sock"`,
		`{"type":"macvlan","ipam":{"type":"host-local","dataDir":"/data/x"}}`:                                         "",
		`{"type":"macvlan","ipam":{"type":"host-local","dataDir":"","resolvConf":"/etc/resolv.conf"}}`:                "",
		`{"type":"macvlan","ipam":{"type":"host-local","dataDir":"/var/lib/cnix"}}`:                                   `ipam.dataDir "/var/lib/cnix"`,
		`{"type":"macvlan","ipam":{"type":"host-local","dataDir":"/var/lib/cni/../../../etc"}}`:                       `ipam.dataDir "/var/lib/cni/../../../etc"`,
		`{"type":"macvlan","ipam":{"type":"host-local","DATADIR":"/root"}}`:                                           `ipam.DATADIR "/root"`,
		`{"type":"macvlan","ipam":{"type":"host-local","dataDir":"mine"}}`:                                            `ipam.dataDir "mine"`,
		`{"type":"macvlan","ipam":{"type":"host-local","resolvConf":"/etc/shadow"}}`:                                  `ipam.resolvConf "/etc/shadow"`,
		`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"macvlan"},{"type":"tuning","dataDir":"/root"}]}`:        `plugins[1].dataDir "/root"`,
		`{"type":"flannel","ipam":{"dataDir":"/root"},"ipam":{"type":"host-local"}}`:                                  `ipam.dataDir "/root"`,
		`{"type":"macvlan","ipam":{"type":"host-local","dataDir":"/root","dataDir":"/var/lib/cni"}}`:                  `ipam.dataDir "/root"`,
		`{"type":"flannel","subnetFile":"/root/x"}`:                                                                   `subnetFile "/root/x"`,
		`{"type":"flannel","delegate":{"ipam":{"dataDir":"/root/x"}}}`:                                                `delegate.ipam.dataDir "/root/x"`,
		`{"type":"macvlan","ipam":{"type":"whereabouts","configuration_path":"/root/.kube/config"}}`:                  `ipam.configuration_path "/root/.kube/config"`,
		`{"type":"multus","delegates":[{"plugins":[{"type":"bridge","ipam":{"type":"host-local","dataDir":"/x"}}]}]}`: `delegates[0].plugins[0].ipam.dataDir "/x"`,
	} {
		b := world(map[string]string{NetworksKey: "mine"})
		b.networks["app/mine"] = model.NetworkAttachment{Namespace: "app", Name: "mine", Config: config}
		call := callOf(t, fmt.Sprintf(delegates, ""))
		_, err := (&Resolver{Cluster: b, PermitPaths: permitted}).Resolve(t.Context(), call)
		var f *model.Error
		switch {
		case want == "" && err != nil && strings.Contains(err.Error(), "files of the node"):
			t.Errorf("%s: %v", config, err)
		case want != "" &&
			(!errors.As(err, &f) || f.Code != model.CodeInvalidConf || !strings.Contains(f.Error(), want) ||
				!strings.Contains(err.Error(), "network app/mine") ||
				!strings.Contains(f.Hint, "network.permitPaths")):
			t.Errorf("%s: %v, want %q", config, err, want)
		}
		if _, err := (&Resolver{Cluster: b}).Resolve(t.Context(), call); err != nil &&
			strings.Contains(err.Error(), "files of the node") {
			t.Errorf("%s, where nothing is said: %v", config, err)
		}
	}
}
