// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/policy"
)

// occupy makes another program the owner of a table: no other program can write it until that ends.
func occupy(t *testing.T, ns *netns.NS, table string) (leave func()) {
	t.Helper()
	cmd := exec.Command("nft", "-i")
	in, err := cmd.StdinPipe()
	if err == nil {
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
		err = within(ns, cmd.Start)
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	leave = func() {
		if !ended {
			ended = true
			_ = in.Close()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(leave)
	if _, err := io.WriteString(in, "add table "+table+" { flags owner; }\n"); err != nil {
		t.Fatal(err)
	}
	return leave
}

// within calls f in a namespace; nil is the test's own.
func within(ns *netns.NS, what func() error) error {
	if ns == nil {
		return what()
	}
	return ns.Do(what)
}

// TestVMsQuarantined: if a policy selects a guest at a bridge port and cannot be written there, the port is set down,
// whatever was allowed before; other ports are not. It stays down over a restart, and comes up with its rules, or when
// policies are not enforced any more.
func TestVMsQuarantined(t *testing.T) {
	w := newWorld(t)
	if out, err := nettest.Try(
		nil, "nft",
		"add table bridge probe { flags owner; }; add chain bridge probe c { type filter hook prerouting priority 1; }; delete table bridge probe",
	); err != nil {
		nettest.Skip(t, "this kernel has no rules for bridges, or no owners of tables: "+out)
	}
	nettest.NeedBridgeNetfilter(t)
	w.start()
	web, friend, other := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`),
		w.pod("shop/other", "app: other")
	web1, friend1, _ := w.vm(web, 2), w.vm(friend, 3), w.vm(other, 4)
	w.serve(web, 80)
	w.serve(friend, 80)
	w.eventually("the bridge carries packets", func() bool {
		return reaches(friend.ns, web1, 80) && reaches(other.ns, web1, 80)
	})
	leave := occupy(t, nil, "bridge weft-policy")
	w.eventually("the table is another program's", func() bool {
		return strings.Contains(ruleset(), "table bridge weft-policy")
	})
	w.manifest("fast", onlyFastFriends)
	closed := func() bool {
		return strings.Contains(nettest.Run(t, nil, "ip", "-o", "link", "show", web1.HostLink), "state DOWN") &&
			!reaches(friend.ns, web1, 80) && !reaches(other.ns, web1, 80)
	}
	w.eventually("the guest's port is closed", closed)
	if w.Stats().Quarantined != 1 || !strings.Contains(w.log.String(), "bridge ports are down") {
		t.Errorf("%+v", w.Stats())
	}
	if !admits(other.ns, friend1.addr, 80) {
		t.Error("a guest that no policy selects is cut off, too")
	}
	late := w.guarded("shop/late")
	late.HostLink, late.HostEnd, late.VM = "port9", model.HostEndPort, true
	w.object("shop/late", "app: web", "n1")
	wantTryAgain(t, w.Admit(t.Context(), late), "could not be written for the node's bridges")
	if err := w.Release(t.Context(), late.Attachment); err != nil {
		t.Error(err)
	}
	w.start()
	w.eventually("it stays closed", func() bool { return w.Stats().Quarantined == 1 && closed() })
	nettest.Run(t, nil, "ip", "link", "set", web1.HostLink, "up")
	w.eventually("it is closed again when somebody opens it", closed)
	leave()
	w.eventually("it opens with its rules", func() bool {
		return reaches(friend.ns, web1, 80) && !reaches(other.ns, web1, 80)
	})
	w.eventually("nothing is closed", func() bool { return w.Stats().Quarantined == 0 })
	w.remove("fast")
	w.eventually("the table is gone", func() bool { return !strings.Contains(ruleset(), "table bridge weft-policy") })
	occupy(t, nil, "bridge weft-policy")
	w.eventually("the table is another program's again", func() bool {
		return strings.Contains(ruleset(), "table bridge weft-policy")
	})
	w.manifest("fast", onlyFastFriends)
	w.eventually("the port is closed again", closed)
	w.halt()
	_ = policy.Clear(t.Context(), w.host)
	w.eventually("nobody obeys policies", func() bool {
		return !strings.Contains(nettest.Run(t, nil, "ip", "-o", "link", "show", web1.HostLink), "state DOWN")
	})
}
