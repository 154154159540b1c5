// SPDX-License-Identifier: Apache-2.0

package export_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/flow/export"
)

// field is a field of a template: enterprise.number, and its length.
type field struct {
	name   string
	length uint16
}

// decoder is a collector that knows nothing but RFC 7011.
type decoder struct {
	templates map[uint16][]field
	records   []map[string]string
	sequence  uint32
}

// message decodes a message, and checks its lengths and its sequence number.
func (d *decoder) message(t *testing.T, b []byte) {
	t.Helper()
	if len(b) < 16 || binary.BigEndian.Uint16(b) != 10 || int(binary.BigEndian.Uint16(b[2:])) != len(b) {
		t.Fatalf("header %x of %d bytes", b[:min(16, len(b))], len(b))
	}
	if got := binary.BigEndian.Uint32(b[8:]); got != d.sequence {
		t.Errorf("sequence number %d, want %d", got, d.sequence)
	}
	for b = b[16:]; len(b) > 0; {
		id, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if n < 4 || n > len(b) {
			t.Fatalf("set %d has %d of %d bytes", id, n, len(b))
		}
		set := b[4:n]
		b = b[n:]
		for len(set) > 0 {
			if id == 2 {
				set = d.template(t, set)
			} else {
				set = d.record(t, id, set)
			}
		}
	}
}

func (d *decoder) template(t *testing.T, b []byte) []byte {
	t.Helper()
	id, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
	b = b[4:]
	var fields []field
	for range n {
		f := field{length: binary.BigEndian.Uint16(b[2:])}
		number, enterprise := binary.BigEndian.Uint16(b), uint32(0)
		b = b[4:]
		if number&0x8000 != 0 {
			number, enterprise = number&0x7fff, binary.BigEndian.Uint32(b)
			b = b[4:]
		}
		f.name = fmt.Sprintf("%d.%d", enterprise, number)
		fields = append(fields, f)
	}
	d.templates[id] = fields
	return b
}

func (d *decoder) record(t *testing.T, id uint16, b []byte) []byte {
	t.Helper()
	fields := d.templates[id]
	if fields == nil {
		t.Fatalf("data of template %d before the template", id)
	}
	r := map[string]string{}
	for _, f := range fields {
		n := int(f.length)
		if f.length == 0xffff {
			n, b = int(b[0]), b[1:]
			r[f.name] = string(b[:n])
		} else {
			r[f.name] = fmt.Sprintf("%x", b[:n])
		}
		b = b[n:]
	}
	d.records = append(d.records, r)
	d.sequence++
	return b
}

// batch has flows of both families, with and without counters and translation.
func batch() []flow.Record {
	service := record(1)
	service.Via = &flow.Endpoint{
		Addr: netip.MustParseAddr("10.96.0.7"), Port: 80, Identity: flow.Identity{Kind: flow.ServiceEnd, Name: "shop/front"},
	}
	as := netip.MustParseAddrPort("172.18.0.1:4000")
	service.Masquerade = &as
	ended := record(2)
	ended.Kind, ended.Forth, ended.Back = flow.End, &flow.Counters{Packets: 3, Bytes: 180}, &flow.Counters{Packets: 2, Bytes: 120}
	six := record(3)
	six.From.Addr, six.To.Addr = netip.MustParseAddr("fd42::2"), netip.MustParseAddr("fd42::9")
	six.Protocol, six.Verdict, six.Reason = "udp", flow.DeniedVerdict, strings.Repeat("é", 200)
	return []flow.Record{service, ended, six}
}

func check(t *testing.T, d *decoder) {
	t.Helper()
	if len(d.records) != 3 {
		t.Fatalf("%d records", len(d.records))
	}
	for i, want := range []map[string]string{
		{
			"0.323": "000001a3185c507b", "0.8": "0a2a0102", "0.12": "0a600007", "0.7": "0001", "0.11": "0050", "0.225": "ac120001",
			"0.226": "0a2a0209", "0.227": "0fa0", "0.228": "1538", "0.4": "06", "0.233": "01", "32473.1": "node1", "32473.2": "shop/web",
			"32473.3": "shop/db", "32473.4": "service shop/front", "32473.5": "allowed",
		},
		{
			"0.12": "0a2a0209", "0.225": "0a2a0102", "0.233": "02", "0.86": "0000000000000003", "0.85": "00000000000000b4",
			"29305.86": "0000000000000002", "29305.85": "0000000000000078",
		},
		{
			"0.27": "fd420000000000000000000000000002", "0.28": "fd420000000000000000000000000009", "0.4": "11", "0.233": "03",
			"32473.5": "denied", "32473.6": strings.Repeat("é", 60),
		},
	} {
		for name, value := range want {
			if got := d.records[i][name]; got != value {
				t.Errorf("record %d, element %s: %q, want %q", i, name, got, value)
			}
		}
	}
}

// TestIPFIXOverUDP: messages that are not fragmented, the templates first and each minute again.
func TestIPFIXOverUDP(t *testing.T) {
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	now := time.Unix(1_800_000_000, 0)
	s, err := export.NewIPFIX(export.IPFIXConfig{
		Address: "udp://" + l.LocalAddr().String(), Node: "node1", Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &decoder{templates: map[uint16][]field{}}
	receive := func(records int) {
		t.Helper()
		for before := len(d.records); len(d.records) < before+records; {
			b := make([]byte, 1<<16)
			_ = l.SetReadDeadline(time.Now().Add(30 * time.Second))
			n, _, err := l.ReadFrom(b)
			if err != nil {
				t.Fatal(err)
			}
			if n > 1400 {
				t.Errorf("a message of %d bytes", n)
			}
			d.message(t, b[:n])
		}
	}
	if n, err := s.Write(t.Context(), batch()); n != 3 || err != nil {
		t.Fatalf("%d: %v", n, err)
	}
	receive(3)
	check(t, d)
	var many []flow.Record
	for range 100 {
		many = append(many, batch()...)
	}
	if n, err := s.Write(t.Context(), many); n != 300 || err != nil {
		t.Fatalf("%d: %v", n, err)
	}
	receive(300)
	// A collector that starts later learns the templates.
	now = now.Add(time.Minute)
	d.templates = map[uint16][]field{}
	if n, err := s.Write(t.Context(), batch()); n != 3 || err != nil {
		t.Fatalf("%d: %v", n, err)
	}
	receive(3)
}

// TestIPFIXOverTCP: a collector that ends the connection gets templates again on the next one, and each flow that the error
// said was not sent.
func TestIPFIXOverTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := export.NewIPFIX(export.IPFIXConfig{Address: "tcp://" + l.Addr().String(), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	serve := func() *decoder {
		t.Helper()
		go func() {
			n, err := s.Write(t.Context(), batch())
			if err == nil && n != 3 {
				err = fmt.Errorf("%d of 3", n)
			}
			sent <- err
		}()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		d := &decoder{templates: map[uint16][]field{}}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(conn)
		if err != nil || len(all) < 16 {
			t.Fatalf("%d bytes: %v", len(all), err)
		}
		d.message(t, all)
		_ = conn.Close()
		return d
	}
	first, second := serve(), serve()
	check(t, first)
	check(t, second)
	_ = l.Close()
	if n, err := s.Write(t.Context(), batch()); n != 0 || err == nil {
		t.Errorf("no collector: %d sent, %v", n, err)
	}
}
