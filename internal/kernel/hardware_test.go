// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// spareCard is the PCI address of a network card that tests may use, in the test VM (test/vm).
const spareCard = "0000:00:10.0"

// A physical device outlives its namespace: the kernel moves it to the initial one. Virtual links do not.
func TestHardwareFallsBack(t *testing.T) {
	if os.Getenv("WEFT_VM") == "" {
		nettest.Skip(t, "this host has no network card that a test may have")
	}
	first, err := netns.Open("/proc/1/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	s := Spaces{Host: dial(t, first)}
	q := state.Query{Space: state.Host, Device: state.Device{PCI: spareCard}}
	ask := func() state.Answer {
		t.Helper()
		answers, err := s.Observe(t.Context(), []state.Query{q})
		if err != nil {
			t.Fatal(err)
		}
		return answers[q]
	}
	card := ask()
	if !card.Found || card.Link.Name == "" || card.Driver != "virtio-pci" || card.PCI != spareCard {
		t.Fatalf("the card: %+v", card)
	}
	name := card.Link.Name
	nettest.Run(t, first, "ip", "link", "add", "taken0", "type", "bridge")
	defer nettest.Run(t, first, "ip", "link", "del", "taken0")
	for _, podName := range []string{"net0", "taken0"} {
		ns, err := netns.New(filepath.Join(t.TempDir(), "pod"))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := Dial(ns)
		if err != nil {
			t.Fatal(err)
		}
		f := state.Fragment{Owner: "card"}
		f.Pod.Links = []state.Link{
			{
				Name: podName, MovedFrom: &state.Origin{Space: state.Host, Name: name, Hardware: true}, Alias: name,
				Up: state.On(), MTU: 1300,
			},
		}
		before := state.Fragment{Owner: "card"}
		before.Host.Links = []state.Link{{Name: name, MTU: card.Link.MTU, MAC: card.Link.MAC, Up: card.Link.Up}}
		with := Spaces{Host: s.Host, Pod: conn, PodNS: ns}
		if err := with.Apply(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if now := ask(); !now.Found || now.Link.Name != "" {
			t.Errorf("while it is away: %+v", now)
		}
		if err := errors.Join(conn.Close(), ns.Close(), netns.Remove(ns.Path())); err != nil {
			t.Fatal(err)
		}
		if podName == "taken0" {
			for deadline := time.Now().Add(time.Minute); ask().Link.Name == "" && time.Now().Before(deadline); {
				time.Sleep(20 * time.Millisecond)
			}
			if fallen := ask().Link; !strings.HasPrefix(fallen.Name, "dev") || fallen.Alias != name {
				t.Errorf("from %s it fell back as %s", podName, fallen)
			}
		}
		if err := errors.Join(s.Release(t.Context(), f), s.Restore(t.Context(), before)); err != nil {
			t.Error(err)
		}
		wantSame(t, s, before)
		if back := ask().Link; back.Name != name || back.Alias != "" {
			t.Errorf("it is back as %s", back)
		}
	}
}
