// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// rulesOf are the lines of weft's tables that name an attachment.
func rulesOf(t *testing.T, job attach.Job) string {
	t.Helper()
	elementWords := regexp.MustCompile(`[^{,]*comment "[^"]*"[^,}]*`)
	var out strings.Builder
	for _, table := range plugin.SharedTables() {
		text, err := nettest.Try(nil, "nft", "-s", "list", "table", table.Family, table.Name)
		if err != nil {
			continue
		}
		for _, element := range elementWords.FindAllString(text, -1) {
			if strings.Contains(element, plugin.Mark(job.Request.Key())) {
				out.WriteString(table.Family + " " + table.Name + ": " + strings.Join(strings.Fields(element), " ") + "\n")
			}
		}
	}
	return out.String()
}

// What is undone late of a pod's sandbox takes nothing from the pod's next one, which has the same link on the node and
// may have the same addresses: neither what keeps it from speaking in others' names, nor its limits, nor its floating
// IPs.
func TestRoutedLateDel(t *testing.T) {
	says := []string{
		"cni.projectcalico.org/ipAddrs", `["10.8.0.33","fd00:8::33"]`, "cni.projectcalico.org/hwAddr", "02:00:00:00:00:33",
		"cni.projectcalico.org/floatingIPs", `["198.51.100.7"]`, "cni.projectcalico.org/allowedSourcePrefixes",
		`["172.16.0.0/24"]`,
		qos + "egressPacketRate", "100", qos + "ingressMaxConnections", "50", qos + "dscp", "8",
	}
	for _, way := range []struct {
		name string
		late func(n *node, first attach.Job)
	}{
		{"DEL", func(n *node, first attach.Job) {
			if err := errors.Join(n.Del(n.t.Context(), first), n.ledger.Delete(first.Request.Key())); err != nil {
				n.t.Error(err)
			}
		}},
		{"recovery", func(n *node, _ attach.Job) {
			if report, err := attach.New(n.cfg).Recover(n.t.Context()); err != nil || report.Undone != 1 {
				n.t.Errorf("%s, %v", report, err)
			}
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			n, _ := wishingNode(t)
			first := n.saying(calicoOpen+","+shaped, "web-0", says...)
			n.add(first)
			rec, found, err := n.ledger.Get(first.Request.Key())
			if err != nil || !found {
				t.Fatal(found, err)
			}
			if err := n.Del(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			n.drain()
			second := n.saying(calicoOpen+","+shaped, "web-0", says...)
			n.add(second)
			rec.Stage = attach.Releasing // as if the record could not be deleted
			if err := n.ledger.Put(rec); err != nil {
				t.Fatal(err)
			}
			n.whole(second, func() { way.late(n, first) })
			if err := n.Del(t.Context(), second); err != nil {
				t.Error(err)
			}
			n.clean("DEL")
		})
	}
}

// The sandbox's namespace may go, and its link with it, before its DEL comes. What the next one then finds of its own
// name on the node becomes its own; and what flushed rules are brought back is the living one's.
func TestRoutedSandboxWithoutDel(t *testing.T) {
	for _, ids := range [][2]string{{"a", "b"}, {"b", "a"}} { // whichever is looked at first
		t.Run(ids[0]+" before "+ids[1], func(t *testing.T) {
			n, _ := wishingNode(t)
			says := []string{qos + "egressPacketRate", "100", "cni.projectcalico.org/ipAddrs", `["10.8.0.33"]`}
			first := n.saying(calicoOpen, "web-0", says...)
			first.Request.ContainerID = ids[0]
			n.add(first)
			nettest.Run(t, first.Netns, "ip", "link", "del", "eth0")
			says[3] = `["10.8.0.34"]`
			second := n.saying(calicoOpen, "web-0", says...)
			second.Request.ContainerID = ids[1]
			n.add(second)
			n.whole(second, func() {
				nettest.Run(t, nil, "nft", "flush", "ruleset")
				if err := n.RepairRules(t.Context(), false); err != nil {
					t.Error(err)
				}
			})
			n.whole(second, func() {
				if err := n.Del(t.Context(), first); err != nil {
					t.Error(err)
				}
			})
			if err := n.Del(t.Context(), second); err != nil {
				t.Error(err)
			}
			n.clean("DEL")
		})
	}
}

// whole makes sure that f leaves an attachment as it is.
func (n *node) whole(job attach.Job, f func()) {
	n.t.Helper()
	t := n.t.(*testing.T)
	before := rulesOf(t, job)
	for _, table := range []string{"inet weft_source", "arp weft_source", "inet weft_qos"} {
		if !strings.Contains(before, table) {
			t.Errorf("nothing of table %s is its own in the beginning:\n%s", table, before)
		}
	}
	f()
	n.drain()
	if after := rulesOf(t, job); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
	if err := n.Check(t.Context(), job); err != nil {
		t.Error(err)
	}
}
