// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestPolicyMigration: Felix enforces policies of all of Calico's kinds and Kubernetes' own, then weft does. Meanwhile no
// denied datagram arrives and no allowed connection ends. Afterwards every new connection has the same verdict as before.
func TestPolicyMigration(t *testing.T) {
	for name, conf := range map[string]map[string]string{
		"iptables-nft": {"CALICO_IPV4POOL_VXLAN": "Always", "FELIX_IPTABLESBACKEND": "nft"},
		"nft":          {"CALICO_IPV4POOL_VXLAN": "CrossSubnet", "FELIX_NFTABLESMODE": "Enabled"},
	} {
		t.Run(name, func(t *testing.T) { migratePolicies(newCluster(t, conf)) })
	}
}

func migratePolicies(c *cluster) {
	t := c.t
	c.Do(http.MethodPost, "/api/v1/namespaces", fields{"metadata": fields{"name": namespace}})
	for _, o := range calicoPolicies() {
		c.create(o)
	}
	n1, n2 := c.nodes[0], c.nodes[1]
	for _, n := range c.nodes {
		n.installCalicoConfig()
	}
	db, near := n1.pod("db", fields{"app": "db"}), n1.pod("near", fields{"app": "friend"})
	far, other := n2.pod("far", fields{"app": "friend"}), n2.pod("other", fields{"app": "other", "role": "blocked"})
	outside := host{name: "outside", ns: c.hub, addr: netip.MustParseAddr(hubAddr)}
	for _, p := range []*pod{db, near, far, other} { // routes from outside to pods
		ip(t, c.hub, "route add "+p.addr.String()+"/32 via "+p.n.addr)
	}
	hosts := []host{db.host(), near.host(), far.host(), other.host(), outside}
	for _, n := range c.nodes {
		hosts = append(hosts, host{name: n.name, ns: n.ns, addr: netip.MustParseAddr(n.addr)})
	}
	m := serveMatrix(t, hosts)
	var wrong []string
	c.tryUntil(func() bool {
		wrong = m.wrong(expected())
		return len(wrong) == 0
	})
	if len(wrong) > 0 {
		t.Fatalf("Felix has other verdicts than expected: %s", strings.Join(wrong, ", "))
	}
	felix := m.verdicts()
	t.Logf("under Felix:\n%s", felix)

	conns := []*connection{
		connect(t, near.host(), db.host(), 5000), connect(t, far.host(), db.host(), 5000),
		connect(t, outside, db.host(), 5000), connect(t, outside, m.host("n2"), 5000), connect(t, near.host(), far.host(), 5001),
	}
	allowed := []*stream{
		send(t, near.host(), db.host(), 7000, false), send(t, far.host(), near.host(), 7000, false),
	}
	denied := []*stream{
		send(t, other.host(), db.host(), 7001, true), send(t, other.host(), near.host(), 7001, true), // a pod's policies
		send(t, far.host(), other.host(), 7001, true), // NetworkPolicy late
		send(t, outside, m.host("n2"), 7001, true),    // a host endpoint's
		send(t, outside, far.host(), 7001, true),      // applyOnForward
	}
	report := func(when string) {
		t.Helper()
		for _, s := range slices.Concat(allowed, denied) {
			t.Logf("%s: %s: %d sent, %d arrived", when, s.name, s.sent.Load(), s.arrived.Load())
		}
		for _, conn := range conns {
			t.Logf("%s: %s: %d answers, %v", when, conn.name, conn.answers.Load(), conn.ended())
		}
	}
	report("Calico is running")
	c.create(notUnderstood())
	for _, n := range c.nodes {
		n.felix.stop(syscall.SIGTERM)
	}
	t.Logf("weft ipam import --from calico\n%s", c.weft("ipam", "import", "--from", "calico"))
	for _, n := range c.nodes {
		n.startAgent()
	}
	report("the agents are running")
	for _, n := range c.nodes {
		before := n.rules()
		if out, err := n.try("clean", "--keep-tunnels"); err == nil || !strings.Contains(out, "spec.ingress[0]") ||
			!strings.Contains(out, "http") || !strings.Contains(out, "nothing was changed") {
			t.Errorf("weft clean does not refuse because of a rule with http: %v\n%s", err, out)
		}
		if after := n.rules(); after != before {
			t.Errorf("%s: a refused weft clean has changed Calico's rules:\n%s\n%s", n.name, before, after)
		}
	}
	c.Do(http.MethodDelete, c.path(notUnderstood())+"/http", nil)
	for _, flags := range [][]string{{"--keep-tunnels"}, nil} {
		for _, n := range c.nodes {
			c.until(n.name+" is clean", func() bool { return n.clean(flags...) })
			report(fmt.Sprint("after weft clean ", flags, " on ", n.name))
		}
	}
	if weft := m.verdicts(); weft != felix {
		t.Errorf("under weft other connections are allowed; under Felix:\n%sunder weft:\n%s", felix, weft)
	}
	n2.agent.stop(syscall.SIGKILL)
	n2.startAgent()
	if weft := m.verdicts(); weft != felix {
		t.Errorf("after a restart of the agent other connections are allowed; under Felix:\n%sunder weft:\n%s", felix, weft)
	}
	report("the end")
	for _, s := range slices.Concat(allowed, denied) {
		if s.stop(); s.sent.Load() < 200 {
			t.Errorf("%s: only %d datagrams were sent", s.name, s.sent.Load())
		}
	}
	for _, s := range allowed {
		if s.lost() > maxLost {
			t.Errorf("%s: %d datagrams, %d lost", s.name, s.sent.Load(), s.lost())
		}
	}
	for _, s := range denied {
		if n := s.arrived.Load(); n > 0 {
			t.Errorf("%s: %d datagrams that policies deny, %d arrived", s.name, s.sent.Load(), n)
		}
	}
	for _, conn := range conns {
		before := conn.answers.Load()
		c.until(conn.name+" is answered", func() bool { return conn.answers.Load() > before || conn.ended() != nil })
		if err := conn.ended(); err != nil {
			t.Errorf("%s: ended after %d answers: %v", conn.name, conn.answers.Load(), err)
		}
	}
}

