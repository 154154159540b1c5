// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/tc"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Names of the floors in a report: what a call takes if weft itself takes no time. FloorAgent is weft-cni with an agent
// that makes a pod's links, addresses, routes and rate limits in one batch for each namespace, and does nothing else: it
// neither reads nor records anything. FloorStandalone is an empty Go program in the place of each plugin.
const (
	FloorAgent      = "floor-agent"
	FloorStandalone = "floor-standalone"
)

// WithFloors appends the floor of each form of weft that is measured. empty is an empty static Go program; without one
// there is no floor of standalone plugins.
func WithFloors(impls []Impl, chain Chain, empty string) []Impl {
	all := slices.Clone(impls)
	for _, i := range impls {
		switch {
		case i.Peer:
		case i.Agent != "" && (chain.begins("bridge") || chain.begins("ptp")):
			all = append(all, Impl{Name: FloorAgent, BinDir: i.BinDir, Floor: true})
		case i.Agent == "" && empty != "":
			all = append(all, Impl{Name: FloorStandalone, BinDir: i.BinDir, Floor: true, Program: empty})
		}
	}
	return all
}

// floorBridge is the bridge of the floor's node.
const floorBridge = "cni0"

// floor is the agent of FloorAgent.
type floor struct {
	node     *netns.NS
	host     *rtnl.Socket
	conn     *kernel.Conn
	reaper   *kernel.Reaper
	listener *net.UnixListener
	shaped   bool // the chain limits rates
	bridge   int  // index of the bridge, 0: the pods' links are routed
	uplink   int  // index of the master of additional networks
	networks int  // number of additional networks
	running  sync.WaitGroup
	stop     context.CancelFunc

	mu   sync.Mutex
	pods int
	ends map[string]int // index of the node's end, by container
}

// floorIndex is the first index of the floor's links. Each pod has podIndexes.
const floorIndex, podIndexes = 1 << 20, 64

// startFloor serves the calls of weft-cni on a socket.
func startFloor(ctx context.Context, node *netns.NS, chain Chain, socket string) (f *floor, err error) {
	f = &floor{node: node, shaped: chain.has("bandwidth"), networks: chain.extra, ends: map[string]int{}}
	ctx, f.stop = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			f.close()
			err = fmt.Errorf("floor: %w", err)
		}
	}()
	if f.host, err = rtnl.Open(node); err != nil {
		return f, err
	}
	if f.conn, err = kernel.Dial(node); err != nil {
		return f, err
	}
	if err = node.Do(func() error { return f.prepare(chain) }); err != nil {
		return f, err
	}
	if f.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"}); err != nil {
		return f, err
	}
	f.reaper = kernel.NewReaper(f.conn, slog.New(slog.DiscardHandler))
	f.running.Go(func() { _ = f.reaper.Run(ctx) })
	f.running.Go(func() { f.serve(ctx) })
	return f, nil
}

// prepare makes what the pods share, in the calling thread's namespace.
func (f *floor) prepare(chain Chain) error {
	if f.networks > 0 {
		l, err := netlink.LinkByName(uplink)
		if err != nil {
			return err
		}
		f.uplink = l.Attrs().Index
	}
	if !chain.begins("bridge") {
		return nil
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: floorBridge}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return err
	}
	f.bridge = bridge.Index
	return errors.Join(netlink.LinkSetUp(bridge),
		netlink.AddrAdd(bridge, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(floorAddr(0, 0).Prev(), 16))}))
}

func (f *floor) close() {
	f.stop()
	if f.listener != nil {
		_ = f.listener.Close()
	}
	f.running.Wait()
	if f.host != nil {
		_ = f.host.Close()
	}
	if f.conn != nil {
		_ = f.conn.Close()
	}
}

func (f *floor) serve(ctx context.Context) {
	for {
		c, err := f.listener.AcceptUnix()
		if err != nil {
			return
		}
		f.running.Go(func() {
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // close waits for each call
			exit, out := 0, []byte("{\"cniVersion\":\"1.0.0\"}\n")
			if err := f.call(ctx, c); err != nil {
				exit, out = 1, fmt.Appendf(nil, `{"code":999,"msg":%q}`, err)
			}
			_, _ = c.Write(wire.AppendAnswer(nil, exit, out))
		})
	}
}

