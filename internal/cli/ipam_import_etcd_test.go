// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/weft-net/weft/internal/apitest"
)

// TestImportCalicoEtcd imports from a real etcd with the keys that Calico's client writes with datastoreType etcdv3.
func TestImportCalicoEtcd(t *testing.T) {
	e := apitest.StartEtcd(t, nil, netip.MustParseAddr("127.0.0.1"), true)
	const resource = "/calico/resources/v3/projectcalico.org/"
	for key, value := range map[string]string{
		resource + "ippools/default-ipv4-ippool": `{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"default-ipv4-ippool",
			"uid":"6c1e0f5e","creationTimestamp":"2024-05-01T10:00:00Z"},"spec":{"cidr":"10.244.0.0/16","vxlanMode":"Always","ipipMode":"Never",
			"natOutgoing":true,"blockSize":26,"nodeSelector":"all()","allowedUses":["Workload","Tunnel"]}}`,
		resource + "nodes/one": `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"one"},
			"spec":{"orchRefs":[{"nodeName":"n1","orchestrator":"k8s"}]}}`,
		resource + "nodes/n2":                                `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"n2"},"spec":{}}`,
		resource + "networkpolicies/shop/knp.default.copied": `{"kind":"NetworkPolicy"}`,
		resource + "networkpolicies/shop/security.own": `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{
			"name":"security.own","namespace":"shop","uid":"1d","resourceVersion":"7","labels":{"a":"b"}},"spec":{"tier":"security",
			"order":5,"selector":"app == 'web'","types":["Ingress"],"ingress":[{"action":"Allow","source":{"selector":"x == 'y'"}},
			{"action":"Allow","http":{"methods":["GET"]}}]}}`,
		resource + "tiers/security":                      `{"kind":"Tier","metadata":{"name":"security"},"spec":{"order":100}}`,
		resource + "hostendpoints/one-eth0":              `{"kind":"HostEndpoint","metadata":{"labels":{"host":"web"}},"spec":{"node":"one","interfaceName":"eth0"}}`,
		resource + "felixconfigurations/node.one":        `{"kind":"FelixConfiguration","spec":{"defaultEndpointToHostAction":"Drop"}}`,
		resource + "profiles/kns.shop":                   `{"kind":"Profile"}`,
		resource + "profiles/own":                        `{"kind":"Profile","spec":{"ingress":[{"action":"Allow"}]}}`,
		resource + "tiers/default":                       `{"kind":"Tier"}`,
		resource + "workloadendpoints/shop/n1-k8s-web-0": `not read`,
		"/calico/ipam/v2/config":                         `{"strict_affinity":false,"auto_allocate_blocks":true,"maxBlocksPerHost":7}`,
		"/calico/ipam/v2/handle/k8s-pod-network.0123":    `{"block":{"10.244.0.0/26":1}}`,
		"/calico/ipam/v2/assignment/ipv4/block/10.244.0.0-26": `{"cidr":"10.244.0.0/26","affinity":"host:one","allocations":[0,1,2,3,null],
			"unallocated":[4],"attributes":[
			{"handle_id":"vxlan-tunnel-addr-one","secondary":{"node":"one","type":"vxlanTunnelAddress"}},
			{"handle_id":"k8s-pod-network.0123","secondary":{"node":"one","namespace":"shop","pod":"web-0"}},
			{"handle_id":"k8s-pod-network.4567","secondary":{"node":"n2","namespace":"shop","pod":"web-1"}},
			{"handle_id":"k8s-pod-network.89ab","secondary":{"node":"one","namespace":"shop","pod":"gone"}}],"deleted":false}`,
	} {
		putEtcd(t, e, key, value)
	}
	config := func(text string, args ...any) string {
		path := filepath.Join(t.TempDir(), "calicoctl.cfg")
		if err := os.WriteFile(path, fmt.Appendf(nil, "apiVersion: projectcalico.org/v3\n"+text, args...), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cfg := config("kind: CalicoAPIConfig\nspec:\n  datastoreType: etcdv3\n  etcdEndpoints: %q\n  etcdCACertFile: %q\n"+
		"  etcdCertFile: %q\n  etcdKeyFile: %q\n", e.URL, e.CAFile, e.CertFile, e.KeyFile)
	dir := manifests(t, `apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop}
spec: {nodeName: n1}
status: {podIP: 10.244.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop}
spec: {nodeName: n2}
status: {podIP: 10.244.0.2}
`)
	const part = "warning: not enforced: NetworkPolicy shop/security.own (spec.ingress[1].http: a match of HTTP " +
		"needs a proxy, and weft has none)\n" +
		"warning: not enforced: Profile own (Kubernetes has no profiles; write its rules as a GlobalNetworkPolicy)\n"
	const policies = "warning: etcd has policies that are not imported and will not be enforced: 4 (Tier security, " +
		"HostEndpoint one-eth0, FelixConfiguration node.n1, NetworkPolicy shop/security.own); write them to a file with " +
		"--calico-policies\n" + part
	file := filepath.Join(t.TempDir(), "policies.yaml")
	const gone = "skipped: IPAMBlock 10-244-0-0-26: address 10.244.0.3: there is no pod shop/gone\n"
	kubernetes := config("kind: CalicoAPIConfig\nspec: {datastoreType: kubernetes}\n")
	away := config("kind: CalicoAPIConfig\nspec: {datastoreType: etcdv3, etcdEndpoints: \"http://127.0.0.1:1\"}\n")
	script(t, dir, []step{
		{
			args: "import --from calico --calico-config " + away, exit: 1,
			says: "spec.etcdEndpoints http://127.0.0.1:1: etcd: reading: ",
		},
		{
			args: "import --from calico --calico-config " + cfg, want: "" +
				"default-ipv4-ippool  10.244.0.0/16  region in blocks of /26\n" +
				"default-ipv4-ippool  10.244.0.0     vxlanTunnelAddress of node n1  -\n" +
				"default-ipv4-ippool  10.244.0.1     shop/web-0                     eth0\n" +
				"default-ipv4-ippool  10.244.0.2     shop/web-1                     eth0\n" +
				"default-ipv4-ippool  10.244.0.0/26  block of node n1\n" +
				"default-ipv4-ippool  10.244.0.2     lent to node n2\n" + gone + policies +
				"3 addresses reserved, 0 existing, 1 skipped\n",
		},
		{
			args: "import --from calico --calico-config " + cfg,
			want: gone + policies + "0 addresses reserved, 3 existing, 1 skipped\n",
		},
		{
			args: "import --dry-run --from calico --calico-config " + cfg + " --calico-policies " + file, want: gone + part +
				"4 policy objects to write to " + file + ": kubectl apply -f " + file + "\n" +
				"0 addresses to reserve (dry run), 3 existing, 1 skipped\n",
		},
		{
			args: "import --from calico --calico-config " + cfg + " --calico-policies " + file, want: gone + part +
				"4 policy objects written to " + file + ": kubectl apply -f " + file + "\n" +
				"0 addresses reserved, 3 existing, 1 skipped\n",
		},
		{
			args: "import --from calico --calico-config " + cfg + " --calico-policies " + file, exit: 1,
			says: fmt.Sprintf("--calico-policies %q: file exists (name a file that can be created)", file),
		},
		{
			args: "import --from calico --calico-policies " + file, exit: 2,
			says: "--calico-config is missing (add --calico-config, or leave it out: policies in Kubernetes stay where they are)",
		},
		{args: "check", want: "1 pool, 1 block, 0 findings\n"},
		{
			args: "import --from calico --calico-config " + kubernetes, exit: 1,
			says: `spec.datastoreType "kubernetes" is not etcdv3 (leave --calico-config out: the objects are read from Kubernetes)`,
		},
		{
			args: "import --from calico --calico-config /none", exit: 1,
			says: `--calico-config "/none": no such file or directory (calicoctl's is /etc/calico/calicoctl.cfg)`,
		},
		{
			args: "import --calico-config " + cfg, exit: 2,
			says: "--from is whereabouts (add --from calico, or leave it out)",
		},
	})
	if got, err := os.ReadFile(file); err != nil || string(got) != etcdManifests {
		t.Errorf("%v: %s", err, got)
	}
}

// etcdManifests are the policies of TestImportCalicoEtcd, as Kubernetes stores them.
const etcdManifests = `---
apiVersion: crd.projectcalico.org/v1
kind: Tier
metadata:
  name: security
spec:
  order: 100
---
apiVersion: crd.projectcalico.org/v1
kind: HostEndpoint
metadata:
  labels:
    host: web
  name: one-eth0
spec:
  interfaceName: eth0
  node: n1
---
apiVersion: crd.projectcalico.org/v1
kind: FelixConfiguration
metadata:
  name: node.n1
spec:
  defaultEndpointToHostAction: Drop
---
apiVersion: crd.projectcalico.org/v1
kind: NetworkPolicy
metadata:
  labels:
    a: b
  name: security.own
  namespace: shop
spec:
  ingress:
  - action: Allow
    source:
      selector: x == 'y'
  - action: Allow
    http:
      methods:
      - GET
  order: 5
  selector: app == 'web'
  tier: security
  types:
  - Ingress
`

// putEtcd writes a key by the gateway for JSON of a real etcd.
func putEtcd(t *testing.T, e *apitest.Etcd, key, value string) {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(e.CertFile, e.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(e.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS12,
	}}}
	defer client.CloseIdleConnections()
	body, err := json.Marshal(map[string][]byte{"key": []byte(key), "value": []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Post(e.URL+"/v3/kv/put", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("etcd: put %s: %s", key, answer.Status)
	}
}
