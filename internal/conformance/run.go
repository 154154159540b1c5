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

// workDir is the kit's directory, which exists only in its mount namespace.
const workDir = "/run/weft-conformance"

// Config configures Run.
type Config struct {
	BinDir  string
	Only    []string      // types; empty: all that the directory has
	List    *List         // plugins to test with their configuration; nil: all types that the kit knows
	Items   []int         // empty: all
	Timeout time.Duration // of one call
	// Weft is the program whose callers are tested on the runtime's items; empty skips them.
	Weft string
	// Progress is called before each subject; optional.
	Progress func(subject string)
}

// kit is the state of a run.
type kit struct {
	cfg             Config
	bin             string // directory of the plugins
	programs        map[string]*program
	missingFeatures map[string]string // why this kernel lacks a link kind; "" if it does not
	worlds          int
}

// Present returns the types in a directory that the kit can test.
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

// Run tests the plugins of a directory. It must run in the namespaces that Enter has prepared.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	k := &kit{
		cfg: cfg, bin: filepath.Join(workDir, "bin"), programs: map[string]*program{}, missingFeatures: map[string]string{},
	}
	inside := cfg
	inside.BinDir = k.bin
	present, err := inside.programs()
	if err != nil {
		return nil, err
	}
	for _, typ := range present {
		k.programs[typ] = &program{typ: typ, path: filepath.Join(k.bin, typ), timeout: cfg.Timeout, hangs: map[string]int{}}
	}
	report := &Report{
		BinDir: cfg.BinDir, Kernel: kernel(), Versions: map[string]string{}, Rows: []Row{}, Plugins: []string{},
	}
	for _, s := range cfg.subjects() {
		if k.programs[s.typ] == nil || len(cfg.Only) > 0 && !slices.Contains(cfg.Only, s.typ) {
			continue
		}
		k.progress(s.typ)
		rows, version := k.checkPlugin(ctx, s)
		report.Plugins = append(report.Plugins, s.typ)
		report.Versions[s.typ] = version
		report.Rows = append(report.Rows, rows...)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	if cfg.Weft != "" {
		rows, err := k.checkRuntime(ctx)
		if err != nil {
			return nil, err
		}
		report.Rows = append(report.Rows, rows...)
	}
	slices.SortStableFunc(report.Rows, func(a, b Row) int { return a.Number - b.Number })
	report.countTotals()
	return report, ctx.Err()
}

func (k *kit) progress(subject string) {
	if k.cfg.Progress != nil {
		k.cfg.Progress(subject)
	}
}

// checkPlugin runs all checks on one plugin.
func (k *kit) checkPlugin(ctx context.Context, s *subject) ([]Row, string) {
	version := k.highestVersion(ctx, s)
	missing := k.missingFeature(s)
	var rows []Row
	for _, j := range itemChecks() {
		if len(k.cfg.Items) > 0 && !slices.Contains(k.cfg.Items, j.item) || ctx.Err() != nil {
			continue
		}
		item := Items()[j.item-1]
		var v verdict
		switch reason := without(j, s); {
		case reason != "":
			v = notApplied("%s", reason)
		case j.since > version:
			v = notApplied("it supports versions up to %s; the item requires %s", version, j.since)
		case missing != "" && !j.noKernelNeeds:
			v = unsupported("%s", missing)
		default:
			v = k.runCheck(ctx, s, version, j)
		}
		rows = append(rows, Row{Item: item, Subject: s.typ, Outcome: v.outcome, Seen: v.seen})
	}
	return rows, version
}

func without(j itemCheck, s *subject) string {
	if j.notApplicable == nil {
		return ""
	}
	return j.notApplicable(s)
}

// runCheck runs one check in a new world.
func (k *kit) runCheck(ctx context.Context, s *subject, version string, j itemCheck) verdict {
	w, err := k.world(ctx, s, version)
	if err != nil {
		return unsupported("setup: %v", err)
	}
	defer w.close()
	return j.run(w)
}

// highestVersion returns the highest version that the kit and the plugin support.
func (k *kit) highestVersion(ctx context.Context, s *subject) string {
	const fallback = "1.0.0"
	w, err := k.world(ctx, s, fallback)
	if err != nil {
		return fallback
	}
	defer w.close()
	v, err := w.versions()
	best := ""
	for _, known := range specVersions() {
		if err == nil && slices.Contains(v.Supported, known) {
			best = known
		}
	}
	if best == "" {
		return fallback
	}
	return best
}

// world creates a node.
func (k *kit) world(ctx context.Context, s *subject, version string) (*world, error) {
	k.worlds++
	w := &world{
		ctx: ctx, kit: k, sub: s, prog: k.programs[s.typ], version: version, network: fmt.Sprintf("kit%d", k.worlds),
	}
	w.dir = filepath.Join(workDir, "worlds", w.network)
	if err := os.MkdirAll(w.data(), 0o755); err != nil {
		return nil, err
	}
	var err error
	if w.rec, err = newRecorder(filepath.Join(workDir, "recorders", w.network), recorderType); err != nil {
		return nil, err
	}
	if w.host, err = netns.New(filepath.Join(w.dir, "node")); err != nil {
		return nil, err
	}
	w.path = []string{k.bin, w.rec.bin()}
	if w.ipam, err = k.ipamConf(w); err != nil {
		w.close()
		return nil, err
	}
	err = w.host.Do(func() error {
		remountSys()
		return setUpLink("lo")
	})
	if err == nil && s.prepareNode != nil && k.missingFeature(s) == "" {
		err = s.prepareNode(w)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// sibling creates another world with the same subject and version.
func (w *world) sibling() (*world, error) { return w.kit.world(w.ctx, w.sub, w.version) }

// ipamConf returns the IPAM configuration: host-local if the directory has it, the recording plugin otherwise.
func (k *kit) ipamConf(w *world) (map[string]any, error) {
	if w.sub.ipam != nil {
		return listIPAM(w, w.sub.ipam), nil
	}
	if k.programs[hostLocal] != nil {
		return hostLocalIPAM(w), nil
	}
	return recorderIPAM(w)
}

// missingFeature returns why this kernel lacks a feature that the subject requires; "" if it does not. It tries to use
// them.
func (k *kit) missingFeature(s *subject) string {
	for _, kind := range s.needs {
		reason, known := k.missingFeatures[kind]
		if !known {
			reason = probeFeature(kind)
			k.missingFeatures[kind] = reason
		}
		if reason != "" {
			return reason
		}
	}
	return ""
}

func probeFeature(kind string) string {
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
		if err := addVeth("kitprobe0", "kitprobe1", nil); err != nil {
			return err
		}
		parent, err := netlink.LinkByName("kitprobe0")
		if err != nil {
			return err
		}
		return addProbeLink(kind, parent.Attrs().Index)
	})
	if err != nil {
		return fmt.Sprintf("this kernel has no %s links: %v", kind, err)
	}
	return ""
}

// addProbeLink creates a link of a kind.
func addProbeLink(kind string, parent int) error {
	a := netlink.NewLinkAttrs()
	a.Name = "kitprobe2"
	var l netlink.Link
	switch kind {
	case "veth":
		return nil // the parent is a veth
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