// call reads one call and does it.
func (f *floor) call(ctx context.Context, c *net.UnixConn) error {
	r, fds, err := readRequest(c)
	if err != nil {
		closeFDs(fds)
		return err
	}
	switch id := r.Getenv("CNI_CONTAINERID"); r.Getenv("CNI_COMMAND") {
	case "ADD":
		if len(fds) == 1 {
			return f.add(ctx, id, fds[0])
		}
		err = errors.New("the call lacks the descriptor of its namespace")
	case "DEL":
		err = f.del(ctx, id)
	}
	closeFDs(fds)
	return err
}

// add makes the objects of a pod in three writes: all links, what is in the pod, and the node's end. It closes fd.
func (f *floor) add(ctx context.Context, id string, fd int) (err error) {
	pod, err := netns.FromFD(fd, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pod.Close()) }()
	f.mu.Lock()
	n := f.pods
	f.pods++
	f.mu.Unlock()
	end := floorIndex + n*podIndexes
	veth, eth0 := state.Link{Name: fmt.Sprint("floor", n), Kind: state.Veth}, state.Link{Name: "eth0", Kind: state.Veth}
	links := []*rtnl.Message{link.Create(veth, end, f.bridge, &eth0, end+1, fd)}
	inPod := f.configure(eth0.Name, end+1, netip.PrefixFrom(floorAddr(0, n), 16))
	for i := range f.networks {
		l := state.Link{Name: fmt.Sprint("net", i+1), Kind: state.Macvlan, Macvlan: &state.MacvlanAttrs{Mode: "bridge"}}
		links = append(links, link.CreateOnParent(l, end+2+i, 0, f.uplink, fd))
		inPod = append(inPod, f.configure(l.Name, end+2+i, netip.PrefixFrom(floorAddr(i+1, n), 16))...)
	}
	toNode := state.Route{Link: eth0.Name, Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
	inPod = append(inPod, link.AddRoute(toNode, end+1))
	onNode := []*rtnl.Message{link.SetUp(end, veth.Name, true)}
	if f.bridge == 0 {
		toPod := state.Route{Link: veth.Name, Dst: netip.PrefixFrom(floorAddr(0, n), 32)}
		onNode = append(onNode, link.AddRoute(toPod, end))
	}
	if f.shaped {
		const rate, burst = 12_500_000, 1_000_000
		tbf := state.Qdisc{Kind: state.TBF, Rate: rate, Burst: burst, Limit: burst}
		inPod = append(tc.Set(tbf, end+1, 0), inPod...)
		onNode = append(tc.Set(tbf, end, 0), onNode...)
	}
	if err := f.host.Send(ctx, links); err != nil {
		return err
	}
	f.mu.Lock()
	f.ends[id] = end
	f.mu.Unlock()
	sock, err := rtnl.Open(pod)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sock.Close()) }()
	if err := sock.Send(ctx, inPod); err != nil {
		return err
	}
	return f.host.Send(ctx, onNode)
}

// configure returns the requests for a link's address, and for bringing it up.
func (f *floor) configure(name string, index int, addr netip.Prefix) []*rtnl.Message {
	return []*rtnl.Message{link.AddAddr(state.Addr{Link: name, Prefix: addr}, index), link.SetUp(index, name, true)}
}

// del takes the node's end down and leaves it to the reaper. The pod's links are deleted with its namespace.
func (f *floor) del(ctx context.Context, id string) error {
	f.mu.Lock()
	end, ok := f.ends[id]
	delete(f.ends, id)
	f.mu.Unlock()
	if !ok {
		return nil
	}
	group := uint32(kernel.ReaperGroup)
	err := f.host.Send(ctx, []*rtnl.Message{link.Set(end, id, link.Change{Up: state.Off(), Group: &group})})
	f.reaper.Kick()
	return err
}

// floorAddr returns the address of pod n in a network.
func floorAddr(network, n int) netip.Addr {
	n += 2
	return netip.AddrFrom4([4]byte{10, byte(100 + network), byte(n >> 8), byte(n)})
}
