// SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// FlowTable is the name of the nftables tables of a Flowtable, of the families inet and netdev.
const FlowTable = "weft-flows"

// Flowtable is a fast path by the kernel's own flowtables of nftables, in a network namespace. It is safe for concurrent
// use.
//
// The kernel puts a flow into it when packets of both directions have passed everything that could stop them, up to the
// end of the hook postrouting, and takes it out when the connection closes, its entry of conntrack is deleted, a route that
// it uses changes, or it was idle for 30 seconds. It leaves alone flows that are translated, and packets that have options
// or extension headers, are fragments, or exceed the MTU.
//
// Its tables belong to its socket: no other program can change them, and they end with the process.
type Flowtable struct {
	reader *reader.Reader
	links  *rtnl.Socket
	nft    *nft.Conn

	mu    sync.Mutex
	on    bool
	there bool           // the tables exist
	at    map[string]int // the devices, with their indexes
	macs  map[string][]string
}

// LoadFlowtable returns a Flowtable for a namespace (nil: the process's own), which does nothing without Set and Enable. An
// error says what the kernel lacks.
func LoadFlowtable(ns *netns.NS) (_ *Flowtable, err error) {
	if err := deletable(); err != nil {
		return nil, err
	}
	f := &Flowtable{at: map[string]int{}, macs: map[string][]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if f.links, err = rtnl.Open(ns); err != nil {
		return f, err
	}
	f.reader = reader.New(f.links)
	if f.nft, err = nft.Dial(ns); err != nil {
		return f, err
	}
	return f, f.probe()
}

// deletable returns an error if conntrack entries cannot be deleted while their flows are in a flowtable.
func deletable() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("version of the kernel: %w", err)
	}
	release, major, minor := unix.ByteSliceToString(u.Release[:]), 0, 0
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("version %q of the kernel: %w", release, err)
	}
	if major < 6 || major == 6 && minor < 4 {
		return fmt.Errorf("connections in a flowtable cannot be ended before Linux 6.4, this is %s", release)
	}
	return nil
}

// probe makes the tables without devices, and removes them.
func (f *Flowtable) probe() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = true
	err := f.replaceLocked()
	f.on = false
	if err == nil {
		return f.replaceLocked()
	}
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("this kernel has no flowtables (modules nf_flow_table_inet and nft_flow_offload): %w", unix.ENOENT)
	}
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the tables %s are another process's, or CAP_NET_ADMIN is missing: %w", FlowTable, unix.EPERM)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = errors.Join(err, nft.ErrNoOwner)
	}
	return fmt.Errorf("flowtable: %w", err)
}

// replaceLocked makes the tables new, or removes them; either takes all flows out of the flowtable.
func (f *Flowtable) replaceLocked() error {
	ctx := context.Background()
	if !f.on {
		if !f.there {
			return nil
		}
		err := f.nft.Remove(ctx, flowTables(nil, nil))
		f.there = err != nil
		return err
	}
	for {
		err := f.nft.Replace(ctx, flowTables(slices.Sorted(maps.Keys(f.at)), f.macs)...)
		f.there = f.there || err == nil
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		// A device that was deleted since Set, whose name may be another one's by now.
		found, err2 := f.reader.LinksByName(ctx, slices.Collect(maps.Keys(f.at)))
		if err2 != nil {
			return errors.Join(err, err2)
		}
		before := len(f.at)
		maps.DeleteFunc(f.at, func(name string, index int) bool { return found[name].Dead() || found[name].Index != index })
		if len(f.at) == before {
			return err
		}
	}
}

