// SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/tc"
	"github.com/weft-net/weft/internal/netns"
)

// How is how packets are redirected to a link.
type How uint32

// The values are those of the programs.
const (
	// ToNeighbor sends packets to the neighbor of the route: the link leads to other nodes.
	ToNeighbor How = 1
	// ToPeer passes packets to the other end of a veth pair, in a pod.
	ToPeer How = 2
	// ToTap sends packets over the tap of a guest.
	ToTap How = 3
)

// Link is a link of the path.
type Link struct {
	Name string
	How  How
	// Addrs are the addresses of the pod or guest of a link ToPeer or ToTap.
	Addrs []netip.Addr
	// MACs are those of the pod or guest. A Flowtable drops packets of others from the link, unless there are none.
	MACs []string
}

// Left is a link that was left out of the path, and why.
type Left struct {
	Name string
	Why  error
}

// Counters are counts since the programs were loaded.
type Counters struct {
	// Packets and Bytes of the fast path, of the packets as the kernel has them: it merges those of a connection.
	Packets, Bytes uint64
	// Learned counts how often a flow was learned, also again.
	Learned uint64
}

// settings is the C structure of that name.
type settings struct {
	IntervalTCP, IntervalUDP uint64 // nanoseconds
	Generation, Enabled      uint32
}

// counters is the C structure of that name.
type counters struct{ Packets, Bytes, Learned uint64 }

// Path is a fast path of one network namespace. It is safe for concurrent use.
type Path struct {
	ns     *netns.NS
	socket *rtnl.Socket
	reader *reader.Reader

	in, out                               *ebpf.Program
	settings, links, owners, flows, count *ebpf.Map

	mu       sync.Mutex
	current  settings
	attached map[int]*attached // by the link's index
	owned    map[[16]byte]uint32
}

// attached are the programs of one link.
type attached struct {
	name    string
	how     How
	in, out link.Link
}

