// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// How many worlds TestOracle compares for each of Felix' backends, and the seed of the first one.
const (
	worldsVariable, seedVariable = "WEFT_CALICO_WORLDS", "WEFT_CALICO_SEED"
	defaultWorlds                = 8
)

// otherNamespace is the second namespace of the pods of an oracle.
const otherNamespace = "bank"

// dropCodes removes the codes of ICMP from rules: with nftables Felix writes "icmp type 8 code 0", which nft refuses, and ends.
func dropCodes(in any) {
	switch v := in.(type) {
	case []fields:
		for _, one := range v {
			dropCodes(map[string]any(one))
		}
	case []any:
		for _, one := range v {
			dropCodes(one)
		}
	case map[string]any:
		for name, value := range v {
			if match, ok := value.(map[string]any); ok && (name == "icmp" || name == "notICMP") {
				delete(match, "code")
			}
			dropCodes(value)
		}
	}
}

// TestOracle: two clusters have the same nodes and pods; in one Felix enforces policies, in the other one weft. Both get the
// same random objects, world after world, and each new connection must have the same verdict.
func TestOracle(t *testing.T) {
	worlds, seed := number(t, worldsVariable, defaultWorlds), uint64(number(t, seedVariable, 1))
	for name, conf := range map[string]map[string]string{
		"iptables-nft":         {"FELIX_IPTABLESBACKEND": "nft"},
		"iptables-legacy":      {"FELIX_IPTABLESBACKEND": "legacy"},
		"nft":                  {"FELIX_NFTABLESMODE": "Enabled"},
		"dual iptables-nft":    dualStack(map[string]string{"FELIX_IPTABLESBACKEND": "nft"}),
		"dual iptables-legacy": dualStack(map[string]string{"FELIX_IPTABLESBACKEND": "legacy"}),
		"dual nft":             dualStack(map[string]string{"FELIX_NFTABLESMODE": "Enabled"}),
		"ipv6 iptables-nft":    ipv6Only(map[string]string{"FELIX_IPTABLESBACKEND": "nft"}),
		"ipv6 nft":             ipv6Only(map[string]string{"FELIX_NFTABLESMODE": "Enabled"}),
	} {
		t.Run(name, func(t *testing.T) {
			o := newOracle(t, conf)
			compared, allowed := 0, 0
			for i := range worlds {
				s := seed + uint64(i)
				world := cloned(t, newWorld(s, s%2 == 1, o.felix.nodes[0].families))
				if conf["FELIX_NFTABLESMODE"] == "Enabled" {
					dropCodes(world)
				}
				all, some := o.compare(s, world)
				compared, allowed = compared+all, allowed+some
			}
			t.Logf("seeds %d to %d: %d connections compared, of which %d are allowed", seed, seed+uint64(worlds)-1, compared, allowed)
		})
	}
}

// dualStack returns a configuration of Felix with both families.
func dualStack(conf map[string]string) map[string]string {
	out := maps.Clone(conf)
	maps.Copy(out, map[string]string{
		"FELIX_IPV6SUPPORT": "true", "IP6": "autodetect", "CALICO_IPV6POOL_CIDR": "fd10:244::/64", "CALICO_IPV6POOL_VXLAN": "Always",
		"CALICO_IPV6POOL_NAT_OUTGOING": "true", // or what a node answers has another address
	})
	return out
}

// ipv6Only returns a configuration of Felix with pods of IPv6 only. Nodes reach the API server by IPv4.
func ipv6Only(conf map[string]string) map[string]string {
	out := maps.Clone(conf)
	maps.Copy(out, map[string]string{
		"FELIX_IPV6SUPPORT": "true", "IP": "none", "IP6": "autodetect", "CALICO_ROUTER_ID": "hash",
		"NO_DEFAULT_POOLS": "true", "CALICO_IPV4POOL_CIDR": "",
	})
	return out
}

func number(t *testing.T, variable string, without int) int {
	text := os.Getenv(variable)
	if text == "" {
		return without
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s %q is no number above 0", variable, text)
	}
	return n
}

