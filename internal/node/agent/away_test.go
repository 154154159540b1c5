// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// awayPod is a pod of the cluster's own network.
type awayPod struct {
	w    *world
	uid  string
	name string
	ns   *netns.NS
	addr netip.Addr
	list *libcni.NetworkConfigList
	conf *libcni.RuntimeConf
}

// born creates a Pod of a node, and its namespace.
func (k *kubeWorld) born(name string, node int, app string, annotations map[string]string) *awayPod {
	k.t.Helper()
	var made struct{ Metadata struct{ UID string } }
	raw := k.Do("POST", "/api/v1/namespaces/default/pods", fields{
		"metadata": fields{"name": name, "labels": fields{"app": app}, "annotations": annotations},
		"spec":     fields{"nodeName": fmt.Sprint("n", node), "containers": []fields{{"name": "c", "image": "i"}}},
	})
	if err := json.Unmarshal(raw, &made); err != nil {
		k.t.Fatal(err)
	}
	return &awayPod{w: k.nodes[node-1], uid: made.Metadata.UID, name: name, ns: nettest.NS(k.t, name)}
}

// attach attaches the pod, and reports its address to the API server, as a kubelet does.
func (k *kubeWorld) attach(p *awayPod) error {
	k.t.Helper()
	k.until("the network's configuration", func() bool {
		l, err := p.w.own()
		p.list = l
		return err == nil
	})
	p.conf = runtimeConf("id-"+p.name, p.ns)
	p.conf.Args = [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", p.name}, {"K8S_POD_UID", p.uid},
	}
	got, err := p.w.cni.AddNetworkList(p.w.ctx(), p.list, p.conf)
	if err != nil {
		return err
	}
	r, err := current.NewResultFromResult(got)
	if err != nil || len(r.IPs) != 1 {
		return fmt.Errorf("%d addresses: %w", len(r.IPs), err)
	}
	a, _ := netip.AddrFromSlice(r.IPs[0].Address.IP)
	p.addr = a.Unmap()
	return nil
}

// running reports a pod's address to the API server, as a kubelet does: by a patch, because the agents write to the pod
// concurrently.
func (k *kubeWorld) running(pods ...*awayPod) {
	k.t.Helper()
	for _, p := range pods {
		k.Do("PATCH", "/api/v1/namespaces/default/pods/"+p.name+"/status", fields{
			"status": fields{"phase": "Running", "podIP": p.addr.String(), "podIPs": []fields{{"ip": p.addr.String()}}},
		})
	}
}

func (p *awayPod) reaches(to *awayPod) bool {
	_, err := nettest.Try(p.ns, "ping", "-n", "-c1", "-W1", to.addr.String())
	return err == nil
}

// hears is reaches for what must be answered: not one packet may be lost, but on a busy host it may be late.
func (p *awayPod) hears(to *awayPod) bool {
	_, err := nettest.Try(p.ns, "ping", "-n", "-c1", "-W30", to.addr.String())
	return err == nil
}

func ingress(name, app, from string) fields {
	return fields{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": fields{"name": name, "namespace": "default"},
		"spec": fields{
			"podSelector": fields{"matchLabels": fields{"app": app}}, "policyTypes": []string{"Ingress"},
			"ingress": []fields{
				{"from": []fields{{"podSelector": fields{"matchLabels": fields{"app": from}}}}},
			},
		},
	}
}

const (
	awayPolicies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
	awayPoolPath = "/apis/weft.dev/v1alpha1/addresspools"
	awayClaims   = "/apis/weft.dev/v1alpha1/namespaces/default/addressclaims"
)

