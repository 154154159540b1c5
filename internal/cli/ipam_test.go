// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
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
spec: {regions: [{cidr: 10.0.0.0/24, blockSize: 28}], wanted: [a]}
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
			"POOL  REGIONS             MODE  ENCAPSULATION  BLOCKS  RESERVED  GIVES  WANTED BY\n" +
			"p     10.0.0.0/24 in /28  -     -              2       0         yes    a\n\n" +
			"BLOCK         POOL  NODE  CEDED                   ASKED FOR\n" +
			"10.0.0.0/28   p     a     10.0.0.8 b, 10.0.0.9 -  10.0.0.7 a\n" +
			"10.0.0.16/28  p     b     -                       -\n"},
		{[]string{"check"}, 1, "" +
			"AddressBlock p-10-0-0-0-28: address 10.0.0.8 was ceded to node \"b\", and there is no such node (--fix: the address is free)\n" +
			"AddressBlock p-10-0-0-16-28: block 10.0.0.16/28 belongs to node \"b\", and there is no such node (--fix: the block is free)\n" +
			"1 pools, 2 blocks, 2 findings\n"},
		{[]string{"check", "--fix", "-o", "json"}, 0, `[
  {
    "object": "AddressBlock p-10-0-0-0-28",
    "pool": "p",
    "message": "address 10.0.0.8 was ceded to node \"b\", and there is no such node",
    "fix": "the address is free"
  },
  {
    "object": "AddressBlock p-10-0-0-16-28",
    "pool": "p",
    "message": "block 10.0.0.16/28 belongs to node \"b\", and there is no such node",
    "fix": "the block is free"
  }
]
`},
		{[]string{"check"}, 0, "1 pools, 1 blocks, 0 findings\n"},
		{[]string{"show", "-o", "yaml"}, 2, ""},
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
	const left = "left out: IPPool kube-system/10.0.0.0-24: address 10.0.0.6 of shop/gone: there is no such pod\n"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"import", "--dry-run"}, plan + left + "1 addresses to reserve (nothing was written), 0 were there, 1 left out\n"},
		{[]string{"import"}, plan + left + "1 addresses reserved, 0 were there, 1 left out\n"},
		{[]string{"import"}, left + "0 addresses reserved, 1 were there, 1 left out\n"},
		{[]string{"show"}, "POOL         REGIONS             MODE  ENCAPSULATION  BLOCKS  RESERVED  GIVES  WANTED BY\nwhereabouts  10.0.0.0/24 in /30  -     -              0       1         yes    -\n"},
	} {
		var out, errs bytes.Buffer
		args := append(append([]string{"ipam"}, c.args...), "--store-dir", dir)
		exit := Run(context.Background(), Env{Args: args, Getenv: os.Getenv, Stdout: &out, Stderr: &errs})
		if exit != 0 || cmp.Diff(c.want, out.String()) != "" {
			t.Errorf("%v: exit %d, %s\n%s", c.args, exit, errs.String(), cmp.Diff(c.want, out.String()))
		}
	}
}
