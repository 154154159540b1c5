// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	gobgp "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/bgp"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// An established session gets all routes again after settle: GoBGP loses a change that happens while it is established.
// The peer here is GoBGP itself; it counts the updates that it receives.
func TestRepeats(t *testing.T) {
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	ours, theirs := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	const as, port = 64512, 1790
	announced := netip.MustParsePrefix("10.244.1.0/24")

	b := server.NewBgpServer(server.LoggerOption(slog.New(slog.DiscardHandler), &slog.LevelVar{}))
	go b.Serve()
	defer b.Stop()
	if err := b.StartBgp(t.Context(), &api.StartBgpRequest{Global: &api.Global{
		Asn: as, RouterId: theirs.String(), ListenPort: port, ListenAddresses: []string{theirs.String()},
	}}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.StopBgp(context.Background(), &api.StopBgpRequest{}) }()
	var updates atomic.Int32
	err := b.WatchEvent(t.Context(), server.WatchEventMessageCallbacks{OnPathUpdate: func(paths []*apiutil.Path, _ time.Time) {
		for _, p := range paths {
			if p.Nlri.String() == announced.String() {
				updates.Add(1)
			}
		}
	}}, server.WatchUpdate(false, "", ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.AddPeer(t.Context(), &api.AddPeerRequest{Peer: &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: ours.String(), PeerAsn: as},
		Transport: &api.Transport{LocalAddress: theirs.String(), RemotePort: port, PassiveMode: true},
	}}); err != nil {
		t.Fatal(err)
	}

	s := New(slog.New(slog.DiscardHandler), time.Now)
	if err := s.Set(t.Context(), bgp.Speaker{
		ASN: as, RouterID: ours, Port: port, Listen: []netip.Addr{ours}, RestartTime: 5,
		Peers:     []bgp.Peer{{Name: "peer", Addr: theirs, Source: ours, Port: port, ASN: as, RestartTime: 5}},
		Announced: []bgp.Announced{{Prefix: announced}},
	}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end()
	}()
	for deadline := time.Now().Add(time.Minute); updates.Load() < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the peer has received %d updates: %+v", updates.Load(), s.Peers())
		}
	}
}

// An event of a server that has been stopped meanwhile plans nothing.
func TestStoppedServer(t *testing.T) {
	s := New(slog.New(slog.DiscardHandler), time.Now)
	e := &apiutil.WatchEventMessage_PeerEvent{}
	e.Peer.State.NeighborAddress, e.Peer.State.SessionState = netip.MustParseAddr("10.0.0.1"), gobgp.BGP_FSM_ESTABLISHED
	s.session(e)
	time.Sleep(settle + 100*time.Millisecond) // it panicked
}
