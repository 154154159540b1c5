// SPDX-License-Identifier: Apache-2.0

// Package fastpath keeps the fast path of a node's established flows (kernel/fastpath) as network.fastPath says: which way
// it takes, its links, when flows have to be learned again, and the setting of conntrack that eBPF needs.
//
// Flows are learned again after each change that the kernel notifies of: transactions of nftables, routes, rules of routing,
// addresses, links; and after connections were ended. Rules of the legacy iptables are not notified of: they count from
// the next packet that takes the slow path, after at most 20 seconds.
//
// The fast path rests while a trace runs, and that of eBPF while the kernel counts the packets of connections
// (nf_conntrack_acct, of observe.level flows): its packets are not counted.
package fastpath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// The values of network.fastPath.
const (
	Off       = "off"
	EBPF      = "ebpf"
	Flowtable = "flowtable"
	Auto      = "auto" // the first one of EBPF and Flowtable that the kernel has
)

// Liberal is the setting by which conntrack accepts TCP packets outside of the window that it has seen.
const Liberal = "net/netfilter/nf_conntrack_tcp_be_liberal"

const (
	accounting = "net/netfilter/nf_conntrack_acct"

	// interval is how often a packet of each flow takes the slow path, or a third of the shortest timeout of conntrack that
	// can apply to such a flow.
	interval = 20 * time.Second
	part     = 3

	// check is how often settings are read. quiet is how long no link and no attachment must change before programs are
	// attached to links, for each of which the kernel stops all other changes of links for some milliseconds.
	check, quiet = time.Second, time.Second
	// renew is how often the links are compared without a notification.
	renew = 10 * time.Second
)

// timeouts are the timeouts of conntrack in seconds that can apply to flows of the fast path.
func timeouts() (tcp, udp []string) {
	const prefix = "net/netfilter/nf_conntrack_"
	return []string{prefix + "tcp_timeout_established", prefix + "tcp_timeout_unacknowledged", prefix + "tcp_timeout_max_retrans"},
		[]string{prefix + "udp_timeout", prefix + "udp_timeout_stream"}
}

// Records are the attachments of this node.
type Records interface {
	List() ([]attach.Record, error)
	// Version changes with the records.
	Version() uint64
}

// Settings are the recorded settings of the node before weft changed them.
type Settings interface {
	Keep(name, value string) error
	Kept(name string) (value string, kept bool)
	Forget(name string) error
}

// Config configures a FastPath.
type Config struct {
	// Mode is network.fastPath.
	Mode string
	// NS is the node's namespace; nil is the process's own.
	NS      *netns.NS
	Host    *kernel.Conn
	Records Records
	// Topology returns the mesh in force; nil: there is none.
	Topology func() (mesh.Topology, error)
	// Settings records the setting of conntrack; nil: it cannot be recorded, and there is no fast path.
	Settings Settings
	Log      *slog.Logger
	After    func(time.Duration) <-chan time.Time
}

// Status is the state of the fast path.
type Status struct {
	// Mode is network.fastPath; Used is whether established flows take the fast path, and Reason why not. Way is EBPF or
	// Flowtable, empty if there is neither, and Lacks why Auto has not taken an earlier one.
	Mode   string `json:"mode"`
	Used   bool   `json:"used"`
	Reason string `json:"reason,omitempty"`
	Way    string `json:"way,omitempty"`
	Lacks  string `json:"lacks,omitempty"`
	// Links are the links of the path, and Left those that are none, with the reason.
	Links []string `json:"links,omitempty"`
	Left  []string `json:"left,omitempty"`
	// Liberal: conntrack accepts all TCP packets of connections (nf_conntrack_tcp_be_liberal), for the fast path.
	Liberal bool `json:"liberal,omitempty"`
	// Packets and Bytes of the fast path, by eBPF; Learned counts how often flows were learned.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Learned uint64 `json:"learned"`
}

// path is a fast path by eBPF or by a flowtable.
type path interface {
	Set(ctx context.Context, all []fastpath.Link) ([]fastpath.Left, error)
	Enable(on bool, tcp, udp time.Duration) error
	Flush() error
	Links() []string
	Counters() (fastpath.Counters, error)
	Close() error
}

// FastPath keeps the fast path of a node.
type FastPath struct {
	cfg Config
	log *slog.Logger

	mu   sync.Mutex
	path path // nil while there is none
	// way, lacks, and the port of the socket by which the path changes rules (0: none) stay as load has set them.
	way, lacks string
	port       uint32

	holds  int
	want   enabled // by the settings
	is     enabled // in the kernel
	reason string
	left   []string
}

// enabled is the argument of Enable.
type enabled struct {
	on       bool
	tcp, udp time.Duration
}