// rules returns Calico's rules of the node without their counters, which packets change.
func (n *node) rules() string {
	var all strings.Builder
	for _, cmd := range []string{"iptables-save", "nft -s -t list ruleset", "ip route"} {
		out, _ := nettest.Try(n.ns, strings.Fields(cmd)...)
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") && strings.Contains(line, "cali") {
				all.WriteString(line)
			}
		}
	}
	return all.String()
}

// path returns the path of the objects of a kind.
func (c *cluster) path(o fields) string {
	plural := map[string]string{
		"Tier": "tiers", "GlobalNetworkPolicy": "globalnetworkpolicies", "NetworkPolicy": "networkpolicies",
		"GlobalNetworkSet": "globalnetworksets", "NetworkSet": "networksets", "HostEndpoint": "hostendpoints",
		"FelixConfiguration": "felixconfigurations", "IPPool": "ippools",
	}[o["kind"].(string)]
	meta := o["metadata"].(fields)
	if of, ok := meta["namespace"].(string); ok {
		plural = "namespaces/" + of + "/" + plural
	}
	return "/apis/" + o["apiVersion"].(string) + "/" + plural
}

// create creates an object as calicoctl does, which stores its labels in an annotation.
func (c *cluster) create(o fields) {
	c.t.Helper()
	meta := o["metadata"].(fields)
	if labels, ok := meta["labels"]; ok && strings.HasPrefix(o["apiVersion"].(string), "crd.") {
		text, err := json.Marshal(fields{"labels": labels})
		if err != nil {
			c.t.Fatal(err)
		}
		delete(meta, "labels")
		meta["annotations"] = fields{"projectcalico.org/metadata": string(text)}
	}
	c.Do(http.MethodPost, c.path(o), o)
}

func object(kind, name, inNamespace string, spec fields) fields {
	meta := fields{"name": name}
	if inNamespace != "" {
		meta["namespace"] = inNamespace
	}
	return fields{"apiVersion": "crd.projectcalico.org/v1", "kind": kind, "metadata": meta, "spec": spec}
}

func labeled(o fields, labels fields) fields {
	o["metadata"].(fields)["labels"] = labels
	return o
}

