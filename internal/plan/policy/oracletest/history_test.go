// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// history is a compiler with a series of changes, its current input, and the tables that result from its changes only.
type history struct {
	draw
	index     *policy.Index
	nodes     map[string]model.Node
	spaces    map[string]model.Namespace
	pods      map[string]model.Pod
	endpoints map[model.EndpointKey]model.WorkloadEndpoint
	policies  map[model.PolicyKey]model.Policy
	kernel    map[model.PodRef]state.Table
	// conn, unless nil, is a real kernel to which the node's own table is applied.
	conn *kernel.Conn
}

func newHistory(rt *rapid.T) *history {
	return &history{
		draw: draw{T: rt}, index: policy.New(policy.Config{Node: "n1"}), nodes: map[string]model.Node{},
		spaces: map[string]model.Namespace{},
		pods:   map[string]model.Pod{}, endpoints: map[model.EndpointKey]model.WorkloadEndpoint{},
		policies: map[model.PolicyKey]model.Policy{},
		kernel:   map[model.PodRef]state.Table{},
	}
}

func (h *history) live() {
	h.Repeat(map[string]func(*rapid.T){
		"namespace": h.namespaceTurn, "pod": h.podTurn, "pod again": h.podTurn, "endpoint": h.endpointTurn,
		"endpoint again": h.endpointTurn,
		"policy":         h.policyTurn, "policy again": h.policyTurn, "cluster policy": h.clusterTurn, "node": h.nodeTurn,
		"": func(rt *rapid.T) {
			if h.T = rt; h.yes("look") {
				h.compare()
			}
		},
	})
	h.compare()
}

// TestHistories: after changes in any order, the tables are those of a new compiler with the same input, and the
// changes lead to them.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { newHistory(rt).live() })
}

