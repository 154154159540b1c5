// SPDX-License-Identifier: Apache-2.0

// Package network attaches pods to their networks and takes them off again, through libcni, as a container runtime
// does: loopback first, then the default network.
package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/confdir"
	"github.com/weft-net/weft/internal/model"
)

// The interfaces of a pod.
const (
	IfLoopback = "lo"
	IfDefault  = "eth0"
)

// Attachment is what is asked of one network. It is written down before the network is asked, so that it can be taken
// back when the one who asked is dead.
type Attachment struct {
	IfName string          `json:"ifName"`
	List   json.RawMessage `json:"list"`
}

// Pod is a pod as its networks see it.
type Pod struct {
	ID    string // of the sandbox
	Netns string
	Args  [][2]string    // CNI_ARGS
	Caps  map[string]any // capability arguments; a plugin gets those that it declares
}

// Result is what the default network gave the pod.
type Result struct {
	IPs    []netip.Addr    `json:"ips,omitempty"`
	DNS    model.DNS       `json:"dns,omitzero"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Config is what a Plumber is made from.
type Config struct {
	BinDirs  []string
	CacheDir string
	Stderr   io.Writer         // of the plugins
	Step     func(name string) // a hook for fault tests; nil is fine
}

// Plumber executes networks. It is safe for concurrent use.
type Plumber struct {
	lib  *libcni.CNIConfig
	step func(string)
}

// New makes a Plumber.
func New(cfg Config) *Plumber {
	if cfg.Step == nil {
		cfg.Step = func(string) {}
	}
	return &Plumber{lib: NewLib(cfg.BinDirs, cfg.CacheDir, cfg.Stderr), step: cfg.Step}
}

// NewLib is libcni with a cache directory.
func NewLib(binDirs []string, cacheDir string, stderr io.Writer) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(binDirs, cacheDir, newExecutor(stderr))
}

// Validator asks lists whether they can be executed.
func (p *Plumber) Validator() confdir.Validator { return p.lib }

// Plan lists the attachments of a pod, in their order.
func Plan(s confdir.Snapshot) ([]Attachment, error) {
	if s.Problem != "" {
		return nil, model.Faultf(model.CodeNotAvailable, "put a network configuration into "+s.Dir,
			"network is not ready: %s", s.Problem)
	}
	return []Attachment{{IfLoopback, s.Loopback.Bytes}, {IfDefault, s.Default.Bytes}}, nil
}

// SetUpPod attaches the pod to its networks, one after the other. It stops at the first error and takes nothing back:
// that is TearDownPod's.
func (p *Plumber) SetUpPod(ctx context.Context, pod Pod, as []Attachment) (Result, error) {
	var out Result
	for _, a := range as {
		list, rt, err := p.prepare(pod, a)
		if err != nil {
			return out, err
		}
		r, err := p.lib.AddNetworkList(ctx, list, rt)
		if err != nil {
			return out, fmt.Errorf("network %s, interface %s: %w", list.Name, a.IfName, explain(err))
		}
		p.step("attached " + a.IfName)
		if a.IfName == IfLoopback {
			continue
		}
		if out, err = read(r); err != nil {
			return out, fmt.Errorf("network %s, interface %s: result: %w", list.Name, a.IfName, err)
		}
	}
	return out, nil
}

func (p *Plumber) prepare(pod Pod, a Attachment) (*libcni.NetworkConfigList, *libcni.RuntimeConf, error) {
	list, err := libcni.NetworkConfFromBytes(a.List)
	if err != nil {
		return nil, nil, fmt.Errorf("interface %s: %w", a.IfName, err)
	}
	return list, &libcni.RuntimeConf{
		ContainerID: pod.ID, NetNS: pod.Netns, IfName: a.IfName, Args: pod.Args, CapabilityArgs: pod.Caps,
	}, nil
}

// explain puts a plugin's details behind its message.
func explain(err error) error {
	var e *types.Error
	if errors.As(err, &e) && e.Details != "" {
		return fmt.Errorf("%w (code %d, %s)", err, e.Code, e.Details)
	}
	if errors.As(err, &e) {
		return fmt.Errorf("%w (code %d)", err, e.Code)
	}
	return err
}

func read(r types.Result) (Result, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return Result{}, err
	}
	m, err := cni.ParseResult(b)
	if err != nil {
		return Result{}, err
	}
	out := Result{DNS: m.DNS, Result: b}
	for _, ip := range m.IPs {
		if a := ip.Address.Addr(); !slices.Contains(out.IPs, a) {
			out.IPs = append(out.IPs, a)
		}
	}
	if len(out.IPs) == 0 {
		return out, errors.New("it has no address")
	}
	return out, nil
}

// TearDownPod takes the pod off its networks, in reverse order. It can be repeated; a namespace that is gone is no
// error. Every network is asked, all errors are reported. What the cache knows of an attachment goes before what a
// says.
func (p *Plumber) TearDownPod(ctx context.Context, pod Pod, as []Attachment) error {
	if _, err := os.Stat(pod.Netns); err != nil {
		pod.Netns = ""
	}
	var errs []error
	for _, a := range slices.Backward(as) {
		if err := p.detach(ctx, pod, a); err != nil {
			errs = append(errs, err)
		}
		p.step("detached " + a.IfName)
	}
	return errors.Join(errs...)
}

func (p *Plumber) detach(ctx context.Context, pod Pod, a Attachment) error {
	list, rt, err := p.prepare(pod, a)
	if err != nil {
		return err
	}
	list, rt = p.cached(list, rt)
	if err := p.lib.DelNetworkList(ctx, list, rt); err != nil {
		return fmt.Errorf("network %s, interface %s: %w", list.Name, a.IfName, explain(err))
	}
	return nil
}

// cached prefers the configuration that the attachment was made with.
func (p *Plumber) cached(
	list *libcni.NetworkConfigList, rt *libcni.RuntimeConf,
) (*libcni.NetworkConfigList, *libcni.RuntimeConf) {
	conf, old, err := p.lib.GetNetworkListCachedConfig(list, rt)
	if err != nil || conf == nil {
		return list, rt
	}
	then, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		return list, rt
	}
	return then, old
}

// Leftovers takes away attachments that the cache knows and that belong to namespaces below dir, but to no sandbox that
// live knows. Attachments of other callers that share the cache are left alone. It tells how many it took away.
func (p *Plumber) Leftovers(ctx context.Context, dir string, live func(id string) bool) (int, error) {
	all, err := p.lib.GetCachedAttachments("")
	if err != nil {
		return 0, fmt.Errorf("network cache: %w", err)
	}
	n := 0
	var errs []error
	for _, a := range all {
		if filepath.Dir(a.NetNS) != filepath.Clean(dir) || live(a.ContainerID) {
			continue
		}
		err := p.TearDownPod(ctx, Pod{ID: a.ContainerID, Netns: a.NetNS, Args: a.CniArgs, Caps: a.CapabilityArgs},
			[]Attachment{{a.IfName, a.Config}})
		if err != nil {
			errs = append(errs, fmt.Errorf("sandbox %s: %w", a.ContainerID, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// GC asks the network's plugins to take away what belongs to no attachment in the cache.
func (p *Plumber) GC(ctx context.Context, list *confdir.Network) error {
	if ok, err := version.GreaterThanOrEqualTo(list.CNIVersion, "1.1.0"); err != nil || !ok {
		return err
	}
	all, err := p.lib.GetCachedAttachments("")
	if err != nil {
		return fmt.Errorf("network cache: %w", err)
	}
	valid := []types.GCAttachment{}
	for _, a := range all {
		if a.Network == list.Name {
			valid = append(valid, types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName})
		}
	}
	return p.lib.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid})
}
