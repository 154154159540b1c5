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
	"log/slog"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/mesh"
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

// enough is how often a timeout of the flowtable must be in that of conntrack.
const enough = 2

// offloadTimeouts are the timeouts of a flowtable in seconds, each with that of conntrack from which the kernel subtracts it
// when a flow leaves the flowtable.
func offloadTimeouts() [][]string {
	const prefix = "net/netfilter/nf_"
	return [][]string{
		{prefix + "flowtable_tcp_timeout", prefix + "conntrack_tcp_timeout_established"},
		{prefix + "flowtable_udp_timeout", prefix + "conntrack_udp_timeout_stream"},
	}
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
