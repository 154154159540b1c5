// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// generator draws valid objects of Calico's and Kubernetes' policies for the pods and nodes of an oracle. Values like @db
// stand for addresses, which differ between clusters.
//
// What it leaves out is what weft does otherwise on purpose: docs/reference/policy.md, "Differences from Calico".
type generator struct {
	*rand.Rand
	// hosts: draw host endpoints, and policies of all kinds for them.
	hosts bool
	// families are those of the cluster.
	families families
}

// newWorld returns the objects of a seed.
func newWorld(seed uint64, hosts bool, families families) []fields {
	g := generator{rand.New(rand.NewPCG(seed, 0)), hosts, families}
	var out []fields
	tiers := []string{"default"}
	for _, name := range []string{"alpha", "beta"} {
		if g.one(2) {
			out = append(out, object("Tier", name, "", g.tier()))
			tiers = append(tiers, name)
		} else if g.one(12) {
			tiers = append(tiers, name) // its policies are in no tier
		}
	}
	for i := range g.IntN(3) {
		kind, in := "GlobalNetworkSet", ""
		if g.one(2) {
			kind, in = "NetworkSet", g.namespace()
		}
		set := object(kind, fmt.Sprint("set", i), in, fields{"nets": g.nets(g.six(), false)})
		out = append(out, labeled(set, fields{"set": pick(g, "1", "2"), "app": pick(g, "friend", "net")}))
	}
	if hosts {
		for i := range g.IntN(3) {
			out = append(out, g.hostEndpoint(fmt.Sprint("host", i)))
		}
	}
	for i := range 1 + g.IntN(5) {
		name := fmt.Sprint("p", i)
		switch g.IntN(7) {
		case 0, 1, 2:
			out = append(out, g.global(name, tiers))
		case 3, 4, 5:
			out = append(out, g.namespaced(name, tiers))
		default:
			out = append(out, g.kubernetes(name))
		}
	}
	return out
}

// one is true once in n times.
func (g generator) one(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g generator, all ...T) T { return all[g.IntN(len(all))] }

func (g generator) namespace() string { return pick(g, namespace, otherNamespace) }

func (g generator) tier() fields {
	out := fields{}
	if !g.one(4) {
		out["order"] = pick(g, 50.0, 150.0, 150.5, 2_000_000.0)
	}
	if action := pick(g, "", "Pass", "Deny"); action != "" {
		out["defaultAction"] = action
	}
	return out
}

// six draws whether prefixes are of IPv6.
func (g generator) six() bool {
	switch g.families {
	case ipv6:
		return !g.one(12)
	case dual:
		return g.one(3)
	}
	return g.one(12)
}

// nets returns prefixes of one family. Those that a rule must not match do not have all addresses.
func (g generator) nets(six, negated bool) []string {
	if six && g.families == ipv4 {
		return []string{"fd00::/8"}
	}
	if !six && g.families == ipv6 {
		return []string{"10.0.0.0/8"}
	}
	var out []string
	for range 1 + g.IntN(2) {
		if six {
			out = append(out, pick(g, "@db.6/128", "@near.6/128", "@far.6/128", "@other.6/128", "@outside.6/128", "@n1.6/128",
				"@n2.6/128", "fd07::/64", "fd10:244::/64", "2001:db8::/32"))
			continue
		}
		out = append(out, pick(g, "@db/32", "@near/32", "@far/32", "@other/32", "@outside/32", "@n1/32", "@n2/32",
			"192.168.7.0/24", "10.244.0.0/16", "172.16.0.0/12"))
	}
	if !negated && g.one(8) {
		out = append(out, map[bool]string{true: "::/0", false: "0.0.0.0/0"}[six])
	}
	return out
}

// labels returns an expression over the labels of pods, and of sets and host endpoints.
func (g generator) labels() string {
	simple := func() string {
		return pick(g, `app == "db"`, `app == 'friend'`, `app != "friend"`, `app in {"db", "other"}`, `app not in {'friend'}`,
			`has(role)`, `!has(role)`, `role == "blocked"`, `set == "1"`, `has(set)`, `app starts with "fri"`, `app contains "the"`,
			`app ends with "b"`, `all()`, `host == "a"`, `has(host)`, `projectcalico.org/namespace == "shop"`,
			`projectcalico.org/serviceaccount == "clerk"`, `pcns.team == "red"`, `pcsa.level == "high"`,
			`projectcalico.org/orchestrator == "k8s"`)
	}
	switch g.IntN(6) {
	case 0:
		return simple() + " && " + simple()
	case 1:
		return simple() + " || " + simple()
	case 2:
		return "!(" + simple() + " && " + simple() + ")"
	}
	return simple()
}

