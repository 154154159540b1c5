// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const pools = `apiVersion: v1
kind: Node
metadata: {name: a}
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: p}
spec: {regions: [{cidr: 10.0.0.0/24, blockSize: 28}]}
status: {wanted: [a]}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: p-10-0-0-0-28}
spec: {pool: p, cidr: 10.0.0.0/28, node: a, claim: "1", ceded: {10.0.0.8: b/2, 10.0.0.9: ""}, asked: {10.0.0.7: a}}
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: p-10-0-0-16-28}
spec: {pool: p, cidr: 10.0.0.16/28, node: b, claim: "2"}
`

func TestIPAM(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.yaml"), []byte(pools), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"show"}, 0, "" +
			"POOL  REGIONS             MODE  ENCAPSULATION  BLOCKS  RESERVED  TOTAL  USED  FREE  ALLOCATABLE  EXHAUSTED ON\n" +
			"p     10.0.0.0/24 in /28  -     -              2       0         256    -     -     yes          a\n\n" +
			"BLOCK         POOL  NODE  TOTAL  USED  FREE  LENT                    REQUESTED\n" +
			"10.0.0.0/28   p     a     16     -     -     10.0.0.8 b, 10.0.0.9 -  10.0.0.7 a\n" +
			"10.0.0.16/28  p     b     16     -     -     -                       -\n\n" +
			"No pod reports its addresses. To count the addresses that a node has allocated, add --agent there, as root.\n"},
		{[]string{"show", "-o", "name"}, 0, "p\n"},
		{[]string{"show", "--no-headers"}, 0, "" +
			"p  10.0.0.0/24 in /28  -  -  2  0  256  -  -  yes  a\n\n" +
			"10.0.0.0/28   p  a  16  -  -  10.0.0.8 b, 10.0.0.9 -  10.0.0.7 a\n" +
			"10.0.0.16/28  p  b  16  -  -  -                       -\n\n" +
			"No pod reports its addresses. To count the addresses that a node has allocated, add --agent there, as root.\n"},
		{[]string{"check"}, 1, "" +
			"AddressBlock p-10-0-0-0-28: address 10.0.0.8 is lent to node \"b\", and there is no such node (--fix: the address is free)\n" +
			"AddressBlock p-10-0-0-16-28: block 10.0.0.16/28 belongs to node \"b\", and there is no such node (--fix: the block is free)\n" +
			"1 pool, 2 blocks, 2 findings\n"},
		{[]string{"check", "--fix", "-o", "json"}, 0, `[
  {
    "object": "AddressBlock p-10-0-0-0-28",
    "reason": "Leaked",
    "pool": "p",
    "message": "address 10.0.0.8 is lent to node \"b\", and there is no such node",
    "fix": "the address is free"
  },
  {
    "object": "AddressBlock p-10-0-0-16-28",
    "reason": "OwnerGone",
    "pool": "p",
    "message": "block 10.0.0.16/28 belongs to node \"b\", and there is no such node",
    "fix": "the block is free"
  }
]
`},
		{[]string{"check"}, 0, "1 pool, 1 block, 0 findings\n"},
		{[]string{"show", "-o", "xml"}, 2, ""},
	} {
		var out, errs bytes.Buffer
		args := append(append([]string{"ipam"}, c.args...), "--store-dir", dir)
		exit := Run(context.Background(), Env{Args: args, Getenv: os.Getenv, Stdout: &out, Stderr: &errs})
		if exit != c.exit || c.exit != 2 && cmp.Diff(c.want, out.String()) != "" {
			t.Errorf("%v: exit %d, %s\n%s", c.args, exit, errs.String(), cmp.Diff(c.want, out.String()))
		}
	}
}

const whereaboutsPool = `apiVersion: whereabouts.cni.cncf.io/v1alpha1
kind: IPPool
metadata: {name: 10.0.0.0-24, namespace: kube-system}
spec: {range: 10.0.0.0/24, allocations: {"5": {id: c1, podref: shop/web-0, ifname: net1}, "6": {id: c2, podref: shop/gone}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop}
`

func TestIPAMImport(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.yaml"), []byte(whereaboutsPool), 0o600); err != nil {
		t.Fatal(err)
	}
	const plan = "whereabouts  10.0.0.0/24  region in blocks of /30\n" +
		"whereabouts  10.0.0.5     shop/web-0  net1\n"
	const left = "skipped: IPPool kube-system/10.0.0.0-24: address 10.0.0.6 of shop/gone: there is no such pod\n"
	for _, c := range []struct {
		args []string
		want string
	}{
		{
			[]string{
				"import", "--dry-run",
			}, plan + left + "1 address to reserve (dry run), 0 existing, 1 skipped\n",
		},
		{[]string{"import"}, plan + left + "1 address reserved, 0 existing, 1 skipped\n"},
		{[]string{"import"}, left + "0 addresses reserved, 1 existing, 1 skipped\n"},
		{
			[]string{
				"show",
			},
			"POOL         REGIONS             MODE  ENCAPSULATION  BLOCKS  RESERVED  TOTAL  USED  FREE  ALLOCATABLE  EXHAUSTED ON\nwhereabouts  10.0.0.0/24 in /30  -     -              0       1         256    1     255   yes          -\n",
		},
	} {
		var out, errs bytes.Buffer
		args := append(append([]string{"ipam"}, c.args...), "--store-dir", dir)
		exit := Run(context.Background(), Env{Args: args, Getenv: os.Getenv, Stdout: &out, Stderr: &errs})
		if exit != 0 || cmp.Diff(c.want, out.String()) != "" {
			t.Errorf("%v: exit %d, %s\n%s", c.args, exit, errs.String(), cmp.Diff(c.want, out.String()))
		}
	}
}

const inUse = `
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: p}
spec:
  regions: [{cidr: 10.0.0.0/24, blockSize: 28}]
  reserved: [{address: 10.0.0.200, for: a printer}]
  excluded: [{cidr: 10.0.0.8/29}, {cidr: 10.0.0.12/30}, {cidr: 10.9.0.0/24}]
