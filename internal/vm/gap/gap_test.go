// SPDX-License-Identifier: Apache-2.0

package gap

import (
	"net"
	"strings"
	"testing"
	"time"
)

// TestAround: what a migration cost is measured around the time when the machine went on, whatever was before.
func TestAround(t *testing.T) {
	at := time.Unix(1000, 0)
	ms := func(n int) time.Time { return at.Add(time.Duration(n) * time.Millisecond) }
	p := &Peer{
		packets: arrivals{all: []arrival{{1, ms(-900)}, {2, ms(-20)}, {5, ms(30)}, {6, ms(35)}}},
		words:   arrivals{all: []arrival{{1, ms(-900)}, {2, ms(-100)}, {3, ms(-10)}, {4, ms(80)}}},
	}
	want := Gap{First: 30 * time.Millisecond, Blackout: 50 * time.Millisecond, Stream: 90 * time.Millisecond, Lost: 2}
	if got := p.Around(at); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestLines: a line that is missing is an error, and so is the end of a connection; what was never begun is not waited
// for.
func TestLines(t *testing.T) {
	for said, want := range map[string]string{"0\n2\n": `line 1 came as "2"`, "0\n1\n": "a connection ended: "} {
		p := &Peer{Now: time.Now}
		here, there := net.Pipe()
		go func() {
			_, _ = there.Write([]byte(said))
			_ = there.Close()
		}()
		p.begin(&p.words)
		p.read(t.Context(), here, &p.words)
		if err := p.Await(t.Context(), time.Time{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", said, err)
		}
		_ = here.Close()
	}
	p := &Peer{Now: time.Now}
	if err := p.Await(t.Context(), time.Time{}); err != nil {
		t.Error(err)
	}
}
