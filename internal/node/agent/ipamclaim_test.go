// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// claimed is a network whose addresses are unique in the cluster, on the interface up0 of the node.
func claimed(typ string) string {
	return fmt.Sprintf(
		`{"cniVersion":"1.0.0","type":"macvlan","master":"up0","ipam":{"type":%q,"range":"10.58.0.0/24"}}`, typ)
}

// asksFor returns the annotation of a pod that requests the addresses of a claim.
func asksFor(typ string) string {
	return fmt.Sprintf(`[{"name":%q,"ipam-claim-reference":"machine-%s"}]`, typ, typ)
}

// address returns the address of a pod's net1.
func address(t *testing.T, ns *netns.NS) string {
	t.Helper()
	fields := strings.Fields(nettest.Run(t, ns, "ip", "-4", "-o", "addr", "show", "net1"))
	if len(fields) < 4 {
		t.Fatalf("net1 has no address: %v", fields)
	}
	return fields[3]
}

// TestIPAMClaim: a pod that names an IPAMClaim in its annotation gets the claim's address, and so does the next pod,
// although another pod was attached in between; the claim's status has the address.
func TestIPAMClaim(t *testing.T) {
	nettest.EndToEnd(t)
	for _, typ := range []string{"whereabouts", "weft"} {
		t.Run(typ, func(t *testing.T) {
			p := newPodnets(t)
			p.network("default", typ, claimed(typ))
			p.object("claim", map[string]any{
				"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
				"metadata": map[string]any{"namespace": "default", "name": "machine-" + typ},
				"spec":     map[string]any{"network": typ, "interface": "net1"},
			})
			p.start()
			add := func(pod, networks string) *netns.NS {
				t.Helper()
				p.pod(pod, networks)
				ns := nettest.NS(t, pod)
				if err := p.addPod(pod, ns); err != nil {
					t.Fatalf("ADD %s: %v\n%s", pod, err, p.log())
				}
				return ns
			}
			first := add("first", asksFor(typ))
			want := address(t, first)
			list, conf := p.runtimes("first", first)
			if err := p.cni.CheckNetworkList(p.ctx(), list, conf); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			if b, err := os.ReadFile(p.path("store", "claim.yaml")); err != nil || !strings.Contains(string(b), want) {
				t.Errorf("the claim does not say %s: %s %v", want, b, err)
			}
			p.pod("twice", asksFor(typ))
			err := p.addPod("twice", nettest.NS(t, "twice"))
			if err == nil || !strings.Contains(err.Error(), "is taken by") {
				t.Errorf("a second pod with the claim: %v", err)
			}
			if err := p.delPod("first", first); err != nil {
				t.Errorf("DEL: %v", err)
			}
			if got := address(t, add("other", typ)); got == want {
				t.Errorf("a pod without the claim has its address %s", got)
			}
			p.kill()
			p.start()
			if got := address(t, add("second", asksFor(typ))); got != want {
				t.Errorf("the second pod with the claim has %s, the first had %s", got, want)
			}
			p.pod("wrong", fmt.Sprintf(`[{"name":%q,"ipam-claim-reference":"none"}]`, typ))
			err = p.addPod("wrong", nettest.NS(t, "wrong"))
			if err == nil || !strings.Contains(err.Error(), "IPAMClaim default/none does not exist") {
				t.Errorf("a claim that is not there: %v", err)
			}
		})
	}
}

// TestIPAMClaimOnKubernetes is the same on a real API server, where the claim's status is a subresource: on the node of
// the first pod, then on another one.
func TestIPAMClaimOnKubernetes(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 2)
	k.defined("../../../deploy/nad-crd.yaml")
	k.defined("../../../deploy/crds/weft.dev_*.yaml")
	k.DefineKind([]byte(apitest.IPAMClaimKind))
	const objects = "/apis/k8s.cni.cncf.io/v1alpha1/namespaces/default/ipamclaims"
	for _, typ := range []string{"whereabouts", "weft"} {
		k.Do("POST", "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions", fields{
			"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": fields{"name": typ},
			"spec": fields{"config": claimed(typ)},
		})
		k.Do("POST", objects, fields{
			"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": fields{"name": "machine-" + typ},
			"spec": fields{"network": typ, "interface": "net1"},
		})
	}
	for _, w := range k.nodes {
		w.uplink()
		w.start()
	}
	for _, typ := range []string{"whereabouts", "weft"} {
		pod := func(name string, node int) pair {
			uid := k.annotated(name, node, map[string]string{"k8s.v1.cni.cncf.io/networks": asksFor(typ)})
			k.known(node, name)
			return k.sandbox(name, uid, node)
		}
		first := pod("first-"+typ, 1)
		k.attached("first-"+typ, first.add)
		want := address(t, first.ns)
		k.until("the claim's status", func() bool {
			var claim struct{ Status struct{ IPs []string } }
			err := json.Unmarshal(k.Do("GET", objects+"/machine-"+typ, nil), &claim)
			return err == nil && len(claim.Status.IPs) == 1 && claim.Status.IPs[0] == want
		})
		if err := first.check(); err != nil {
			t.Errorf("%s: CHECK: %v", typ, err)
		}
		if err := first.del(); err != nil {
			t.Errorf("%s: DEL: %v", typ, err)
		}
		second := pod("second-"+typ, 2)
		var err error
		// The first node releases it after its DEL.
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(50 * time.Millisecond) {
			if err = second.add(); err == nil {
				break
			}
			if err := second.del(); err != nil {
				t.Errorf("%s: DEL after an ADD that failed: %v", typ, err)
			}
		}
		if err != nil {
			t.Fatalf("%s: ADD on the other node: %v\n%s\n%s", typ, err, k.nodes[0].log(), k.nodes[1].log())
		}
		if got := address(t, second.ns); got != want {
			t.Errorf("%s: on the other node the claim's address is %s, it was %s", typ, got, want)
		}
		if err := second.del(); err != nil {
			t.Errorf("%s: DEL: %v", typ, err)
		}
	}
}