// oracle is a cluster with Felix and one with weft.
type oracle struct {
	t           *testing.T
	felix, weft *arena
}

// arena is a cluster in which worlds of objects follow one another.
type arena struct {
	*cluster
	matrix *matrix
	// names are the addresses that @NAME stands for in objects.
	names map[string]netip.Addr
	// objects are those of the current world, by path and name, as JSON.
	objects map[string]string
	marks   int
}

func newOracle(t *testing.T, conf map[string]string) *oracle {
	conf = maps.Clone(conf)
	conf["CALICO_IPV4POOL_VXLAN"] = "Always"
	conf["FELIX_FAILSAFEOUTBOUNDHOSTPORTS"] = "udp:0.0.0.0/0:53,udp:0.0.0.0/0:67,tcp:0.0.0.0/0:" + apiPort
	o := &oracle{t: t, felix: newArena(t, conf), weft: newArena(t, conf)}
	o.felix.populate()
	o.weft.replaceFelix()
	o.weft.populate()
	return o
}

// replaceFelix stops Felix and lets weft enforce policies in its place.
func (a *arena) replaceFelix() {
	a.t.Helper()
	for _, n := range a.nodes {
		n.felix.stop(syscall.SIGTERM)
	}
	port, err := strconv.Atoi(a.URL[strings.LastIndex(a.URL, ":")+1:])
	if err != nil {
		a.t.Fatal(err)
	}
	own := object("FelixConfiguration", "default", "", fields{ // what Felix has in its environment
		"failsafeOutboundHostPorts": []fields{
			{"protocol": "UDP", "port": 53}, {"protocol": "UDP", "port": 67}, {"protocol": "TCP", "port": port},
		},
	})
	a.Do(http.MethodDelete, a.path(own)+"/default", nil) // Felix has created it
	a.create(own)
	a.weft("ipam", "import", "--from", "calico")
	for _, n := range a.nodes {
		n.startAgent()
		a.until(n.name+" has its mesh", func() bool {
			_, err := os.Stat(filepath.Join(n.dir, "state", "mesh.json"))
			return err == nil
		})
		a.until(n.name+" is clean", func() bool { return n.clean() })
	}
}

func newArena(t *testing.T, conf map[string]string) *arena {
	a := &arena{cluster: newCluster(t, conf), names: map[string]netip.Addr{}, objects: map[string]string{}}
	for _, n := range a.nodes {
		n.installCalicoConfig()
	}
	return a
}

