// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// attempts bounds how often a change is planned anew because somebody else changed the ruleset meanwhile.
const attempts = 50

// Conn is a netlink socket to the nf_tables of one network namespace. It is safe for concurrent use.
type Conn struct {
	mu   sync.Mutex
	sock *sock
	// gen is the generation at which the tables in seen were last known to be whole; 0 is none.
	gen  uint32
	seen map[string]*table // by label; shared ones only
	// drops are the foreign base chains that drop what is forwarded, as of gen; nil when nobody asked.
	drops []Drop
}

// Dial opens a socket in ns; nil is the process's own namespace.
func Dial(ns *netns.NS) (*Conn, error) {
	c := &Conn{seen: map[string]*table{}}
	err := ns.Do(func() error {
		var err error
		c.sock, err = openSock()
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close closes the socket.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sock.close()
}

// begin starts a batch; a transaction is committed only if the ruleset is still of generation gen, when that is not 0.
func (c *Conn) begin(gen uint32) *batch {
	b := &batch{first: c.sock.seq}
	b.boundary(unix.NFNL_MSG_BATCH_BEGIN, 0, "begin")
	if gen != 0 {
		b.u32(unix.NFNL_BATCH_GENID, gen)
	}
	return b
}

// echo asks the kernel to tell the generation that the commit makes. It looks at the first message behind the beginning.
func (b *batch) echo() {
	first := binary.NativeEndian.Uint32(b.buf)
	at := b.buf[first+6:]
	binary.NativeEndian.PutUint16(at, binary.NativeEndian.Uint16(at)|unix.NLM_F_ECHO)
}

// empty tells whether nothing but the beginning is in the batch.
func (b *batch) empty() bool { return len(b.notes) <= 1 }

// refusal is what the kernel said to one message of a transaction.
type refusal struct {
	seq   uint32
	note  string
	errno unix.Errno
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %v", r.note, r.errno) }

// Unwrap is the kernel's error number.
func (r *refusal) Unwrap() error { return r.errno }

// commit sends the batch as one transaction. It returns the generation afterwards, which is 0 when nothing changed, and
// everything that the kernel refused; then nothing was changed at all.
func (c *Conn) commit(b *batch) (gen uint32, refused []*refusal, err error) {
	b.addFlags(unix.NLM_F_ACK)
	last := b.last()
	b.boundary(unix.NFNL_MSG_BATCH_END, 0, "end")
	b.close()
	b.echo()
	c.sock.seq = b.first + uint32(len(b.notes))
	err = c.sock.send(b.buf, last, func(a answer) {
		switch {
		case !a.done && a.typ == unix.NFT_MSG_NEWGEN:
			gen = beU32(findAttr(a.body, unix.NFTA_GEN_ID))
		case a.done && a.errno != 0 && a.seq >= b.first && a.seq-b.first < uint32(len(b.notes)):
			refused = append(refused, &refusal{a.seq, b.notes[a.seq-b.first], a.errno})
		}
	})
	if errors.Is(err, errNoAnswer) && len(refused) > 0 {
		err = nil // refused as a whole: the messages inside are not answered
	}
	return gen, refused, err
}

// change commits and makes one error of what was refused; stale tells that the ruleset changed since it was read.
func (c *Conn) change(b *batch) (gen uint32, stale bool, err error) {
	gen, refused, err := c.commit(b)
	for _, r := range refused {
		if r.errno == unix.ERESTART {
			return 0, true, nil
		}
		err = errors.Join(err, r)
	}
	return gen, false, err
}

// ask sends one question that is no dump and returns the answer's body.
func (c *Conn) ask(b *batch) (body []byte, err error) {
	b.addFlags(unix.NLM_F_ACK)
	b.close()
	c.sock.seq = b.first + uint32(len(b.notes))
	err2 := c.sock.send(b.buf, b.last(), func(a answer) {
		switch {
		case a.done && a.errno != 0:
			err = a.errno
		case !a.done && body == nil:
			body = append([]byte(nil), a.body...)
		}
	})
	return body, errors.Join(err, err2)
}

// dump asks for all objects of a kind and hands each body to f.
func (c *Conn) dump(b *batch, f func(family byte, body []byte)) error {
	b.addFlags(unix.NLM_F_DUMP)
	b.close()
	c.sock.seq = b.first + uint32(len(b.notes))
	var errno unix.Errno
	torn := false
	err := c.sock.send(b.buf, b.last(), func(a answer) {
		torn = torn || a.flags&unix.NLM_F_DUMP_INTR != 0
		if a.done {
			errno = a.errno
			return
		}
		f(a.fam, a.body)
	})
	switch {
	case err != nil:
		return err
	case errno != 0:
		return fmt.Errorf("%s: %w", b.notes[0], errno)
	case torn:
		return errTorn
	}
	return nil
}

// errTorn is returned when the ruleset changed while it was read.
var errTorn = errors.New("the ruleset changed while it was read")

// question starts a batch that is no transaction.
func (c *Conn) question(typ int, family byte, note string) *batch {
	b := &batch{first: c.sock.seq}
	b.message(typ, 0, family, note)
	return b
}

// generation asks for the ruleset's generation.
func (c *Conn) generation() (uint32, error) {
	body, err := c.ask(c.question(unix.NFT_MSG_GETGEN, 0, "ask for the generation"))
	if err != nil {
		return 0, fmt.Errorf("ask for the generation: %w", err)
	}
	return beU32(findAttr(body, unix.NFTA_GEN_ID)), nil
}

// settled runs f until it says that nothing changed under it.
func settled(ctx context.Context, f func() (stale bool, err error)) error {
	last := errTorn
	for range attempts {
		if err := ctx.Err(); err != nil {
			return err
		}
		stale, err := f()
		if errors.Is(err, errTorn) {
			last = err
			continue
		}
		if err != nil || !stale {
			return err
		}
	}
	return fmt.Errorf("%d attempts: %w", attempts, last)
}