// TestServerAwayWhileThingsChange: the API server is unreachable for the agents while a policy, a pool and a claim
// change, pods start, and an agent is killed; the server itself restarts, too. Denied traffic stays denied, allocated
// addresses stay allocated, and when the server is back its objects take effect.
func TestServerAwayWhileThingsChange(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 2)
	k.defined("../../../deploy/crds/weft.dev_*.yaml")
	for _, w := range k.nodes {
		w.args = append(w.args, "--config", w.path("weft.yaml"))
		w.configure("pools: [{name: green, cidr: 10.77.0.0/24, blockSize: 28, encapsulation: none}]")
		w.start()
	}
	k.Do("POST", awayPolicies, ingress("web", "web", "client"))
	k.Do("POST", awayClaims, fields{
		"apiVersion": "weft.dev/v1alpha1", "kind": "AddressClaim", "metadata": fields{"name": "kept"}, "spec": fields{},
	})
	claim := func(name string) map[string]string { return map[string]string{"weft.dev/address-claim": name} }
	web, client, other := k.born("web", 1, "web", nil), k.born("client", 2, "client", nil),
		k.born("other", 2, "other", nil)
	kept := k.born("kept", 1, "kept", claim("kept"))
	early := k.born("early", 1, "web", nil) // known before, attached meanwhile
	for i, names := range [][]string{{"web", "kept", "early"}, {"client", "other"}} {
		for _, name := range names {
			k.known(i+1, name)
		}
	}
	for _, p := range []*awayPod{web, client, other, kept} {
		k.attached(p.name, func() error { return k.attach(p) })
	}
	k.running(web, client, other, kept)
	k.until("the policy holds", func() bool { return client.reaches(web) && !other.reaches(web) })

	k.Proxy.Refuse(func(*http.Request) int { return http.StatusServiceUnavailable })
	k.Proxy.CloseConnections()
	k.Do("PUT", awayPolicies+"/web", ingress("web", "web", "other"))
	k.Do("POST", awayPolicies, ingress("alone", "client", "nobody"))
	k.Do("PATCH", awayPoolPath+"/green", fields{"spec": fields{"disabled": true}})
	k.Do("POST", awayPoolPath, fields{
		"apiVersion": "weft.dev/v1alpha1", "kind": "AddressPool", "metadata": fields{"name": "blue"},
		"spec": fields{
			"assignmentMode": "Automatic", "encapsulation": fields{"kind": "none"},
			"regions": []fields{{"cidr": "10.78.0.0/24", "blockSize": 28}},
		},
	})
	k.Do("POST", awayClaims, fields{
		"apiVersion": "weft.dev/v1alpha1", "kind": "AddressClaim", "metadata": fields{"name": "new"},
		"spec": fields{"addresses": []string{"10.78.0.77"}},
	})
	k.Do("DELETE", awayClaims+"/kept", nil)
	late, claiming := k.born("late", 1, "web", nil), k.born("claiming", 2, "kept", claim("new"))

	closed := func(when string) {
		t.Helper()
		for _, to := range []*awayPod{web, early} {
			if to.addr.IsValid() && other.reaches(to) {
				t.Errorf("%s: %s is open for whom the policy that is known denies it", when, to.name)
			}
		}
		for _, p := range []*awayPod{late, claiming} {
			if err := k.attach(p); code(err) != 11 {
				t.Errorf("%s: a pod that nobody knows: %v", when, err)
			}
		}
		for _, p := range []*awayPod{web, client, other, kept} {
			p.w.whole(when+": CHECK of "+p.name, func() error { // an agent that starts repairs what the firewall flushed
				return p.w.cni.CheckNetworkList(p.w.ctx(), p.list, p.conf)
			})
		}
	}
	closed("away")
	if !client.hears(web) {
		t.Error("what the known policy permits is closed")
	}
	if err := k.attach(early); err != nil {
		t.Errorf("a pod that is known: %v", err)
	}
	closed("away, with a new pod")
	k.nodes[0].kill()
	nettest.Run(t, k.nodes[0].node, "nft", "flush", "ruleset") // as a restarted firewall
	k.nodes[0].start()
	k.until("the known policy holds again", func() bool {
		return !other.reaches(web) && !other.reaches(early) && client.reaches(web)
	})
	closed("away, after a kill")
	k.Server.Stop()
	closed("no server")
	k.Server.Restart()
	k.Proxy.Refuse(nil)
	k.Proxy.CloseConnections()

	k.running(early)
	for _, w := range k.nodes { // each kind of object is heard of by itself
		k.until("the pools are known", func() bool {
			b, _ := os.ReadFile(w.path("state", "cluster", "addresspools.json"))
			return strings.Contains(string(b), `"blue"`) && strings.Contains(string(b), `"disabled":true`)
		})
	}
	k.until("the new policies hold", func() bool {
		return other.reaches(web) && other.reaches(early) && !client.reaches(web) && !web.reaches(client)
	})
	enabled := netip.MustParsePrefix("10.78.0.0/24")
	for _, p := range []*awayPod{late, claiming} {
		var err error
		k.until(p.name+" is attached", func() bool {
			if err = k.attach(p); err != nil && code(err) != 11 && !strings.Contains(err.Error(), "10.78.0.77") {
				t.Fatalf("%s: %v\n%s", p.name, err, p.w.log())
			}
			// The allocator follows the objects that the agent has received, a moment later.
			if err == nil && !enabled.Contains(p.addr) {
				if err = p.w.cni.DelNetworkList(p.w.ctx(), p.list, p.conf); err != nil {
					t.Fatalf("%s: %v", p.name, err)
				}
				return false
			}
			return err == nil
		})
	}
	if claiming.addr.String() != "10.78.0.77" {
		t.Errorf("the claim's pod has %s", claiming.addr)
	}
	k.running(late, claiming)
	k.until("the claim says who has its address", func() bool {
		return strings.Contains(string(k.Do("GET", awayClaims+"/new", nil)), `"addresses":["10.78.0.77"]`)
	})
	k.until("the new pod is reached as the policies say", func() bool {
		return other.reaches(late) && !client.reaches(late) && other.reaches(claiming)
	})
	given := map[netip.Addr]string{}
	for _, p := range []*awayPod{web, client, other, kept, early, late, claiming} {
		if who, twice := given[p.addr]; twice {
			t.Errorf("%s and %s have %s", who, p.name, p.addr)
		}
		given[p.addr] = p.name
		if err := p.w.cni.CheckNetworkList(p.w.ctx(), p.list, p.conf); err != nil {
			t.Errorf("CHECK of %s: %v", p.name, err)
		}
		if err := p.w.cni.DelNetworkList(p.w.ctx(), p.list, p.conf); err != nil {
			t.Errorf("DEL of %s: %v", p.name, err)
		}
	}
}
