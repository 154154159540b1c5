// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store/dir"
)

// TestUnenforced: what is not enforced is found in both groups, once each, with the reason; what Calico itself made is
// left out.
func TestUnenforced(t *testing.T) {
	path := t.TempDir()
	text := `
apiVersion: crd.projectcalico.org/v1
kind: NetworkPolicy
metadata: {name: default.closed, namespace: shop}
spec: {ingress: [{action: Allow, http: {methods: [GET]}}]}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec: {ingress: [{action: Allow, http: {methods: [GET]}}]}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: knp.default.other, namespace: shop}
---
apiVersion: crd.projectcalico.org/v1
kind: GlobalNetworkPolicy
metadata: {name: default-deny}
---
apiVersion: crd.projectcalico.org/v1
kind: GlobalNetworkPolicy
metadata: {name: pods-only}
spec: {namespaceSelector: has(projectcalico.org/name)}
---
apiVersion: crd.projectcalico.org/v1
kind: GlobalNetworkPolicy
metadata: {name: port}
spec: {preDNAT: true, applyOnForward: true}
---
apiVersion: projectcalico.org/v3
kind: StagedNetworkPolicy
metadata: {name: staged, namespace: shop}
---
apiVersion: crd.projectcalico.org/v1
kind: Tier
metadata: {name: default}
---
apiVersion: crd.projectcalico.org/v1
kind: Tier
metadata: {name: security}
---
apiVersion: crd.projectcalico.org/v1
kind: HostEndpoint
metadata: {name: n1-auto-hep, labels: {projectcalico.org/created-by: calico-kube-controllers}}
spec: {node: n1, interfaceName: "*"}
---
apiVersion: crd.projectcalico.org/v1
kind: HostEndpoint
metadata: {name: n1-eth0}
spec: {node: n1, expectedIPs: [10.0.0.1, 10.0.0.x]}
---
apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: default}
spec: {failsafeInboundHostPorts: [{protocol: icmp, port: 22}], defaultEndpointToHostAction: Accept, logPrefix: mine}
---
apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: node.n1}
spec: {iptablesFilterDenyAction: Reject, workloadSourceSpoofing: Any, externalNodesList: [192.0.2.0/24], disableConntrackInvalidCheck: false,
  interfacePrefix: "eni,cali"}
---
apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: node.n2}
spec: {iptablesFilterDenyAction: Drop, workloadSourceSpoofing: Disabled, externalNodesList: [], disableConntrackInvalidCheck: true, chainInsertMode: Append,
  interfacePrefix: cali}
---
apiVersion: projectcalico.org/v3
kind: KubeControllersConfiguration
metadata: {name: default}
spec: {controllers: {node: {hostEndpoint: {autoCreate: Enabled, templates: [{generateName: x, interfacePattern: "("}]}}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: kubernetes, namespace: shop}
spec: {podSelector: {}}
`
	if err := os.WriteFile(filepath.Join(path, "all.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := calico.Unenforced(t.Context(), s.Objects())
	want := []string{
		`FelixConfiguration default (spec.failsafeInboundHostPorts[0].protocol "icmp" is none of tcp, udp and sctp ` +
			`(write for example {protocol: tcp, port: 22}; until then the default ports stay open))`,
		"FelixConfiguration node.n1 (spec.iptablesFilterDenyAction Reject has no effect (denied packets are dropped); " +
			"spec.workloadSourceSpoofing Any has no effect (permit it to pods by feature_control.source_prefixes in the plugin's configuration); " +
			"spec.externalNodesList 192.0.2.0/24 has no effect (tunnels from there are what policies at host endpoints allow); " +
			"spec.disableConntrackInvalidCheck false has no effect (packets without a connection are evaluated as new ones; leave it out if that is what you want); " +
			"spec.interfacePrefix eni,cali has no effect (interfaces that Calico made for pods are found by the prefix cali only, " +
			"and no policy is enforced at others until weft attaches their pods again))",
		`HostEndpoint n1-eth0 (spec.expectedIPs[1] "10.0.0.x" is no address (write an address))`,
		"KubeControllersConfiguration default (spec.controllers.node.hostEndpoint.templates[0]: error parsing regexp: missing " +
			"closing ): `(` (compare with Calico's reference; until then the template creates nothing))",
		"NetworkPolicy shop/closed (spec.ingress[0].http: a match of HTTP needs a proxy, and weft has none)",
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	if text := calico.Summary([]string{"a", "b", "c", "d", "e", "f", "g"}); text != "7 (a, b, c, d, e and 2 more)" {
		t.Error(text)
	}
}