// populate creates pods and what belongs to them, servers, and a canary on each node.
func (a *arena) populate() {
	for name, team := range map[string]string{namespace: "red", otherNamespace: "blue"} {
		a.Do(http.MethodPost, "/api/v1/namespaces", fields{"metadata": fields{"name": name, "labels": fields{"team": team}}})
	}
	for _, account := range []struct {
		in, name string
		labels   fields
	}{
		{namespace, "clerk", fields{"level": "high"}}, {otherNamespace, "teller", fields{"level": "low"}},
		{namespace, "plain", nil}, {otherNamespace, "plain", nil},
	} {
		a.Do(http.MethodPost, "/api/v1/namespaces/"+account.in+"/serviceaccounts",
			fields{"metadata": fields{"name": account.name, "labels": account.labels}})
	}
	n1, n2 := a.nodes[0], a.nodes[1]
	var hosts []host
	for _, p := range []struct {
		n                 *node
		in, name, account string
		labels            fields
		ports             []fields
	}{
		{n1, namespace, "db", "clerk", fields{"app": "db"}, []fields{
			{"name": "web", "containerPort": 5000, "protocol": "TCP"}, {"name": "dns", "containerPort": 6000, "protocol": "UDP"},
		}},
		{n1, otherNamespace, "near", "plain", fields{"app": "friend", "role": "blocked"}, nil},
		{n2, namespace, "far", "plain", fields{"app": "friend", "role": "free"}, []fields{
			{"name": "web", "containerPort": 5001, "protocol": "TCP"},
		}},
		{n2, otherNamespace, "other", "teller", fields{"app": "other"}, nil},
		{n1, namespace, "canary1", "plain", fields{"canary": "yes"}, nil},
		{n2, namespace, "canary2", "plain", fields{"canary": "yes"}, nil},
	} {
		programs := []string{a.calico, filepath.Join(nettest.Programs(a.t), "cni")}
		pod := p.n.podOf(fields{
			"metadata": fields{"namespace": p.in, "name": p.name, "labels": p.labels},
			"spec": fields{
				"serviceAccountName": p.account, "containers": []fields{{"name": "c", "image": "i", "ports": p.ports}},
			},
		}, p.n.network(), programs...)
		for _, addr := range pod.all { // from outside to pods
			via := p.n.addr
			if addr.Is6() {
				via = p.n.addr6
			}
			ip(a.t, a.hub, "route add "+addr.String()+" via "+via)
		}
		if p.labels["canary"] == nil {
			hosts = append(hosts, pod.host())
		}
	}
	hosts = append(hosts, host{name: "outside", ns: a.hub, addr: netip.MustParseAddr(hubAddr), addr6: netip.MustParseAddr(hubAddr6)})
	for _, n := range a.nodes {
		hosts = append(hosts, host{name: n.name, ns: n.ns, addr: netip.MustParseAddr(n.addr), addr6: netip.MustParseAddr(n.addr6)})
	}
	for i := range hosts {
		h := &hosts[i]
		if a.nodes[0].families == ipv6 {
			h.addr = netip.Addr{}
		} else {
			a.names[h.name] = h.addr
			h.more = []string{echo}
		}
		if a.nodes[0].families == ipv4 {
			h.addr6 = netip.Addr{}
		} else {
			a.names[h.name+".6"] = h.addr6
			h.more = append(h.more, matrixPorts6()...)
		}
	}
	for _, s := range []struct{ node, pod string }{{n1.name, "db"}, {n2.name, "far"}} {
		h := &hosts[slices.IndexFunc(hosts, func(h host) bool { return h.name == s.node })]
		translate := ""
		if a.nodes[0].families != ipv6 {
			h.more = append(h.more, "tcp/"+nodePort)
			translate = "meta nfproto ipv4 tcp dport " + nodePort + " dnat ip to " + a.names[s.pod].String() + ":5000; "
		}
		if a.nodes[0].families != ipv4 {
			h.more = append(h.more, "tcp6/"+nodePort)
			translate += "meta nfproto ipv6 tcp dport " + nodePort + " dnat ip6 to [" + a.names[s.pod+".6"].String() + "]:5000; "
		}
		nettest.Run(a.t, h.ns, "nft", "table inet nodeport { chain prerouting { type nat hook prerouting priority dstnat; "+translate+"}; }")
	}
	a.matrix = serveMatrix(a.t, hosts)
	a.keepNeighbors()
	for _, s := range []struct {
		in, name string
		pods     []string
		ports    []fields
	}{
		{namespace, "till", []string{"db"}, []fields{{"name": "a", "port": 5000, "protocol": "TCP"}, {"name": "b", "port": 6000, "protocol": "UDP"}}},
		{otherNamespace, "mixed", []string{"far", "other"}, []fields{{"name": "a", "port": 5001, "protocol": "TCP"}}},
	} {
		var endpoints, endpoints6 []fields
		for _, name := range s.pods {
			if a.nodes[0].families != ipv6 {
				endpoints = append(endpoints, fields{"addresses": []string{a.names[name].String()}})
			}
			if a.nodes[0].families != ipv4 {
				endpoints6 = append(endpoints6, fields{"addresses": []string{a.names[name+".6"].String()}})
			}
		}
		for family, endpoints := range map[string][]fields{"IPv4": endpoints, "IPv6": endpoints6} {
			if endpoints == nil {
				continue
			}
			a.Do(http.MethodPost, "/apis/discovery.k8s.io/v1/namespaces/"+s.in+"/endpointslices", fields{
				"metadata":    fields{"name": s.name + "-" + strings.ToLower(family), "labels": fields{"kubernetes.io/service-name": s.name}},
				"addressType": family, "endpoints": endpoints, "ports": s.ports,
			})
		}
	}
}