// flowTables are the tables for devices, and the MAC addresses of the pods at some of them.
func flowTables(devices []string, macs map[string][]string) []state.Table {
	links := state.Set{Name: "links", Key: "ifname"}
	guards := state.Table{Family: "netdev", Name: FlowTable, Volatile: true}
	for i, name := range devices {
		links.Elements = append(links.Elements, state.Element{Key: []string{name}})
		if len(macs[name]) > 0 {
			var rules []state.NftRule
			for _, mac := range macs[name] {
				rules = append(rules, state.NftRule{Text: "ether saddr " + mac + " accept"})
			}
			for _, protocol := range []string{"tcp", "udp"} {
				rules = append(rules, state.NftRule{Text: "meta l4proto " + protocol + " counter drop"})
			}
			guards.Chains = append(guards.Chains, state.Chain{
				Name: fmt.Sprintf("guard%d", i), Type: "filter", Hook: "ingress", Device: name, Priority: -1, Rules: rules,
			})
		}
	}
	seen := func(name string) state.Set { return state.Set{Name: name, Key: "mark", DynamicSize: 1 << 15} }
	// A flow whose packets are stopped in one direction is not put into the flowtable, though those of the other one pass:
	// rules of others need no conntrack.
	return []state.Table{guards, {
		Family: "inet", Name: FlowTable, Volatile: true, Flowtables: []state.Flowtable{{Name: "flows", Devices: devices}},
		Sets: []state.Set{links, seen("sent"), seen("answered")},
		Chains: []state.Chain{
			{Name: "forward", Type: "filter", Hook: "forward", Priority: math.MaxInt32, Rules: []state.NftRule{
				{Text: "iifname != @links accept"},
				{Text: "oifname != @links accept"},
				{Text: "ct status snat,dnat accept"},
				{Text: "meta mark != 0x00000000 accept"},
				{Text: "ct id @sent ct id @answered flow add @flows"},
			}},
			{Name: "postrouting", Type: "filter", Hook: "postrouting", Priority: math.MaxInt32 - 1, Rules: []state.NftRule{
				{Text: "iifname != @links accept"},
				{Text: "oifname != @links accept"},
				{Text: "ct status snat,dnat accept"},
				{Text: "meta mark != 0x00000000 accept"},
				{Text: "ct direction original ct state established update @sent { ct id timeout 20s } accept"},
				{Text: "ct direction reply ct state established update @answered { ct id timeout 20s }"},
			}},
		},
	}}
}

// Port returns the port of the socket that makes the tables, which identifies their changes in the kernel's
// notifications.
func (f *Flowtable) Port() (uint32, error) { return f.nft.Port() }

// Close removes the tables.
func (f *Flowtable) Close() error {
	var errs []error
	if f.nft != nil {
		errs = append(errs, f.nft.Close())
	}
	if f.links != nil {
		errs = append(errs, f.links.Close())
	}
	return errors.Join(errs...)
}

// Enable begins or ends the use of the fast path. The kernel keeps the timeouts of conntrack itself, so the intervals have
// no effect.
func (f *Flowtable) Enable(on bool, _, _ time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = on
	return f.replaceLocked()
}

// Flush makes all flows take the slow path until the kernel puts them into the flowtable again.
func (f *Flowtable) Flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.replaceLocked()
}

// Set makes these the links of the fast path, and returns those that do not exist. Qdiscs and filters of links apply to
// packets of the fast path, too. On an error the links are those of before.
func (f *Flowtable) Set(ctx context.Context, all []Link) (left []Left, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
	}
	found, err := f.reader.LinksByName(ctx, names)
	if err != nil {
		return nil, err
	}
	at, macs := map[string]int{}, map[string][]string{}
	for _, l := range all {
		have, ok := found[l.Name]
		if !ok || have.Dead() {
			left = append(left, Left{l.Name, errors.New("it does not exist")})
			continue
		}
		at[l.Name], macs[l.Name] = have.Index, l.MACs
	}
	if maps.Equal(at, f.at) && maps.EqualFunc(macs, f.macs, slices.Equal) {
		return left, nil
	}
	before, macsBefore := maps.Clone(f.at), f.macs
	f.at, f.macs = at, macs
	if err := f.replaceLocked(); err != nil {
		f.at, f.macs = before, macsBefore
		return left, fmt.Errorf("links of the flowtable: %w", err)
	}
	return left, nil
}

// Links returns the names of the links of the path, sorted.
func (f *Flowtable) Links() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(f.at))))
}

// Counters returns no counts: the kernel counts these packets as packets of their connections only.
func (*Flowtable) Counters() (Counters, error) { return Counters{}, nil }
