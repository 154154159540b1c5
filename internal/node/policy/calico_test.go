// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/policy"
)

const calicoDenyAll = `
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: deny-all}
spec:
  order: 2000
  namespaceSelector: has(projectcalico.org/name) && projectcalico.org/name not in {"bank"}
  types: [Ingress]
`

const calicoFriends = `
apiVersion: crd.projectcalico.org/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: default.friends}
spec:
  order: 10
  selector: app == "web"
  types: [Ingress]
  ingress:
  - {action: Deny, protocol: TCP, source: {selector: has(banned)}}
  - {action: Allow, protocol: TCP, source: {selector: friend == "yes"}, destination: {ports: [web]}}
  - {action: Allow, source: {selector: list == "offices", namespaceSelector: global()}}
`

// TestCalico: Calico's own policies, in both API groups, decide on real packets between pods, and follow the changes of
// what they use.
func TestCalico(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, friend, other := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`), w.pod("shop/other", "app: other")
	w.serve(web, 80)
	w.serve(web, 81)
	w.eventually("without a policy pods reach each other", func() bool {
		return reaches(friend.ns, web, 80) && reaches(other.ns, web, 80)
	})
	w.manifest("deny", calicoDenyAll)
	w.eventually("the default of the tier denies", func() bool { return !reaches(other.ns, web, 80) && !reaches(friend.ns, web, 80) })
	if !admits(nil, web.addr, 80) {
		t.Error("the node does not reach its own pod")
	}
	w.manifest("friends", calicoFriends)
	w.eventually("a friend reaches the named port", func() bool { return reaches(friend.ns, web, 80) })
	if reaches(friend.ns, web, 81) || reaches(other.ns, web, 80) {
		t.Errorf("more is allowed than the rule:\n%s", ruleset())
	}
	w.manifest("offices", "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: o, labels: {list: offices}}\nspec: {nets: ["+
		other.addr.String()+"/32]}\n")
	w.eventually("a network set is followed", func() bool { return reaches(other.ns, web, 81) })
	w.object("shop/other", `banned: ""`, "n1")
	w.eventually("an earlier rule denies", func() bool { return !reaches(other.ns, web, 81) })
	w.manifest("first", "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: first}\nspec: {order: 5}\n")
	w.manifest("open", `
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: first.open}
spec: {tier: first, selector: app == "web", ingress: [{action: Allow, source: {nets: [`+other.addr.String()+`]}}, {action: Pass}]}
`)
	w.eventually("an earlier tier decides", func() bool { return reaches(other.ns, web, 81) })
	if reaches(friend.ns, web, 81) || !admits(friend.ns, web.addr, 80) {
		t.Errorf("what the tier passes is decided by the next:\n%s", ruleset())
	}
	w.remove("first")
	w.eventually("a policy without its tier is after all others", func() bool { return !reaches(other.ns, web, 81) })
	// The API server of Calico shows the stored policy under its own group and name.
	w.manifest("shown", strings.NewReplacer("crd.projectcalico.org/v1", "projectcalico.org/v3", "default.friends", "friends").
		Replace(calicoFriends))
	w.remove("shown")
	w.eventually("the stored policy stays", func() bool { return reaches(friend.ns, web, 80) && w.Stats().Policies == 3 })
	for _, name := range []string{"friends", "deny", "open", "offices"} {
		w.remove(name)
	}
	w.eventually("nothing is left", func() bool { return !strings.Contains(ruleset(), "weft-policy") && reaches(other.ns, web, 81) })
}

// TestCalicoServices: a rule matches the endpoints of a Service, at their ports.
func TestCalicoServices(t *testing.T) {
	w := newWorld(t)
	w.manifest("policy", `
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {namespace: shop, name: to-web}
spec: {selector: app == "other", egress: [{action: Allow, destination: {services: {name: web}}}]}
`)
	w.start()
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	w.serve(web, 80)
	w.serve(web, 81)
	w.eventually("without endpoints nothing is allowed", func() bool { return !reaches(other.ns, web, 80) })
	slice := func(port string) {
		w.manifest("slice", `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [`+web.addr.String()+`], conditions: {ready: false}}]
