// SPDX-License-Identifier: Apache-2.0

package guests

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestDeletedNamespaceEnds: a pod's namespace that is deleted while its guest is served, without a DEL, ends: the
// sockets that are open in it do not keep it, nor its links on the node.
func TestDeletedNamespaceEnds(t *testing.T) {
	nettest.Need(t, "tap")
	ns := nettest.NS(t, "pod")
	nettest.IP(t, ns, "tuntap add tap0 mode tap")
	nettest.Run(t, nil, "ip", "link", "add", "gone0", "type", "veth", "peer", "name", "eth0", "netns", ns.Path())
	id, err := ns.ID()
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	guest := model.GuestConfig{
		Link: "tap0", DHCP4: &model.GuestDHCP4{Address: netip.MustParsePrefix("10.0.2.2/24")},
	}
	rec := attach.Record{
		Serial: 1, Stage: attach.Done, NetnsID: id,
		Request: model.Request{Network: "net", ContainerID: "c1", IfName: "net1", Netns: ns.Path()},
		Acts:    []attach.Act{{Kind: attach.ActApply, Guests: []model.GuestConfig{guest}}},
	}
	if err := l.Put(rec); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := New(Config{
		Records: l, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		After: time.After, Deletions: nettest.Deletions(t),
	})
	defer func() { cancel(); w.Wait() }()
	w.Start(ctx)
	eventually := func(what string, is func() bool) {
		t.Helper()
		for until := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("never: %s", what)
			}
		}
	}
	served := func() bool {
		out, err := nettest.Try(ns, "ss", "-Hlun", "sport", "=", ":67")
		return err == nil && out != ""
	}
	eventually("the guest is served", served)
	if err := errors.Join(ns.Close(), netns.Remove(ns.Path())); err != nil {
		t.Fatal(err)
	}
	eventually("the namespace has ended", func() bool {
		_, err := nettest.Try(nil, "ip", "link", "show", "gone0")
		return err != nil
	})
}
