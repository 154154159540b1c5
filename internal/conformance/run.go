// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// workDir is where the kit's own things are: a directory that only its mount namespace has.
const workDir = "/run/weft-conformance"

// Config is a run's order.
type Config struct {
	BinDir  string
	Only    []string      // types; all that the directory has when empty
	List    *List         // whose plugins are judged as it configures them; nil: the types that the kit knows
	Items   []int         // all when empty
	Timeout time.Duration // of one call
	// Weft is the program whose callers are judged on the runtime's items; empty: they are left out.
	Weft string
	// Progress is told before each plugin; it may be nil.
	Progress func(judged string)
}

// kit is a run.
type kit struct {
	cfg      Config
	bin      string // the plugins, as they are executed
	programs map[string]*program
	lacking  map[string]string // link kinds that this kernel does not have, and what it says
	worlds   int
}

// Present are the types of a directory that the kit can judge.
func Present(dir string) ([]string, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, fmt.Errorf("plugin directory: %w", err)
	}
	return slices.DeleteFunc(Types(), func(typ string) bool { return !isProgram(filepath.Join(dir, typ)) }), nil
}

func isProgram(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// Run judges the plugins of a directory. It must run where Enter has led.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	k := &kit{cfg: cfg, bin: filepath.Join(workDir, "bin"), programs: map[string]*program{}, lacking: map[string]string{}}
	here := cfg
	here.BinDir = k.bin
	present, err := here.programs()
	if err != nil {
		return nil, err
	}
	for _, typ := range present {
		k.programs[typ] = &program{typ: typ, path: filepath.Join(k.bin, typ), timeout: cfg.Timeout, hung: map[string]int{}}
	}
	report := &Report{
		BinDir: cfg.BinDir, Kernel: kernel(), Speaks: map[string]string{}, Rows: []Row{}, Plugins: []string{},
	}
	for _, s := range cfg.chosen() {
		if k.programs[s.typ] == nil || len(cfg.Only) > 0 && !slices.Contains(cfg.Only, s.typ) {
			continue
		}
		k.progress(s.typ)
		rows, speaks := k.judge(ctx, s)
		report.Plugins = append(report.Plugins, s.typ)
		report.Speaks[s.typ] = speaks
		report.Rows = append(report.Rows, rows...)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	if cfg.Weft != "" {
		rows, err := k.judgeRuntime(ctx)
		if err != nil {
			return nil, err
		}
		report.Rows = append(report.Rows, rows...)
	}
	slices.SortStableFunc(report.Rows, func(a, b Row) int { return a.Number - b.Number })
	report.count()
	return report, ctx.Err()
}

func (k *kit) progress(judged string) {
	if k.cfg.Progress != nil {
		k.cfg.Progress(judged)
	}
}

// judge makes all checks on one plugin.
func (k *kit) judge(ctx context.Context, s *subject) ([]Row, string) {
	speaks := k.speaks(ctx, s)
	missing := k.missing(s)
	var rows []Row
	for _, j := range judgments() {
		if len(k.cfg.Items) > 0 && !slices.Contains(k.cfg.Items, j.item) || ctx.Err() != nil {
			continue
		}
		item := Items()[j.item-1]
		var v verdict
		switch why := without(j, s); {
		case why != "":
			v = notApplied("%s", why)
		case j.since > speaks:
			v = notApplied("it speaks versions up to %s; this came with %s", speaks, j.since)
		case missing != "" && !j.bare:
			v = unsupported("%s", missing)
		default:
			v = k.make(ctx, s, speaks, j)
		}
		rows = append(rows, Row{Item: item, Judged: s.typ, Outcome: v.outcome, Seen: v.seen})
	}
	return rows, speaks
}

func without(j judgment, s *subject) string {
	if j.without == nil {
		return ""
	}
	return j.without(s)
}

// make makes one check in a world of its own.
func (k *kit) make(ctx context.Context, s *subject, speaks string, j judgment) verdict {
	w, err := k.world(ctx, s, speaks)
	if err != nil {
		return unsupported("the kit's own world: %v", err)
	}
	defer w.close()
	return j.run(w)
}

// speaks is the highest version that the kit and the plugin know.
func (k *kit) speaks(ctx context.Context, s *subject) string {
	const otherwise = "1.0.0"
	w, err := k.world(ctx, s, otherwise)
	if err != nil {
		return otherwise
	}
	defer w.close()
	v, err := w.versions()
	best := ""
	for _, known := range known() {
		if err == nil && slices.Contains(v.Supported, known) {
			best = known
		}
	}
	if best == "" {
		return otherwise
	}
	return best
}

// world makes a node.
func (k *kit) world(ctx context.Context, s *subject, speaks string) (*world, error) {
	k.worlds++
	w := &world{
		ctx: ctx, kit: k, sub: s, prog: k.programs[s.typ], version: speaks, network: fmt.Sprintf("kit%d", k.worlds),
	}
	w.dir = filepath.Join(workDir, "worlds", w.network)
	if err := os.MkdirAll(w.data(), 0o755); err != nil {
		return nil, err
	}
	var err error
	if w.rec, err = newRecorder(filepath.Join(workDir, "recorders", w.network), recording); err != nil {
		return nil, err
	}
	if w.host, err = netns.New(filepath.Join(w.dir, "node")); err != nil {
		return nil, err
	}
	w.path = []string{k.bin, w.rec.bin()}
	if w.ipam, err = k.addresses(w); err != nil {
		w.close()
		return nil, err
	}
	err = w.host.Do(func() error {
		remountSys()
		return up("lo")
	})
	if err == nil && s.node != nil && k.missing(s) == "" {
		err = s.node(w)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// another makes a second world of the same kind.
func (w *world) another() (*world, error) { return w.kit.world(w.ctx, w.sub, w.version) }

// addresses come from the directory's own host-local where there is one, and otherwise from the recording plugin.
func (k *kit) addresses(w *world) (map[string]any, error) {
	if w.sub.ipam != nil {
		return listedAddresses(w, w.sub.ipam), nil
	}
	if k.programs[hostLocal] != nil {
		return hostLocalConf(w), nil
	}
	return recordedConf(w)
}

// missing tells what of a subject's needs this kernel lacks. It is found out by doing.
func (k *kit) missing(s *subject) string {
	for _, kind := range s.needs {
		why, known := k.lacking[kind]
		if !known {
			why = lacks(kind)
			k.lacking[kind] = why
		}
		if why != "" {
			return why
		}
	}
	return ""
}

func lacks(kind string) string {
	if kind == "tun" {
		f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
		if err != nil {
			return fmt.Sprintf("this kernel has no tap devices: %v", err)
		}
		_ = f.Close()
		return ""
	}
	ns, err := netns.Anonymous()
	if err != nil {
		return err.Error()
	}
	defer func() { _ = ns.Close() }()
	err = ns.Do(func() error {
		if err := pair("kitprobe0", "kitprobe1", nil); err != nil {
			return err
		}
		parent, err := netlink.LinkByName("kitprobe0")
		if err != nil {
			return err
		}
		return probe(kind, parent.Attrs().Index)
	})
	if err != nil {
		return fmt.Sprintf("this kernel has no %s links: %v", kind, err)
	}
	return ""
}

// probe makes a link of a kind.
func probe(kind string, parent int) error {
	a := netlink.NewLinkAttrs()
	a.Name = "kitprobe2"
	var l netlink.Link
	switch kind {
	case "veth":
		return nil // the parent is one
	case "bridge":
		l = &netlink.Bridge{LinkAttrs: a}
	case "dummy":
		l = &netlink.Dummy{LinkAttrs: a}
	case "vrf":
		l = &netlink.Vrf{LinkAttrs: a, Table: 1000}
	case "macvlan":
		a.ParentIndex = parent
		l = &netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE}
	case "ipvlan":
		a.ParentIndex = parent
		l = &netlink.IPVlan{LinkAttrs: a, Mode: netlink.IPVLAN_MODE_L2}
	case "vlan":
		a.ParentIndex = parent
		l = &netlink.Vlan{LinkAttrs: a, VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	}
	return netlink.LinkAdd(l)
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

func joinPath(dirs []string) string { return strings.Join(dirs, string(os.PathListSeparator)) }