func (a *attached) close() error {
	var errs []error
	for _, l := range []link.Link{a.in, a.out} {
		if l == nil {
			continue
		}
		if err := l.Close(); err != nil && !errors.Is(err, unix.ENOLINK) { // the network interface is gone
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Load loads the programs for a namespace (nil: the process's own). Without Set and Enable they do nothing. An error says
// what the kernel lacks.
func Load(ns *netns.NS) (_ *Path, err error) {
	p := &Path{ns: ns, attached: map[int]*attached{}, owned: map[[16]byte]uint32{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	for i, m := range mapSpecs() {
		if *p.places()[i], err = ebpf.NewMap(&m); err != nil {
			return p, fmt.Errorf("eBPF map %s (CAP_BPF): %w", m.Name, err)
		}
	}
	if p.in, err = p.program(nameIn, codeIn, ebpf.AttachTCXIngress); err != nil {
		return p, err
	}
	if p.out, err = p.program(nameOut, codeOut, ebpf.AttachTCXEgress); err != nil {
		return p, err
	}
	if p.socket, err = rtnl.Open(ns); err != nil {
		return p, err
	}
	p.reader = reader.New(p.socket)
	return p, p.probe()
}

// probe attaches a program to the loopback interface for a moment, where it has nothing to do.
func (p *Path) probe() error {
	return p.do(func() error {
		const loopback = 1
		l, err := link.AttachTCX(link.TCXOptions{Interface: loopback, Program: p.in, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return fmt.Errorf("attach to tcx (Linux 6.6): %w", err)
		}
		return l.Close()
	})
}

func (p *Path) do(f func() error) error {
	if p.ns == nil {
		return f()
	}
	return p.ns.Do(f)
}

// Close detaches the programs and removes them.
func (p *Path) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for index, a := range p.attached {
		errs = append(errs, a.close())
		delete(p.attached, index)
	}
	for _, program := range []*ebpf.Program{p.in, p.out} {
		if program != nil {
			errs = append(errs, program.Close())
		}
	}
	for _, m := range p.places() {
		if *m != nil {
			errs = append(errs, (*m).Close())
		}
	}
	if p.socket != nil {
		errs = append(errs, p.socket.Close())
		p.socket = nil
	}
	return errors.Join(errs...)
}

// Enable begins or ends redirecting. One packet of a flow takes the slow path in each interval.
func (p *Path) Enable(on bool, tcp, udp time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current.IntervalTCP, p.current.IntervalUDP, p.current.Enabled = uint64(tcp), uint64(udp), 0
	if on {
		p.current.Enabled = 1
	}
	return p.flushLocked()
}

// Flush makes all flows take the slow path until they are learned again.
func (p *Path) Flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flushLocked()
}

func (p *Path) flushLocked() error {
	p.current.Generation++
	if err := p.settings.Update(uint32(0), p.current, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("settings of the fast path: %w", err)
	}
	return nil
}

// Counters returns the counts until now.
func (p *Path) Counters() (Counters, error) {
	var each []counters
	if err := p.count.Lookup(uint32(0), &each); err != nil {
		return Counters{}, fmt.Errorf("counters of the fast path: %w", err)
	}
	var out Counters
	for _, c := range each {
		out.Packets, out.Bytes, out.Learned = out.Packets+c.Packets, out.Bytes+c.Bytes, out.Learned+c.Learned
	}
	return out, nil
}

// Set makes these the links of the path, and returns those of them that were left out: a missing one, one with other
// filters, and a pod's with a qdisc, whose limits the path would bypass. Attaching waits for an RCU grace period, during
// which no other link can be changed.
func (p *Path) Set(ctx context.Context, all []Link) (left []Left, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
	}
	found, err := p.reader.LinksByName(ctx, names)
	if err != nil {
		return nil, err
	}
	want, owned := map[int]Link{}, map[[16]byte]uint32{}
	for _, l := range all {
		f, ok := found[l.Name]
		if !ok || f.Dead() {
			left = append(left, Left{l.Name, errors.New("it does not exist")})
			continue
		}
		if why := p.usable(ctx, f.Index, l.How); why != nil {
			left = append(left, Left{l.Name, why})
			continue
		}
		want[f.Index] = l
		for _, a := range l.Addrs {
			owned[a.As16()] = uint32(f.Index)
		}
	}
	var errs []error
	for index, have := range p.attached {
		if w, ok := want[index]; !ok || w.How != have.how || w.Name != have.name {
			errs = append(errs, p.detachLocked(index))
		}
	}
	errs = append(errs, p.setOwnersLocked(owned))
	for index, l := range want {
		if p.attached[index] == nil && ctx.Err() == nil {
			errs = append(errs, p.attachLocked(index, l))
		}
	}
	return left, errors.Join(append(errs, p.flushLocked())...)
}

// usable returns an error if there is something on a link that packets of the path would bypass.
func (p *Path) usable(ctx context.Context, index int, how How) error {
	q, err := p.reader.Queues(ctx, index, false)
	if err != nil {
		return err
	}
	if how == ToPeer && q.Root != nil && q.Root.Handle != 0 {
		return fmt.Errorf("it has a queueing discipline (%s), which the fast path would bypass", q.Root.Kind)
	}
	for direction, name := range map[uint32]string{tc.Arriving: "arriving", tc.Leaving: "leaving"} {
		if direction == tc.Leaving && how != ToPeer {
			continue // they apply: these packets are queued as others
		}
		filtered := false
		if err := p.socket.Dump(ctx, tc.ListDirection(index, direction), func([]byte) { filtered = true }); err != nil {
			return err
		}
		if filtered {
			return fmt.Errorf("it has filters of %s packets, which the fast path would bypass", name)
		}
	}
	return nil
}

// setOwnersLocked makes owned the pods' addresses. An address is removed before it is another link's.
func (p *Path) setOwnersLocked(owned map[[16]byte]uint32) error {
	var errs []error
	for a, index := range p.owned {
		if owned[a] == index {
			continue
		}
		if err := p.owners.Delete(a); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("address of the fast path: %w", err))
			continue
		}
		delete(p.owned, a)
	}
	for a, index := range owned {
		if p.owned[a] == index {
			continue
		}
		if err := p.owners.Update(a, index, ebpf.UpdateAny); err != nil {
			errs = append(errs, fmt.Errorf("address of the fast path: %w", err))
			continue
		}
		p.owned[a] = index
	}
	return errors.Join(errs...)
}

// attachLocked attaches both programs, or none.
func (p *Path) attachLocked(index int, l Link) error {
	if err := p.links.Update(uint32(index), uint32(l.How), ebpf.UpdateAny); err != nil {
		return fmt.Errorf("link %s: %w", l.Name, err)
	}
	a := &attached{name: l.Name, how: l.How}
	err := p.do(func() (err error) {
		a.out, err = link.AttachTCX(link.TCXOptions{
			Interface: index, Program: p.out, Attach: ebpf.AttachTCXEgress, Anchor: link.Tail(),
		})
		if err != nil {
			a.out = nil
			return err
		}
		a.in, err = link.AttachTCX(link.TCXOptions{
			Interface: index, Program: p.in, Attach: ebpf.AttachTCXIngress, Anchor: link.Tail(),
		})
		if err != nil {
			a.in = nil
		}
		return err
	})
	if err == nil {
		p.attached[index] = a
		return nil
	}
	err = errors.Join(err, a.close())
	if errors.Is(err, unix.ENODEV) { // it was deleted meanwhile
		err = nil
	}
	if e := p.links.Delete(uint32(index)); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
		err = errors.Join(err, e)
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", l.Name, err)
	}
	return nil
}

func (p *Path) detachLocked(index int) error {
	a := p.attached[index]
	err := p.links.Delete(uint32(index))
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	err = errors.Join(err, a.close())
	delete(p.attached, index)
	if err != nil {
		return fmt.Errorf("link %s: %w", a.name, err)
	}
	return nil
}

// Links returns the names of the links of the path, sorted.
func (p *Path) Links() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []string{}
	for _, a := range p.attached {
		out = append(out, a.name)
	}
	slices.Sort(out)
	return out
}