func (g generator) namespaceLabels() string {
	return pick(g, `team == "red"`, `team != "red"`, `has(projectcalico.org/name)`, `projectcalico.org/name == "bank"`, `all()`,
		`kubernetes.io/metadata.name in {"shop"}`, `!has(team)`)
}

func (g generator) accountLabels() string {
	return pick(g, `level == "high"`, `level != "high"`, `has(level)`, `all()`)
}

func (g generator) hostEndpoint(name string) fields {
	node := pick(g, "n1", "n2")
	spec := fields{"node": node}
	switch g.IntN(4) {
	case 0:
		spec["interfaceName"] = "*"
	case 1:
		spec["expectedIPs"] = g.addresses(node)
	default:
		spec["interfaceName"] = "eth0"
		if g.one(2) {
			spec["expectedIPs"] = g.addresses(node)
		}
	}
	if !g.one(3) {
		spec["profiles"] = []string{"projectcalico-default-allow"}
	}
	if g.one(2) {
		spec["ports"] = []fields{
			{"name": "web", "protocol": "TCP", "port": 5001}, {"name": "dns", "protocol": "UDP", "port": 6001},
		}
	}
	return labeled(object("HostEndpoint", name, "", spec), fields{"host": pick(g, "a", "b"), "app": pick(g, "host", "friend")})
}

// addresses returns some of a node's.
func (g generator) addresses(node string) []string {
	switch g.families {
	case ipv4:
		return []string{"@" + node}
	case ipv6:
		return []string{"@" + node + ".6"}
	}
	return pick(g, []string{"@" + node}, []string{"@" + node, "@" + node + ".6"}, []string{"@" + node + ".6"})
}

// policy returns the part that both kinds of Calico's policies have.
func (g generator) policy(name string, tiers []string, in string) (fields, string) {
	tier := pick(g, tiers...)
	spec := fields{"tier": tier}
	if tier != "default" {
		name = tier + "." + name
	}
	if !g.one(3) {
		spec["order"] = pick(g, 10.0, 500.0, 1000.0, 1000.5, 2000.0)
	}
	types := pick(g, []string{"Ingress"}, []string{"Egress"}, []string{"Ingress", "Egress"}, nil)
	if types != nil {
		spec["types"] = types
	}
	if types == nil || slices.Contains(types, "Ingress") {
		spec["ingress"] = g.rules(in, false)
	}
	if types == nil || slices.Contains(types, "Egress") {
		spec["egress"] = g.rules(in, true)
	}
	if !g.one(4) {
		spec["selector"] = g.labels()
	}
	if g.one(6) {
		spec["serviceAccountSelector"] = g.accountLabels()
	}
	return spec, name
}

func (g generator) namespaced(name string, tiers []string) fields {
	in := g.namespace()
	spec, name := g.policy(name, tiers, in)
	return object("NetworkPolicy", name, in, spec)
}

func (g generator) global(name string, tiers []string) fields {
	spec, name := g.policy(name, tiers, "")
	if g.one(2) {
		spec["namespaceSelector"] = g.namespaceLabels()
	}
	if !g.hosts {
		return object("GlobalNetworkPolicy", name, "", spec)
	}
	switch g.IntN(7) {
	case 0, 1:
		spec["applyOnForward"] = true
	case 2:
		spec["applyOnForward"], spec["preDNAT"], spec["types"] = true, true, []string{"Ingress"}
		delete(spec, "egress")
	case 3:
		spec["applyOnForward"], spec["doNotTrack"] = true, true
	}
	return object("GlobalNetworkPolicy", name, "", spec)
}

func (g generator) rules(in string, egress bool) []fields {
	out := []fields{}
	for range g.IntN(4) {
		out = append(out, g.rule(in, egress))
	}
	return out
}

func (g generator) rule(in string, egress bool) fields {
	r := fields{"action": pick(g, "Allow", "Allow", "Allow", "Allow", "Deny", "Deny", "Deny", "Pass", "Log")}
	var protocol any
	switch g.IntN(8) {
	case 0, 1:
		protocol = pick[any](g, "TCP", 6)
	case 2, 3:
		protocol = pick[any](g, "UDP", 17)
	case 4:
		protocol = "ICMP"
		types := []fields{{"type": 8}, {"type": 8, "code": 0}, {"type": 3, "code": 1}}
		if g.families == dual && g.one(2) || g.families == ipv6 && !g.one(6) {
			protocol = "ICMPv6"
			types = []fields{{"type": 128}, {"type": 128, "code": 0}, {"type": 1, "code": 4}}
		}
		if g.one(2) {
			r[pick(g, "icmp", "notICMP")] = pick(g, types...)
		}
	case 5:
		r["notProtocol"] = pick[any](g, "TCP", "UDP", "ICMP", 132)
	}
	if protocol != nil {
		r["protocol"] = protocol
	}
	six := g.six()
	if icmp := fmt.Sprint(r["protocol"], r["notProtocol"]); g.one(map[bool]int{true: 4, false: 12}[g.families == dual]) && !strings.Contains(icmp, "ICMP") {
		r["ipVersion"] = map[bool]int{true: 6, false: 4}[six]
	}
	service := false
	if g.one(8) && (protocol == nil || egress) {
		at := pick(g, fields{"name": "till", "namespace": namespace}, fields{"name": "mixed", "namespace": otherNamespace})
		service = true
		r[map[bool]string{true: "destination", false: "source"}[egress]] = fields{"services": at}
	}
	for _, end := range []string{"source", "destination"} {
		if r[end] == nil && g.one(2) {
			if e := g.end(end, protocol, service, six); len(e) > 0 {
				r[end] = e
			}
		}
	}
	return r
}

