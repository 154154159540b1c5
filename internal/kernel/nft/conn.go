// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

const (
	// buffer bounds the size of one transaction: the kernel accepts it in one message.
	buffer = 16 << 20
	// datagramSize is the maximum size of a part of a dump: the longest rule must fit into one.
	datagramSize = 64 << 10
	// datagrams are read by one system call: a transaction is answered by its generation and an acknowledgment.
	datagrams = 4
)

// attempts bounds how often a change is planned again because another process changed the ruleset meanwhile.
const attempts = 50

// Conn is a netlink socket to the nf_tables of one network namespace. It is safe for concurrent use.
type Conn struct {
	mu     sync.Mutex // one call at a time
	wire   *wire
	reader *reader
	known  known
}

// wire sends batches of messages, and reads the kernel's answers.
type wire struct {
	sock *netlink.Socket
}

// Dial opens a socket in ns; nil is the process's own namespace.
func Dial(ns *netns.NS) (*Conn, error) {
	sock, err := netlink.Open(ns, netlink.Options{
		Protocol: unix.NETLINK_NETFILTER, Buffer: buffer, Datagrams: datagrams, Size: datagramSize, ShortAcks: true,
	})
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	w := &wire{sock: sock}
	return &Conn{wire: w, reader: &reader{wire: w}, known: known{seen: map[string]*table{}}}, nil
}

// Close closes the socket.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wire.sock.Close()
}

// begin starts a batch; a transaction is committed only if the ruleset is still of generation gen, when that is not 0.
func (w *wire) begin(gen uint32) *batch {
	b := &batch{}
	w.sock.Begin(&b.Batch)
	b.boundary(unix.NFNL_MSG_BATCH_BEGIN, "begin")
	if gen != 0 {
		b.BE32(unix.NFNL_BATCH_GENID, gen)
	}
	return b
}

// empty reports whether the batch contains only the beginning of a transaction.
func (b *batch) empty() bool { return b.Count() <= 1 }

// refusal is the kernel's error for one message of a transaction.
type refusal struct {
	index int // of the message in its batch
	note  string
	errno unix.Errno
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %v", r.note, r.errno) }

// Unwrap returns the kernel's error number.
func (r *refusal) Unwrap() error { return r.errno }

// commit sends the batch as one transaction. It returns the generation afterwards, which is 0 when nothing changed, and
// all refusals; with any refusal nothing was changed.
func (w *wire) commit(b *batch) (gen uint32, refused []*refusal, err error) {
	b.AddFlags(unix.NLM_F_ACK)
	last := b.Last()
	b.boundary(unix.NFNL_MSG_BATCH_END, "end")
	// The kernel reports the generation of the commit if the first message after the beginning has this flag.
	b.AddFlagsTo(1, unix.NLM_F_ECHO)
	err = w.sock.Exchange(&b.Batch, func(a netlink.Answer) bool {
		if !a.Done() {
			if _, body, ok := a.Netfilter(); ok && a.Kind&0xff == unix.NFT_MSG_NEWGEN {
				gen = netlink.BE32(netlink.Find(body, unix.NFTA_GEN_ID))
			}
			return false
		}
		if i, ok := b.Index(a); ok && a.Errno() != 0 {
			refused = append(refused, &refusal{i, b.notes[i], a.Errno()})
		}
		return a.Seq == last
	})
	if errors.Is(err, netlink.ErrNoAnswer) && len(refused) > 0 {
		err = nil // refused as a whole: the messages inside have no answers
	}
	return gen, refused, err
}

// change commits and joins the refusals into one error; stale means that the ruleset changed since it was read.
func (w *wire) change(b *batch) (gen uint32, stale bool, err error) {
	gen, refused, err := w.commit(b)
	for _, r := range refused {
		if r.errno == unix.ERESTART {
			return 0, true, nil
		}
		err = errors.Join(err, r)
	}
	return gen, false, err
}

// ask sends one read request that is not a dump and returns the answer's body.
func (w *wire) ask(b *batch) (body []byte, err error) {
	b.AddFlags(unix.NLM_F_ACK)
	err2 := w.sock.Exchange(&b.Batch, func(a netlink.Answer) bool {
		if a.Done() {
			if errno := a.Errno(); errno != 0 {
				err = errno
			}
			return a.Seq == b.Last()
		}
		if _, answer, ok := a.Netfilter(); ok && body == nil {
			body = append([]byte(nil), answer...)
		}
		return false
	})
	return body, errors.Join(err, err2)
}

// dump reads all objects of a kind and calls f with each body.
func (w *wire) dump(b *batch, f func(family byte, body []byte)) error {
	interrupted, err := w.sock.Dump(&b.Batch, func(a netlink.Answer) {
		if family, body, ok := a.Netfilter(); ok {
			f(family, body)
		}
	})
	var refused *netlink.Refused
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("%s: %w", b.notes[0], err)
	case err == nil && interrupted:
		return netlink.ErrInterrupted
	}
	return err
}

// Bytes returns the size of all requests and answers since the socket was opened.
func (c *Conn) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wire.sock.Bytes()
}

// Port returns the socket's netlink port, which identifies our changes in the kernel's notifications.
func (c *Conn) Port() (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wire.sock.Port()
}

// question starts a batch that is not a transaction.
func (w *wire) question(typ int, family byte, note string) *batch {
	b := &batch{}
	w.sock.Begin(&b.Batch)
	b.message(typ, 0, family, note)
	return b
}

// generation returns the ruleset's generation.
func (w *wire) generation() (uint32, error) {
	body, err := w.ask(w.question(unix.NFT_MSG_GETGEN, 0, "ask for the generation"))
	if err != nil {
		return 0, fmt.Errorf("ask for the generation: %w", err)
	}
	return netlink.BE32(netlink.Find(body, unix.NFTA_GEN_ID)), nil
}

// retryStale runs f until it reports that nothing changed while it ran.
func retryStale(ctx context.Context, f func() (stale bool, err error)) error {
	return netlink.Retry(ctx, attempts, func(int) (bool, error) { return f() })
}