---
apiVersion: weft.dev/v1alpha1
kind: AddressBlock
metadata: {name: p-10-0-0-0-28}
spec: {pool: p, cidr: 10.0.0.0/28, node: a, claim: "1"}
`

const plain = `apiVersion: v1
kind: Node
metadata: {name: a}
spec: {podCIDRs: [10.1.0.0/24, "fd00:1::/64"]}
---
apiVersion: v1
kind: Node
metadata: {name: b}
spec: {podCIDRs: [10.1.1.0/30]}
---
apiVersion: v1
kind: Pod
metadata: {name: one, namespace: default}
spec: {nodeName: a}
status: {podIPs: [{ip: 10.1.0.5}, {ip: "fd00:1::5"}, {ip: 10.0.0.3}]}
---
apiVersion: v1
kind: Pod
metadata: {name: two, namespace: default}
spec: {nodeName: a}
status: {podIPs: [{ip: 10.1.0.6}, {ip: 10.0.0.9}]}
---
apiVersion: v1
kind: Pod
metadata: {name: over, namespace: default}
spec: {nodeName: a}
status: {phase: Succeeded, podIPs: [{ip: 10.1.0.7}]}
---
apiVersion: v1
kind: Pod
metadata: {name: host, namespace: default}
spec: {nodeName: a, hostNetwork: true}
status: {podIPs: [{ip: 10.1.0.8}]}
`

// TestUsage checks the use of pools, blocks and, without pools of the cluster's network, the nodes' ranges.
func TestUsage(t *testing.T) {
	const ranges = "NODE  RANGE          TOTAL  USED  FREE\n" +
		"a     10.1.0.0/24    253    2     251\n" +
		"a     fd00:1::/64    2^64   1     2^64\n" +
		"b     10.1.1.0/30    1      0     1\n"
	pools := func(mode string) string {
		return "POOL  REGIONS             MODE       ENCAPSULATION  BLOCKS  RESERVED  TOTAL  USED  FREE  ALLOCATABLE  EXHAUSTED ON\n" +
			"p     10.0.0.0/24 in /28  " + mode + "  -              1       4         256    3     246   yes          -\n\n" +
			"BLOCK        POOL  NODE  TOTAL  USED  FREE  LENT   REQUESTED\n" +
			"10.0.0.0/28  p     a     16     2     7     -      -\n"
	}
	for name, c := range map[string]struct{ manifests, want string }{
		"plain ranges": {plain, ranges},
		"the cluster's pools": {
			plain + strings.Replace(inUse, "regions:", "assignmentMode: Automatic\n  regions:", 1), pools("Automatic"),
		},
		"pools of others": {plain + inUse, strings.ReplaceAll(pools("MODE-----"), "MODE-----  ", "-     ") + "\n" + ranges},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x.yaml"), []byte(c.manifests), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		exit := Run(context.Background(), Env{
			Args: []string{"ipam", "show", "--store-dir", dir}, Getenv: os.Getenv, Stdout: &out, Stderr: &errs,
		})
		got, want := unaligned(out.String()), unaligned(c.want)
		if exit != 0 || cmp.Diff(want, got) != "" {
			t.Errorf("%s: exit %d %s\n%s", name, exit, errs.String(), cmp.Diff(want, got))
		}
	}
}

// unaligned replaces the spaces between columns by one each.
func unaligned(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(out, "\n")
}

// TestIPAMWatch: a pool that is added and one that is deleted are printed as rows of their own; the end of the context, as
// by Ctrl-C, is exit code 0.
func TestIPAMWatch(t *testing.T) {
	dir := t.TempDir()
	pool := func(name, cidr string) {
		t.Helper()
		text := "apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: " + name + "}\n" +
			"spec: {regions: [{cidr: " + cidr + ", blockSize: 28}]}\n"
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool("blue", "10.0.0.0/24")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, out := io.Pipe()
	var errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, Env{
			Args: []string{"ipam", "show", "--watch", "--no-headers", "--store-dir", dir}, Stdout: out, Stderr: &errs,
			Getenv: func(string) string { return "" },
		})
		_ = out.Close()
	}()
	lines := bufio.NewScanner(in)
	expect := func(first, second string) {
		t.Helper()
		for lines.Scan() {
			if w := strings.Fields(lines.Text()); len(w) > 1 && w[0] == first {
				if w[1] != second {
					t.Errorf("%q, want %s of %s", lines.Text(), second, first)
				}
				return
			}
		}
		t.Fatalf("no row of %s: %v %s", first, lines.Err(), &errs)
	}
	expect("blue", "10.0.0.0/24")
	pool("red", "10.1.0.0/24")
	expect("red", "10.1.0.0/24")
	if err := os.Remove(filepath.Join(dir, "blue.yaml")); err != nil {
		t.Fatal(err)
	}
	expect("blue", "deleted")
	cancel()
	if got := <-code; got != 0 || errs.Len() > 0 {
		t.Errorf("exit code %d: %s", got, &errs)
	}
}