// calicoPolicies are policies and what they use, in three tiers.
func calicoPolicies() []fields {
	type rules = []fields
	ports := func(p ...any) fields { return fields{"ports": p} }
	in := []string{"Ingress"}
	kubernetes := object("NetworkPolicy", "friends", namespace, fields{
		"podSelector": fields{"matchLabels": fields{"app": "db"}}, "policyTypes": in,
		"ingress": []fields{{
			"from":  []fields{{"podSelector": fields{"matchLabels": fields{"app": "friend"}}}},
			"ports": []fields{{"protocol": "UDP", "port": 6000}, {"protocol": "UDP", "port": 7000}},
		}},
	})
	kubernetes["apiVersion"] = "networking.k8s.io/v1"
	return []fields{
		object("Tier", "security", "", fields{"order": 100}),
		object("Tier", "platform", "", fields{"order": 200, "defaultAction": "Pass"}),
		object("GlobalNetworkPolicy", "security.blocked", "", fields{
			"tier": "security", "order": 1, "types": in, "namespaceSelector": "has(projectcalico.org/name)",
			"ingress": rules{
				{"action": "Log", "protocol": "TCP", "destination": ports(5001)},
				{"action": "Deny", "source": fields{"selector": "role == 'blocked'"}, "destination": ports(5001), "protocol": "TCP"},
			},
		}),
		object("GlobalNetworkPolicy", "security.rest", "", fields{
			"tier": "security", "order": 2, "types": in, "namespaceSelector": "has(projectcalico.org/name)",
			"ingress": rules{{"action": "Pass"}},
		}),
		object("NetworkPolicy", "platform.office", namespace, fields{
			"tier": "platform", "order": 10, "types": in, "selector": "app == 'db'",
			"ingress": rules{{
				"action": "Allow", "protocol": "TCP", "source": fields{"selector": "place == 'office'"},
				"destination": ports("5000:5000"),
			}},
		}),
		labeled(object("NetworkSet", "office", namespace, fields{"nets": []string{hubAddr + "/32"}}), fields{"place": "office"}),
		object("NetworkPolicy", "early", namespace, fields{ // before Kubernetes' policies, which are at 1000
			"order": 500, "types": in, "selector": "app == 'db'",
			"ingress": rules{
				{"action": "Deny", "protocol": "UDP", "source": fields{"selector": "app == 'friend'"}, "destination": ports(6000)},
				{"action": "Allow", "protocol": "TCP", "source": fields{"selector": "app == 'friend'"}, "destination": ports(5000)},
			},
		}),
		kubernetes,
		object("NetworkPolicy", "late", namespace, fields{ // after them, and without effect where they select a pod
			"order": 2000, "types": []string{"Ingress", "Egress"}, "selector": "app in {'friend', 'other'}",
			"ingress": rules{
				{"action": "Deny", "source": fields{"selector": "app == 'friend'", "notSelector": "!has(app)"},
					"destination": fields{"selector": "role == 'blocked'"}},
				{"action": "Allow", "protocol": "UDP", "source": fields{"notSelector": "role == 'blocked'"}},
				{"action": "Allow", "notProtocol": "UDP"},
			},
			"egress": rules{
				{"action": "Deny", "destination": fields{"selector": "kind == 'closed'", "namespaceSelector": "global()"}},
				{"action": "Allow"},
			},
		}),
		labeled(object("GlobalNetworkSet", "closed", "", fields{"nets": []string{hubAddr + "/32"}}), fields{"kind": "closed"}),
		labeled(object("HostEndpoint", "n2", "", fields{
			"node": "n2", "interfaceName": "eth0", "expectedIPs": []string{"192.168.7.2"},
			"profiles": []string{"projectcalico-default-allow"},
		}), fields{"node": "second"}),
		object("GlobalNetworkPolicy", "host", "", fields{
			"order": 100, "types": in, "selector": "node == 'second'",
			"ingress": rules{
				{"action": "Allow", "protocol": "TCP", "destination": ports(5000)},
				{"action": "Allow", "protocol": "UDP", "source": fields{"nets": []string{"192.168.7.1/32"}}, "destination": ports(6000)},
				{"action": "Allow", "protocol": "ICMP"},
			},
		}),
		object("GlobalNetworkPolicy", "platform.forward", "", fields{
			"tier": "platform", "types": in, "selector": "node == 'second'", "applyOnForward": true,
			"ingress": rules{{
				"action": "Deny", "protocol": "UDP", "source": fields{"nets": []string{hubAddr + "/32"}},
				"destination": ports(6001, 7001),
			}},
		}),
	}
}

// notUnderstood is a policy with a rule that needs Envoy. It selects nothing.
func notUnderstood() fields {
	return object("GlobalNetworkPolicy", "http", "", fields{
		"selector": "app == 'nothing'", "types": []string{"Ingress"},
		"ingress": []fields{{"action": "Allow", "protocol": "TCP", "http": fields{"methods": []string{"GET"}}}},
	})
}

// expected is what some of the connections meet: "FROM TO PROTOCOL/PORT", and whether it is allowed.
func expected() map[string]bool {
	return map[string]bool{
		"near db tcp/5000": true, "far db tcp/5000": true, "other db tcp/5000": false, // NetworkPolicy early
		"outside db tcp/5000": true, "outside db tcp/5001": false, // NetworkSet in tier platform, and the end of default
		"near db udp/6000": false, "near db tcp/5001": false, // early before Kubernetes' friends
		"other near tcp/5001": false, "other near tcp/5000": true, // Deny in tier security
		"near other udp/6000": false, "db other udp/6000": true, // late
		"near outside tcp/5000": false, "db outside tcp/5000": true, // GlobalNetworkSet
		"outside n2 tcp/5000": true, "outside n2 tcp/5001": false, "n1 n2 udp/6000": true, "outside n1 tcp/5001": true, // HostEndpoint
		"outside far udp/6001": false, "outside far udp/6000": true, // applyOnForward
	}
}