// end draws the conditions of one end. Prefixes of both families in one rule are invalid, and those of another one than its
// version.
func (g generator) end(end string, protocol any, service, six bool) fields {
	e := fields{}
	for range 1 + g.IntN(2) {
		switch g.IntN(9) {
		case 0:
			e["nets"] = g.nets(six, false)
		case 1:
			e["notNets"] = g.nets(six, true)
		case 2, 3:
			e["selector"] = g.labels()
		case 4:
			e["notSelector"] = g.labels()
		case 5:
			e["namespaceSelector"] = pick(g, g.namespaceLabels(), "global()")
		case 6:
			e["serviceAccounts"] = pick(g, fields{"names": []string{"clerk"}}, fields{"selector": g.accountLabels()},
				fields{"names": []string{"clerk", "teller"}, "selector": g.accountLabels()})
		default:
			if ports := g.ports(end, protocol); ports != nil && !(service && end == "destination") {
				e[pick(g, "ports", "ports", "notPorts")] = ports
			}
		}
	}
	return e
}

// ports returns ports that a protocol can have. Clients have source ports above 1023.
func (g generator) ports(end string, protocol any) []any {
	named := []any{pick(g, "web", "dns")}
	switch {
	case protocol == "ICMP" || protocol == "ICMPv6":
		return nil
	case protocol == nil:
		return named
	case end == "source":
		return []any{pick[any](g, "1024:65535", "1:1023", 5000)}
	case g.one(4):
		return named
	}
	var out []any
	for range 1 + g.IntN(2) {
		out = append(out, pick[any](g, 5000, 5001, 6000, 6001, "5000:5001", "1:6000", "web", 30500))
	}
	return out
}

// kubernetes returns a NetworkPolicy of Kubernetes.
func (g generator) kubernetes(name string) fields {
	some := func() fields {
		return pick(g, fields{}, fields{"matchLabels": fields{"app": pick(g, "db", "friend")}},
			fields{"matchExpressions": []fields{{"key": "role", "operator": pick(g, "Exists", "DoesNotExist")}}})
	}
	peers := func() (out []fields) {
		for range 1 + g.IntN(2) {
			switch g.IntN(4) {
			case 0:
				out = append(out, fields{"podSelector": some()})
			case 1:
				out = append(out, fields{"podSelector": some(), "namespaceSelector": fields{}})
			case 2:
				out = append(out, fields{"namespaceSelector": fields{"matchLabels": fields{"team": pick(g, "red", "blue")}}})
			case 3:
				if g.families == dual && g.one(2) || g.families == ipv6 {
					out = append(out, fields{"ipBlock": fields{"cidr": "fd00::/8", "except": []string{pick(g, "@outside.6/128", "@db.6/128")}}})
					continue
				}
				out = append(out, fields{"ipBlock": fields{"cidr": "192.168.0.0/16", "except": []string{pick(g, "@outside/32", "@n1/32")}}})
			}
		}
		return out
	}
	rules := func(field string) (out []fields) {
		for range g.IntN(3) {
			r := fields{}
			if !g.one(4) {
				r[field] = peers()
			}
			if g.one(2) {
				r["ports"] = []fields{pick(g, fields{"protocol": "TCP", "port": 5000}, fields{"protocol": "UDP", "port": "dns"},
					fields{"protocol": "TCP", "port": 5000, "endPort": 5001}, fields{"protocol": "UDP"})}
			}
			out = append(out, r)
		}
		return out
	}
	spec := fields{"podSelector": some()}
	types := pick(g, []string{"Ingress"}, []string{"Egress"}, []string{"Ingress", "Egress"})
	spec["policyTypes"] = types
	if slices.Contains(types, "Ingress") {
		spec["ingress"] = rules("from")
	}
	if slices.Contains(types, "Egress") {
		spec["egress"] = rules("to")
	}
	o := object("NetworkPolicy", name, g.namespace(), spec)
	o["apiVersion"] = "networking.k8s.io/v1"
	return o
}
