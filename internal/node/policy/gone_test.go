// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

// A namespace whose table the enforcer keeps, and that is deleted without a DEL, ends at once and not by a periodic check:
// nothing that the enforcer has open keeps it, nor its links on the node. Others continue, and the DEL that comes later
// finds nothing wrong.
func TestDeletedNamespaceEnds(t *testing.T) {
	w := newWorld(t)
	deletions := nettest.Deletions(t)
	w.start(func(c *policy.Config) { c.Deletions = deletions })
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: web")
	web1, other1 := w.bridged(web, 2), w.bridged(other, 4)
	w.manifest("fast", onlyFastFriends)
	kept := func(p *pod) bool {
		return strings.Contains(nettest.Run(t, p.ns, "nft", "list", "tables"), compiled.TableName)
	}
	w.eventually("both have tables", func() bool { return kept(web) && kept(other) })
	time.Sleep(100 * time.Millisecond) // what is there stays open
	for _, p := range []*pod{web, other} {
		nettest.Run(t, p.ns, "nft", "flush", "ruleset")
		w.eventually("the table is put back", func() bool { return kept(p) })
	}
	if err := errors.Join(web.ns.Close(), netns.Remove(web.ns.Path())); err != nil {
		t.Fatal(err)
	}
	w.eventually("the namespace has ended", func() bool {
		_, err := nettest.Try(nil, "ip", "link", "show", web1.link)
		return err != nil
	})
	if err := w.Release(t.Context(), web1.Attachment); err != nil {
		t.Error(err)
	}
	nettest.Run(t, other.ns, "nft", "flush", "ruleset")
	w.eventually("the other's table is put back", func() bool { return kept(other) })
	if err := w.Release(t.Context(), other1.Attachment); err != nil {
		t.Error(err)
	}
}
