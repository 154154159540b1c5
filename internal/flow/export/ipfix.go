// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
)

// IPFIXConfig is a collector of IPFIX (RFC 7011).
type IPFIXConfig struct {
	// Address is udp://HOST:PORT or tcp://HOST:PORT. Without a port it is 4739.
	Address string
	// Enterprise is the private enterprise number of the elements with names; 0 is DocumentationEnterprise.
	Enterprise uint32
	// Node is the name of the node, whose hash is the observation domain.
	Node string
	Now  func() time.Time
	// Dial connects; nil is as net.Dialer.
	Dial Dial
}

// DocumentationEnterprise is the number for examples (RFC 5612). weft has none of its own.
const DocumentationEnterprise = 32473

// Limits of IPFIX.
const (
	ipfixPort = "4739"
	// maxDatagram is the size in bytes of a message over UDP, which must not be fragmented (RFC 7011, section 10.3.3), and
	// maxSegment that over TCP.
	maxDatagram, maxSegment = 1400, 16 << 10
	// templatePeriod is the time between two sendings of the templates over UDP.
	templatePeriod = time.Minute
	// maxText is the size in bytes of a string.
	maxText = 120
	// writeTimeout is the time of writing a batch.
	writeTimeout = 10 * time.Second
)

const (
	ipfixVersion                = 10
	ipfixHeader, ipfixSetHeader = 16, 4 // bytes
	templateSet                 = 2     // RFC 7011, section 3.3.2
	firstTemplate               = 256
	reverseEnterprise           = 29305 // of elements for the way back (RFC 5103)
	enterpriseBit               = 0x8000
	variableLength              = 0xffff
)

// The values of firewallEvent.
const (
	eventCreated, eventDeleted, eventDenied = 1, 2, 3
)

// element is a field of a template: the number, the enterprise, and the length in bytes, or variableLength.
type element struct {
	id         uint16
	enterprise uint32
	length     uint16
}

// The enterprise's elements are strings.
const (
	elementNode = iota + 1
	elementSource
	elementDestination
	elementVia
	elementVerdict
	elementWhy
)

// ipfix is the sink of a collector.
type ipfix struct {
	cfg           IPFIXConfig
	network, host string
	conn          net.Conn
	domain        uint32
	sequence      uint32
	// templates is when they were sent on this connection.
	templates time.Time
}

// Check names what is wrong with the configuration.
func (c IPFIXConfig) Check() error {
	_, _, err := c.collector()
	return err
}

// collector returns the transport, and the address with its port.
func (c IPFIXConfig) collector() (network, address string, err error) {
	u, err := url.Parse(c.Address)
	if err != nil || u.Scheme != "udp" && u.Scheme != "tcp" || u.Hostname() == "" || u.Path != "" {
		return "", "", model.Errorf(model.CodeInvalidConf, "for example udp://collector.observability:4739",
			"address %q is neither udp://HOST:PORT nor tcp://HOST:PORT", c.Address)
	}
	port := u.Port()
	if port == "" {
		port = ipfixPort
	}
	return u.Scheme, net.JoinHostPort(u.Hostname(), port), nil
}

// NewIPFIX returns a sink that sends IPFIX. The collector is not contacted yet.
func NewIPFIX(c IPFIXConfig) (Sink, error) {
	network, address, err := c.collector()
	if err != nil {
		return nil, err
	}
	if c.Enterprise == 0 {
		c.Enterprise = DocumentationEnterprise
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: dialTime}).DialContext
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.Node)) // never fails
	return &ipfix{cfg: c, network: network, host: address, domain: h.Sum32()}, nil
}

func (s *ipfix) String() string { return "IPFIX " + s.network + "://" + s.host }

// Close closes the connection.
func (s *ipfix) Close() error {
	if s.conn == nil {
		return nil
	}
	err := s.conn.Close()
	s.conn = nil
	return err
}

// Write sends as many messages as the flows need. Over UDP it is not known which of them arrive; the collector counts
// what is missing by the sequence numbers.
func (s *ipfix) Write(ctx context.Context, batch []flow.Record) (int, error) {
	if s.conn == nil {
		conn, err := s.cfg.Dial(ctx, s.network, s.host)
		if err != nil {
			return 0, fmt.Errorf("IPFIX: %w", err)
		}
		s.conn, s.templates, s.sequence = conn, time.Time{}, 0 // each connection is a stream of its own (RFC 7011, section 3.1)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	conn := s.conn
	defer context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Unix(1, 0)) })() // a collector that reads nothing
	sent := 0
	for sent < len(batch) {
		message, n := s.message(batch[sent:])
		if _, err := conn.Write(message); err != nil {
			return sent, errors.Join(fmt.Errorf("IPFIX: %w", err), s.Close())
		}
		s.sequence += uint32(n)
		sent += n
	}
	return sent, nil
}

// message returns a message with the templates, if they are due, and as many of the flows as fit, at least one.
func (s *ipfix) message(batch []flow.Record) ([]byte, int) {
	limit := maxSegment
	if s.network == "udp" {
		limit = maxDatagram
	}
	now := s.cfg.Now()
	b := make([]byte, ipfixHeader, limit)
	if s.templates.IsZero() || s.network == "udp" && now.Sub(s.templates) >= templatePeriod {
		s.templates = now
		b = s.appendTemplates(b)
	}
	n, open, set := 0, uint16(0), 0 // the set that is being written, and where it begins
	for _, r := range batch {
		id := template(r)
		record := s.record(r)
		if size := len(b) + len(record) + ipfixSetHeader; n > 0 && size > limit {
			break
		}
		if id != open {
			endSet(b, set)
			open, set = id, len(b)
			b = binary.BigEndian.AppendUint16(b, id)
			b = append(b, 0, 0)
		}
		b = append(b, record...)
		n++
	}
	endSet(b, set)
	binary.BigEndian.PutUint16(b[0:], ipfixVersion)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	binary.BigEndian.PutUint32(b[4:], uint32(now.Unix()))
	binary.BigEndian.PutUint32(b[8:], s.sequence)
	binary.BigEndian.PutUint32(b[12:], s.domain)
	return b, n
}

