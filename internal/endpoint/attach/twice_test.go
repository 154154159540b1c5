// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// One network twice in a pod: each interface has its own default routes, each is as CHECK expects it, and the DEL of
// one leaves those of the other.
func TestNetworkTwice(t *testing.T) {
	dual := strings.Replace(bridge, `"subnet":"10.8.0.0/24"`,
		`"ranges":[[{"subnet":"10.8.0.0/24"}],[{"subnet":"fd08::/64"}]]`, 1)
	for name, batch := range map[string]bool{"together": true, "one by one": false} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			id, ns := n.pod()
			jobs := []attach.Job{n.job(n.list(dual), id, ns), n.job(n.list(dual), id, ns)}
			jobs[1].Request.IfName = "net1"
			var results []model.Result
			if batch {
				var err error
				if results, _, err = n.AddAll(t.Context(), jobs); err != nil {
					t.Fatal(err)
				}
			} else {
				results = []model.Result{n.add(jobs[0]), n.add(jobs[1])}
			}
			check := func(i int, when string) {
				t.Helper()
				job := jobs[i]
				job.Prev = &results[i]
				if err := n.Check(t.Context(), job); err != nil {
					t.Errorf("%s: CHECK of %s: %v\n%s", when, job.Request.IfName, err, nettest.Run(t, ns, "ip", "-6", "route"))
				}
			}
			check(0, "after both")
			check(1, "after both")
			if err := n.Del(t.Context(), jobs[1]); err != nil {
				t.Fatal(err)
			}
			n.drain()
			check(0, "after the DEL of net1")
			routes := nettest.Run(t, ns, "ip", "route") + nettest.Run(t, ns, "ip", "-6", "route")
			for _, want := range []string{"default via 10.8.0.1 dev eth0", "default via fd08::1 dev eth0"} {
				if !strings.Contains(routes, want) {
					t.Errorf("after the DEL of net1: no %q in\n%s", want, routes)
				}
			}
			if err := n.Del(t.Context(), jobs[0]); err != nil {
				t.Fatal(err)
			}
			n.clean(name)
		})
	}
}