// keepNeighbors makes the neighbors that hosts have learned permanent while no policy exists: under Felix a policy of a host
// endpoint also governs neighbor discovery, so that a verdict would depend on what was sent before (TestNeighborDiscovery).
func (a *arena) keepNeighbors() {
	a.t.Helper()
	a.matrix.try(nil)
	for _, h := range a.matrix.hosts {
		for _, n := range neighbors(a.t, h.ns) {
			ip(a.t, h.ns, "neigh replace "+n.Dst+" lladdr "+n.MAC+" dev "+n.Dev+" nud permanent")
		}
	}
}

// neighbor is an entry of ip neigh.
type neighbor struct {
	Dst, Dev string
	MAC      string `json:"lladdr"`
}

// neighbors returns the neighbors that a namespace has learned, and those that are permanent.
func neighbors(t *testing.T, ns *netns.NS) (out []neighbor) {
	t.Helper()
	for _, family := range []string{"-4", "-6"} {
		var some []neighbor
		if err := json.Unmarshal([]byte(nettest.Run(t, ns, "ip", "-j", family, "neigh", "show")), &some); err != nil {
			t.Fatal(err)
		}
		out = append(out, some...)
	}
	return slices.DeleteFunc(out, func(n neighbor) bool { return n.MAC == "" })
}

// nodePort is a port of each node that the kernel translates to port 5000 of a pod on it, as for a Service.
const nodePort = "30500"

// apply makes the objects those of a world, and waits until all nodes have read them: the last one is a policy of the
// canaries with a port of its own.
func (a *arena) apply(world []fields) {
	a.t.Helper()
	wanted := map[string]string{}
	var order []fields
	for _, o := range append(slices.Clip(world), a.mark()) {
		text, err := json.Marshal(o)
		if err != nil {
			a.t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(a.names)) {
			text = []byte(strings.ReplaceAll(string(text), `"@`+name+`/`, `"`+a.names[name].String()+`/`))
			text = []byte(strings.ReplaceAll(string(text), `"@`+name+`"`, `"`+a.names[name].String()+`"`))
		}
		var copied fields
		if err := json.Unmarshal(text, &copied); err != nil {
			a.t.Fatal(err)
		}
		wanted[a.objectPath(copied)] = string(text)
		order = append(order, copied)
	}
	for path, text := range a.objects {
		if wanted[path] != text {
			a.Do(http.MethodDelete, path, nil)
			delete(a.objects, path)
		}
	}
	for _, o := range order {
		if path := a.objectPath(o); a.objects[path] == "" {
			a.create(o)
			a.objects[path] = wanted[path]
		}
	}
	port := fmt.Sprint(markPort + a.marks)
	for _, n := range a.nodes {
		a.until(n.name+" has the rules of the last policy", func() bool { return strings.Contains(n.ruleset(), port) })
	}
}

func (a *arena) objectPath(o fields) string {
	return a.path(o) + "/" + o["metadata"].(fields)["name"].(string)
}

const markPort = 40000

// mark returns a policy of the canaries that is another one each time.
func (a *arena) mark() fields {
	a.marks++
	return object("NetworkPolicy", "mark", namespace, fields{
		"selector": "has(canary)", "types": []string{"Ingress"}, "order": 1.0, "tier": "default",
		"ingress": []fields{{"action": "Deny", "protocol": "TCP", "destination": fields{"ports": []int{markPort + a.marks}}}},
	})
}

// ruleset returns the rules of the node.
func (n *node) ruleset() string {
	var all strings.Builder
	for _, cmd := range []string{"iptables-legacy-save", "nft list ruleset"} {
		out, _ := nettest.Try(n.ns, strings.Fields(cmd)...)
		all.WriteString(out)
	}
	return all.String()
}

