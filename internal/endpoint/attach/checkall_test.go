// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// CheckAll finds what CHECK of each attachment finds, names those whose namespace was deleted as such, and changes
// nothing.
func TestCheckAll(t *testing.T) {
	n := newNode(t)
	conf := n.list(bridge)
	var hosts []string
	for _, name := range []string{"whole", "drifted", "deleted"} {
		id, ns := n.pod()
		job := n.job(conf, id, ns)
		job.Request.Args = [][2]string{{"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", name}}
		hosts = append(hosts, n.add(job).Interfaces[1].Name)
		if name == "deleted" {
			if err := errors.Join(ns.Close(), netns.Remove(ns.Path())); err != nil {
				t.Fatal(err)
			}
		}
	}
	nettest.Run(t, nil, "ip", "link", "set", hosts[1], "down")
	for range 2 {
		report, err := n.CheckAll(t.Context())
		if err != nil || report.Attachments != 3 || report.Unchecked != 0 || len(report.Problems) != 2 {
			t.Fatalf("%+v: %v", report, err)
		}
		for _, p := range report.Problems {
			switch p.Pod {
			case "default/drifted":
				if p.Gone || !strings.Contains(p.Message, hosts[1]) {
					t.Errorf("%+v does not name link %s", p, hosts[1])
				}
			case "default/deleted":
				if !p.Gone {
					t.Errorf("%+v is not said to be gone", p)
				}
			default:
				t.Errorf("%+v", p)
			}
		}
	}
}
