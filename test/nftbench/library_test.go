// SPDX-License-Identifier: Apache-2.0

package nftbench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/mdlayher/netlink"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// library is a driver based on google/nftables: lang compiles, the library sends and reads, and a separate socket reads
// the generation, which the library's batches do not support.
type library struct {
	conn  *nftables.Conn
	guard *netlink.Conn
}

func dialLibrary(tb testing.TB, ns *netns.NS) *library {
	tb.Helper()
	const buffer = 16 << 20 // as kernel/nft's: acknowledgments of a large transaction would not fit
	conn, err := nftables.New(nftables.WithNetNSFd(ns.Fd()), nftables.AsLasting(),
		nftables.WithSockOptions(func(c *netlink.Conn) error {
			return errors.Join(c.SetReadBuffer(buffer), c.SetWriteBuffer(buffer))
		}))
	if err != nil {
		tb.Fatal(err)
	}
	guard, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = conn.CloseLasting(), guard.Close() })
	return &library{conn, guard}
}

// generation returns the ruleset's generation.
func (l *library) generation() (uint32, error) {
	answers, err := l.guard.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil || len(answers) == 0 {
		return 0, fmt.Errorf("generation: %d answers: %w", len(answers), err)
	}
	ad, err := netlink.NewAttributeDecoder(answers[0].Data[4:])
	if err != nil {
		return 0, err
	}
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		if ad.Type() == unix.NFTA_GEN_ID {
			return ad.Uint32(), ad.Err()
		}
	}
	return 0, errors.New("an answer without a generation")
}

// guarded flushes what f adds, and returns an error if another program changed the ruleset meanwhile.
func (l *library) guarded(f func() error) error {
	before, err := l.generation()
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	if err := l.conn.Flush(); err != nil {
		return err
	}
	after, err := l.generation()
	if err == nil && after != before+1 {
		err = fmt.Errorf("generation %d, then %d", before, after)
	}
	return err
}

// add adds sets with their elements, and chains with their rules, of a compiled table; with whole also the table.
func (l *library) add(t *lang.Table, whole bool) error {
	table := &nftables.Table{Family: nftables.TableFamily(t.Family), Name: t.Name}
	if whole {
		l.conn.AddTable(table)
	}
	sets := make([]*nftables.Set, len(t.Sets))
	for i, s := range t.Sets {
		sets[i] = l.set(table, s)
		if whole {
			sets[i].ID = uint32(i + 1)
			if err := l.conn.AddSet(sets[i], nil); err != nil {
				return err
			}
		}
	}
	chains := make([]*nftables.Chain, len(t.Chains))
	for i, c := range t.Chains {
		chains[i] = &nftables.Chain{Name: c.Name, Table: table}
		if c.Hook != "" {
			n, err := lang.HookNumber(t.Family, c.Hook)
			if err != nil {
				return err
			}
			hook, priority, policy := nftables.ChainHook(n), nftables.ChainPriority(c.Priority), nftables.ChainPolicyAccept
			chains[i].Hooknum, chains[i].Priority, chains[i].Type, chains[i].Policy = &hook, &priority,
				nftables.ChainType(c.Type), &policy
		}
		l.conn.AddChain(chains[i])
	}
	for i, s := range t.Sets { // their verdicts refer to the chains
		elements := make([]nftables.SetElement, len(s.Elements))
		for k, e := range s.Elements {
			elements[k] = element(s, e)
		}
		if err := l.conn.SetAddElements(sets[i], elements); err != nil {
			return err
		}
	}
	for i, c := range t.Chains {
		for _, r := range c.Rules {
			rule := &nftables.Rule{Table: table, Chain: chains[i]}
			if r.Comment != "" {
				rule.UserData = userdata.AppendString(nil, userdata.TypeComment, r.Comment)
			}
			for _, e := range r.Exprs {
				one, err := expression(e)
				if err != nil {
					return err
				}
				rule.Exprs = append(rule.Exprs, one)
			}
			l.conn.AddRule(rule)
		}
	}
	return nil
}

func (l *library) set(table *nftables.Table, s lang.Set) *nftables.Set {
	set := &nftables.Set{
		Table: table, Name: s.Name, IsMap: s.IsMap, Interval: s.Interval, KeyByteOrder: binaryutil.BigEndian,
	}
	set.KeyType = datatype(s.Source.Key)
	set.Concatenation = strings.Contains(s.Source.Key, " . ")
	switch {
	case s.Verdicts:
		set.DataType = nftables.TypeVerdict
	case s.IsMap:
		set.DataType = datatype(s.Source.Data)
	}
	return set
}