ports: [{name: http, protocol: TCP, port: `+port+`}]
`)
	}
	slice("80")
	w.eventually("the endpoint is allowed", func() bool { return reaches(other.ns, web, 80) })
	if reaches(other.ns, web, 81) {
		t.Errorf("another port is allowed:\n%s", ruleset())
	}
	slice("81")
	w.eventually("the endpoint's port is followed", func() bool { return reaches(other.ns, web, 81) && !reaches(other.ns, web, 80) })
	w.remove("slice")
	w.eventually("no endpoint is left", func() bool { return !reaches(other.ns, web, 81) })
}

// TestCalicoNetworkSetInvalid: a network set that cannot be read leaves its last version in force.
func TestCalicoNetworkSetInvalid(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, bad, other := w.pod("shop/web", "app: web"), w.pod("shop/bad", ""), w.pod("shop/other", "")
	w.serve(web, 80)
	set := func(name, more, nets string) {
		w.manifest(name, "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: "+name+
			", labels: {list: banned}"+more+"}\nspec: {nets: "+nets+"}\n")
	}
	set("bad", "", "["+bad.addr.String()+"/32]")
	w.manifest("policy", `
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: banned}
spec: {selector: app == "web", ingress: [{action: Deny, source: {selector: list == "banned"}}, {action: Allow}]}
`)
	w.eventually("the set is denied", func() bool { return reaches(other.ns, web, 80) && !reaches(bad.ns, web, 80) })
	set("bad", "", "10.0.0.0/8") // no list
	// Of one kind changes come in their order: with the second set the first one's change is there.
	set("other", "", "["+other.addr.String()+"/32]")
	w.eventually("another set is denied", func() bool { return !reaches(other.ns, web, 80) })
	if reaches(bad.ns, web, 80) {
		t.Errorf("the unreadable set has opened the rule:\n%s", ruleset())
	}
	set("bad", ", annotations: {projectcalico.org/metadata: nonsense}", "[]")
	set("other", "", "[]")
	w.eventually("the other set is empty", func() bool { return reaches(other.ns, web, 80) })
	if reaches(bad.ns, web, 80) {
		t.Errorf("the set without readable labels has opened the rule:\n%s", ruleset())
	}
}

// TestCalicoNetworkSetIncomplete: while a network set has a prefix that cannot be read, what depends on that prefix is
// denied: the addresses that it means are not known.
func TestCalicoNetworkSetIncomplete(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, known, other := w.pod("shop/web", "app: web"), w.pod("shop/known", ""), w.pod("shop/other", "")
	w.serve(web, 80)
	set := func(more string) {
		w.manifest("set", "apiVersion: projectcalico.org/v3\nkind: NetworkSet\nmetadata: {namespace: shop, name: s, labels: {list: l}}\n"+
			"spec: {nets: ["+known.addr.String()+"/32"+more+"]}\n")
	}
	policy := func(rules string) {
		w.manifest("policy", "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: p}\n"+
			"spec: {selector: app == 'web', ingress: ["+rules+"]}\n")
	}
	for _, one := range []struct {
		name, rules string
		// The verdicts with all prefixes, and while one cannot be read.
		known, other, knownThen, otherThen bool
	}{
		{"allow", "{action: Allow, source: {selector: list == 'l'}}", true, false, true, false},
		{"allow all but", "{action: Allow, source: {notSelector: list == 'l'}}", false, true, false, false},
		{"deny", "{action: Deny, source: {selector: list == 'l'}}, {action: Allow}", false, true, false, false},
		{"pass", "{action: Pass, source: {selector: list == 'l'}}, {action: Allow}", true, true, false, false},
	} {
		for _, then := range []bool{false, true, false} {
			wantKnown, wantOther, more := one.known, one.other, ""
			if then {
				wantKnown, wantOther, more = one.knownThen, one.otherThen, ", 10.0.0.0/33"
			}
			policy(one.rules)
			set(more)
			w.eventually(fmt.Sprintf("%s, unreadable prefix %t", one.name, then), func() bool {
				return reaches(known.ns, web, 80) == wantKnown && reaches(other.ns, web, 80) == wantOther
			})
		}
	}
}

// An invalid rule fails closed in itself, and the policy's other rules hold.
func TestCalicoInvalid(t *testing.T) {
	w := newWorld(t)
	reported := make(chan []string, 8)
	w.start(func(c *policy.Config) { c.Unsupported = unsupportedFunc(func(parts []string) { reported <- parts }) })
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	w.serve(web, 80)
	w.serve(web, 81)
	w.manifest("http", `
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {namespace: shop, name: http}
spec:
  selector: app == "web"
  ingress:
  - {action: Allow, protocol: TCP, http: {methods: [GET]}, destination: {ports: [80]}}
  - {action: Allow, protocol: TCP, destination: {ports: [81]}}
`)
	w.eventually("the valid rule allows, the other does not", func() bool { return reaches(other.ns, web, 81) && !reaches(other.ns, web, 80) })
	if got := strings.Join(<-reported, "; "); !strings.Contains(got, "spec.ingress[0].http") {
		t.Errorf("reported: %q", got)
	}
}

// unsupportedFunc receives the unsupported parts of policies.
type unsupportedFunc func(parts []string)

func (f unsupportedFunc) Unsupported(_ model.PolicyKey, parts []string) { f(parts) }

func (f unsupportedFunc) Invalid(o store.Object, why error) {
	f([]string{o.Key.Kind + " " + why.Error()})
}

// TestCalicoInvalidObjects: objects that policies need are reported by kind and field if they cannot be understood.
func TestCalicoInvalidObjects(t *testing.T) {
	w := newWorld(t)
	reported := make(chan []string, 8)
	w.start(func(c *policy.Config) { c.Unsupported = unsupportedFunc(func(parts []string) { reported <- parts }) })
	for _, one := range []struct{ text, kind, field string }{
		{"kind: Tier\nmetadata: {name: bad}\nspec: {order: first}", "Tier", "order"},
		{"kind: Tier\nmetadata: {name: bad}\nspec: {defaultAction: Allow}", "Tier", `spec.defaultAction "Allow"`},
		{"kind: NetworkSet\nmetadata: {namespace: shop, name: bad}\nspec: {nets: [10.0.0.0/8, 10.0.0.0/33]}", "NetworkSet", "spec.nets[1]"},
		{"kind: GlobalNetworkSet\nmetadata: {name: bad}\nspec: {nets: 10.0.0.0/8}", "GlobalNetworkSet", "nets"},
		{"kind: HostEndpoint\nmetadata: {name: bad}\nspec: {node: n1, interfaceName: eth0, expectedIPs: [nonsense]}", "HostEndpoint", "expectedIPs"},
	} {
		w.manifest(one.kind, "apiVersion: projectcalico.org/v3\n"+one.text)
		select {
		case got := <-reported:
			if !strings.HasPrefix(got[0], one.kind+" ") || !strings.Contains(got[0], one.field) {
				t.Errorf("reported %q, want %s and %s", got, one.kind, one.field)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%s: nothing is reported", one.kind)
		}
	}
}
