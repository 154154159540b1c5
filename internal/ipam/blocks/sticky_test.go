// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
)

const claimObject = "apiVersion: k8s.cni.cncf.io/v1alpha1\nkind: IPAMClaim\nmetadata: {name: vm, namespace: shop}\nspec: {network: net, interface: net1}\n"

// claimConf is a configuration as Multus hands it over for a selection with an ipam-claim-reference.
func claimConf(claim string) string {
	return `{"cniVersion":"1.0.0","name":"net","args":{"cni":{"ipam-claim-reference":"` + claim +
		`"}},"ipam":{"type":"whereabouts","range":"10.0.0.0/27"}}`
}

func (n *node) claim(id, claim string) (string, error) {
	addrs, err := n.add(claimConf(claim), id, [2]string{"IgnoreUnknown", "1"}, [2]string{"K8S_POD_NAMESPACE", "shop"})
	if err != nil {
		return "", err
	}
	return addrs[0].String(), nil
}

// TestClaimKeepsItsAddress over pods, restarts of the agent, and nodes; and is free when the claim is gone.
func TestClaimKeepsItsAddress(t *testing.T) {
	s, path := cluster(t, map[string]string{"pool.yaml": poolOf30, "claim.yaml": claimObject})
	now := time.Unix(1e9, 0)
	calm := func(c *Config) {
		c.Now = func() time.Time { return now }
		c.After = func(time.Duration) <-chan time.Time { ch := make(chan time.Time, 1); ch <- now; return ch }
	}
	a, b := join(t, path, "a", calm), join(t, path, "b", calm)
	must := func(n *node, id string) {
		t.Helper()
		if got, err := n.claim(id, "vm"); err != nil || got != "10.0.0.1" {
			t.Fatalf("node %s, container %s: %s, error %v", n.name, id, got, err)
		}
	}
	must(a, "first")
	if text := object(t, s.Objects(), store.IPAMClaims(), claims.IPAMKey("shop/vm")); !strings.Contains(text,
		`"status":{"ips":["10.0.0.1/27"]}`) {
		t.Errorf("the claim does not say its address: %s", text)
	}
	if _, err := a.claim("second", "vm"); err == nil ||
		!strings.Contains(err.Error(), "address 10.0.0.1 is taken by interface net1 of container first") {
		t.Errorf("a second pod with the claim: %v", err)
	}
	a.del("first")
	now = now.Add(time.Hour)
	for i := range 20 {
		a.mustAdd(rangeConf1("10.0.0.0/27"), "other"+strings.Repeat("x", i)) // it is allocated to nothing else
	}
	must(a, "third")
	a.del("third")
	a.start() // killed
	must(a, "fourth")
	a.del("fourth")

	// The pod comes back on the other node: the first lends the address.
	reconcile := func(n *node) {
		t.Helper()
		n.engine.state.synced = false
		for _, p := range n.engine.state.pools {
			p.noFreeBlock = false
		}
		if err := n.engine.reconciler.reconcile(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.claim("moved", "vm"); err == nil {
		t.Error("node a cannot have answered yet")
	}
	reconcile(a)
	must(b, "moved")
	if _, err := a.claim("back", "vm"); err == nil ||
		!strings.Contains(err.Error(), `address 10.0.0.1 is with node "b", which does not answer`) {
		t.Errorf("the claim on both nodes: %v", err)
	}
	reconcile(b) // it says no
	b.del("moved")

	// And back: it is requested from the node that has it now.
	if _, err := a.claim("back", "vm"); err == nil {
		t.Error("node b cannot have answered yet")
	}
	reconcile(b)
	reconcile(b)
	must(a, "back")
	if _, err := b.claim("again", "vm"); err == nil {
		t.Error("the claim is used on node a")
	}
	reconcile(a)
	a.del("back")
	if err := os.Remove(filepath.Join(path, "claim.yaml")); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		now = now.Add(2 * time.Minute)
		reconcile(b)
		reconcile(a)
	}
	if addrs, err := a.add(rangeConf1("10.0.0.0/27"), "free again", [2]string{"IP", "10.0.0.1"}); err != nil ||
		addrs[0].String() != "10.0.0.1" {
		t.Errorf("after the claim: %v, error %v", addrs, err)
	}
	checkOnce(t, a, b)
}

func object(t *testing.T, o store.Objects, kind store.Kind, key store.Key) string {
	t.Helper()
	got, err := o.Get(context.Background(), kind, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(got.Raw)
}

// TestClaimWithoutPod: a configuration with a claim is valid before it is said which pod it is for, as an attachment's
// validation and STATUS read it.
func TestClaimWithoutPod(t *testing.T) {
	for _, a := range Readers(nil) {
		conf := strings.Replace(claimConf("vm"), `"type":"whereabouts"`, `"type":"`+a.Type()+`"`, 1)
		if err := a.Validate([]byte(conf)); err != nil && strings.Contains(err.Error(), "claim") {
			t.Errorf("%s: %v", a.Type(), err)
		}
	}
	_, path := cluster(t, map[string]string{"pool.yaml": poolOf30, "claim.yaml": claimObject})
	n := join(t, path, "a", nil)
	if _, err := n.add(claimConf("vm"), "c", [2]string{"IgnoreUnknown", "1"}); err == nil ||
		!strings.Contains(err.Error(), "K8S_POD_NAMESPACE") {
		t.Errorf("ADD without the pod's namespace: %v", err)
	}
	if _, err := n.claim("c", "vm"); err != nil {
		t.Error(err)
	}
}

func TestBadClaims(t *testing.T) {
	_, path := cluster(t, map[string]string{
		"a.yaml": "apiVersion: k8s.cni.cncf.io/v1alpha1\nkind: IPAMClaim\nmetadata: {name: far, namespace: shop}\nstatus: {ips: [10.9.0.1/24]}\n",
		"b.yaml": "apiVersion: k8s.cni.cncf.io/v1alpha1\nkind: IPAMClaim\nmetadata: {name: odd, namespace: shop}\nstatus: {ips: [x]}\n",
		"c.yaml": "apiVersion: k8s.cni.cncf.io/v1alpha1\nkind: IPAMClaim\nmetadata: {name: wish, namespace: shop}\nspec: {ipRequests: [10.0.0.7/27]}\n",
	})
	a := join(t, path, "a", nil)
	for claim, want := range map[string]string{
		"none": "IPAMClaim shop/none does not exist (create it, or remove ipam-claim-reference from the pod's annotation)",
		"far":  "ips: address 10.9.0.1 is in no range that is left for this attachment: 10.0.0.0/27 (ask for one address of each range at most)",
		"odd":  `IPAMClaim shop/odd: status.ips[0] "x" is no address (an address, for example 10.1.0.5/24)`,
		"wish": "",
	} {
		got, err := a.claim(claim, claim)
		if want == "" && (err != nil || got != "10.0.0.7") || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %s, error %v\nwant %s", claim, got, err, want)
		}
	}
}
