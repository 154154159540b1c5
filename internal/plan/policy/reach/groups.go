// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Group are pods of a namespace between which no policy distinguishes, or what is outside of the cluster.
type Group struct {
	Namespace string
	// Labels are those labels of all pods that policies select by, as "key=value", sorted.
	Labels []string
	// Pods are their names, sorted.
	Pods []string
	// Outside are all addresses that no policy names: what is outside of the cluster.
	Outside bool

	ports    []model.PodPort // those that policies name
	terms    string          // which selectors select the pods
	examples []model.Pod     // the first ones, at most two; none of Outside
	addrs    []netip.Addr    // of Outside, one of each family
}

// end is one of a group's ends of connections.
type end struct {
	pod   model.PodRef // none of Outside
	addrs []netip.Addr // one of each family
}

// end returns the i-th of the group's ends; without addresses if it has no such.
func (g *Group) end(i int) end {
	if g.Outside {
		return end{addrs: g.addrs}
	}
	if i >= len(g.examples) {
		return end{}
	}
	p := g.examples[i]
	return end{model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, oneOfEach(p.IPs)}
}

// selectors are what distinguishes pods.
type selectors struct {
	pods       []model.PodPeer
	blocks     []netip.Prefix
	ports      map[string]bool // names
	namespaces map[string]map[string]string
	// accounts are the labels of service accounts, by namespace and name; calico: there are policies of Calico's.
	accounts map[[2]string]map[string]string
	calico   bool
}

func newSelectors(in Input) selectors {
	s := selectors{
		ports: map[string]bool{}, namespaces: map[string]map[string]string{}, accounts: map[[2]string]map[string]string{},
	}
	for _, a := range in.Accounts {
		s.accounts[[2]string{a.Namespace, a.Name}] = a.Labels
	}
	for _, set := range in.Sets {
		s.blocks = append(s.blocks, set.Nets...)
	}
	for _, slice := range in.Slices {
		for _, e := range slice.Endpoints {
			s.blocks = append(s.blocks, netip.PrefixFrom(e.Addr, e.Addr.BitLen()))
		}
	}
	for _, n := range in.Namespaces {
		s.namespaces[n.Name] = n.Labels
	}
	seen := map[string]bool{}
	pods := func(p model.PodPeer) {
		if !seen[p.String()] {
			seen[p.String()] = true
			s.pods = append(s.pods, p)
		}
	}
	for _, p := range in.Policies {
		pods(p.Subject)
		s.calico = s.calico || p.Kind.Calico()
		for _, r := range slices.Concat(p.Ingress.Rules, p.Egress.Rules) {
			for _, peer := range r.Peers {
				if peer.Pods != nil {
					pods(*peer.Pods)
				}
				if peer.Block != nil {
					s.blocks = append(append(s.blocks, peer.Block.CIDR), peer.Block.Except...)
				}
			}
			if r.Conditions != nil {
				for _, e := range []model.EndConditions{r.Conditions.Source, r.Conditions.Destination} {
					s.blocks = slices.Concat(s.blocks, e.Nets, e.NotNets)
					for _, peer := range []*model.PodPeer{e.Peer, e.NotPeer} {
						if peer != nil {
							pods(*peer)
						}
					}
				}
			}
			for _, port := range portsOf(r) {
				if port.Name != "" {
					s.ports[port.Name] = true
				}
			}
		}
	}
	slices.SortFunc(s.blocks, netip.Prefix.Compare)
	s.blocks = slices.Compact(s.blocks)
	return s
}

