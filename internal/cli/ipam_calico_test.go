// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const calicoCluster = `apiVersion: v1
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
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: default-ipv4-ippool}
spec: {cidr: 10.244.0.0/16, vxlanMode: Always, natOutgoing: true}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: next}
spec: {cidr: 10.245.0.0/16}
---
apiVersion: crd.projectcalico.org/v1
kind: IPAMBlock
metadata: {name: 10-244-0-0-26}
spec:
  cidr: 10.244.0.0/26
  affinity: host:n1
  allocations: [0, 1, 2, 3, null]
  attributes:
  - {handle_id: vxlan-tunnel-addr-n1, secondary: {node: n1, type: vxlanTunnelAddress}}
  - {handle_id: k8s-pod-network.0123, secondary: {node: n1, namespace: shop, pod: web-0}}
  - {handle_id: k8s-pod-network.4567, secondary: {node: n2, namespace: shop, pod: web-1}}
  - {handle_id: k8s-pod-network.89ab, secondary: {node: n1, namespace: shop, pod: gone}}
`

// script runs weft ipam commands on a directory of manifests and compares what they print.
func script(t *testing.T, dir string, steps []step) {
	t.Helper()
	hint := regexp.MustCompile(`\s+hint: (.*)`)
	for _, s := range steps {
		var stdout, stderr bytes.Buffer
		args := append([]string{"ipam"}, strings.Fields(s.args)...)
		if !strings.Contains(s.args, "--store-dir") {
			args = append(args, "--store-dir", dir)
		}
		exit := Run(context.Background(), Env{
			Args: args, Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" },
		})
		if d := cmp.Diff(s.want, stdout.String()); exit != s.exit || d != "" ||
			!strings.Contains(hint.ReplaceAllString(stderr.String(), " ($1)"), s.says) {
			t.Errorf("weft ipam %s: exit %d, want %d; %s\n%s", s.args, exit, s.exit, stderr.String(), d)
		}
	}
}

type step struct {
	args string
	exit int
	want string
	says string // on standard error
}

func manifests(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestImportCalico follows docs/tasks/migrate-from-calico.md, from the import to the migration to another pool.
func TestImportCalico(t *testing.T) {
	const imported = "" +
		"default-ipv4-ippool  10.244.0.0/16  region in blocks of /26\n" +
		"default-ipv4-ippool  10.244.0.0     vxlanTunnelAddress of node n1  -\n" +
		"default-ipv4-ippool  10.244.0.1     shop/web-0                     eth0\n" +
		"default-ipv4-ippool  10.244.0.2     shop/web-1                     eth0\n" +
		"next                 10.245.0.0/16  region in blocks of /26\n" +
		"default-ipv4-ippool  10.244.0.0/26  block of node n1\n" +
		"default-ipv4-ippool  10.244.0.2     lent to node n2\n" +
		"skipped: IPAMBlock 10-244-0-0-26: address 10.244.0.3: there is no pod shop/gone\n"
	dir := manifests(t, calicoCluster)
	script(t, dir, []step{
		{
			args: "import --from calico --dry-run", want: imported +
				"3 addresses to reserve (dry run), 0 existing, 1 skipped\n",
		},
		{args: "import --from calico", want: imported + "3 addresses reserved, 0 existing, 1 skipped\n"},
		{
			args: "import --from calico",
			want: "skipped: IPAMBlock 10-244-0-0-26: address 10.244.0.3: there is no pod shop/gone\n0 addresses reserved, 3 existing, 1 skipped\n",
		},
		{args: "show", want: "" +
			"POOL                 REGIONS               MODE       ENCAPSULATION  BLOCKS  RESERVED  TOTAL  USED  FREE   ALLOCATABLE  EXHAUSTED ON\n" +
			"default-ipv4-ippool  10.244.0.0/16 in /26  Automatic  vxlan Always   1       3         65536  3     65533  yes          -\n" +
			"next                 10.245.0.0/16 in /26  Automatic  none           0       0         65536  0     65536  yes          -\n\n" +
			"BLOCK          POOL                 NODE  TOTAL  USED  FREE  LENT           REQUESTED\n" +
			"10.244.0.0/26  default-ipv4-ippool  n1    64     3     61    10.244.0.2 n2  -\n"},
		{args: "check", want: "2 pools, 1 block, 0 findings\n"},
		{args: "show 10.244.0.2", want: "" +
			"pool default-ipv4-ippool, region 10.244.0.0/16, block 10.244.0.0/26\n" +
			"reserved in pool default-ipv4-ippool for shop/web-1 (by calico)\n" +
			"block 10.244.0.0/26 of pool default-ipv4-ippool has affinity to node n1\n" +
			"lent to node n2\n" +
			"in use by pod shop/web-1 on node n2\n"},
		{args: "show 192.0.2.1", want: "outside of every pool, and not in use by a pod\n"},
		{
			args: "migrate default-ipv4-ippool --to next", exit: 1,
			says: `pool "default-ipv4-ippool" mirrors Calico's (crd.projectcalico.org/IPPool) (disable it there, or make it independent: kubectl annotate addresspool default-ipv4-ippool weft.dev/from-)`,
		},
		{
			args: "release 10.244.0.1", exit: 1,
			says: "address 10.244.0.1 is in use by pod shop/web-0 (delete the pod: then its address is free)",
		},
		{args: "release --by calico", want: "released: AddressPool default-ipv4-ippool: 10.244.0.0\n"},
		{args: "release --by calico", want: "nothing released\n"},
	})
}

