// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// describe returns a readable description of a cluster for a failure.
func describe(w naive.World) string {
	var b strings.Builder
	for _, n := range slices.Sorted(maps.Keys(w.Namespaces)) {
		fmt.Fprintf(&b, "namespace %s %v\n", n, w.Namespaces[n])
	}
	for _, p := range w.Pods {
		fmt.Fprintf(&b, "pod %s/%s on %s %v addresses %v host network %t, completed %t, ports %v\n", p.Namespace, p.Name,
			p.Node, p.Labels, p.Addrs, p.HostNetwork, p.Done, p.Ports)
	}
	for _, p := range w.Policies {
		raw, _ := json.Marshal(p)
		fmt.Fprintf(&b, "policy %s %v\n", raw, p.Networks)
	}
	for _, p := range w.Cluster {
		raw, _ := json.Marshal(p)
		fmt.Fprintf(&b, "cluster policy %s\n", raw)
	}
	return b.String()
}

func (p plans) String() string {
	var b strings.Builder
	for _, node := range nodes() {
		for place, table := range p[node] {
			fmt.Fprintf(&b, "%s %s:\n", node, place.Name)
			for _, s := range table.Sets {
				fmt.Fprintf(&b, "  set %s %s %s:", s.Name, s.Key, s.Data)
				for _, e := range s.Elements {
					fmt.Fprintf(&b, " %s", strings.Join(append(slices.Clone(e.Key), e.Val...), " . "))
				}
				b.WriteString("\n")
			}
			for _, c := range table.Chains {
				fmt.Fprintf(&b, "  chain %s %s %d\n", c.Name, c.Hook, c.Priority)
				for _, r := range c.Rules {
					fmt.Fprintf(&b, "    %s\n", r.Text)
				}
			}
		}
	}
	return b.String()
}