// keys returns the labels by which pods of a namespace are selected.
func (s selectors) keys(namespace string) []string {
	keys := map[string]bool{}
	for _, p := range s.pods {
		if p.Namespace != "" && p.Namespace != namespace {
			continue
		}
		if p.Endpoints != nil {
			for _, k := range p.Endpoints.Labels.Labels() {
				keys[k] = true
			}
		}
		for k := range p.Pods.Labels {
			keys[k] = true
		}
		for _, r := range p.Pods.Requirements {
			keys[r.Key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// matching returns which selectors select a pod, as text.
func (s selectors) matching(pod model.Pod) string {
	var b strings.Builder
	labels := model.PodLabels{
		Pod: pod, Namespace: s.namespaces[pod.Namespace], Account: s.accounts[[2]string{pod.Namespace, pod.ServiceAccount}],
	}
	for i, p := range s.pods {
		if p.Namespace != "" && p.Namespace != pod.Namespace || p.Namespace == "" && !p.Namespaces.Matches(labels.Namespace) {
			continue
		}
		if p.Endpoints == nil && p.Pods.Matches(pod.Labels) || p.Endpoints != nil && p.Endpoints.Matches(labels) {
			fmt.Fprintf(&b, "%d ", i)
		}
	}
	return b.String()
}

// of returns what distinguishes a pod, apart from its labels: its namespace, families, blocks and named ports.
func (s selectors) of(p model.Pod) (ports []model.PodPort, text string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s;", p.Namespace)
	for _, a := range oneOfEach(p.IPs) {
		fmt.Fprintf(&b, "%v", a.Is4())
		for i, block := range s.blocks {
			if block.Contains(a) {
				fmt.Fprintf(&b, " %d", i)
			}
		}
	}
	if s.calico {
		fmt.Fprintf(&b, ";account %s", p.ServiceAccount)
	}
	for _, port := range p.Ports {
		if s.ports[port.Name] {
			ports = append(ports, port)
			fmt.Fprintf(&b, ";%s=%d/%s", port.Name, port.Number, port.Protocol)
		}
	}
	return ports, b.String()
}

// oneOfEach returns the first address of each family, IPv4 first.
func oneOfEach(all []netip.Addr) (out []netip.Addr) {
	for _, four := range []bool{true, false} {
		if i := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Is4() == four }); i >= 0 {
			out = append(out, all[i])
		}
	}
	return out
}

// newGroups returns the groups, sorted by namespace and labels. Pods that policies do not see are in none.
func newGroups(in Input, s selectors) []*Group {
	keys := map[string][]string{}
	byLabels := map[string]*Group{}
	for _, p := range in.Pods {
		if p.HostNetwork || p.Phase == "Succeeded" || p.Phase == "Failed" || len(p.IPs) == 0 {
			continue
		}
		if _, has := keys[p.Namespace]; !has {
			keys[p.Namespace] = s.keys(p.Namespace)
		}
		labels := []string{}
		for _, k := range keys[p.Namespace] {
			if v, has := p.Labels[k]; has {
				labels = append(labels, k+"="+v)
			}
		}
		ports, text := s.of(p)
		text += "\n" + strings.Join(labels, "\n")
		g := byLabels[text]
		if g == nil {
			g = &Group{Namespace: p.Namespace, Labels: labels, ports: ports}
			_, others, _ := strings.Cut(text, ";")
			others, _, _ = strings.Cut(others, "\n")
			g.terms = others + "\n" + s.matching(p)
			byLabels[text] = g
		}
		g.add(p)
	}
	// Labels may differ without any selector that does.
	merged := map[string]*Group{}
	var out []*Group
	for _, text := range slices.Sorted(maps.Keys(byLabels)) {
		g := byLabels[text]
		same := merged[g.Namespace+"\n"+g.terms]
		if same == nil {
			merged[g.Namespace+"\n"+g.terms] = g
			out = append(out, g)
			continue
		}
		same.Labels = slices.DeleteFunc(same.Labels, func(l string) bool { return !slices.Contains(g.Labels, l) })
		same.Pods = append(same.Pods, g.Pods...)
		if len(same.examples) < 2 {
			same.examples = append(same.examples, g.examples[0])
		}
	}
	for _, g := range out {
		slices.Sort(g.Pods)
	}
	slices.SortStableFunc(out, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), slices.Compare(a.Labels, b.Labels), slices.Compare(a.Pods, b.Pods))
	})
	return out
}

func (g *Group) add(p model.Pod) {
	g.Pods = append(g.Pods, p.Name)
	if len(g.examples) < 2 {
		g.examples = append(g.examples, p)
	}
}
