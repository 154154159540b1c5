// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/node/probe"
	"github.com/weft-net/weft/internal/node/reconcile"
)

func TestMeshTargets(t *testing.T) {
	status, err := reconcile.ReadStatus(meshState(t))
	if err != nil {
		t.Fatal(err)
	}
	targets, missing, err := probe.Targets(status.Topology, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := probe.Target{
		Name: "b", Backend: "host-gw", Underlay: netip.MustParseAddr("192.168.0.2"),
		Overlay: netip.MustParseAddr("10.244.2.0"), OverlayMTU: 68,
	}
	if len(targets) != 1 || targets[0] != want {
		t.Errorf("targets %+v, want %+v", targets, want)
	}
	if len(missing) != 1 || missing[0].Peer != "far" || !strings.Contains(missing[0].Message, "is not on-link") {
		t.Errorf("without a plan: %+v", missing)
	}
	if targets, _, err = probe.Targets(status.Topology, []string{"far"}); err != nil || len(targets) != 0 {
		t.Errorf("of far: %+v %v", targets, err)
	}
	if code, _, errs := runMesh("ping", "--state-dir", meshState(t), "nobody"); code != 1 ||
		!strings.Contains(errs, `peer "nobody" is not in the mesh of node a`) || !strings.Contains(errs, "hint: ") {
		t.Errorf("unknown peer: exit %d, %s", code, errs)
	}
}

func TestPingText(t *testing.T) {
	var b strings.Builder
	p := pingReport{[]probe.Result{
		{
			Peer: "b", Backend: "vxlan", Overlay: netip.MustParseAddr("10.244.2.0"), UnderlayState: "ok", OverlayState: "ok",
			LargeState: "no answer", ChecksumState: "ok",
			MTU: 1450, Passes: 1350, Problem: probe.MTU, Message: "packets of 1450 bytes", Hint: "let the wire carry more",
		},
	}, []probe.Unplanned{{Peer: "far", Message: "the plan has no route to it"}}}
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	output := printer.Objects(fs, true)
	if err := p.print(&b, output, time.Second); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"b     vxlan    10.244.2.0  ok        ok       1450  1350    ok         mtu",
		"mtu: packets of 1450 bytes\n  hint: let the wire carry more", "not probed: peer far: the plan has no route to it",
		"1 probe, 1 failed, 1 unplanned (1s)",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := errors.Join(fs.Parse([]string{"-o", "name"}), p.print(&b, output, time.Second)); err != nil || b.String() != "b\n" {
		t.Errorf("-o name: %v %q", err, b.String())
	}
}