// endSet writes the length of the set that begins there; 0 is none.
func endSet(b []byte, begin int) {
	if begin > 0 {
		binary.BigEndian.PutUint16(b[begin+2:], uint16(len(b)-begin))
	}
}

// template returns the number of a flow's template: by family, and whether it has counters.
func template(r flow.Record) uint16 {
	id := uint16(firstTemplate)
	if r.From.Addr.Is6() {
		id++
	}
	if r.Forth != nil && r.Back != nil {
		id += 2
	}
	return id
}

// elements returns the fields of a template, in the order of record.
func (s *ipfix) elements(id uint16) []element {
	address := func(v4, v6 uint16) element {
		if (id-firstTemplate)%2 == 0 {
			return element{v4, 0, 4}
		}
		return element{v6, 0, 16}
	}
	// The numbers are IANA's.
	out := []element{
		{323, 0, 8},                     // observationTimeMilliseconds
		address(8, 27), address(12, 28), // source and destination: before DNAT
		{7, 0, 2}, {11, 0, 2}, // their ports
		address(225, 281), address(226, 282), // postNATSource and postNATDestination
		{227, 0, 2}, {228, 0, 2}, // their ports
		{4, 0, 1}, {233, 0, 1}, // protocolIdentifier, firewallEvent
	}
	if id >= firstTemplate+2 {
		out = append(out, element{86, 0, 8}, element{85, 0, 8}, // packetTotalCount, octetTotalCount
			element{86, reverseEnterprise, 8}, element{85, reverseEnterprise, 8})
	}
	for _, text := range []uint16{elementNode, elementSource, elementDestination, elementVia, elementVerdict, elementWhy} {
		out = append(out, element{text, s.cfg.Enterprise, variableLength})
	}
	return out
}

// appendTemplates appends a set with all templates.
func (s *ipfix) appendTemplates(b []byte) []byte {
	set := len(b)
	b = binary.BigEndian.AppendUint16(b, templateSet)
	b = append(b, 0, 0)
	for id := uint16(firstTemplate); id < firstTemplate+4; id++ {
		fields := s.elements(id)
		b = binary.BigEndian.AppendUint16(b, id)
		b = binary.BigEndian.AppendUint16(b, uint16(len(fields)))
		for _, f := range fields {
			if f.enterprise == 0 {
				b = binary.BigEndian.AppendUint16(b, f.id)
				b = binary.BigEndian.AppendUint16(b, f.length)
				continue
			}
			b = binary.BigEndian.AppendUint16(b, f.id|enterpriseBit)
			b = binary.BigEndian.AppendUint16(b, f.length)
			b = binary.BigEndian.AppendUint32(b, f.enterprise)
		}
	}
	endSet(b, set)
	return b
}

// record returns the data record of a flow.
func (s *ipfix) record(r flow.Record) []byte {
	to, source := r.To, netip.AddrPortFrom(r.From.Addr, r.From.Port)
	if r.Via != nil {
		to = *r.Via
	}
	if r.Masquerade != nil {
		source = *r.Masquerade
	}
	six := r.From.Addr.Is6()
	b := binary.BigEndian.AppendUint64(nil, uint64(r.Time.UnixMilli()))
	b = appendAddr(b, r.From.Addr, six)
	b = appendAddr(b, to.Addr, six)
	b = binary.BigEndian.AppendUint16(b, r.From.Port)
	b = binary.BigEndian.AppendUint16(b, to.Port)
	b = appendAddr(b, source.Addr(), six)
	b = appendAddr(b, r.To.Addr, six)
	b = binary.BigEndian.AppendUint16(b, source.Port())
	b = binary.BigEndian.AppendUint16(b, r.To.Port)
	b = append(b, flow.ProtocolNumber(r.Protocol), event(r))
	if r.Forth != nil && r.Back != nil {
		for _, n := range []uint64{r.Forth.Packets, r.Forth.Bytes, r.Back.Packets, r.Back.Bytes} {
			b = binary.BigEndian.AppendUint64(b, n)
		}
	}
	via := ""
	if r.Via != nil {
		via = r.Via.Identity.String()
	}
	for _, text := range []string{
		r.Node, r.From.Identity.String(), r.To.Identity.String(), via, string(r.Verdict), r.Why(),
	} {
		b = appendText(b, text)
	}
	return b
}

// appendAddr appends an address of the record's family; one of the other family is left at zero.
func appendAddr(b []byte, a netip.Addr, six bool) []byte {
	size := 4
	if six {
		size = 16
	}
	if a.Is6() != six || !a.IsValid() {
		return append(b, make([]byte, size)...)
	}
	return append(b, a.AsSlice()...)
}

// appendText appends a string of variable length (RFC 7011, section 7). It is cut to maxText bytes.
func appendText(b []byte, text string) []byte {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") // not within a character
	}
	return append(append(b, byte(len(text))), text...)
}

// event returns the firewallEvent of a flow.
func event(r flow.Record) byte {
	switch {
	case r.Verdict != flow.Allowed:
		return eventDenied
	case r.Kind == flow.End:
		return eventDeleted
	}
	return eventCreated
}
