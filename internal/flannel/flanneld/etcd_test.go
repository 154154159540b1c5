// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
)

// What another node writes into this node's lease is logged once, also where it differs in the data of IPv6 alone.
func TestOverwrittenLease(t *testing.T) {
	var log bytes.Buffer
	own := model.Published{
		Backend: "vxlan", Addrs: []netip.Addr{netip.MustParseAddr("fd07::1")},
		DataV6: `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`,
	}
	l := &leases{d: &daemon{log: slog.New(slog.NewTextHandler(&log, nil))}, name: "10.5.1.0-24", said: own}
	event := func(p model.Published) {
		t.Helper()
		o, err := store.NodeObject(model.Node{Name: "n1", Addrs: p.Addrs, Annotations: flannel.DefaultKeys().Write(p, nil)})
		if err != nil {
			t.Fatal(err)
		}
		l.handleOwnLease(store.Event{Type: store.Modified, Object: o})
	}
	event(own)
	if log.Len() > 0 {
		t.Errorf("of its own words: %s", &log)
	}
	other := own
	other.DataV6 = `{"VNI":1,"VtepMAC":"02:00:00:00:00:02"}`
	for range 2 {
		event(other)
	}
	if n := strings.Count(log.String(), "another node writes into this node's lease"); n != 1 {
		t.Errorf("told %d times: %s", n, &log)
	}
	if !strings.Contains(log.String(), "02:00:00:00:00:02") {
		t.Errorf("the other node's data is not told: %s", &log)
	}
}