// TestHistoriesInKernel is the same with a real kernel, to which only changes are applied.
func TestHistoriesInKernel(t *testing.T) {
	conn, err := kernel.Dial(nettest.NS(t, "node"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	rapid.Check(t, func(rt *rapid.T) {
		h := newHistory(rt)
		h.conn = conn
		defer h.forget()
		h.live()
	})
}

// forget deletes the node's table.
func (h *history) forget() {
	tables, err := h.conn.Netfilter()
	if err == nil {
		err = tables.Remove(h.Context(), []state.Table{{Family: policy.TableFamily, Name: policy.TableName}})
	}
	if err != nil {
		h.Error(err)
	}
}

// follow applies the changes to the kernel, and compares its tables.
func (h *history) follow(changes []policy.Change, want state.Table) {
	tables, err := h.conn.Netfilter()
	if err != nil {
		h.Fatal(err)
	}
	for _, c := range changes {
		switch {
		case c.Point != policy.EnforcementPoint{}:
		case c.Gone:
			err = tables.Remove(h.Context(), []state.Table{{Family: policy.TableFamily, Name: policy.TableName}})
		case h.kernel[model.PodRef{}].Name == "": // the first: like the start of an agent
			err = tables.Apply(h.Context(), []state.Table{want})
		default:
			err = tables.Change(h.Context(), []state.TableChange{c.TableChange})
		}
		if err != nil {
			h.Fatalf("the kernel rejects the change: %v", err)
		}
	}
	if want.Name == "" {
		return
	}
	have, err := tables.Read(h.Context(), []state.Table{want})
	if err != nil {
		h.Fatal(err)
	}
	if diff := cmp.Diff(sorted(map[model.PodRef]state.Table{{}: printed(want)}), sorted(map[model.PodRef]state.Table{{}: have[0]}),
		cmpopts.EquateEmpty()); diff != "" {
		h.Fatalf("the kernel does not hold what it should (-want +kernel):\n%s", diff)
	}
}

// printed returns a table as nft prints it: without a comparison of the family that a later match implies.
func printed(in state.Table) state.Table {
	in.Chains = slices.Clone(in.Chains)
	for i, c := range in.Chains {
		in.Chains[i].Rules = slices.Clone(c.Rules)
		for j, r := range c.Rules {
			if words := strings.Fields(r.Text); len(words) > 2 && words[0] == "meta" && words[1] == "nfproto" {
				in.Chains[i].Rules[j].Text = strings.Join(words[3:], " ")
			}
		}
	}
	return in
}

func (h *history) namespaceTurn(rt *rapid.T) {
	h.T = rt
	name := h.one("namespace", namespaces()...)
	if h.seldom(3, "goes") {
		delete(h.spaces, name)
		h.index.DelNamespace(name)
		return
	}
	h.spaces[name] = model.Namespace{Name: name, Labels: h.namespace(name)}
	h.index.SetNamespace(h.spaces[name])
}

func (h *history) podTurn(rt *rapid.T) {
	h.T = rt
	p := h.pod(h.number(1, 5, "pod"))
	key := p.Namespace + "/" + p.Name
	if h.seldom(3, "goes") {
		delete(h.pods, key)
		h.index.DelPod(p.Namespace, p.Name)
		return
	}
	pod := model.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: h.one("uid", "1", "2"), Node: p.Node, HostNetwork: p.HostNetwork,
		Labels: p.Labels, Phase: "Running",
	}
	if h.yes("status") {
		pod.IPs = p.Addrs[""]
	}
	if p.Done {
		pod.Phase = "Failed"
	}
	for _, port := range p.Ports {
		pod.Ports = append(pod.Ports, model.PodPort{
			Name: port.Name, Protocol: model.Protocol(port.Proto), Number: uint16(port.Port),
		})
	}
	h.pods[key] = pod
	h.index.SetPod(pod)
}

func (h *history) endpointTurn(rt *rapid.T) {
	h.T = rt
	p := h.pod(h.number(1, 5, "pod"))
	for _, e := range endpoints(&p) {
		e.Pod.UID = h.one("uid", "1", "2", "")
		if h.seldom(3, "goes") {
			delete(h.endpoints, e.Key())
			h.index.DelEndpoint(e.Key())
			continue
		}
		h.endpoints[e.Key()] = e
		h.index.SetEndpoint(e)
	}
}

func (h *history) policyTurn(rt *rapid.T) {
	h.T = rt
	h.setPolicy(modelPolicy(h.policy(fmt.Sprintf("np%d", h.number(1, 4, "policy")))))
}

func (h *history) clusterTurn(rt *rapid.T) {
	h.T = rt
	h.setPolicy(modelCluster(h.clusterPolicy(fmt.Sprintf("cnp%d", h.number(1, 3, "policy")), h.number(0, 2, "priority"))))
}

func (h *history) setPolicy(p model.Policy) {
	if h.seldom(3, "goes") {
		delete(h.policies, p.PolicyKey)
		h.index.DelPolicy(p.PolicyKey)
		return
	}
	h.policies[p.PolicyKey] = p
	h.index.SetPolicy(p)
}

func (h *history) nodeTurn(rt *rapid.T) {
	h.T = rt
	name := h.one("node", nodes()...)
	if h.seldom(3, "goes") {
		delete(h.nodes, name)
		h.index.DelNode(name)
		return
	}
	h.nodes[name] = model.Node{
		Name: name, Labels: map[string]string{"node": h.one("label", nodes()...)}, Addrs: nodeAddrs(name),
	}
	h.index.SetNode(h.nodes[name])
}

// compare ends a batch of changes.
func (h *history) compare() {
	changes := h.index.Changes()
	if h.conn != nil {
		h.follow(changes, tables(h.index)[model.PodRef{}])
	}
	for _, c := range changes {
		if c.Gone {
			delete(h.kernel, c.Point.Pod)
			continue
		}
		h.kernel[c.Point.Pod] = written(h.T, h.kernel[c.Point.Pod], c.TableChange)
	}
	fresh := policy.New(policy.Config{Node: "n1"})
	for _, n := range h.nodes {
		fresh.SetNode(n)
	}
	for _, p := range h.policies {
		fresh.SetPolicy(p)
	}
	for _, e := range h.endpoints {
		fresh.SetEndpoint(e)
	}
	for _, p := range h.pods {
		fresh.SetPod(p)
	}
	for _, n := range h.spaces {
		fresh.SetNamespace(n)
	}
	want := tables(fresh)
	if diff := cmp.Diff(want, tables(h.index)); diff != "" {
		h.Fatalf("differs from a new compiler with the same input (-new +history):\n%s", diff)
	}
	if diff := cmp.Diff(sorted(want), sorted(h.kernel), cmpopts.EquateEmpty()); diff != "" {
		h.Fatalf("the changes do not lead to the tables (-tables +changes):\n%s", diff)
	}
	if again := h.index.Changes(); len(again) > 0 {
		h.Fatalf("changes without a change of input: %+v", again)
	}
}

// written returns a table after a change, applied in the order that state.TableChange guarantees. It fails if the
// kernel would reject the change.
func written(t *rapid.T, in state.Table, c state.TableChange) state.Table {
	in.Family, in.Name = c.Family, c.Name
	in.Sets, in.Chains = slices.Clone(in.Sets), slices.Clone(in.Chains)
	set := func(name string) *state.Set {
		i := slices.IndexFunc(in.Sets, func(s state.Set) bool { return s.Name == name })
		if i < 0 {
			t.Fatalf("a change names the set %s, which is not there", name)
		}
		return &in.Sets[i]
	}
	for _, s := range c.AddSets {
		if slices.ContainsFunc(in.Sets, func(o state.Set) bool { return o.Name == s.Name }) {
			t.Fatalf("a change makes the set %s, which is there", s.Name)
		}
		in.Sets = append(in.Sets, s)
	}
	for _, chain := range c.AddChains {
		in.Chains = append(slices.DeleteFunc(in.Chains, func(o state.Chain) bool { return o.Name == chain.Name }), chain)
	}
	for _, d := range c.DeleteElements {
		s := set(d.Name)
		for _, e := range d.Elements {
			n := len(s.Elements)
			if s.Elements = slices.DeleteFunc(slices.Clone(s.Elements), func(o state.Element) bool {
				return slices.Equal(o.Key, e.Key)
			}); len(s.Elements) != n-1 {
				t.Fatalf("a change drops %v of %s, which is not there", e.Key, d.Name)
			}
		}
	}
	for _, a := range c.AddElements {
		s := set(a.Name)
		for _, e := range a.Elements {
			if slices.ContainsFunc(s.Elements, func(o state.Element) bool { return slices.Equal(o.Key, e.Key) }) {
				t.Fatalf("a change adds %v to %s, which is there", e.Key, a.Name)
			}
			s.Elements = append(slices.Clone(s.Elements), e)
		}
	}
	in.Chains = slices.DeleteFunc(in.Chains, func(o state.Chain) bool { return slices.Contains(c.DeleteChains, o.Name) })
	in.Sets = slices.DeleteFunc(in.Sets, func(o state.Set) bool { return slices.Contains(c.DeleteSets, o.Name) })
	refers(t, in)
	return in
}

// refers fails if a rule or an element refers to something that does not exist: the kernel would reject the
// transaction.
func refers(t *rapid.T, in state.Table) {
	chains, sets := map[string]bool{}, map[string]bool{}
	for _, c := range in.Chains {
		chains[c.Name] = true
	}
	for _, s := range in.Sets {
		sets[s.Name] = true
	}
	check := func(where string, tok []string) {
		for i, word := range tok {
			if set, is := strings.CutPrefix(word, "@"); is && !sets[set] {
				t.Fatalf("%s names the set %s, which is not there", where, set)
			}
			if (word == "jump" || word == "goto") && i+1 < len(tok) && !chains[tok[i+1]] {
				t.Fatalf("%s names the chain %s, which is not there", where, tok[i+1])
			}
		}
	}
	for _, c := range in.Chains {
		for _, r := range c.Rules {
			check("chain "+c.Name, words(r.Text))
		}
	}
	for _, s := range in.Sets {
		for _, e := range s.Elements {
			check("set "+s.Name, strings.Fields(strings.Join(e.Val, " ")))
		}
	}
}

func sorted(in map[model.PodRef]state.Table) map[model.PodRef]state.Table {
	out := maps.Clone(in)
	for place, table := range out {
		table.Sets, table.Chains = slices.Clone(table.Sets), slices.Clone(table.Chains)
		slices.SortFunc(table.Chains, func(a, b state.Chain) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(table.Sets, func(a, b state.Set) int { return strings.Compare(a.Name, b.Name) })
		for i := range table.Sets {
			table.Sets[i].Elements = slices.SortedFunc(slices.Values(table.Sets[i].Elements), func(a, b state.Element) int {
				return slices.Compare(a.Key, b.Key)
			})
		}
		out[place] = table
	}
	return out
}
