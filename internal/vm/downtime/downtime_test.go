// SPDX-License-Identifier: Apache-2.0

package downtime

import (
	"net"
	"strings"
	"testing"
	"time"
)

// TestMeasure: the downtime is measured around the resumption, regardless of earlier pauses.
func TestMeasure(t *testing.T) {
	at := time.Unix(1000, 0)
	ms := func(n int) time.Time { return at.Add(time.Duration(n) * time.Millisecond) }
	p := &Peer{
		packets: arrivals{all: []arrival{{1, ms(-900)}, {2, ms(-20)}, {5, ms(30)}, {6, ms(35)}}},
		stream:  arrivals{all: []arrival{{1, ms(-900)}, {2, ms(-100)}, {3, ms(-10)}, {4, ms(80)}}},
	}
	want := Measurement{FirstPacket: 30 * time.Millisecond, Blackout: 50 * time.Millisecond, Stream: 90 * time.Millisecond, Lost: 2}
	if got := p.Measure(at); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	want = Measurement{Blackout: 50 * time.Millisecond, Stream: 90 * time.Millisecond, Lost: 2}
	if got := p.MeasureFrom(ms(-500)); got != want {
		t.Errorf("from its begin %+v, want %+v", got, want)
	}
}

// TestLines: a missing line is an error, and so is the end of a connection; Await does not wait for a kind that was not
// started.
func TestLines(t *testing.T) {
	for lines, want := range map[string]string{"0\n2\n": `line 1 came as "2"`, "0\n1\n": "a connection ended: "} {
		p := &Peer{Now: time.Now}
		here, there := net.Pipe()
		go func() {
			_, _ = there.Write([]byte(lines))
			_ = there.Close()
		}()
		p.start(&p.stream)
		p.read(t.Context(), here, &p.stream)
		if err := p.Await(t.Context(), time.Time{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", lines, err)
		}
		_ = here.Close()
	}
	p := &Peer{Now: time.Now}
	if err := p.Await(t.Context(), time.Time{}); err != nil {
		t.Error(err)
	}
}
