// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// few is how many elements are read one by one rather than by a dump of the whole set.
const few = 64

// Read returns the existing tables among want: of a shared one only the named sets, chains and elements, else
// everything.
func (c *Conn) Read(ctx context.Context, want []state.Table) ([]state.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, done, err := c.readUnchanged(want); done || err != nil {
		return have, err
	}
	var out []state.Table
	err := retryStale(ctx, func() (bool, error) {
		out = nil
		ws, err := compile(want)
		if err != nil {
			return false, err
		}
		for _, w := range ws {
			have, err := c.reader.readTable(w, nil)
			if err != nil {
				return false, err
			}
			if have == nil {
				continue
			}
			if w.Shared {
				have.narrow(w)
			}
			out = append(out, have.State())
		}
		return false, nil
	})
	return out, err
}

// readUnchanged handles the usual CHECK: all tables are shared, and the ruleset is unchanged since their structure was
// known to be complete. Then it reads only the elements.
func (c *Conn) readUnchanged(want []state.Table) (out []state.Table, done bool, err error) {
	if c.known.gen == 0 {
		return nil, false, nil
	}
	want = lang.JoinTables(want)
	for _, in := range want {
		if t := c.known.seen[in.Family+" "+in.Name]; !in.Shared || t == nil || !t.covers(in) {
			return nil, false, nil
		}
	}
	before, err := c.wire.generation()
	if err != nil || before != c.known.gen {
		return nil, false, err
	}
	for _, in := range want {
		bare := in
		bare.Chains = nil
		w, err := lang.CompileTable(bare)
		if err != nil {
			return nil, false, nil // Read knows the chains, too
		}
		t := newTable(w.Family, w.Name, true)
		for _, named := range w.Sets {
			s, _ := c.known.seen[w.Label()].Set(named.Name)
			s.Elements = nil
			if err := c.reader.readElements(t, &s, named.Elements); err != nil {
				return nil, false, nil // Read reports the error
			}
			t.Sets = append(t.Sets, s)
		}
		t.narrow(&table{Table: *w})
		have := t.State()
		have.Chains = in.Chains
		out = append(out, have)
	}
	after, err := c.wire.generation()
	return out, after == before, err
}

// ReadAll returns all tables that weft owns: "weft" and those whose names begin with "weft-" or "weft_".
func (c *Conn) ReadAll(ctx context.Context) ([]state.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []state.Table
	err := retryStale(ctx, func() (bool, error) {
		out = nil
		var mine []*table
		err := c.wire.dump(c.wire.question(unix.NFT_MSG_GETTABLE, 0, "list tables"), func(family byte, body []byte) {
			if name := netlink.String(netlink.Find(body, unix.NFTA_TABLE_NAME)); owned(name) {
				mine = append(mine, newTable(family, name, false))
			}
		})
		if err != nil {
			return false, err
		}
		for _, t := range mine {
			have, err := c.reader.readTable(t, nil)
			if err != nil {
				return false, err
			}
			if have != nil {
				out = append(out, have.State())
			}
		}
		return false, nil
	})
	return out, err
}

func owned(name string) bool {
	return name == "weft" || strings.HasPrefix(name, "weft-") || strings.HasPrefix(name, "weft_")
}

// narrow removes from a shared table what want does not name.
func (t *table) narrow(want *table) {
	t.Shared = true
	t.Sets = slices.DeleteFunc(t.Sets, func(s lang.Set) bool { _, named := want.Set(s.Name); return !named })
	t.Chains = slices.DeleteFunc(t.Chains, func(c lang.Chain) bool { return !want.HasChain(c.Name) })
	for i := range t.Sets {
		w, _ := want.Set(t.Sets[i].Name)
		t.Sets[i].Elements = slices.DeleteFunc(t.Sets[i].Elements, func(e lang.Element) bool {
			_, named := slices.BinarySearchFunc(w.Elements, e, lang.CompareElements)
			return !named
		})
	}
}

// reader reads tables as the kernel has them.
type reader struct {
	wire *wire
}