// compare compares the verdicts of both clusters in a world, and reports the smallest part of it in which they differ. It
// returns how many connections were compared, and how many of them are allowed.
func (o *oracle) compare(seed uint64, world []fields) (compared, allowed int) {
	o.t.Helper()
	differ, all, why := o.differences(world, nil)
	for _, v := range all {
		if v {
			allowed++
		}
	}
	o.t.Logf("seed %d: %d objects, %d of %d connections are allowed, %d differ", seed, len(world), allowed, len(all), len(differ))
	if len(differ) == 0 {
		return len(all), allowed
	}
	names := slices.Sorted(maps.Keys(differ))
	first := map[string]bool{names[0]: true}
	small := o.shrink(world, func(part []fields) bool {
		d, _, _ := o.differences(part, first)
		return len(d) > 0
	})
	text, err := yaml.Marshal(small)
	if err != nil {
		o.t.Fatal(err)
	}
	var lines []string
	for _, name := range names {
		lines = append(lines, fmt.Sprintf("%s: allowed by Felix %t, by weft %t (%s)", name, differ[name], !differ[name], why[name]))
	}
	if again, _, _ := o.differences(world, first); len(again) == 0 {
		lines = append(lines, "the first one does not differ any more when the world is applied again")
	}
	o.t.Errorf("seed %d:\n%s\nthe first one differs in the world\n%s", seed, strings.Join(lines, "\n"), text)
	return len(all), allowed
}

// settle is how long verdicts may differ after all nodes have read a world, on a busy host.
const settle = time.Minute

// differences applies a world and returns the connections whose verdicts differ with that of Felix, all verdicts, and the
// errors of those that are denied by one of them only. Only some are tried; nil: all.
func (o *oracle) differences(world []fields, only map[string]bool) (differ, all map[string]bool, why map[string]error) {
	o.felix.apply(world)
	o.weft.apply(world)
	for deadline := time.Now().Add(settle); ; time.Sleep(time.Second) {
		theirs, ours := o.felix.matrix.try(only), o.weft.matrix.try(only)
		felix, weft := verdictsOf(theirs), verdictsOf(ours)
		differ, why = map[string]bool{}, map[string]error{}
		for name, is := range felix {
			if weft[name] != is {
				differ[name] = is
			}
		}
		for _, v := range slices.Concat(theirs, ours) {
			if _, is := differ[v.name()]; is && v.err != nil {
				why[v.name()] = v.err
			}
		}
		if all == nil {
			all = felix
		}
		for name, is := range felix {
			all[name] = is
		}
		if len(differ) == 0 || time.Now().After(deadline) {
			return differ, all, why
		}
		only = differ
	}
}

func verdictsOf(all []verdict) map[string]bool {
	out := map[string]bool{}
	for _, v := range all {
		out[v.name()] = v.allowed
	}
	return out
}

// maxShrinks limits how many smaller worlds are tried.
const maxShrinks = 60

// shrink returns a part of a world that still fails: without objects, then without rules, then without fields of rules.
func (o *oracle) shrink(world []fields, fails func([]fields) bool) []fields {
	tried := 0
	try := func(part []fields) bool {
		tried++
		if tried > maxShrinks || !fails(part) {
			return false
		}
		world = part
		return true
	}
	for i := len(world) - 1; i >= 0; i-- {
		try(slices.Delete(slices.Clone(world), i, i+1))
	}
	for i := range world {
		for _, direction := range []string{"ingress", "egress"} {
			count := len(rulesOf(world[i], direction))
			for r := count - 1; r >= 0; r-- {
				part := cloned(o.t, world)
				spec := part[i]["spec"].(fields)
				spec[direction] = slices.Delete(rulesOf(part[i], direction), r, r+1)
				try(part)
			}
			for r := range rulesOf(world[i], direction) {
				for _, field := range slices.Sorted(maps.Keys(rulesOf(world[i], direction)[r].(fields))) {
					if field == "action" || field == "protocol" { // others may need the protocol
						continue
					}
					part := cloned(o.t, world)
					delete(rulesOf(part[i], direction)[r].(fields), field)
					try(part)
				}
			}
		}
	}
	return world
}

// cloned returns a copy of a world, as it is read from JSON.
func cloned(t *testing.T, world []fields) (out []fields) {
	t.Helper()
	text, err := json.Marshal(world)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rulesOf returns the rules of an object that cloned has returned.
func rulesOf(o fields, direction string) []any {
	out, _ := o["spec"].(fields)[direction].([]any)
	return out
}