// New returns a FastPath, which does nothing before Run.
func New(c Config) *FastPath {
	f := &FastPath{cfg: c, log: c.Log.With("component", "fastpath"), reason: "network.fastPath is off"}
	if c.Mode != Off {
		f.reason = "the agent has just started"
	}
	return f
}

// Status returns the state.
func (f *FastPath) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Mode: f.cfg.Mode, Used: f.path != nil && f.is.on, Left: f.left}
	if f.cfg.Settings != nil {
		_, s.Liberal = f.cfg.Settings.Kept(Liberal)
	}
	if !s.Used {
		s.Reason = f.reason
	}
	if f.path == nil {
		return s
	}
	s.Way, s.Lacks, s.Links = f.way, f.lacks, f.path.Links()
	if c, err := f.path.Counters(); err == nil {
		s.Packets, s.Bytes, s.Learned = c.Packets, c.Bytes, c.Learned
	}
	return s
}

// Flush makes all flows be learned again, after connections were ended.
func (f *FastPath) Flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flushLocked()
}

func (f *FastPath) flushLocked() {
	if f.path == nil {
		return
	}
	if err := f.path.Flush(); err != nil {
		f.log.Error("flows could not be taken from the fast path, which ends", "err", err)
		f.endLocked("flows could not be taken from it: " + err.Error())
	}
}

// endLocked removes the path.
func (f *FastPath) endLocked(why string) {
	if f.path == nil {
		return
	}
	if err := f.path.Close(); err != nil {
		f.log.Error("programs of the fast path could not be removed", "err", err)
	}
	f.path, f.is, f.reason = nil, enabled{}, why
}

// Hold makes all packets take the slow path until release is called.
func (f *FastPath) Hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holds++
	f.enableLocked()
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.holds--
		f.enableLocked()
	})
}

// enableLocked makes the programs redirect or not.
func (f *FastPath) enableLocked() {
	want := f.want
	if f.holds > 0 {
		want.on, f.reason = false, "a trace is running"
	}
	if f.path == nil || want == f.is {
		return
	}
	if err := f.path.Enable(want.on, want.tcp, want.udp); err != nil {
		f.log.Error("fast path could not be changed and ends", "err", err)
		f.endLocked(err.Error())
		return
	}
	f.is = want
}

// Run keeps the fast path until ctx ends. Without one of eBPF, it restores the setting of conntrack.
func (f *FastPath) Run(ctx context.Context) error {
	files := sysctl.New(f.cfg.NS)
	defer files.Close()
	if f.cfg.Mode != Off {
		err := f.load()
		if err == nil {
			defer func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.endLocked("the agent stops")
			}()
			if f.way != EBPF {
				f.logRestore(files)
			}
			return f.keep(ctx, files)
		}
		f.mu.Lock()
		f.reason = err.Error()
		f.mu.Unlock()
		f.log.Warn("there is no fast path for established flows; all packets take the ordinary path",
			"fastPath", f.cfg.Mode, "err", err)
	}
	f.logRestore(files)
	return nil
}

func (f *FastPath) logRestore(files *sysctl.Files) {
	if err := f.restore(files); err != nil {
		f.log.Warn("setting of conntrack could not be restored", "setting", Liberal, "err", err)
	}
}