// TestReserveAndRelease checks the commands that operators use for reservations.
func TestReserveAndRelease(t *testing.T) {
	dir := manifests(t, `apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: a}
spec: {assignmentMode: Automatic, regions: [{cidr: 10.0.0.0/16}], reserved: [{address: 10.0.0.9, for: the printer}]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: b}
spec: {assignmentMode: Manual, regions: [{cidr: 10.1.0.0/16}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop}
spec: {nodeName: n1}
status: {podIP: 10.0.7.1}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: a-10-0-7-0-26}
spec: {pool: a, cidr: 10.0.7.0/26, node: n1, claim: "1"}
`)
	script(t, dir, []step{
		{
			args: "reserve 10.0.7.0/24 10.1.0.5 --for printers",
			want: "reserved: AddressReservation reserved-10-0-7-0-24: 10.0.7.0/24, 10.1.0.5\nin use until the pod is deleted: 10.0.7.1 pod shop/web-0\n",
		},
		{
			args: "reserve 10.0.7.0/24", exit: 1,
			says: "AddressReservation reserved-10-0-7-0-24 exists already (choose another --name, or release that one first)",
		},
		{args: "reserve 192.0.2.1", exit: 1, says: "192.0.2.1 is outside of every pool (see the pools in `weft ipam show`)"},
		{
			args: "reserve 10.0.0.1/24", exit: 2, says: `argument "10.0.0.1/24" has bits set behind the prefix length`,
		},
		{args: "reserve x", exit: 2, says: `argument "x" is not an address or a prefix`},
		{args: "reserve 10.0.0.1 --name A_b", exit: 2, says: `--name "A_b" cannot be used`},
		{args: "show 10.0.7.5", want: "" +
			"pool a, region 10.0.0.0/16, block 10.0.7.0/26\n" +
			"excluded in pool a by 10.0.7.0/24 for printers (by AddressReservation reserved-10-0-7-0-24)\n" +
			"block 10.0.7.0/26 of pool a has affinity to node n1\n"},
		{
			args: "release 10.0.7.5", exit: 1,
			says: "10.0.7.5 is a part of 10.0.7.0/24, which AddressReservation reserved-10-0-7-0-24 reserves (release 10.0.7.0/24, or edit that object)",
		},
		{args: "release 10.0.7.0/24", want: "released: AddressReservation reserved-10-0-7-0-24: 10.0.7.0/24\n"},
		{
			args: "release 10.1.0.5 10.0.0.9",
			want: "released: AddressReservation reserved-10-0-7-0-24: 10.1.0.5\nreleased: AddressPool a: 10.0.0.9\n",
		},
		{args: "release 10.1.0.5", exit: 1, says: "10.1.0.5 is not reserved"},
		{
			args: "release 10.0.7.1", exit: 1,
			says: "address 10.0.7.1 is in use by pod shop/web-0 (delete the pod: then its address is free)",
		},
		{args: "release", exit: 2, says: "argument ADDRESS|PREFIX is missing"},
		{
			args: "migrate a --to b --dry-run", exit: 1,
			want: "POD         NODE  ADDRESS\nshop/web-0  n1    10.0.7.1\n1 pod, 1 block and 0 reservations are left\n",
			says: `are left in pool "a"`,
		},
		{
			args: "migrate a --to b --delete", exit: 1,
			want: "pool a is disabled\nPOD         NODE  ADDRESS\nshop/web-0  n1    10.0.7.1\n1 pod, 1 block and 0 reservations are left\n",
		},
		{args: "migrate a --to a", exit: 1, says: `pool "a" is the pool itself (name another pool behind --to)`},
		{args: "migrate c --to a", exit: 1, says: "there is no pool \"c\" (`weft ipam show` lists the pools)"},
		{args: "migrate b --to a", exit: 1, says: `pool "a" has no allocatable addresses: the pool is disabled (fix it first)`},
		{args: "migrate b --to b", exit: 1, says: "the pool itself"},
	})
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"),
		[]byte(
			"apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: a}\nspec: {assignmentMode: Automatic, disabled: true}\n---\n"+
				"apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: b}\nspec: {assignmentMode: Manual}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	script(t, dir, []step{{args: "migrate a --to b --delete", want: "pool a deleted\n"}})
}

// TestImportHostLocal checks that allocations in a node's files are imported if a pod of the node has the address.
func TestImportHostLocal(t *testing.T) {
	dir := manifests(t, calicoCluster)
	files := t.TempDir()
	for name, text := range map[string]string{
		"cbr0/10.244.0.1": "0123\r\neth0", "cbr0/10.244.0.2": "4567\r\neth0", "cbr0/last_reserved_ip.0": "10.244.0.2",
		"cbr0/lock": "", "lan/192.0.2.1": "0123\r\nnet1",
	} {
		path := filepath.Join(files, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := "apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: pods}\nspec: {assignmentMode: Automatic, regions: [{cidr: 10.244.0.0/16, blockSize: 27}]}\n"
	if err := os.WriteFile(filepath.Join(dir, "own.yaml"), []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	script(t, dir, []step{
		{args: "import --from host-local", exit: 2, says: "--node is missing"},
		{args: "import --from host-local --node n9 --dir " + files, exit: 1, says: `--node "n9": there is no such node`},
		{args: "import --from host-local --node n1 --dir " + files, want: "" +
			"pods  10.244.0.1     shop/web-0  eth0\n" +
			"pods  10.244.0.0/27  block of node n1\n" +
			"skipped: network cbr0: address 10.244.0.2: no pod on node n1 has it\n" +
			"skipped: network lan: address 192.0.2.1: no pod on node n1 has it\n" +
			"1 address reserved, 0 existing, 2 skipped\n"},
		{args: "import --from flannel", exit: 2, says: `--from "flannel" is not whereabouts, calico or host-local`},
	})
}

// TestIPAMJSON checks that each command prints one JSON value with the documented keys.
func TestIPAMJSON(t *testing.T) {
	dir := manifests(t, calicoCluster)
	for _, s := range []struct {
		args string
		keys []string
	}{
		{"import --from calico -o json", []string{"blocks", "doubts", "leftOut", "pools"}},
		{"show -o json", []string{"blocks", "findings", "pools"}},
		{"show 10.244.0.1 -o json", []string{"address", "says"}},
		{"reserve 10.244.9.0/24 --name r -o json", []string{"done", "held", "pools"}},
		{"release 10.244.9.0/24 -o json", []string{"done", "held", "pools"}},
	} {
		var stdout, stderr bytes.Buffer
		exit := Run(context.Background(), Env{
			Args: append(append([]string{"ipam"}, strings.Fields(s.args)...), "--store-dir", dir), Stdout: &stdout,
			Stderr: &stderr, Getenv: func(string) string { return "" },
		})
		var out map[string]any
		err := json.Unmarshal(stdout.Bytes(), &out)
		if exit != 0 || err != nil {
			t.Errorf("%s: %d %v %s", s.args, exit, err, stderr.String())
		}
		for _, key := range s.keys {
			if _, there := out[key]; !there {
				t.Errorf("%s: no %q in %s", s.args, key, stdout.String())
			}
		}
	}
}