// readTable reads the table that want names, nil when there is none. Of a shared table it reads at least the elements
// in want. If each is not nil, it is called for each set with its elements and the wanted set, before the next one is read.
func (r *reader) readTable(want *table, each func(have *lang.Set, want lang.Set)) (*table, error) {
	b := r.wire.question(unix.NFT_MSG_GETTABLE, want.Family, "read table "+want.Label())
	b.String(unix.NFTA_TABLE_NAME, want.Name)
	_, err := r.wire.ask(b)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t := newTable(want.Family, want.Name, want.Shared)
	if err := r.readSets(t); err != nil {
		return nil, vanished(err)
	}
	if err := r.readChains(t); err != nil {
		return nil, vanished(err)
	}
	for i := range t.Sets {
		w, named := want.Set(t.Sets[i].Name)
		if want.Shared && !named {
			continue
		}
		if err := r.readElements(t, &t.Sets[i], w.Elements); err != nil {
			return nil, vanished(err)
		}
		if each != nil && named {
			each(&t.Sets[i], w)
		}
	}
	return t, nil
}

// vanished turns the error about an object that was deleted during the read into a request to repeat it.
func vanished(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return netlink.ErrInterrupted
	}
	return err
}

func (r *reader) readSets(t *table) error {
	b := r.wire.question(unix.NFT_MSG_GETSET, t.Family, "list sets of "+t.Label())
	b.String(unix.NFTA_SET_TABLE, t.Name)
	return r.wire.dump(b, func(_ byte, body []byte) {
		if s, name, anonymous := decodeSet(body); name == t.Name && !anonymous {
			t.Sets = append(t.Sets, s)
		}
	})
}

func (r *reader) readChains(t *table) error {
	err := r.wire.dump(r.wire.question(unix.NFT_MSG_GETCHAIN, t.Family, "list chains"), func(_ byte, body []byte) {
		if netlink.String(netlink.Find(body, unix.NFTA_CHAIN_TABLE)) == t.Name {
			t.Chains = append(t.Chains, decodeChain(t.Family, body))
		}
	})
	if err != nil {
		return err
	}
	b := r.wire.question(unix.NFT_MSG_GETRULE, t.Family, "list rules of "+t.Label())
	b.String(unix.NFTA_RULE_TABLE, t.Name)
	return r.wire.dump(b, func(_ byte, body []byte) {
		name := netlink.String(netlink.Find(body, unix.NFTA_RULE_CHAIN))
		i := slices.IndexFunc(t.Chains, func(c lang.Chain) bool { return c.Name == name })
		if i >= 0 && netlink.String(netlink.Find(body, unix.NFTA_RULE_TABLE)) == t.Name {
			t.Chains[i].Rules = append(t.Chains[i].Rules, decodeRule(t.Family, body))
		}
	})
}

// readElements reads the elements of a set; of a shared table only the named ones, if they are few.
func (r *reader) readElements(t *table, s *lang.Set, named []lang.Element) error {
	if s.DynamicSize > 0 { // the rules add its elements
		return nil
	}
	if t.Shared && (len(named) == 0 || len(named) <= few && (!s.Interval || s.ConcatRanges())) {
		return r.findElements(t, s, named)
	}
	// As many as the plan has, most likely; an interval has two.
	raw := make([]rawElem, 0, len(named))
	if s.Interval && !s.ConcatRanges() {
		raw = slices.Grow(raw, 2*len(named)+1)
	}
	b := r.wire.question(unix.NFT_MSG_GETSETELEM, t.Family, "list elements of "+s.Name)
	b.String(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
	b.String(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	err := r.wire.dump(b, func(_ byte, body []byte) { raw = appendElements(raw, body) })
	s.Elements = joinRanges(*s, raw)
	return err
}

// findElements reads elements one by one, with all requests in one write.
func (r *reader) findElements(t *table, s *lang.Set, named []lang.Element) error {
	if len(named) == 0 || s.Opaque || len(named[0].Key) != lang.TypesSize(s.Key) {
		return nil
	}
	b := &batch{}
	r.wire.sock.Begin(&b.Batch)
	b.putElements(unix.NFT_MSG_GETSETELEM, t, *s, named, 1)
	b.AddFlags(unix.NLM_F_ACK)
	var raw []rawElem
	var failed error
	err := r.wire.sock.Exchange(&b.Batch, func(a netlink.Answer) bool {
		if a.Done() {
			if i, ok := b.Index(a); ok && a.Errno() != 0 && a.Errno() != unix.ENOENT {
				failed = &refusal{i, b.notes[i], a.Errno()}
			}
			return a.Seq == b.Last()
		}
		if _, body, ok := a.Netfilter(); ok && a.Kind&0xff == unix.NFT_MSG_NEWSETELEM {
			raw = appendElements(raw, body)
		}
		return false
	})
	s.Elements = joinRanges(*s, raw)
	s.Elements = slices.CompactFunc(s.Elements, func(a, b lang.Element) bool { return lang.CompareElements(a, b) == 0 })
	return errors.Join(failed, err)
}