// load loads the path that the mode says, or the first one that the kernel has.
func (f *FastPath) load() error {
	ways := []string{f.cfg.Mode}
	if f.cfg.Mode == Auto {
		ways = []string{EBPF, Flowtable}
	}
	var lacks []string
	for _, way := range ways {
		p, port, err := f.loadWay(way)
		if err != nil {
			if f.cfg.Mode == Auto {
				err = fmt.Errorf("%s: %w", way, err)
			}
			lacks = append(lacks, err.Error())
			continue
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.path, f.way, f.port, f.lacks = p, way, port, strings.Join(lacks, "; ")
		return nil
	}
	return errors.New(strings.Join(lacks, "; "))
}

func (f *FastPath) loadWay(way string) (p path, port uint32, err error) {
	if way == Flowtable {
		t, err := fastpath.LoadFlowtable(f.cfg.NS)
		if err != nil {
			return nil, 0, err
		}
		if port, err = t.Port(); err != nil {
			return nil, 0, errors.Join(err, t.Close())
		}
		return t, port, nil
	}
	if f.cfg.Settings == nil {
		return nil, 0, errors.New("the previous setting of conntrack cannot be recorded")
	}
	e, err := fastpath.Load(f.cfg.NS)
	if err != nil {
		return nil, 0, err
	}
	return e, 0, nil
}

// restore restores the setting of conntrack if an earlier agent has changed it. Connections that may have used the fast path
// keep it: conntrack does not know their window.
func (f *FastPath) restore(files *sysctl.Files) error {
	if f.cfg.Settings == nil {
		return nil
	}
	value, kept := f.cfg.Settings.Kept(Liberal)
	if !kept {
		return nil
	}
	tracked, err := f.cfg.Host.ListConntrack(func(c state.Connection) bool { return true })
	if err == nil {
		err = f.cfg.Host.SetTCPLiberal(tracked)
	}
	if err == nil {
		err = files.Write([]sysctl.Pair{{Name: Liberal, Value: value, IfPresent: true}})
	}
	if err != nil {
		return err
	}
	return f.cfg.Settings.Forget(Liberal)
}

// keep follows changes.
func (f *FastPath) keep(ctx context.Context, files *sysctl.Files) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := watch.Events(ctx, f.cfg.NS, func(e watch.Event) bool { return e.Kind != watch.Neigh })
	if err != nil {
		return fmt.Errorf("fast path: %w", err)
	}
	rules := make(chan struct{}, 1)
	ended, err := watch.Changes(ctx, f.cfg.NS, watch.Scope{}, func(c watch.Change) {
		if c.Kind == watch.Rule || c.Kind == watch.Queue || c.Kind == watch.Setting || c.Kind == watch.Lost {
			select {
			case rules <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return fmt.Errorf("fast path: %w", err)
	}
	commits, err := watch.Commits(ctx, f.cfg.NS, f.port)
	if err != nil {
		return fmt.Errorf("fast path: %w", err)
	}
	defer func() {
		cancel()
		<-ended
	}()
	l := loop{f: f, files: files, due: f.cfg.After(0)}
	l.settings()
	tick, again := f.cfg.After(check), f.cfg.After(renew)
	var empty <-chan time.Time
	if f.way == Flowtable { // its flows would outlive rules that are not notified of
		empty = f.cfg.After(interval)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			return notNotified(ctx)
		case _, open := <-commits:
			if !open {
				return notNotified(ctx)
			}
			f.Flush()
			if f.way == Flowtable { // a guest may have begun to use another MAC address
				l.due = f.cfg.After(0)
			}
		case _, open := <-events:
			if !open {
				return notNotified(ctx)
			}
			f.Flush()
			l.due = f.cfg.After(quiet)
		case <-rules:
			f.Flush()
			l.due = f.cfg.After(quiet)
		case <-tick:
			tick = f.cfg.After(check)
			l.settings()
			if v := f.cfg.Records.Version(); v != l.version {
				l.version, l.due = v, f.cfg.After(quiet)
			}
		case <-again:
			again = f.cfg.After(renew)
			if l.due == nil {
				l.due = f.cfg.After(0)
			}
		case <-empty:
			empty = f.cfg.After(interval)
			f.Flush()
		case <-l.due:
			l.due = nil
			l.links(ctx)
		}
	}
}

// notNotified ends the fast path: without the kernel's notifications flows would outlive the rules that allowed them.
func notNotified(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("fast path: the kernel's notifications have ended")
}

// loop is the state of keep.
type loop struct {
	f       *FastPath
	files   *sysctl.Files
	due     <-chan time.Time // the links are to be compared
	version uint64           // of the records
	logged  string
}

// settings reads the settings of the kernel, sets the one that the path needs, and decides whether packets are redirected.
func (l *loop) settings() {
	want, why := l.decide()
	f := l.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.want = want
	if why != "" {
		f.reason = why
	}
	f.enableLocked()
	if why != l.logged {
		f.log.Info("fast path for established flows", "used", want.on, "reason", why)
		l.logged = why
	}
}

func (l *loop) decide() (want enabled, why string) {
	if l.f.way == Flowtable { // the kernel counts its packets, keeps the timeouts and accepts those outside of the window
		return enabled{on: true}, ""
	}
	tcp, udp := timeouts()
	values, err := l.files.Read(slices.Concat([]string{Liberal, accounting}, tcp, udp))
	if err != nil {
		return want, "settings of conntrack: " + err.Error()
	}
	shortest := func(names []string) time.Duration {
		out := interval
		for _, name := range names {
			if seconds, err := strconv.Atoi(values[name].Text); err == nil && !values[name].Missing {
				out = min(out, time.Duration(seconds)*time.Second/part)
			}
		}
		return out
	}
	want = enabled{tcp: shortest(tcp), udp: shortest(udp)}
	if v := values[accounting]; !v.Missing && v.Text == "1" {
		return want, "net.netfilter.nf_conntrack_acct is 1: the packets of connections are counted"
	}
	if v := values[Liberal]; !v.Missing && v.Text != "1" {
		if err := l.f.cfg.Settings.Keep(Liberal, v.Text); err != nil {
			return want, err.Error()
		}
		if err := l.files.Write([]sysctl.Pair{{Name: Liberal, Value: "1", IfPresent: true}}); err != nil {
			return want, err.Error()
		}
	}
	want.on = true
	return want, ""
}

// links makes the links of the path those of the routed pods and those to other nodes.
func (l *loop) links(ctx context.Context) {
	f := l.f
	all, err := f.all(ctx)
	f.mu.Lock()
	path := f.path
	f.mu.Unlock()
	if path == nil {
		return
	}
	var left []fastpath.Left
	if err == nil {
		left, err = path.Set(ctx, all)
	}
	if err != nil && ctx.Err() == nil {
		f.log.Warn("links of the fast path could not be changed", "err", err)
		l.due = f.cfg.After(renew)
	}
	var texts []string
	for _, one := range left {
		texts = append(texts, one.Name+": "+one.Why.Error())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = texts
}

// all returns the links as they should be. Without a link to other nodes, flows within the node are learned alone.
func (f *FastPath) all(ctx context.Context) ([]fastpath.Link, error) {
	records, err := f.cfg.Records.List()
	if err != nil {
		return nil, fmt.Errorf("attachments: %w", err)
	}
	out := pods(records)
	if f.way == Flowtable {
		macs, err := f.guarded(ctx)
		if err != nil {
			return nil, err
		}
		for i, l := range out {
			out[i].MACs = macs[l.Name]
		}
	}
	if f.cfg.Topology == nil {
		return out, nil
	}
	t, err := f.cfg.Topology()
	if err != nil {
		return out, nil // the cluster is not known yet
	}
	for _, name := range uplinks(t) {
		out = append(out, fastpath.Link{Name: name, How: fastpath.ToNeighbor})
	}
	return out, nil
}

// pods returns the links of routed pods and of guests, without those whose packets are limited by rules. Limits by a queueing
// discipline at a pod's link are seen when it is attached. When a VM moves, its routes change on all nodes, and flows are
// learned again.
func pods(records []attach.Record) []fastpath.Link {
	var out []fastpath.Link
	for _, r := range records {
		e, ok := r.Endpoint()
		if !ok || r.Stage != attach.Done || e.Standby || e.Point() != model.PointHost || len(e.Addrs) == 0 {
			continue
		}
		f := r.Fragment()
		i := slices.IndexFunc(f.Host.Links, func(l state.Link) bool { return l.Name == e.HostLink })
		if i < 0 || counted(f.Host.Tables) {
			continue
		}
		how := fastpath.ToPeer
		switch f.Host.Links[i].Kind {
		case state.Veth:
		case state.Tap:
			how = fastpath.ToTap
		default:
			continue
		}
		out = append(out, fastpath.Link{Name: e.HostLink, How: how, Addrs: e.Addrs})
	}
	return out
}

// guarded returns the MAC addresses that the source guard permits at each link, those of guests included.
func (f *FastPath) guarded(ctx context.Context) (map[string][]string, error) {
	have, err := f.cfg.Host.Read(ctx, state.Space{Tables: []state.Table{{Family: "inet", Name: plugin.SourceTable}}})
	if err != nil {
		return nil, fmt.Errorf("source guard: %w", err)
	}
	out := map[string][]string{}
	for _, t := range have.Tables {
		for _, s := range t.Sets {
			for _, e := range s.Elements {
				if len(e.Key) < 2 {
					continue
				}
				link := strings.Trim(e.Key[0], `"`)
				if at, found := slices.BinarySearch(out[link], e.Key[1]); !found {
					out[link] = slices.Insert(out[link], at, e.Key[1])
				}
			}
		}
	}
	return out, nil
}

// counted reports whether tables have elements that count or limit packets: each packet must pass them.
func counted(tables []state.Table) bool {
	return slices.ContainsFunc(tables, func(t state.Table) bool {
		return slices.ContainsFunc(t.Sets, func(s state.Set) bool {
			return slices.ContainsFunc(s.Elements, func(e state.Element) bool { return e.Stateful != "" })
		})
	})
}

// uplinks returns the links of routes to other nodes, and the devices of VXLANs: links with Ethernet headers.
func uplinks(t mesh.Topology) []string {
	ethernet := map[string]bool{}
	for _, u := range t.Underlay {
		ethernet[u.Link] = true
	}
	for _, l := range t.Node.Host.Links {
		if l.VXLAN != nil {
			ethernet[l.Name] = true
		}
	}
	var out []string
	for _, p := range t.Peers {
		for _, r := range p.Routes() {
			if ethernet[r.Link] && !slices.Contains(out, r.Link) {
				out = append(out, r.Link)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Text is the state in words.
func (s Status) Text() string {
	if !s.Used {
		return s.Mode + ", not used: " + s.Reason
	}
	return fmt.Sprintf("%s at %d links (%s)", s.Mode, len(s.Links), strings.Join(s.Links, ", "))
}
