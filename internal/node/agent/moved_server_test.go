// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestMovedServer: the API server gets another address, of which the agents learn when they are started with another
// kubeconfig, one after the other. Pods reach each other throughout and keep their addresses, what is denied stays
// denied, and changes at the new address take effect on all nodes.
func TestMovedServer(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 2)
	k.defined("../../../deploy/crds/weft.dev_*.yaml")
	for _, w := range k.nodes {
		w.args = append(w.args, "--config", w.path("weft.yaml"))
		w.configure("pools: [{name: green, cidr: 10.77.0.0/24, blockSize: 28, encapsulation: none}]")
		w.start()
	}
	k.Do("POST", awayPolicies, ingress("web", "web", "client"))
	web, client, other := k.born("web", 1, "web", nil), k.born("client", 2, "client", nil), k.born("other", 2, "other", nil)
	k.known(1, "web")
	k.known(2, "client")
	k.known(2, "other")
	for _, p := range []*awayPod{web, client, other} {
		k.attached(p.name, func() error { return k.attach(p) })
	}
	k.running(web, client, other)
	k.until("the policy holds", func() bool { return client.reaches(web) && !other.reaches(web) })

	moved := k.Server.Proxy()
	k.Proxy.Refuse(func(*http.Request) int { return http.StatusServiceUnavailable })
	k.Proxy.CloseConnections()
	holds := func(when string) {
		t.Helper()
		if !client.hears(web) {
			t.Errorf("%s: what is permitted does not arrive", when)
		}
		if other.reaches(web) {
			t.Errorf("%s: what is denied arrives", when)
		}
	}
	holds("the old address is gone")
	for _, w := range k.nodes {
		w.stop()
		holds("an agent is stopped")
		w.args[slices.Index(w.args, "--kubeconfig")+1] = k.Kubeconfig(moved.URL, "")
		w.start()
		holds("an agent is started")
	}
	late := k.born("late", 1, "web", nil)
	k.known(1, "late")
	if err := k.attach(late); err != nil {
		t.Fatalf("%v\n%s", err, late.w.log())
	}
	for _, p := range []*awayPod{web, client, other} {
		if p.addr == late.addr {
			t.Errorf("%s and %s both have %s", p.name, late.name, p.addr)
		}
	}
	k.running(late)
	k.Do("PUT", awayPolicies+"/web", ingress("web", "web", "other"))
	k.until("the new policy holds", func() bool {
		return other.reaches(web) && other.reaches(late) && !client.reaches(web) && !client.reaches(late)
	})
}