func datatype(name string) nftables.SetDatatype {
	known := map[string]nftables.SetDatatype{
		"ipv4_addr": nftables.TypeIPAddr, "ipv6_addr": nftables.TypeIP6Addr, "inet_service": nftables.TypeInetService,
		"inet_proto": nftables.TypeInetProto,
	}
	var parts []nftables.SetDatatype
	for part := range strings.SplitSeq(name, " . ") {
		parts = append(parts, known[part])
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return nftables.MustConcatSetType(parts...)
}

func element(s lang.Set, e lang.Element) nftables.SetElement {
	out := nftables.SetElement{Key: e.Key, Val: e.Data, Comment: e.Comment}
	if s.Interval {
		out.KeyEnd = e.KeyEnd
	}
	if e.Verdict != nil {
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictKind(e.Verdict.Code), Chain: e.Verdict.Chain}
	}
	return out
}

// expression converts the expressions that occur in these tables to the library's types.
func expression(e lang.Expr) (expr.Any, error) {
	dreg, sreg := uint32(0), uint32(0)
	if e.Dreg != 0 {
		dreg = e.Dreg.Number()
	}
	if e.Sreg != 0 {
		sreg = e.Sreg.Number()
	}
	switch e.Name {
	case "meta":
		return &expr.Meta{Key: expr.MetaKey(e.Key), Register: dreg}, nil
	case "ct":
		return &expr.Ct{Key: expr.CtKey(e.Key), Register: dreg}, nil
	case "payload":
		return &expr.Payload{DestRegister: dreg, Base: expr.PayloadBase(e.Key), Offset: e.Offset, Len: e.Size}, nil
	case "cmp":
		return &expr.Cmp{Op: expr.CmpOp(e.Key), Register: sreg, Data: e.Data}, nil
	case "bitwise":
		return &expr.Bitwise{SourceRegister: sreg, DestRegister: dreg, Len: e.Size, Mask: e.Data, Xor: e.More}, nil
	case "lookup":
		return &expr.Lookup{
			SourceRegister: sreg, DestRegister: dreg, IsDestRegSet: dreg != 0 || e.Dreg != 0, SetName: e.Set,
			Invert: e.Flags != 0,
		}, nil
	case "immediate":
		if e.Verdict == nil {
			return &expr.Immediate{Register: dreg, Data: e.Data}, nil
		}
		return &expr.Verdict{Kind: expr.VerdictKind(e.Verdict.Code), Chain: e.Verdict.Chain}, nil
	case "masq":
		return &expr.Masq{}, nil
	case "counter":
		return &expr.Counter{}, nil
	}
	return nil, fmt.Errorf("expression %s: no form of the library's here", e.Name)
}

// apply writes a whole table, or adds the named parts of one.
func (l *library) apply(in state.Table, whole bool) error {
	compiled, err := lang.Compile([]state.Table{in})
	if err != nil {
		return err
	}
	t := compiled[0]
	if !whole { // sets and chains exist
		t.Chains = nil
	}
	return l.guarded(func() error { return l.add(t, whole) })
}

// change adds a chain and elements that jump to it.
func (l *library) change(in state.TableChange) error {
	t, err := lang.CompilePart(state.Table{Family: in.Family, Name: in.Name, Chains: in.AddChains}, true)
	if err != nil {
		return err
	}
	if err := l.add(t, false); err != nil {
		return err
	}
	for _, s := range in.AddElements {
		compiled, err := lang.CompileSet(s)
		if err != nil {
			return err
		}
		t.Sets, t.Chains = append(t.Sets, compiled), nil
	}
	if err := l.add(t, false); err != nil {
		return err
	}
	return l.conn.Flush()
}

// read reads a whole table and checks the generation.
func (l *library) read(family byte, name string) (sets, elements, rules int, err error) {
	before, err := l.generation()
	if err != nil {
		return 0, 0, 0, err
	}
	table, err := l.conn.ListTableOfFamily(name, nftables.TableFamily(family))
	if err != nil {
		return 0, 0, 0, err
	}
	all, err := l.conn.GetSets(table)
	if err != nil {
		return 0, 0, 0, err
	}
	for _, s := range all {
		found, err := l.conn.GetSetElements(s)
		if err != nil {
			return 0, 0, 0, err
		}
		sets, elements = sets+1, elements+len(found)
	}
	chains, err := l.conn.ListChainsOfTableFamily(nftables.TableFamily(family))
	if err != nil {
		return 0, 0, 0, err
	}
	for _, c := range chains {
		if c.Table.Name != name {
			continue
		}
		found, err := l.conn.GetRules(table, c)
		if err != nil {
			return 0, 0, 0, err
		}
		rules += len(found)
	}
	after, err := l.generation()
	if err == nil && after != before {
		err = fmt.Errorf("generation %d, then %d", before, after)
	}
	return sets, elements, rules, err
}

func (l *library) drop(family byte, name string) error {
	l.conn.DelTable(&nftables.Table{Family: nftables.TableFamily(family), Name: name})
	return l.conn.Flush()
}
